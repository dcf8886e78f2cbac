"""The threads of the CPU kernel by themselves, watched by a sanitizer where the compiler has one."""

import os
import subprocess
from pathlib import Path

import pytest

from meannet.fast import build

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
SANITIZED = ["-O1", "-g", "-fsanitize=thread"]


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = build.compiler()
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    made = tmp_path_factory.mktemp("team") / "team"
    source = Path(__file__).with_name("team.cpp")
    for flags in (SANITIZED, ["-O2"]):
        built = command(*compiler, "-std=c++17", "-pthread", *flags, source, "-o", made)
        # A sanitizer may not run on every kernel; one thread shows that, and cannot have a race.
        if built.returncode == 0 and command(made, 1, 1).returncode == 0:
            return made
    pytest.fail(built.stderr)


@pytest.mark.parametrize("threads", sorted({1, 2, 3, 7, CORES}))
def test_each_part_is_done_once_and_after_the_loop_before(program, threads):
    done = command(program, threads, 3000)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 wrong\n", "")

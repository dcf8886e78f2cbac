"""Compile the CPU kernel (update.cpp) into a shared library beside it; where no compiler is, say so and go on without.

Run by the package's build (`hatch_build.py`); uses the standard library only.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LIBRARY = "update.so"
FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-Wno-psabi",
]
X86_SETS = {
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma"],
}


def compiler() -> list[str] | None:
    """The C++ compiler that CXX names, which may have words before or after it, or the first of the usual ones."""
    named = shlex.split(os.environ.get("CXX", ""))
    candidates = [named] if named else [["c++"], ["g++"], ["clang++"]]
    return next(([found, *words[1:]] for words in candidates if (found := shutil.which(words[0]))), None)


def build(target: Path = HERE / LIBRARY) -> str:
    """Make the library; returns why there is none, or an empty string. One that was there before does not stay."""
    target.unlink(missing_ok=True)
    cxx = compiler()
    if cxx is None:
        return "no C++ compiler was found"
    x86 = platform.machine().lower() in ("x86_64", "amd64") and sysconfig.get_platform().rpartition("-")[2] != "i686"
    with tempfile.TemporaryDirectory() as folder:
        return _build(cxx, Path(folder), target, x86)


def _build(cxx: list[str], folder: Path, target: Path, x86: bool) -> str:
    common = [*cxx, *FLAGS]
    # The plain object stands first: of functions that several define, as those of std::vector, the linker takes the
    # first one's, and every processor must be able to run it.
    jobs = [("plain", HERE / "update.cpp", ["-DINSTRUCTION_SET=plain"])]
    jobs += [
        (name, HERE / "update.cpp", [f"-DINSTRUCTION_SET={name}", *flags]) for name, flags in X86_SETS.items() if x86
    ]
    jobs += [
        (
            "dispatch",
            HERE / "dispatch.cpp",
            ["-DWITH_X86_VECTORS", "-fvisibility=default"] if x86 else ["-fvisibility=default"],
        )
    ]
    objects = []
    for name, source, flags in jobs:
        objects.append(folder / f"{name}.o")
        done = subprocess.run(
            [*common, *flags, "-c", source, "-o", objects[-1]], capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"{shlex.join(cxx)} could not compile {source.name}: {_said(done)[0]}"
    made = folder / LIBRARY
    done = subprocess.run([*common, "-shared", *objects, "-o", made], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{shlex.join(cxx)} could not link the kernel: {_said(done)[-1]}"
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(made, fresh)
    fresh.replace(target)
    return ""


def _said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return done.stderr.strip().splitlines() or ["no message"]


if __name__ == "__main__":
    failed = build()
    print(f"the plain path will be used: {failed}" if failed else f"built {HERE / LIBRARY}", file=sys.stderr)

"""Processors that this process may use, against what the system's files say."""

import math

import pytest

from meannet.cores import cores, quota
from meannet.fast.cpu import threads


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cpu.max": "400000 100000", "slice/job/cpu.max": "max 100000", "slice/cpu.max": "200000 100000"}, 2.0),
        ({"cpu/slice/cpu.cfs_quota_us": "100000\n", "cpu/slice/cpu.cfs_period_us": "100000\n"}, 1.0),
        ({"other/cpu.max": "100000 100000"}, math.inf),
        ({}, math.inf),
    ],
)
def test_a_control_group_of_either_version_limits_threads_and_workers(files, cpus, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text("0::/slice/job\n4:cpu,cpuacct:/slice/job\n3:memory:/other\n")
    assert quota(tmp_path, tmp_path / "own") == cpus
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)), raising=False)
    monkeypatch.setattr("meannet.cores.quota", lambda: cpus)
    threads.cache_clear()
    assert threads() == cores() == min(3, int(min(cpus, 99)))
    threads.cache_clear()

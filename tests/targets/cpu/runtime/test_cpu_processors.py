"""How many processors there are for this process, and by what they are known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from targets.cpu.machine import machine_of
from targets.cpu.runtime.processors import processor_facts, thread_count, usable_cores


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def system(root: Path, groups: str, **files: str) -> str:
    """A system with these control groups; `a__b="x"` is the file a/b of /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name.replace("_max", ".max").replace("cpu_cfs", "cpu.cfs")).write_text(
            text)
    return str(root)


NEW, OLD = "0::/a/b\n", "3:memory:/x\n2:cpu,cpuacct:/docker/1\n1:name=systemd:/\n"


@pytest.mark.parametrize(("groups", "files", "cores"), [
    (NEW, {}, 8),
    (NEW, {"a__b__cpu_max": "max 100000\n"}, 8),
    (NEW, {"a__b__cpu_max": "300000 100000\n"}, 3),
    (NEW, {"a__b__cpu_max": "250000 100000\n"}, 2),
    (NEW, {"a__b__cpu_max": "50000 100000\n"}, 1),
    (NEW, {"a__b__cpu_max": "6000 1000", "a__cpu_max": "4000 1000"}, 4),  # the group around it
    (NEW, {"cpu_max": "200000 100000"}, 2),  # in a container its own group lies at the top
    (NEW, {"a__b__cpu_max": "9900000 100000\n"}, 8),  # more than the affinity allows
    (NEW, {"unified__a__b__cpu_max": "200000 100000"}, 2),
    (OLD, {}, 8),
    (OLD, {"cpu,cpuacct__docker__1__cpu_cfs_quota_us": "-1\n",
           "cpu,cpuacct__docker__1__cpu_cfs_period_us": "100000\n"}, 8),
    (OLD, {"cpu,cpuacct__docker__1__cpu_cfs_quota_us": "350000\n",
           "cpu,cpuacct__docker__1__cpu_cfs_period_us": "100000\n"}, 3),
    (OLD, {"cpu__cpu_cfs_quota_us": "200000\n", "cpu__cpu_cfs_period_us": "100000\n"}, 2),
    ("1:cpuset:/\n", {"cpu_max": "200000 100000"}, 8),
])
def test_control_groups(tmp_path: Path, groups: str, files: dict[str, str], cores: int) -> None:
    assert usable_cores(system(tmp_path, groups, **files)) == cores


def test_a_system_that_tells_nothing(tmp_path: Path) -> None:
    assert usable_cores(str(tmp_path)) == 8


@pytest.mark.parametrize(("ours", "openmp", "count"), [
    ("", "", None), ("3", "", 3), ("", "4", 4), ("3", "4", 3), ("", "4,2", 4), ("x", "5", 5),
    ("0", "", None), ("12", "", 12)])
def test_the_environment(
    monkeypatch: pytest.MonkeyPatch, ours: str, openmp: str, count: int | None
) -> None:
    monkeypatch.setenv("STRATA_NUM_THREADS", ours)
    monkeypatch.setenv("OMP_NUM_THREADS", openmp)
    assert thread_count(None) == (usable_cores() if count is None else count)
    assert thread_count(5) == 5


def test_affinity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 7})
    assert usable_cores(str(tmp_path)) == 2


def test_the_facts_name_the_features() -> None:
    facts = processor_facts()
    assert facts is not None and "MHz" not in facts
    if machine_of().is_x86:
        vectors = {f for f in machine_of().features if f.startswith("avx")}
        assert vectors <= set(facts.replace("_", "").split())
    assert facts == processor_facts()

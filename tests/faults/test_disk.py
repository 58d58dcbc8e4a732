"""A disk that is full, read-only or missing: the answer is right, and one warning says why."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.options import cache_root
from compiler.programs.cache_state import cache_state
from tests import processes
from tests.faults.models import ROOT, Bench, X, save_model

Log = pytest.LogCaptureFixture


def warnings(log: Log) -> list[str]:
    return [r.getMessage() for r in log.records if r.levelno >= logging.WARNING]


def _refuse(number: int) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))
    return refuse


@pytest.mark.parametrize(("call", "number"), [
    ("replace", errno.ENOSPC), ("replace", errno.EROFS), ("fdopen", errno.EIO)])
def test_writing_that_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: Log, call: str, number: int
) -> None:
    """At any step of it. Nothing is left behind, and what is there stays."""
    with monkeypatch.context() as broken:
        broken.setattr(os, call, _refuse(number))
        for _ in range(3):
            bench.check()
    told = warnings(caplog)
    assert 1 <= len(told) <= 2  # the folder of object code, and that of models
    assert all(os.strerror(number) in text and "not kept" in text for text in told)
    assert not [p for p in bench.cache.rglob("*") if p.is_file()]
    bench.check()
    assert bench.entry.is_file()


def test_a_folder_that_is_a_file(bench: Bench, caplog: Log) -> None:
    bench.cache.write_text("mine")
    for _ in range(3):
        bench.check()
    assert bench.cache.read_text() == "mine"
    assert len(warnings(caplog)) <= 2 and "there is a file where" in warnings(caplog)[0]


def test_a_folder_that_others_can_write_to(bench: Bench, caplog: Log) -> None:
    bench.check()
    (bench.cache / "programs").chmod(0o777)
    for _ in range(3):
        bench.check()
    [told] = warnings(caplog)
    assert "other users can write to it" in told
    assert bench.compiled == 4


def test_without_a_cache_nothing_is_told(bench: Bench, caplog: Log) -> None:
    bench.check(cache="off")
    bench.check(cache=None)
    assert not warnings(caplog)


# ---------------------------------------------------------------------- real file systems
@contextmanager
def mounted(folder: Path, *options: str) -> Generator[None]:
    """A file system of memory, where this user may mount one."""
    folder.mkdir(exist_ok=True)
    if os.geteuid() or processes.run(
            ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)],
            capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield
    finally:
        processes.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(bench: Bench, caplog: Log) -> None:
    save_model(bench.model, width=30_000)  # 960 KB of weights
    with mounted(bench.cache, "size=256k"):
        for _ in range(2):
            np.testing.assert_array_equal(
                bench.compile()(X)[0], np.full((2, 30_000), 8, np.float32))
        assert not bench.files("entries") and not list(bench.cache.rglob("*.part"))
    assert [text for text in warnings(caplog) if "No space left" in text]
    assert len(warnings(caplog)) <= 2


def test_a_disk_that_is_read_only(bench: Bench, caplog: Log) -> None:
    """What it holds is used; what it does not hold cannot be kept."""
    with mounted(bench.cache, "size=16m"):
        bench.check()
        processes.run(["mount", "-o", "remount,ro", str(bench.cache)], check=True)
        bench.check()
        assert bench.compiled == 1 and not warnings(caplog)
        bench.model = save_model(bench.folder / "other.onnx", 2.0)
        bench.check(2.0)
        bench.check(2.0)
    assert 1 <= len(warnings(caplog)) <= 2
    assert "Read-only file system" in warnings(caplog)[0]


def test_outputs_on_a_full_disk(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file that a command writes: an error, and never half of one."""
    save_model(bench.model, width=30_000)
    folder = bench.folder / "full"
    common = [str(bench.model), "--cache", "off", "--target", "reference"]
    with mounted(folder, "size=64k"):
        (folder / "y.npz").write_text("before")
        for words in (["run", *common, "-o", str(folder / "y.npz"), "--dim", "n=9"],
                      ["lower", *common, "--dump-dir", str(folder / "dumps")]):
            assert main(words) == 1, words
            assert "No space left on device" in capsys.readouterr().err
        assert (folder / "y.npz").read_text() == "before"
        assert not list(folder.rglob("*.part"))


# ---------------------------------------------------------------------- where the cache is
def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRATA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root("default") == str(tmp_path / ".cache" / "strata" / "code")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the specification has ignored
    assert cache_root("default") == str(tmp_path / ".cache" / "strata" / "code")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_root("default") == str(tmp_path / "x" / "strata" / "code")
    monkeypatch.setenv("STRATA_CACHE", str(tmp_path / "s"))
    assert cache_root("default") == str(tmp_path / "s" / "code")
    assert cache_root("off") is None and cache_root(str(tmp_path)) == str(tmp_path)


def test_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRATA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # nobody knows this user
    assert cache_root("default") is None


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
@pytest.mark.parametrize("option", ["cache", "dump_dir", "weights", "schedule", "tuned"])
def test_names_that_no_file_can_have(bench: Bench, option: str, name: str) -> None:
    with pytest.raises(StrataError, match=option):
        bench.compile(**{option: name})


@pytest.mark.parametrize("name", ["a\0b.onnx", "a\0b.mlir", "\ud800.mlir", "\ud800.onnx"])
def test_models_that_no_file_can_be(name: str) -> None:
    with pytest.raises(StrataError, match=r"no (such )?file|no path has"):
        compiler.compile(name, target="reference")


# ---------------------------------------------------------------------- doctor
@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What doctor says of the cache in a folder."""
    def say(folder: Path, size: str = "1G") -> str:
        monkeypatch.setenv("STRATA_CACHE", str(folder))
        monkeypatch.setenv("STRATA_CACHE_SIZE", size)
        return cache_state()
    return say


def test_doctor_tells_it(said: Callable[..., str], tmp_path: Path,
                         capsys: pytest.CaptureFixture[str]) -> None:
    line = said(tmp_path)
    assert f"is kept in {tmp_path}/code (" in line
    assert main(["doctor"]) == 0
    assert f"is kept in {tmp_path}/code (" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.part"))


def test_nothing_can_be_kept(said: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = said(tmp_path / "file")
    assert "not kept" in line and "there is a file where" in line


def test_a_limit_of_nothing(said: Callable[..., str], tmp_path: Path) -> None:
    assert "models are not" in said(tmp_path, "0")


def test_others_can_write_to_it(said: Callable[..., str], tmp_path: Path) -> None:
    said(tmp_path)
    (tmp_path / "code" / "cpu").chmod(0o770)
    assert "other users can write to it" in said(tmp_path)


def test_a_cache_on_a_disk_that_is_full_or_read_only(
    said: Callable[..., str], tmp_path: Path
) -> None:
    with mounted(tmp_path / "cache", "size=64k"):
        said(tmp_path / "cache")
        (tmp_path / "cache" / "more").write_bytes(bytes(64 << 10))
        assert "No space left" in said(tmp_path / "cache")
        processes.run(["mount", "-o", "remount,ro", str(tmp_path / "cache")], check=True)
        line = said(tmp_path / "cache")
    assert "not kept" in line and "Read-only" in line


# ---------------------------------------------------------------------- whatever else is written
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is full")
@pytest.mark.parametrize("words", [
    ["doctor"], ["lower", "MODEL", "--target", "reference"],
    ["run", "MODEL", "--target", "reference", "-o", "/dev/full"]], ids=" ".join)
def test_results_that_nobody_can_take(bench: Bench, words: list[str]) -> None:
    """Standard output goes to a full disk: an error, and no fault of the compiler."""
    given = [str(bench.model) if w == "MODEL" else w for w in words]
    code = "import sys; from compiler.__main__ import main; sys.exit(main(sys.argv[1:]))"
    with open("/dev/full", "wb") as full:
        done = processes.run([sys.executable, "-c", code, *given], cwd=bench.folder, stdout=full,
                             env={**os.environ, "PYTHONPATH": str(ROOT)},
                             stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in done.stderr and "fault" not in done.stderr
    assert not list(bench.folder.glob("reproducer*"))


def test_temporary_files_on_a_full_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "mkdtemp", _refuse(errno.ENOSPC))
    monkeypatch.chdir(bench.folder)
    assert main(["tune", str(bench.model), "--seconds", "5", "--cache", str(bench.cache)]) == 1
    assert "No space left on device" in capsys.readouterr().err

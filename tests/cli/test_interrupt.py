"""Ctrl-C: the process and its children are gone soon, whatever they did, and one line is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from compiler.io.uninterrupted import uninterrupted
from tests import processes
from tests.frontend.onnx_models import make_model, value_info

ROOT = Path(__file__).parents[2]
PLUGIN = '''
import hashlib, subprocess, sys, time
from dataclasses import dataclass
from pathlib import Path
from passes.base import StrataPass

@dataclass(frozen=True)
class Endless(StrataPass):
    """Works for minutes: in Python, or where no signal interrupts it, or in other threads."""
    name = "endless"
    how: str = "python"

    def run(self, context, module):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
        Path("child").write_text(str(child.pid))
        if self.how == "native":
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2_000_000_000)
        if self.how == "threads":
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda _: time.sleep(100), range(4)))
        while True:
            pass
'''


def wait_for(path: Path) -> str:
    for _ in range(600):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.1)
    raise AssertionError(f"{path} did not come")


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(("how", "words", "kept"), [
    ("python", ["lower", "--dump-dir", "dumps"], "the dumps so far are in dumps"),
    ("native", ["run", "--cache", "off"], "nothing was written"),
    ("threads", ["verify"], "nothing was written"),
])
def test_an_interrupted_command(
    small_model: Path, tmp_path: Path, how: str, words: list[str], kept: str
) -> None:
    (tmp_path / "endless.py").write_text(PLUGIN)
    process = processes.start(
        [sys.executable, "-m", "compiler", words[0], str(small_model), *words[1:], "--plugin",
         "endless.py", "--passes", f"default,after(graph-cse)=endless{{how={how}}}"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        child = int(wait_for(tmp_path / "child"))
        time.sleep(0.2)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        seconds = time.monotonic() - started
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert told.splitlines()[-1] == f"interrupted: {kept}"
    assert "Traceback" not in told
    assert seconds < 10  # one second, where nobody else wants the processor
    time.sleep(0.2)
    assert not is_running(child)
    assert not list(tmp_path.glob("reproducer*"))


@pytest.mark.slow
def test_compiled_kernels_are_kept(tmp_path: Path) -> None:
    """The next run takes them from the cache, and compiles the others."""
    random = np.random.default_rng(0)
    shapes = [(8 + 8 * k, 16 + 8 * k) for k in range(1, 30)]
    weights = {f"w{k}": random.standard_normal(shape).astype(np.float32)
               for k, shape in enumerate(shapes)}
    nodes = [helper.make_node("MatMul", [f"x{k}", f"w{k}"], [f"x{k + 1}"])
             for k in range(len(shapes))]
    proto = make_model(nodes, [value_info("x0", np.float32, [5, 16])],
                       [f"x{len(shapes)}"], weights)
    (tmp_path / "products.onnx").write_bytes(proto.SerializeToString())
    words = [sys.executable, "-m", "compiler", "run", "products.onnx", "--cache", "cache"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = processes.start(words, cwd=tmp_path, env=environment, text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        for _ in range(6000):
            if len(list(tmp_path.glob("cache/cpu/*.o"))) > 3:  # the first ones are counted, too
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, told
    found = re.fullmatch(r"interrupted: (\d+) of (\d+) pieces of code are compiled and kept; "
                         "the same command goes on from there", told.splitlines()[-1])
    assert found is not None, told
    done, total = map(int, found.groups())
    assert 0 < done < total
    kept = {path.name: path.stat().st_ino for path in tmp_path.glob("cache/cpu/*.o")}
    assert len(kept) >= done
    processes.run(words, cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = {path.name: path.stat().st_ino for path in tmp_path.glob("cache/cpu/*.o")}
    assert kept.items() < after.items()  # the same files: none was written anew


def test_tuning_tells_what_it_has_found(small_model: Path, tmp_path: Path) -> None:
    """A run that is interrupted leaves a database that the next one goes on with."""
    process = processes.start(
        [sys.executable, "-m", "compiler", "tune", str(small_model), "-o", "found.sqlite",
         "--seconds", "300", "--jobs", "1", "--progress"], cwd=tmp_path, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE)
    try:
        for _ in range(600):
            if (tmp_path / "found.sqlite").exists():
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert told.splitlines()[-1].startswith("interrupted: ")


def test_temporary_folders_are_removed(small_model: Path, tmp_path: Path) -> None:
    plugin = PLUGIN.replace('Path("child").write_text(str(child.pid))', '''
        import atexit, tempfile
        folder = tempfile.TemporaryDirectory(dir=".", prefix="scratch-")
        atexit.register(lambda: folder)  # it lives as long as the process
        Path("child").write_text(str(child.pid))''')
    (tmp_path / "endless.py").write_text(plugin)
    process = processes.start(
        [sys.executable, "-m", "compiler", "lower", str(small_model), "--plugin", "endless.py",
         "--passes", "default,after(graph-cse)=endless"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        wait_for(tmp_path / "child")
        assert list(tmp_path.glob("scratch-*"))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    finally:
        process.kill()
    assert not list(tmp_path.glob("scratch-*"))


WAITING = '''
import time
from dataclasses import dataclass
from pathlib import Path
from passes.base import StrataPass

@dataclass(frozen=True)
class Waiting(StrataPass):
    """Waits for a file."""
    name = "waiting"

    def run(self, context, module):
        Path("waits").write_text("yes")
        while not Path("go").exists():
            time.sleep(0.05)
'''


@pytest.mark.parametrize("ends_by", ["itself", "SIGTERM"])
def test_a_command_in_the_background_ignores_it(
    small_model: Path, tmp_path: Path, ends_by: str
) -> None:
    """As shells start it in scripts: Ctrl-C is for what runs in the foreground."""
    (tmp_path / "waiting.py").write_text(WAITING)
    process = processes.start(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "compiler", "lower",
         small_model, "--plugin", "waiting.py", "--passes", "default,after(graph-cse)=waiting"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    try:
        wait_for(tmp_path / "waits")
        process.send_signal(signal.SIGINT)
        time.sleep(1)  # twice as long as it takes otherwise
        assert process.poll() is None
        if ends_by == "itself":
            (tmp_path / "go").touch()
        else:
            process.terminate()
        assert process.wait() == (0 if ends_by == "itself" else -signal.SIGTERM)
    finally:
        process.kill()


ENDLESS = """// strata: level=graph
builtin.module {
  strata.func @main(%x: f32[8], %n: i64[1]) -> (f32[8]) inputs ["x", "n"] outputs ["y"] {
    strata.size count = %n
    %y = strata.loop @body at k trip count carried(%x) with() : f32[8]
    strata.return %y
  }
  strata.func @body(%x: f32[8]) -> (f32[8]) inputs ["x"] outputs ["y"] {
    %y = graph.sin %x : f32[8]
    strata.return %y
  }
}
"""


def test_a_call_that_takes_for_ever(tmp_path: Path) -> None:
    """A loop of a model, in machine code, that counts to 2**48."""
    (tmp_path / "endless.mlir").write_text(ENDLESS)
    np.savez(tmp_path / "in.npz", x=np.ones(8, np.float32), n=np.array([2**48]))
    process = processes.start(
        [sys.executable, "-m", "compiler", "run", "endless.mlir", "--inputs", "in.npz",
         "--cache", "off"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        time.sleep(8)  # so that it is in the call, where nothing tells
        assert process.poll() is None
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        seconds = time.monotonic() - started
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert told.splitlines()[-1] == "interrupted: nothing was written"
    assert seconds < 10


def test_an_import_is_not_cut_short() -> None:
    """The signal is delivered at the end, to the handler of before; a handler that ignores it does
    so then."""
    order: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: order.append("handled"))
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            order.append("imported")
        assert order == ["imported", "handled"]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
        assert order == ["imported", "handled"]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

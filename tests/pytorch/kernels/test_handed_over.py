"""Kernels of a program that are handed over to kernels which the user has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.text import format_header, format_module

PLUGIN = Path(__file__).parents[2] / "plugin" / "written_kernel.py"
SUM = """builtin.module {
  strata.func @main(%x: f32[n], %y: f32[n]) -> (f32[n], f32[])
      inputs ["x", "y"] outputs ["z", "s"] {
    %a = graph.sin %x : f32[n]
    %b = graph.add %a, %y : f32[n]
    %s = graph.reduce_sum %b {axes = [0], keepdims = false} : f32[]
    strata.return %b, %s
  }
}
"""
HANDED = {"plugins": (PLUGIN,), "passes": "default,hand-over-my-sine", "cache": "off"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "sum.mlir"
    path.write_text(SUM)
    return path


@pytest.mark.parametrize("n", [1, 128, 1000])
@pytest.mark.parametrize(("target", "more"), [
    ("cuda", {"interpret": True}), ("reference", {}), ("cpu", {})])
def test_results(model: Path, n: int, target: str, more: dict[str, Any]) -> None:
    """The user's kernel between ours; other targets launch their own one."""
    x, y = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
    got, total = compiler.compile(model, target=target, **HANDED, **more)(x, y)
    np.testing.assert_allclose(got, np.sin(x) + y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, (np.sin(x) + y).sum(), rtol=1e-4, atol=1e-4)


def test_code_and_text(model: Path, tmp_path: Path) -> None:
    """The user's kernel becomes PTX, and every level is text that can be read again."""
    options = CompileOptions("cuda", features="sm_90", interpret=False, **HANDED)
    text = tmp_path / "host.mlir"
    state = Compiler(str(model), options).lower("host")
    text.write_text(format_header("host", ("host-plan-buffers",)) + format_module(state.module))
    assert 'instead = "map_0"' in text.read_text()
    again = Compiler(str(text), CompileOptions("cuda", features="sm_90", cache="off"))
    ptx = again.parts.emission.emit(again.lower().module, "ptx")
    assert ".entry launch_my_sine(" in ptx


def test_verify(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Interpreters run the kernel that was handed over, so each pass can be checked."""
    assert main(["verify", str(model), "--target", "cuda", "--interpret", "--plugin", str(PLUGIN),
                 "--passes", HANDED["passes"]]) == 0, capsys.readouterr()


def changed(tmp_path: Path, old: str, new: str) -> dict[str, Any]:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.read_text().replace(old, new))
    return {**HANDED, "plugins": (path,)}


@pytest.mark.parametrize(("old", "new", "text"), [
    ('"map*"', '"product*"', "no launched kernel is called product"),
    ("[x.shape[0]]", "[]", "my_sine takes x, y, out, n, and @map_0 has the buffers"),
    ("BLOCK=128", "BLOCK=object()", "it passes the constant")])
def test_mistakes(model: Path, tmp_path: Path, old: str, new: str, text: str) -> None:
    with pytest.raises(StrataError, match=text):
        compiler.compile(model, target="cuda", interpret=True, **changed(tmp_path, old, new))


def test_a_wrong_kernel_gives_wrong_numbers(model: Path, tmp_path: Path) -> None:
    """It is the user's code that runs."""
    x = np.ones(64, np.float32)
    given = changed(tmp_path, "tl.sin(", "2 * tl.sin(")
    [got, _] = compiler.compile(model, target="cuda", interpret=True, **given)(x, x)
    np.testing.assert_allclose(got, 2 * np.sin(x) + x, rtol=1e-5)


# ---------------------------------------------------------------------- chosen by a schedule
CHOSEN = {
    "a step": "nests(map)\n    hand over to my-sine\n",
    "an option": "@map_0\n    set written = my_sine\n",
    "a whole schedule": "@map_0 <grid i0 tile 64 | written = my_sine>\n",
    "beside others": "nests(reduction)\n    set warps = 2\n@map_*\n    hand over to my_sine # it\n"}


def scheduled(tmp_path: Path, text: str, plugin: Path = PLUGIN) -> dict[str, Any]:
    path = tmp_path / "schedules.txt"
    path.write_text(text)
    return {"schedule": path, "plugins": (plugin,), "cache": "off"}


@pytest.mark.parametrize("kind", CHOSEN)
def test_a_schedule_chooses_kernels(model: Path, tmp_path: Path, kind: str) -> None:
    """It is the user's code that runs, whatever kernels the plugin itself would choose."""
    plugin = tmp_path / "mine.py"
    other = PLUGIN.read_text().replace("tl.sin(", "2 * tl.sin(")
    plugin.write_text(other.replace('"map*"', '"no"'))
    given = scheduled(tmp_path, CHOSEN[kind], plugin)
    x = np.linspace(0, 3, 300, dtype=np.float32)
    got, total = compiler.compile(model, target="cuda", interpret=True, **given)(x, x)
    np.testing.assert_allclose(got, 2 * np.sin(x) + x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, (np.sin(x) + x).sum(), rtol=1e-4)  # another kernel's


def test_texts_of_chosen_kernels_are_read_again(model: Path, tmp_path: Path) -> None:
    """Before the launch is replaced, the schedule says by which kernel."""
    options = CompileOptions("cuda", features="sm_90", **scheduled(tmp_path, CHOSEN["a step"]))
    state = Compiler(str(model), options).lower("loop")
    text = tmp_path / "loop.mlir"
    text.write_text(format_header("loop", ("loop-unroll-loops",)) + format_module(state.module))
    assert "written = my_sine" in text.read_text()
    passes = "after(host-bufferize)=hand-over-my-sine{scheduled=true},default"
    again = CompileOptions("cuda", features="sm_90", plugins=(PLUGIN,), passes=passes, cache="off")
    lowered = Compiler(str(text), again).lower("host")
    assert 'kernel = "my_sine"' in format_module(lowered.module)


def test_a_schedule_without_the_plugin(model: Path, tmp_path: Path) -> None:
    given = {**scheduled(tmp_path, CHOSEN["a step"]), "plugins": ()}
    with pytest.raises(StrataError, match="there is no pass 'hand-over-my-sine'"):
        compiler.compile(model, target="cuda", interpret=True, **given)


def test_a_schedule_of_another_target(model: Path, tmp_path: Path) -> None:
    with pytest.raises(StrataError, match="this target does not read the option written"):
        compiler.compile(model, target="cpu", **scheduled(tmp_path, CHOSEN["a step"]))

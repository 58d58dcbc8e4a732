"""The kernels of models: schedules as scripts give the same schedules and the same numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.loop import KernelOp
from dialects.strata.schedule import ScheduleAttr
from passes.scripts.fusion import Fusion, fuse
from passes.scripts.place import StepError
from passes.scripts.printing import scripts_of
from tests.models import tiny_bert, tiny_cnn, tiny_lstm

MODELS = (tiny_bert, tiny_cnn, tiny_lstm)
TARGETS = (("cpu", "avx2"), ("cuda", "sm_90"))
each_model = pytest.mark.parametrize(
    "model", MODELS, ids=[m.__name__.rpartition(".")[2] for m in MODELS])


def schedules(options: CompileOptions, path: Path) -> tuple[dict[str, ScheduleAttr | None], str]:
    module = Compiler(str(path), options).lower("loop").module
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    return {k.sym_name.data: k.schedule for k in kernels}, scripts_of(module)


@each_model
@pytest.mark.parametrize(("target", "features"), TARGETS, ids=["cpu", "cuda"])
def test_scripts_give_the_schedules_back(
    model: ModuleType, target: str, features: str, tmp_path: Path
) -> None:
    path, script = tmp_path / "model.onnx", tmp_path / "schedules.txt"
    path.write_bytes(model.make_model(model.CASES[0]).SerializeToString())
    options = CompileOptions(target=target, features=features, cache="off", tuned="off")
    before, text = schedules(options, path)
    assert text.count("@") == len(before) > 3 and "<" not in text
    script.write_text(text)
    again, printed = schedules(CompileOptions(
        target=target, features=features, cache="off", tuned="off", schedule=script), path)
    assert again == before and printed == text


def fusing(options: CompileOptions, path: Path) -> str:
    """A script that fuses the last two axes that it can in each kernel of the model's own."""
    lines: list[str] = []
    for kernel in Compiler(str(path), options).lower("loop").module.body.block.ops:
        if isinstance(kernel, KernelOp) and "_pack" not in kernel.sym_name.data:
            pairs = [pair for pair in pairwise(kernel.axes) if can_be_fused(kernel, pair)]
            lines += [f"@{kernel.sym_name.data}\n    fuse {a}, {b}\n" for a, b in pairs[-1:]]
    return "".join(lines)


def can_be_fused(kernel: KernelOp, pair: Fusion) -> bool:
    try:
        fuse(kernel.clone(), pair)
    except StepError:
        return False
    return True


@each_model
def test_fused_axes_compute_the_same(model: ModuleType, tmp_path: Path) -> None:
    """With the rules' schedules for the fused kernels, of which a printed script gives the same."""
    path, script = tmp_path / "model.onnx", tmp_path / "mine.txt"
    path.write_bytes(model.make_model(model.CASES[0]).SerializeToString())
    options = CompileOptions(target="cpu", cache="off", tuned="off")
    script.write_text(fusing(options, path))
    fused = replace(options, schedule=script)
    before, text = schedules(fused, path)
    assert text.count("fuse ") == script.read_text().count("fuse ") > 3
    script.write_text(text)
    assert schedules(fused, path) == (before, text)
    inputs = model.make_inputs(model.CASES[0])
    got = compiler.compile(path, target="cpu", cache="off", schedule=script)(**inputs)
    wanted = compiler.compile(path, target="reference", cache="off")(**inputs)
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= 2e-5 * np.abs(other).max()


LOOPS = """\
nests(map)
    from loops
nests(contraction, ...)
    from loops
    set tails = mask
"""


@each_model
def test_scripts_compute_the_same(model: ModuleType, tmp_path: Path) -> None:
    """Plain loops in place of the tiles of the rules, for elementwise kernels and products."""
    path, script = tmp_path / "model.onnx", tmp_path / "mine.txt"
    path.write_bytes(model.make_model(model.CASES[0]).SerializeToString())
    script.write_text(LOOPS)
    inputs = model.make_inputs(model.CASES[0])
    got = compiler.compile(path, target="cpu", cache="off", schedule=script)(**inputs)
    wanted = compiler.compile(path, target="reference", cache="off")(**inputs)
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= 2e-5 * np.abs(other).max()

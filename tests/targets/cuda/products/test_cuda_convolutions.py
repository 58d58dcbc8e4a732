"""Convolutions as products of rows that are read by windows, pooling, and their schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.ir import Attribute, Operation

from dialects.block import DotOp, KernelOp, LoadOp
from dialects.block.programs import tile_type
from dialects.host.interpret import interpret_host
from dialects.loop import NestOp
from dialects.strata import types as t
from dialects.strata.types import Array
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, resources
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.cuda.machine import machine_of
from targets.cuda.scheduling.convolutions import convolution_parts
from targets.cuda.scheduling.products.tiles import tiles
from targets.cuda.scheduling.products.time import Product
from tests.lowering import lower
from tests.targets.cuda.products.float_convolutions import CASES, STRIPS, Case

each_case = pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
TOLERANCE = {"f2": 4e-3, "f4": 1e-5}


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


def close(found: Array, case: Case) -> None:
    """NaN and infinities where they are by definition, and nowhere else."""
    np.testing.assert_allclose(found.astype(np.float64), case.expected(), equal_nan=True,
                               rtol=TOLERANCE[case.dtype], atol=TOLERANCE[case.dtype])


@pytest.mark.parametrize("case", [*CASES, *STRIPS], ids=lambda case: case.name)
def test_tiles_and_their_meaning(case: Case) -> None:
    module, store = case.lowered(TargetOptions(features="sm_90"))
    schedules = [str(op.schedule) for op in module.walk() if isinstance(op, KernelOp)]
    assert any(case.expects in text for text in schedules), schedules
    [found] = interpret_host(module, case.inputs, store)
    close(found, case)


@needs_triton
@each_case
def test_triton_source(case: Case, interpreter: Interpreter) -> None:
    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    module, store = case.lowered(TargetOptions(features="sm_90", interpret=True))
    [found] = interpret_host(module, case.inputs, store, run)
    close(found, case)


@pytest.mark.parametrize(("precision", "element"), [
    ("fp16", t.f16), ("bf16", t.bf16), ("tf32", t.f32), ("f32", t.f32)])
def test_precision(precision: str, element: Attribute) -> None:
    """Less precision rounds factors of f32; the sums stay."""
    case = Case("plain", (1, 32, 8, 8), (32, 32, 3, 3), "f4", {"pads": [1] * 4})
    module, store = case.lowered(TargetOptions(features="sm_90", precision=precision))
    [dot] = [op for op in module.walk() if isinstance(op, DotOp)]
    assert [tile_type(v).element for v in dot.operands] == [element, element, t.f32]
    assert dot.precision.data == ("tf32" if precision == "tf32" else "ieee")
    [found] = interpret_host(module, case.inputs, store)
    np.testing.assert_allclose(found, case.expected(), rtol=2e-2, atol=2e-2)


def test_a_step_has_one_place_in_the_window() -> None:
    """Where steps divide the channels, no lane divides; and nothing is checked twice."""
    case = Case("plain", (1, 64, 16, 16), (64, 64, 3, 3), attributes={"pads": [1] * 4})
    module, _ = case.lowered(TargetOptions(features="sm_90"))
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)
                and any(isinstance(o, DotOp) for o in op.walk())]
    loads = [op for op in kernel.walk() if isinstance(op, LoadOp)]
    assert [op.checked_dims for op in loads if op.checked_dims] == [(0, 1)]
    [loop] = [line for line in emit_kernel(kernel).text.splitlines() if " // 192)" in line]
    assert re.search(r"\(i\d+ // 192\)", loop), loop


H200 = machine_of("sm_90")


@pytest.mark.parametrize(("rows", "channels", "sums"), [
    (32 * 56 * 56, 64, range(128 * 64, 128 * 256)),
    (32 * 14 * 14, 256, range(128 * 128, 128 * 256)),
    (7 * 7, 512, range(16 * 16, 64 * 32))])
def test_tiles_follow_the_sizes(rows: int, channels: int, sums: range) -> None:
    """Measured best on an H200: large ones where programs are enough, small ones elsewhere."""
    best = tiles(Product(1, rows, channels, 9 * channels, 2, 2, channels), H200)[0]
    assert best.sums in sums and channels % best.depth == 0


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("rows", [1, 16, 100, 5000])
@pytest.mark.parametrize("channels", [1, 3, 16, 100, 512])
def test_there_is_always_a_tile(rows: int, channels: int, narrow: bool) -> None:
    width = 2 if narrow else 4
    tile, *_ = tiles(Product(1, rows, channels, 9 * channels, width, 4, channels, narrow), H200)
    assert min(tile.rows, tile.columns, tile.depth) >= 16
    assert tile.shared(width) <= H200.shared


def test_sums_in_parts() -> None:
    """Where a few programs would sum for long; never parts of parts."""
    long = Case("late", (1, 512, 7, 7), (512, 512, 3, 3), attributes={"pads": [1] * 4})
    short = Case("early", (32, 64, 56, 56), (64, 64, 3, 3), attributes={"pads": [1] * 4})
    options = TargetOptions(features="sm_90")
    found = convolution_parts(contraction(long), options)
    assert found is not None and 512 % found.count == 0 and 512 // found.count >= 64
    assert convolution_parts(contraction(short), options) is None


@pytest.mark.parametrize("channels", [272, 352, 382, 416, 498, 544])
def test_parts_are_summed_in_whole_steps(channels: int) -> None:
    """No part has a number of channels that only the shortest steps divide, as 176 of 352 have."""
    case = Case("odd", (1, channels, 28, 28), (288, channels, 7, 7), attributes={"pads": [3] * 4})
    found = convolution_parts(contraction(case), TargetOptions(features="sm_90"))
    assert found is not None
    size = found.size or channels // found.count
    assert size % 32 == 0 and 0 <= found.count * size - channels < size


def contraction(case: Case) -> NestOp:
    """The convolution of a case, before kernels are made."""
    module, store = case.module()
    context = TARGET.bind(TargetOptions(features="sm_90")).context(store)
    for step in lower(module, context):
        if step == "loop-split-reductions":
            break
    [nest] = [op for op in module.walk() if isinstance(op, NestOp) and is_contraction(op)]
    return nest


@needs_triton
@pytest.mark.parametrize(("arch", "instruction"), [("sm_90", "wgmma.mma_async"),
                                                   ("sm_80", "mma.sync.aligned.m16n8k16")])
def test_instructions(arch: str, instruction: str) -> None:
    """Both factors are copied in words of 16 bytes while others are multiplied."""
    case = Case("plain", (32, 64, 28, 28), (128, 64, 3, 3), attributes={"pads": [1] * 4})
    module, _ = case.lowered(TargetOptions(features=arch))
    jobs = [Job(emit_kernel(op), tuple(range(len(op.buffers)))) for op in module.walk()
            if isinstance(op, KernelOp) and any(isinstance(o, DotOp) for o in op.walk())]
    [binary] = compile_kernels(jobs, CompileOptions(arch))
    assert instruction in binary.ptx and "cp.async.cg" in binary.ptx
    found = resources(binary)
    assert found is None or found.local == 0

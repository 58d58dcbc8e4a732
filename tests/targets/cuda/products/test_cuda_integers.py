"""Products of quantized tensors: signed bytes on tensor cores, exact to the last bit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.ir import Operation

from dialects.block import DotOp, KernelOp
from dialects.host.interpret import interpret_host
from dialects.strata.types import Array, i8
from dialects.symbolic.symbol import Symbol
from targets.base import TargetOptions
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from tests.targets.cuda.products.integer_products import CASES, Case

each_case = pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@each_case
def test_tiles_and_their_meaning(case: Case) -> None:
    """Tile operations, as they are defined, compute the product; where they can, by dots."""
    module, store = case.lowered(TargetOptions())
    dots = [op for op in module.walk() if isinstance(op, DotOp)]
    assert {(d.a.type.element, d.b.type.element) for d in dots} == (  # type: ignore[union-attr]
        {(i8, i8)} if case.on_tensor_cores else set())
    [found] = interpret_host(module, case.inputs, store)
    np.testing.assert_array_equal(found, case.expected())
    assert np.abs(found.astype(np.int64)).max() > 1 << 15, "a case that says little"


@needs_triton
@each_case
def test_triton_source(case: Case, interpreter: Interpreter) -> None:
    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    module, store = case.lowered(TargetOptions(interpret=True))
    [found] = interpret_host(module, case.inputs, store, run)
    np.testing.assert_array_equal(found, case.expected())


@needs_triton
@pytest.mark.parametrize(("arch", "instruction"), [
    ("sm_90", r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.s32\.s8\.s8"),
    ("sm_80", r"mma\.sync\.aligned\.m16n8k32\.row\.col(\.satfinite)?\.s32\.s8\.s8\.s32")])
def test_instructions(arch: str, instruction: str) -> None:
    """A convolution of 64 channels: both factors are copied in words of 16 bytes."""
    case = Case("conv", (1, 64, 16, 16), (64, 64, 3, 3), attributes={"pads": [1] * 4})
    module, _ = case.lowered(TargetOptions(features=arch))
    jobs = [Job(emit_kernel(op), tuple(range(len(op.buffers)))) for op in module.walk()
            if isinstance(op, KernelOp) and any(isinstance(o, DotOp) for o in op.walk())]
    [binary] = compile_kernels(jobs, CompileOptions(arch))
    assert re.search(instruction, binary.ptx) and "cp.async.cg" in binary.ptx
    assert "ld.global.b8" not in binary.ptx

"""Grouped products on CUDA: tiles with one matrix each, whose rows are read where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from dialects.block import KernelOp
from dialects.graph import GatherOp, GroupedMatmulOp
from dialects.graph.base import GraphOp
from dialects.host.interpret import RunKernel, interpret_host
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, element_of, i32, i64, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from tests.lowering import lower


@dataclass(frozen=True)
class Model:
    """Rows times the matrices of their groups. `order`: rows come in an order that is an input."""

    rows: int
    depth: int
    columns: int
    ends: tuple[int, ...]
    order: bool = False
    open_size: bool = False

    @property
    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(self.rows)
        shapes = (self.rows, self.depth), (len(self.ends), self.depth, self.columns)
        factors = [rng.standard_normal(s).astype(np.float16) for s in shapes]
        order = [rng.permutation(self.rows)] if self.order else []
        return [*factors, np.array(self.ends, np.int32), *order]

    def expected(self) -> Array:
        a, b, ends, *order = self.inputs
        a, start = a[order[0]] if order else a, 0
        result = np.zeros((self.rows, self.columns))
        for matrix, end in zip(b, ends, strict=True):
            result[start:end] = a[start:end].astype(float) @ matrix.astype(float)
            start = end
        return result

    def kernels(
        self, *, interpret: bool = False, run: RunKernel | None = None
    ) -> tuple[list[KernelOp], Array]:
        """What the CUDA target makes of it, and what that computes."""
        module, store = self._module(), WeightStore()
        options = TargetOptions("sm_90", interpret=interpret)
        for _ in lower(module, TARGET.bind(options).context(store)):
            pass
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        [found] = interpret_host(module, self.inputs, store, run)
        return kernels, found

    def _module(self) -> ModuleOp:
        half, b = element_of(np.dtype(np.float16)), self.inputs[1]
        rows: Size = Expr.size("n") if self.open_size else self.rows
        types = [tensor(half, [rows, self.depth]), tensor(half, b.shape),
                 tensor(i32, [len(self.ends)]), tensor(i64, [rows])][:3 + self.order]
        func = FuncOp.of("main", ["a", "b", "ends", "order"][:len(types)], types)
        left, right, ends, *order = func.body.block.args

        def add(op: GraphOp) -> SSAValue:
            func.body.block.add_op(op)
            return op.results[0]

        value = add(GatherOp.of(left, order[0], axis=0)) if order else left
        y = add(GroupedMatmulOp.of(value, right, ends))
        func.finish(["y"], [y])
        return ModuleOp([func])


MODELS = {
    "straddling tiles": Model(96, 64, 48, (30, 37, 70, 96)),
    "empty groups": Model(64, 32, 32, (0, 50, 50, 64)),
    "all in the last": Model(80, 48, 16, (0, 0, 80)),
    "rows of no group": Model(70, 16, 40, (3, 21, 60)),
    "in another order": Model(96, 64, 48, (30, 37, 70, 96), order=True),
    "open": Model(100, 32, 24, (64, 100), open_size=True),
    "few rows": Model(3, 64, 32, (1, 1, 1, 3)),
    "one row": Model(1, 16, 16, (1, 1)),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


@each_model
def test_one_product_without_copies(model: Model) -> None:
    kernels, found = model.kernels()
    np.testing.assert_allclose(found.astype(float), model.expected(), rtol=0, atol=5e-2)
    products = [k for k in kernels if sum("f16" in str(b.type) for b in k.buffers) > 2]
    assert len(products) == 1
    shapes = [str(b.type) for k in kernels if k not in products for b in k.buffers]
    depth = f", {model.depth}]" if model.depth != model.columns else ", none]"
    assert not any("f16" in s and depth in s for s in shapes), "a factor was copied"


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@each_model
def test_triton_source(model: Model, interpreter: Interpreter) -> None:
    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    found = model.kernels(interpret=True, run=run)[1]
    np.testing.assert_allclose(found.astype(float), model.expected(), rtol=0, atol=5e-2)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_instructions() -> None:
    kernels, _ = Model(512, 256, 256, (200, 512)).kernels()
    [product] = [k for k in kernels if "tl.dot" in emit_kernel(k).text]
    job = Job(emit_kernel(product), tuple(range(len(product.buffers))))
    [binary] = compile_kernels([job], CompileOptions("sm_90"))
    assert "wgmma.mma_async" in binary.ptx and "cp.async.cg.shared.global" in binary.ptx

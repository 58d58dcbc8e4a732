"""Transposed convolutions phase by phase, whose filter is a constant or an argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.block import DotOp, KernelOp, ReduceOp
from dialects.graph import ConstantOp, ConvTransposeOp
from dialects.host.interpret import interpret_host
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, element_of, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, resources
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.reference.interpret import interpret
from tests.lowering import assert_close, lower

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
OPTIONS = TargetOptions(features="sm_90")


@dataclass(frozen=True)
class Case:
    """x of `batch` images, a filter, a bias, and what the operator says."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    attributes: dict[str, Any]
    dtype: str = "f2"
    constant: bool = False
    symbolic: bool = False
    infinite: bool = False
    """Whether some of the filter's numbers are infinite, and some of x's, too."""

    def arrays(self) -> list[Array]:
        rng = np.random.default_rng(sum(self.x) + sum(self.w))
        group = self.attributes.get("group", 1)
        x, w, b = (rng.standard_normal(s).astype(self.dtype) for s in (
            self.x, self.w, self.w[1] * group))
        if self.infinite:
            w[rng.random(w.shape) < 1 / w.size ** 0.5] = np.inf
            w.reshape(-1)[-1] = -np.inf
            x.reshape(-1)[[0, -1]] = np.inf, np.nan
        return [x, w, b]

    def module(self) -> tuple[ModuleOp, WeightStore, list[Array]]:
        x, w, b = self.arrays()
        store, given = WeightStore(), [x] if self.constant else [x, w]
        types = [tensor(element_of(a.dtype), a.shape) for a in given]
        if self.symbolic:
            sizes = [Expr.size(n) for n in ("n", *(f"d{k}" for k in range(x.ndim - 2)))]
            types[0] = tensor(types[0].element, [sizes[0], x.shape[1], *sizes[1:]])
        func = FuncOp.of("main", ["x", "w"][:len(given)], types)
        constants = [ConstantOp.of_array(a, store, "c") for a in ([w, b] if self.constant else [b])]
        block = func.body.block
        block.add_ops(constants)
        op = ConvTransposeOp.of(*block.args, *(c.results[0] for c in constants), **self.attributes)
        block.add_op(op)
        func.finish(["y"], op.results)
        return ModuleOp([func]), store, given

    def lowered(self, options: TargetOptions = OPTIONS) -> tuple[
        ModuleOp, WeightStore, list[Array], list[Array]
    ]:
        """The module at block level, its weights, inputs, and what comes out by definition."""
        module, store, given = self.module()
        expected = interpret(module, store, given)
        list(lower(module, TARGET.bind(options).context(store)))
        return module, store, given, expected


def drawn(seed: int, **more: Any) -> Case:
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 2, 3]))

    def numbers(low: int, high: int) -> list[int]:
        return [int(n) for n in rng.integers(low, high, rank)]

    kernel, strides = numbers(1, 6 if rank < 3 else 4), numbers(1, 4)
    dilations = numbers(1, 4) if seed % 4 == 0 else [1] * rank
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [int(rng.integers(0, r)) for r in (*reach, *reach)]
    extra = [int(rng.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True)]
    group, inputs, outputs = (int(n) for n in rng.integers(1, (4, 8, 8)))
    if seed % 3 == 0:
        inputs, outputs = 32, 16
    sizes = [max(1, -(-(pads[k] + pads[k + rank] - reach[k] + 1) // s) + 1) + int(
        rng.integers(0, 6)) for k, s in enumerate(strides)]
    return Case((2, group * inputs, *sizes), (group * inputs, outputs, *kernel), {
        "strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra,
        "group": group}, dtype="f2" if seed % 2 else "f4", **more)


SEEDS = range(16)


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "argument"])
@pytest.mark.parametrize("infinite", [False, True], ids=["finite", "infinite"])
@pytest.mark.parametrize("seed", SEEDS)
def test_results_are_those_of_the_definition(seed: int, infinite: bool, constant: bool) -> None:
    case = drawn(seed, infinite=infinite, constant=constant, symbolic=seed % 5 == 1)
    module, store, given, expected = case.lowered()
    found = interpret_host(module, given, store)
    for got, want in zip(found, expected, strict=True):
        for kind in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(kind(got), kind(want))
    finite = [np.nan_to_num(a.astype("f4"), posinf=0, neginf=0) for a in (*found, *expected)]
    half = len(finite) // 2
    assert_close(finite[:half], finite[half:], 5e-3 if case.dtype == "f2" else 1e-5, str(case))


def kernels_of(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


def image(kernel: int, stride: int, pad: int, **more: Any) -> Case:
    """2-D, of 32 to 16 channels and 7x9 positions."""
    attributes = {"strides": [stride] * 2, "pads": [pad] * 4, **more.pop("attributes", {})}
    return Case((2, 32, 7, 9), (32, 16, kernel, kernel), attributes, **more)


FORMS = {
    "4x4 stride 2": image(4, 2, 1), "2x2 stride 2": image(2, 2, 0), "3x3": image(3, 1, 1),
    "6x6 stride 3": image(6, 3, 2, attributes={"output_padding": [1, 1]}),
    "3x3 stride 2": image(3, 2, 1, attributes={"output_padding": [1, 1]}),
    "3x3 stride 2 odd": image(3, 2, 1), "2x2 stride 3": image(2, 3, 0),
    "dilated": image(3, 2, 1, attributes={"dilations": [3, 3]}),
    "dilated by the stride": image(3, 2, 1, attributes={"dilations": [2, 2]}),
    "groups": image(4, 2, 1, attributes={"group": 2})}
APART = ("3x3 stride 2 odd", "2x2 stride 3", "dilated")
"""Those whose phases differ in length or in the order of their sources; others are one kernel."""


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "argument"])
@pytest.mark.parametrize("name", FORMS)
def test_every_sum_is_a_product_of_matrices(name: str, constant: bool) -> None:
    """Loops outside of branches multiply by `block.dot`; nothing walks the result again."""
    case = replace(FORMS[name], constant=constant)
    kernels = kernels_of(case.lowered()[0])
    names = {k: k.sym_name.data for k in kernels}
    sums = [k for k in kernels if names[k].startswith("contract") and "pack" not in names[k]]
    assert sums and all(any(isinstance(op, DotOp) for op in k.walk()) for k in sums)
    assert (len(sums) > 1) == (name in APART)
    others = [k.sym_name.data for k in kernels if k not in sums]
    copies = [name for name in others if "pack" in name or "join" in name]  # of x, and filters
    assert len(copies) <= len(sums) * (2 - constant)
    filled = name in ("2x2 stride 3", "dilated by the stride")  # the bias, which is all of some
    assert len(others) - len(copies) in (0, filled)  # filling may be joined with copies


def test_a_sum_that_is_a_number_is_not_added_again() -> None:
    """The exact sum is in a loop whose bound is whether there is a NaN; constants need none."""
    def repairs(case: Case) -> list[ReduceOp]:
        return [op for k in kernels_of(case.lowered()[0]) for op in k.walk()
                if isinstance(op, ReduceOp)]

    case = FORMS["4x4 stride 2"]
    assert repairs(case) and not repairs(replace(case, constant=True))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@needs_triton
@pytest.mark.parametrize("name", ["4x4 stride 2", "3x3 stride 2"])
def test_triton_source(name: str, interpreter: Interpreter) -> None:
    kernel = FORMS[name].w[2:]
    case = replace(FORMS[name], x=(1, 16, 2, 3), w=(16, 16, *kernel), infinite=True)
    module, store, given, expected = case.lowered(TargetOptions(interpret=True))
    found = interpret_host(module, given, store, interpreter.run)
    np.testing.assert_allclose(found[0].astype("f4"), expected[0].astype("f4"), 5e-3, 5e-2)


@needs_triton
@pytest.mark.slow
def test_cubins() -> None:
    kernels = [k for name in ("4x4 stride 2", "3x3 stride 2") for k in kernels_of(
        FORMS[name].lowered()[0])]
    jobs = [Job(emit_kernel(k), tuple(range(len(k.buffers)))) for k in kernels]
    needs = [resources(b) for b in compile_kernels(jobs, CompileOptions("sm_90"))]
    assert all(n is not None and not n.local for n in needs)

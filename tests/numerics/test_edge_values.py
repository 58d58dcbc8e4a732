"""Operators on the numbers at the edges of their types: NaN, infinities, 2**53, 2**63, 2**64.

Each sample gets such numbers in the place of its own, and integers of 64 bits where its operator
takes them. What NumPy makes of the operator, machine code must compute: the same elements NaN,
infinite, or zero; integers to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dialects.graph as g
from dialects.graph.base import GraphOp, ShapeError
from dialects.graph.interpret import EvaluationError, evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from dialects.strata.types import Array
from passes.base import PassError
from targets.base import TargetOptions, find_target
from tests.lowering import lower
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module

CPU = find_target("cpu")
OPTIONS = TargetOptions(threads=1, denormals="keep")
FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0, 2.0**24, 1e-3)
SIGNED = (0, 1, -1, 2**24 + 1, 2**31, 2**53 + 1, -2**53 - 1, 2**63 - 1, -2**63, -2**63 + 1)
UNSIGNED = (0, 1, 2, 2**24 + 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2)
INDEXED = (g.GatherOp, g.GatherElementsOp, g.GatherNdOp, g.ScatterElementsOp, g.ScatterNdOp,
           g.DescendOp)
"""Their integers are indices; those of DescendOp are tables, which the importer makes."""
UNORDERED = (g.SearchSortedOp,)
"""What they give depends on an order that NaN, and numbers put in anywhere, have no place in."""
OVERFLOWS = (g.PowOp,)
"""Powers beyond 64 bits are any number, here as in onnxruntime."""


def edged(sample: Sample, seed: int) -> list[Array]:
    """The sample's inputs, with such numbers at half of the places."""
    rng = np.random.default_rng(seed)
    return [with_edges(np.array(array), rng, sample.op not in INDEXED) for array in sample.arrays()]


def with_edges(array: Array, rng: np.random.Generator, integers: bool = True) -> Array:
    """The array with such numbers at half of the places, if its type has them.

    `integers`: whether those of 64 bits may be any number.
    """
    kind = "f" if is_float(array.dtype) else array.dtype.kind
    if kind != "f" and not (integers and kind in "iu" and array.dtype.itemsize == 8):
        return array
    numbers = {"f": FLOATS, "i": SIGNED, "u": UNSIGNED}[kind]
    with np.errstate(all="ignore"):
        values = np.array(numbers, np.float64 if kind == "f" else array.dtype)
        chosen = rng.choice(values, array.shape).astype(array.dtype)
    return np.where(rng.random(array.shape) < 0.5, chosen, array)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Of NumPy's kinds, or of those that it lacks, which all have names of their own."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def retyped(sample: Sample, dtype: str) -> Sample | None:
    """The sample on integers of 64 bits, if its operator takes them."""
    operands = tuple(np.zeros(o.shape, dtype) if np.dtype(o.dtype).kind == "f" else o
                     for o in sample.operands)
    if all(a is b for a, b in zip(operands, sample.operands, strict=True)) or (
            sample.op in INDEXED):
        return None
    other = replace(sample, operands=operands)
    try:
        build_module(other, False)
    except (ShapeError, ValueError, TypeError, KeyError, AssertionError):
        return None
    return other


def _is_of_integers(sample: Sample) -> bool:
    return np.dtype(sample.operands[0].dtype).kind in "iu"


def differences(sample: Sample, seed: int = 0) -> Iterator[str]:
    """What machine code makes otherwise than NumPy."""
    if sample.op in UNORDERED or (sample.op in OVERFLOWS and _is_of_integers(sample)):
        return
    module, _, context = build_module(sample, False)
    inputs, function = edged(sample, seed), main_function(module)
    with np.errstate(all="ignore"):
        try:
            wanted = evaluate_func(function, inputs, EvaluationContext(weights=context.weights))
        except (EvaluationError, ValueError, IndexError):
            return
    strata = CPU.bind(OPTIONS).context(context.weights)
    try:
        list(lower(module, strata))
    except PassError:
        return
    found = CPU.bind(OPTIONS).running.load(module, strata.weights).run(inputs)
    for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
        if text := difference(np.asarray(got), np.asarray(want)):
            yield f"result {k} {text}"


def difference(got: Array, want: Array) -> str:
    if not is_float(got.dtype):
        wrong = np.argwhere(got != want)
        return "" if not wrong.size else (
            f"at {wrong[0]}: {got[tuple(wrong[0])]}, not {want[tuple(wrong[0])]}")
    a, b = got.astype(np.float64), want.astype(np.float64)
    for name, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        wrong = np.argwhere(test(a) != test(b))
        if wrong.size:
            place = tuple(wrong[0])
            return f"at {place}: {a[place]}, not {b[place]} ({name})"
    signs = np.isinf(a) & (np.sign(a) != np.sign(b))
    return f"at {np.argwhere(signs)[0]}: the other infinity" if signs.any() else ""


FIRST = list({s.op: s for s in reversed(SAMPLES) if s.operands}.values())
FEW = [s for s in FIRST if s.op in (
    g.MaxOp, g.MinOp, g.ReduceMaxOp, g.ArgMaxOp, g.TopKOp, g.MaxPoolOp, g.CastOp,
    g.PadOp, g.SoftmaxOp)]
FEW_OF_INTEGERS = (g.AddOp, g.MulOp, g.MaxOp, g.MinOp, g.EqualOp, g.LessOp, g.WhereOp, g.PadOp,
                   g.ReduceMaxOp, g.ReduceSumOp, g.ArgMaxOp, g.TopKOp, g.MatmulOp)
CASES = [(k, s) for k, s in enumerate(SAMPLES) if s.operands]


@pytest.mark.parametrize("sample", FEW, ids=lambda s: s.label)
def test_a_few(sample: Sample) -> None:
    assert list(differences(sample)) == []


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("op", FEW_OF_INTEGERS, ids=lambda op: op.name)
def test_a_few_on_integers(op: type[GraphOp], dtype: str) -> None:
    other = retyped(next(s for s in FIRST if s.op is op), dtype)
    assert other is not None
    assert list(differences(other)) == []


@pytest.mark.slow
@pytest.mark.parametrize("sample", [s for _, s in CASES], ids=[f"{k}-{s.label}" for k, s in CASES])
def test_all_samples(sample: Sample) -> None:
    assert list(differences(sample)) == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("sample", [s for _, s in CASES], ids=[f"{k}-{s.label}" for k, s in CASES])
def test_all_samples_on_integers(sample: Sample, dtype: str) -> None:
    other = retyped(sample, dtype)
    assert other is None or list(differences(other)) == []

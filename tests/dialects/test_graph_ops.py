"""Every graph operation against its specification: text, inference, evaluation, decomposition."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser

from dialects.context import make_context
from dialects.graph.base import Build, CompositeOp
from dialects.graph.dialect import Graph
from dialects.graph.foreign import ForeignKernelOp
from dialects.graph.interpret import bind_sizes, evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.semantics.numerics import erf
from dialects.strata.func import main_function
from dialects.strata.types import TensorType
from dialects.verifying import verify
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module

OPS = list(Graph.operations)
each_sample = pytest.mark.parametrize(
    "sample", SAMPLES, ids=[f"{k}-{s.label}" for k, s in enumerate(SAMPLES)])


def parse(text: str) -> ModuleOp:
    return Parser(make_context(), text).parse_module()


def the_op(module: ModuleOp) -> Operation:
    op = main_function(module).body.block.first_op
    assert op is not None
    return op


def run(module: ModuleOp, inputs: list[np.ndarray], context: EvaluationContext):
    return evaluate_func(main_function(module), inputs, context)


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert actual.shape == expected.shape
    if actual.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
        return
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64),
                               rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------- the specification
def example_module(op: type[Operation]) -> str:
    """The example in an op's docstring as a module's text."""
    assert op.__doc__
    example = " ".join(op.__doc__.split()).split("Example: ")[1]
    text, _, arguments = example.partition(" given ")
    results, types = text.split(" = graph.")[0], text.rpartition(" : ")[2]
    inputs = ", ".join(f'"{name}"' for name in re.findall(r"%(\w+):", arguments))
    outputs = ", ".join(f'"{name}"' for name in re.findall(r"%(\w+)", results))
    return (f"builtin.module {{\n  strata.func @main({arguments}) -> ({types}) "
            f"inputs [{inputs}] outputs [{outputs}] {{\n    {text}\n"
            f"    strata.return {results}\n  }}\n}}")


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_example_parses_verifies_and_prints_back(op: type[Operation]):
    text = example_module(op)
    module = parse(text)
    verify(module)
    assert str(module) == text
    assert isinstance(the_op(module), op)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_docstring_names_its_source(op: type[Operation]):
    assert "Source: " in (op.__doc__ or "")


def test_every_op_has_samples():
    """Kernels of users have no meaning in NumPy (tests/pytorch/kernels runs them)."""
    assert {s.op for s in SAMPLES} == set(OPS) - {ForeignKernelOp}


# ---------------------------------------------------------------------- from each sample
@each_sample
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_text_round_trip(sample: Sample, symbolic: bool):
    module, _, _ = build_module(sample, symbolic)
    verify(module)
    parsed = parse(str(module))
    verify(parsed)
    assert str(parsed) == str(module)


@each_sample
def test_results_have_the_inferred_types(sample: Sample):
    results = []
    for symbolic in (False, True):
        module, inputs, context = build_module(sample, symbolic)
        types = [a.type for a in main_function(module).body.block.args]
        sizes = EvaluationContext(bind_sizes(types, inputs))
        results.append(run(module, inputs, context))
        for array, result in zip(results[-1], the_op(module).results, strict=True):
            assert isinstance(result.type, TensorType)
            assert array.dtype == result.type.dtype
            assert array.shape == sizes.shape(result.type)
    for static, dynamic in zip(*results, strict=True):
        assert_close(dynamic, static, 0.0)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if issubclass(s.op, CompositeOp)],
                         ids=lambda s: s.label)
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_decomposition_has_the_same_results(sample: Sample, symbolic: bool):
    module, inputs, context = build_module(sample, symbolic)
    expected = run(module, inputs, context)
    op = the_op(module)
    assert isinstance(op, CompositeOp)
    for old, new in zip(op.results, op.decompose(Build(op)), strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()
    verify(module)
    for actual, wanted in zip(run(module, inputs, context), expected, strict=True):
        assert_close(actual, wanted, sample.allowed(wanted.dtype))


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.reference], ids=lambda s: s.label)
def test_results_agree_with_the_reference(sample: Sample):
    module, inputs, context = build_module(sample, symbolic=False)
    assert sample.reference is not None
    expected = sample.reference(*inputs)
    for actual, wanted in zip(run(module, inputs, context), expected, strict=True):
        assert_close(actual, np.asarray(wanted), sample.allowed(actual.dtype))


def test_erf_is_exact_to_the_last_place_of_f32():
    x = np.concatenate([np.linspace(-7, 7, 4001), [1e-30, -1e-9, np.inf, -np.inf]])
    exact = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), exact, rtol=1e-15)
    single = x.astype(np.float32)
    exact = np.array([math.erf(v) for v in single.tolist()]).astype(np.float32)
    np.testing.assert_array_max_ulp(erf(single), exact, 1)
    assert np.isnan(erf(np.array([np.nan]))).all()

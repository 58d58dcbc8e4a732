"""Models that are valid only if a Squeeze without axes removes dims whose size only a run knows."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import compiler
from compiler.frontend import MemoryModel
from compiler.frontend.choices import MOST_TRIED
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text

HEADER = '<ir_version: 10, opset_import: ["": 21]> g '


def model(text: str) -> MemoryModel:
    return MemoryModel("m.onnx", onnx.parser.parse_model(HEADER + text).SerializeToString())


ONE = model("(float[n, 4] x, float[4] y) => (z) { s = Squeeze(x) z = Concat<axis = 0>(s, y) }")
TWO = model("""(float[n, m, 4] x, float[4] y) => (z)
    { s = Squeeze(x) z = Concat<axis = 0>(s, y) }""")
APART = model("""(float[n, 4] x, float[m, 3] y) => (z)
    { s = Squeeze(x) t = Squeeze(y) z = Concat<axis = 0>(s, t) }""")
KEPT = model("""(float[n, 4] x, float[m, 4, 1] y) => (z)
    { s = Squeeze(x) t = Squeeze(y) z = Concat<axis = 0>(s, t) }""")
NONE = model("""(float[n, 4] x, float[4, 4, 4] y) => (z)
    { s = Squeeze(x) z = Concat<axis = 0>(s, y) }""")


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("source", "shapes"), [
    (ONE, [(1, 4), (4,)]), (TWO, [(1, 1, 4), (4,)]), (APART, [(1, 4), (1, 3)]),
    (KEPT, [(5, 4), (7, 4, 1)]), (KEPT, [(1, 4), (1, 4, 1)]), (KEPT, [(0, 4), (2, 4, 1)])])
def test_runs_where_it_is_valid(
    source: MemoryModel, shapes: list[tuple[int, ...]], target: str
) -> None:
    arrays = [np.random.default_rng(k).standard_normal(s).astype(np.float32)
              for k, s in enumerate(shapes)]
    exe = compiler.compile(source, target=target, cache="off")
    [found] = exe(*arrays)
    np.testing.assert_array_equal(found, np.concatenate([np.squeeze(a) for a in arrays]))


@pytest.mark.parametrize(("source", "shapes"), [
    (ONE, [(2, 4), (4,)]), (TWO, [(1, 3, 4), (4,)]), (APART, [(2, 4), (1, 3)])])
def test_other_calls_are_told_why_not(
    source: MemoryModel, shapes: list[tuple[int, ...]]
) -> None:
    exe = compiler.compile(source, cache="off")
    with pytest.raises(compiler.SizeError, match="Concat"):
        exe(*(np.zeros(s, np.float32) for s in shapes))


def test_a_model_that_is_never_valid_is_refused_as_before() -> None:
    with pytest.raises(compiler.StrataError, match=r"Concat.*not f32\[4, 4, 4\]"):
        compiler.compile(NONE, cache="off")


def test_not_all_of_many_outcomes_are_tried() -> None:
    """The time to refuse a model is bounded."""
    count = 4 * MOST_TRIED
    squeezes = " ".join(f"s{k} = Squeeze(x{k})" for k in range(count))
    inputs = ", ".join(f"float[n{k}, 4] x{k}" for k in range(count))
    source = model(f"({inputs}) => (z) {{ {squeezes} z = Concat<axis = 5>(s0, s1) }}")
    with pytest.raises(compiler.StrataError, match="Concat"):
        compiler.compile(source, cache="off")


def test_every_target_lowers_it() -> None:
    for target, features in (("cpu", "avx2"), ("cuda", "sm_90")):
        options = CompileOptions(target=target, cache="off", features=features)
        assert "n == 1" in lower_to_text(Compiler(ONE, options), "block")

"""Programs that one launch, or a few, compute on a GPU, and what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from dialects.block import KernelOp
from dialects.graph.interpret import evaluate_func
from dialects.host.interpret import interpret_host
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from dialects.strata.types import Array
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower
from tests.passes.harness import parse


@dataclass(frozen=True)
class Case:
    """A graph, how many kernels compute it, and a word of their texts."""

    name: str
    kernels: int
    inputs: Sequence[str]
    result: str
    lines: str
    word: str = ""


CASES = [
    Case("two moments and what is read of both", 1, ["f32[60, 70]"] * 3,
         "f32[60, 70], f32[60, 70], f32[60, 70]", """
    %m = graph.add %a, %b : f32[60, 70]
    %v = graph.mul %b, %c : f32[60, 70]
    %s = graph.tanh %v : f32[60, 70]
    %r = graph.div %m, %s : f32[60, 70]
    strata.return %m, %v, %r"""),
    Case("rows whose places are computed", 1, ["f32[50, 40]", "i64[30]"], "f32[30, 40]", """
    %r = graph.gather %a, %b {axis = 0} : f32[30, 40]
    strata.return %r"""),
    Case("an image rolled along both dims, in windows", 1, ["f32[12, 8, 5]"], "f32[3, 2, 4, 4, 5]",
         """
    %p = graph.slice %a {starts = [3, 0, 0], sizes = [9, 8, 5], steps = [1, 1, 1]} : f32[9, 8, 5]
    %q = graph.slice %a {starts = [0, 0, 0], sizes = [3, 8, 5], steps = [1, 1, 1]} : f32[3, 8, 5]
    %s = graph.concat %p, %q {axis = 0} : f32[12, 8, 5]
    %t = graph.slice %s {starts = [0, 2, 0], sizes = [12, 6, 5], steps = [1, 1, 1]} : f32[12, 6, 5]
    %u = graph.slice %s {starts = [0, 0, 0], sizes = [12, 2, 5], steps = [1, 1, 1]} : f32[12, 2, 5]
    %v = graph.concat %t, %u {axis = 1} : f32[12, 8, 5]
    %w = graph.reshape %v {shape = [3, 4, 2, 4, 5]} : f32[3, 4, 2, 4, 5]
    %r = graph.transpose %w {perm = [0, 2, 1, 3, 4]} : f32[3, 2, 4, 4, 5]
    strata.return %r"""),
    Case("a loss picks one element of each row", 2, ["f32[40, 9000]", "i64[40, 1]"], "f32[40, 1]",
         """
    %s = graph.log_softmax %a {axis = 1} : f32[40, 9000]
    %r = graph.gather_elements %s, %b {axis = 1} : f32[40, 1]
    strata.return %r"""),
    Case("an image of known sizes, resampled", 1, ["f32[2, 7, 9, 5]"], "f32[2, 7, 14, 11]", """
    %r = graph.resize %a {shape = [2, 7, 14, 11], scales = literal[], mode = "linear",
                          coordinates = "half_pixel"} : f32[2, 7, 14, 11]
    strata.return %r"""),
    Case("a sum of a prime number of elements, in parts", 2, ["f32[99991]", "f32[99991]"], "f32[1]",
         """
    %d = graph.sub %a, %b : f32[99991]
    %e = graph.exp %d : f32[99991]
    %r = graph.reduce_sum %e {axes = [0], keepdims = true} : f32[1]
    strata.return %r""", "grid(%i0: 196)"),
    Case("whole numbers, a prime number of them", 2, ["i32[99991]"], "i32[1]", """
    %r = graph.reduce_sum %a {axes = [0], keepdims = true} : i32[1]
    strata.return %r""", "grid(%i0: 196)"),
    Case("sums in any order", 1, ["f32[300, 70]", "i64[2000, 1]", "f32[2000, 70]"], "f32[300, 70]",
         """
    %r = graph.scatter_nd %a, %b, %c {combiner = "add", order = "any"} : f32[300, 70]
    strata.return %r""", "block.store add"),
    Case("whole numbers in any order", 1, ["i32[3]", "i64[700, 1]", "i32[700]"], "i32[3]", """
    %r = graph.scatter_nd %a, %b, %c {combiner = "add", order = "any"} : i32[3]
    strata.return %r""", "block.store add"),
]


def _inputs(case: Case) -> list[Array]:
    random = np.random.default_rng(4)
    made: list[Array] = []
    for type_ in case.inputs:
        element, _, rest = type_.partition("[")
        shape = [int(n) for n in rest[:-1].split(",")]
        made.append(random.standard_normal(shape).astype(np.float32) if element == "f32" else
                    random.integers(-3, 3, shape, dtype=f"int{element[1:]}"))
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_few_kernels(case: Case) -> None:
    context = TARGET.bind(TargetOptions(features="sm_90")).context()
    names = "abc"[:len(case.inputs)]
    arguments = ", ".join(f"%{n}: {t}" for n, t in zip(names, case.inputs, strict=True))
    results = [f'"r{k}"' for k in range(case.lines.rsplit("return", 1)[1].count(",") + 1)]
    module = parse(f"""builtin.module {{
  strata.func @main({arguments}) -> ({case.result})
      inputs [{", ".join(f'"{n}"' for n in names)}] outputs [{", ".join(results)}] {{{case.lines}
  }}
}}""", context)
    inputs = _inputs(case)
    expected = evaluate_func(main_function(module), inputs, EvaluationContext())
    for _ in lower(module, context):
        pass
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    assert len(kernels) == case.kernels and case.word in str(module)
    found = interpret_host(module, inputs, context.weights)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)

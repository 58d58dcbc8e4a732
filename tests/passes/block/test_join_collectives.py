"""Sums over ranks inside the kernels that have the parts."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import AllReduceOp
from dialects.context import make_context
from dialects.host import CollectiveOp
from dialects.ranks.peers import run_ranks
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from targets.cuda import TARGET
from targets.cuda.emit import EmitOptions, emit_kernel
from targets.cuda.errors import EmitError
from targets.options import TargetOptions
from targets.reference.interpret import interpret_rank
from targets.walking import kernels_of
from tests.lowering import lower
from tests.ranks.programs import SummingCase, summing_cases


def joined(text: str) -> ModuleOp:
    """The module after all passes, for a host with two GPUs."""
    target = TARGET.bind(TargetOptions(features="sm_90"))
    context = StrataContext(facts=target.facts, rules=target.scheduling)
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, context):
        pass
    return module


def count(module: ModuleOp, kind: type) -> int:
    return sum(isinstance(op, kind) for op in module.walk())


@pytest.mark.parametrize("case", summing_cases(2), ids=str)
def test_sums_within_kernels_are_those_of_collectives(case: SummingCase) -> None:
    module = joined(case.text)
    assert count(module, AllReduceOp) == 2 and count(module, CollectiveOp) == 0
    [a], [b] = run_ranks(2, lambda peers: interpret_rank(
        module, WeightStore(), case.inputs(peers.rank, 0), peers))
    np.testing.assert_array_equal(a.astype(np.float64), case.expected(0))
    np.testing.assert_array_equal(b.astype(np.float64), case.expected(0))


def test_large_sums_stay_with_the_library() -> None:
    module = joined(SummingCase(4096, 64, 4096, "bf16", 2).text)
    assert count(module, AllReduceOp) == 0 and count(module, CollectiveOp) >= 2


def test_an_operand_that_is_used_twice_is_kept() -> None:
    group = '#strata.group<"g", [[0, 1]]>'
    module = joined(f"""builtin.module {{
  strata.func @main(%x: f32[4, 64], %w: f32[64, 64]) -> (f32[4, 64], f32[4, 64]) \
inputs ["x", "w"] outputs ["a", "b"] {{
    %a = graph.matmul %x, %w : f32[4, 64]
    %b = graph.all_reduce %a {{reduce = "sum", group = {group}}} : f32[4, 64]
    strata.return %a, %b
  }}
}}
""")
    assert count(module, AllReduceOp) == 0 and count(module, CollectiveOp) == 1


def test_code_without_a_device_has_no_other_ranks() -> None:
    module = joined(summing_cases(2)[0].text)
    [kernel, *_] = [k for k in kernels_of(module) if any(
        isinstance(op, AllReduceOp) for op in k.walk())]
    assert "sum_of_ranks(" in emit_kernel(kernel).text
    with pytest.raises(EmitError, match="--without one-launch"):
        emit_kernel(kernel, EmitOptions(interpreted=True))

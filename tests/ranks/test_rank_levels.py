"""Programs of several ranks at every level, all ranks in this process."""

from __future__ import annotations

import time
from itertools import chain

import numpy as np
import pytest

from dialects.graph.collective import CollectiveOp
from dialects.ranks.attributes import world_of
from dialects.ranks.collectives import Collective, Group
from dialects.ranks.peers import Peers, run_ranks
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.binding import EvaluationError
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from targets.cpu import TARGET
from targets.options import TargetOptions
from targets.reference.interpret import interpret, interpret_rank
from tests.lowering import lower
from tests.ranks.programs import Case, cases

PAIR, THREE, TWICE = ((0, 1),), ((2, 0, 1),), ((0, 2), (1, 3))
ALL = [*cases(PAIR, ("f32", "bf16", "i64")), *cases(THREE, ("f32",)), *cases(TWICE, ("f16",))]

CHECKED = ("import", "graph-dce", "graph-to-loop", "loop-schedule", "host-bufferize",
           "host-plan-buffers", "block-prove-bounds")


def make_cpu_context() -> StrataContext:
    """The context of a compilation for the CPU, whose rules schedule kernels."""
    target = TARGET.bind(TargetOptions())
    return StrataContext(facts=target.facts, rules=target.scheduling)


def how_of(case: Case) -> Collective:
    return next(op.collective for op in case.module().walk() if isinstance(op, CollectiveOp))


@pytest.mark.parametrize("rows", [0, 1, 5])
@pytest.mark.parametrize("case", ALL, ids=lambda c: f"{c.kind}-{c.attributes}{c.element}-{c.parts}")
def test_every_level_computes_what_a_collective_means(case: Case, rows: int) -> None:
    module, context = case.module(), make_cpu_context()
    how, count = how_of(case), 1 + max(rank for part in case.parts for rank in part)
    assert world_of(module) == count
    given = [case.inputs(rank, rows) for rank in range(count)]
    wanted = [case.expected(rank, rows, how) for rank in range(count)]
    for step in chain(["import"], lower(module, context)):
        if step not in CHECKED:
            continue
        found = run_ranks(count, lambda peers: interpret_rank(
            module, WeightStore(), [given[peers.rank]], peers))
        for got, want in zip(found, wanted, strict=True):
            for a, b in zip(got, want, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape
                np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


def test_text_and_data_say_the_same() -> None:
    for case in ALL:
        how = how_of(case)
        assert Collective.read(how.facts()) == how
        assert how.group == Group("g", case.parts)


def test_ranks_are_told_apart() -> None:
    """Verification gives ranks other inputs, so that a swap of operands shows."""
    right = Case("permute", "f32", "pairs = [1, 0], ")
    wrong = Case("broadcast", "f32", "root = 0, ")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = [interpret(case.module(), WeightStore(), [x])[0] for case in (right, wrong)]
    assert not np.array_equal(*found)


def test_a_rank_that_fails_ends_the_others_at_once() -> None:
    def work(peers: Peers) -> None:
        if peers.rank == 1:
            raise ArithmeticError("no")
        peers.run(Collective("broadcast", Group("g", ((0, 1),))), np.zeros(3))

    started = time.perf_counter()
    with pytest.raises(ArithmeticError, match="no"):
        run_ranks(2, work)
    assert time.perf_counter() - started < 20


def test_a_group_needs_its_ranks() -> None:
    case = Case("all_reduce", "f32", 'reduce = "sum", ')
    [op] = [op for op in case.module().walk() if isinstance(op, CollectiveOp)]
    with pytest.raises(EvaluationError, match="needs the other ranks"):
        op.evaluate(EvaluationContext(), np.zeros((2, 3), np.float32))
    with pytest.raises(EvaluationError, match="only 1 ranks"):
        run_ranks(1, lambda peers: peers.run(how_of(case), np.zeros(3)))

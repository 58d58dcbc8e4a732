"""Masks as selections: random bodies, before and after, at every point of a small domain.

A body is a tree of comparisons of indices, flags, truth values as numbers, and masks that are
added. All points of the domain are computed. A number stays the same, and one that absorbs all
others stays one of these, which have no weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.arith import CMPI_COMPARISON_OPERATIONS
from xdsl.dialects.builtin import f16, f32, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from dialects.loop import Axis, IndexOp, NestOp, YieldOp
from dialects.loop.interpret import evaluate_nest
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.types import Array, i1, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify
from passes.analyses.loop.numbers import constant
from passes.rewrites.loop import conditions
from passes.rewrites.loop.conditions import ABSORBS, simplify_conditions

SIDE = 5
AXES = [Axis(Symbol.axis(f"i{d}"), Expr.of(SIDE)) for d in range(2)]
ROW, COLUMN = (Expr.symbol(a.name) for a in AXES)
LOWS = (float("-inf"), -3e38, -1e30, -1e5)


@dataclass
class Body:
    """Writes the body of a nest: `x` is a score, and `flags` are truth values."""

    source: Random
    block: Block

    def add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def index(self) -> SSAValue:
        place = self.source.choice([
            ROW, COLUMN, ROW - COLUMN, COLUMN - ROW, COLUMN + 1, Expr.of(2), ROW * 2 - 3])
        return self.add(IndexOp.of(place))

    def truth(self, depth: int) -> SSAValue:
        """A truth value."""
        kind = self.source.randint(0, 9 if depth else 2)
        if kind == 0:
            return self.block.args[self.source.randint(1, 2)]
        if kind == 1:
            return self.add(constant(self.source.random() < 0.5, i1))
        if kind <= 4:
            order = self.source.choice(CMPI_COMPARISON_OPERATIONS)
            return self.add(arith.CmpiOp(self.index(), self.index(), order))
        if kind == 5:
            operands = [self.truth(depth - 1), self.add(constant(True, i1))]
            self.source.shuffle(operands)
            return self.add(arith.XOrIOp(*operands))
        if kind <= 7:
            joined = self.source.choice([arith.AndIOp, arith.OrIOp])
            return self.add(joined(self.truth(depth - 1), self.truth(depth - 1)))
        if kind == 8:
            return self.add(arith.SelectOp(*(self.truth(depth - 1) for _ in range(3))))
        order = self.source.choice(["oeq", "une", "olt", "oge"])
        zero = self.add(constant(0, f32))
        return self.add(arith.CmpfOp(self.number(depth - 1), zero, order))

    def number(self, depth: int) -> SSAValue:
        """A number that truth values decide."""
        kind = self.source.randint(0, 5 if depth else 1)
        if kind == 0:
            return self.add(constant(self.source.choice([0, 1, -1, 2, *LOWS]), f32))
        if kind == 1:
            return self.add(arith.UIToFPOp(self.truth(max(depth - 1, 0)), f32))
        if kind == 2:
            whole = self.add(arith.ExtUIOp(self.truth(depth - 1), i32))
            return self.add(arith.SIToFPOp(whole, f32))
        if kind == 3:
            half = self.add(arith.TruncFOp(self.number(depth - 1), f16))
            return self.add(arith.ExtFOp(half, f32))
        if kind == 4:
            return self.add(arith.SelectOp(
                self.truth(depth - 1), self.number(depth - 1), self.number(depth - 1)))
        combined = self.source.choice([arith.AddfOp, arith.SubfOp, arith.MulfOp])
        return self.add(combined(self.number(depth - 1), self.number(depth - 1)))

    def mask(self, depth: int) -> SSAValue:
        """0 where a score counts, and a low number elsewhere, in one of the ways it is written."""
        seen = self.truth(depth)
        one, low = (self.add(constant(n, f32)) for n in (1, self.source.choice(LOWS[1:])))
        zero = self.add(constant(0, f32))
        if self.source.random() < 0.5:
            sides = [zero, low]
            return self.add(arith.SelectOp(seen, *sides))
        hidden = self.add(arith.SubfOp(one, self.add(arith.UIToFPOp(seen, f32))))
        return self.add(arith.MulfOp(hidden, low))

    def score(self, depth: int) -> SSAValue:
        score: SSAValue = self.block.args[0]
        for _ in range(self.source.randint(1, 2)):
            kind = self.source.randint(0, 4)
            if kind == 0:
                score = self.add(arith.SelectOp(self.truth(depth), score, self.number(depth)))
            elif kind == 4:
                low = self.add(constant(self.source.choice(LOWS), f32))
                hidden = self.add(arith.AddfOp(score, low))
                score = self.add(arith.SelectOp(self.truth(depth), score, hidden))
            else:
                operands = [score, self.number(depth) if kind == 1 else self.mask(depth)]
                self.source.shuffle(operands)
                score = self.add(arith.AddfOp(*operands))
        return score


def nest_of(seed: int) -> NestOp:
    block = Block(arg_types=[f32, i1, i1])
    body = Body(Random(seed), block)
    block.add_op(YieldOp.of(body.score(2)))
    types = [tensor(e, [SIDE, SIDE]) for e in (f32, i1, i1)]
    inputs = Block(arg_types=types).args
    place = [ROW, COLUMN]
    return NestOp.of(AXES, inputs, [place, place, place[::-1]], types[:1], [place],
                     body=Region(block))


def computed(nest: NestOp, inputs: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        return evaluate_nest(nest, EvaluationContext(), *inputs)[0]


@pytest.fixture
def fired(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each rule has rewritten something."""
    counts = Counter({rule.__name__: 0 for rule in conditions._RULES})

    def counted(rule: conditions.Rule) -> Callable[[Operation], Any]:
        def tried(op: Operation) -> Any:
            found = rule(op)
            counts[rule.__name__] += found is not None
            return found
        return tried

    monkeypatch.setattr(conditions, "_RULES", tuple(map(counted, conditions._RULES)))
    return counts


def test_bodies_compute_the_same_at_every_point(fired: Counter[str]) -> None:
    source = np.random.default_rng(3)
    for seed in range(250):
        nest = nest_of(seed)
        scores = source.standard_normal((SIDE, SIDE)).astype(np.float32)
        inputs = [scores, *(source.integers(0, 2, (2, SIDE, SIDE)) != 0)]
        before, text = computed(nest, inputs), str(nest)
        simplify_conditions(nest)
        verify(nest)
        after = computed(nest, inputs)
        low = (before <= ABSORBS) & (after <= ABSORBS)
        same = (before == after) | low | np.isnan(before)
        assert same.all(), f"{seed}: {text}\n{nest}\n{before}\n{after}"
        once = str(nest)
        simplify_conditions(nest)
        assert str(nest) == once
    assert min(fired.values()) > 25, fired


@pytest.mark.parametrize("order", CMPI_COMPARISON_OPERATIONS)
def test_the_opposite_of_a_comparison(order: str) -> None:
    """Of all pairs of small numbers, with signs and without."""
    opposite = conditions._INVERSE[order]
    for a in range(-4, 4):
        for b in range(-4, 4):
            assert _compared(order, a, b) != _compared(opposite, a, b)


def _compared(order: str, a: int, b: int) -> bool:
    if order[0] == "u":
        a, b = a % 16, b % 16
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b,
            "ge": a >= b}[order if order in ("eq", "ne") else order[1:]]

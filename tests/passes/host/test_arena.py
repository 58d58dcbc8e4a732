"""Plans of random blocks: no two that live together overlap, with sizes plain and symbolic."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.size_products import product
from passes.analyses.host.arena import ALIGNMENT, Block, hint, plan, split
from tests.symbols import by_symbol

SIZES = by_symbol({"b": 3, "s": 7})
NAMES = ["", "b", "s", "b*s", "b + s", "(s + 1) floordiv 2", "b*((s + 1) floordiv 2)"]


@st.composite
def blocks(draw: st.DrawFn, names: list[str]) -> list[Block]:
    result: list[Block] = []
    for _ in range(draw(st.integers(0, 12))):
        factor = draw(st.integers(0, 3000))
        name = draw(st.sampled_from(names))
        first = draw(st.integers(0, 12))
        size = product([factor, expr_of(name)]) if name else Expr.of(factor)
        result.append(Block(size, first, first + draw(st.integers(0, 6))))
    return result


@pytest.mark.parametrize("names", [[""], ["b"], ["", "b*s"], NAMES], ids=str)
def test_no_overlap(names: list[str]) -> None:
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # busy machines
    @given(blocks(names))
    def check(found: list[Block]) -> None:
        arena = plan(found).evaluate(SIZES)
        spans = [(b.offset.evaluate(SIZES), b.size.evaluate(SIZES)) for b in found]
        for k, (block, (start, size)) in enumerate(zip(found, spans, strict=True)):
            assert start % ALIGNMENT == 0
            assert start >= 0 and start + size <= arena
            for other, (begin, length) in zip(found[:k], spans, strict=False):
                apart = start + size <= begin or begin + length <= start
                assert apart or not block.overlaps(other)

    check()


def test_deterministic() -> None:
    def make() -> list[Block]:
        return [Block(Expr.of(1000 * (1 + k % 3)), k, k + k % 4) for k in range(20)]

    first, second = make(), make()
    assert plan(first) == plan(second)
    assert list(map(astuple, first)) == list(map(astuple, second))


def test_reuse_of_dead_blocks() -> None:
    chain = [Block(Expr.of(1024), k, k + 1) for k in range(10)]
    assert plan(chain).constant == 2048
    symbolic = [Block(expr_of("1024*b"), k, k + 1) for k in range(10)]
    assert plan(symbolic) == expr_of("2048*b")


def test_small_block_in_the_smallest_gap() -> None:
    large, small = Block(Expr.of(4096), 0, 1), Block(Expr.of(512), 0, 1)
    user, fits = Block(Expr.of(256), 0, 5), Block(Expr.of(512), 4, 5)
    plan([large, small, user, fits])
    assert fits.offset.constant == 0


def test_slots_reused_where_a_proof_or_the_hint_allows() -> None:
    wide = Block(expr_of("4*b*s"), 0, 1)
    narrow = Block(expr_of("4*s"), 2, 3)  # certainly smaller
    similar = Block(expr_of("4*s*s"), 4, 5)  # as large with b = s
    arena = plan([wide, narrow, similar])
    assert {b.offset for b in (wide, narrow, similar)} == {Expr.of(0)}
    assert hint(arena) == 4 * 64 * 64


def test_split() -> None:
    assert split(expr_of("8*b + 4*b*h")) == (4, expr_of("2*b + b*h"))
    assert split(Expr.of(12)) == (12, Expr.of(1))

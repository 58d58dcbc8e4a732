"""What the ranges of axes and sizes decide holds at all points of small domains, and by Z3."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product as every
from math import prod

import numpy as np
import pytest

from dialects.loop import Axis
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import (
    is_at_most,
    is_nonnegative,
    lower_bound,
    simplify,
    upper_bound,
)
from dialects.symbolic.symbol import Symbol
from passes.rewrites.loop.nests import digits_of, through_view
from tests.algebra.trees import Terms, Tree, domain, expression, has_zero_divisor

SIZES, AXES = ("n", "m"), ("i0", "i1")
SYMBOLS = {**{name: Expr.size(name) for name in SIZES},
           **{name: Expr.symbol(Symbol.axis(name)) for name in AXES}}
KEYS = {name: expr.as_symbol for name, expr in SYMBOLS.items()}
TREES = 50


def drawn(seed: int, names: tuple[str, ...], depth: int = 3) -> list[Expr]:
    source = random.Random(seed)
    terms = Terms(names, divisors=(1, 2, 3, 4, 5, 8))
    trees: list[Tree] = [terms.draw(source, depth) for _ in range(3 * TREES)]
    return [expression(t, SYMBOLS) for t in trees
            if isinstance(t, tuple) and not has_zero_divisor(t)][:TREES]


def spaces(seed: int, count: int) -> Iterator[tuple[dict[Symbol, Expr], list[dict[str, int]]]]:
    """Extents of the axes, constant or of sizes, and all points with small sizes."""
    source = random.Random(seed)
    n, m = SYMBOLS["n"], SYMBOLS["m"]
    for _ in range(count):
        known = Expr.of(source.choice((1, 2, 3, 5, 8)))
        extents = {KEYS[a]: source.choice([known, n, m, n + 1, 2 * m]) for a in AXES}
        points: list[dict[str, int]] = []
        for sizes in domain(SIZES, 1, 3):
            ranges = [range(e.evaluate({KEYS[s]: v for s, v in sizes.items()}))
                      for e in extents.values()]
            points += [{**sizes, **dict(zip(AXES, place, strict=True))}
                       for place in every(*ranges)]
        yield extents, points


def columns(points: list[dict[str, int]]) -> dict[Symbol, np.ndarray]:
    return {KEYS[name]: np.array([p[name] for p in points]) for name in points[0]}


@pytest.mark.parametrize("seed", range(10))
def test_what_is_never_negative(seed: int) -> None:
    """For sizes from 1 up: all small ones, and by Z3 all."""
    values = columns(list(domain(SIZES, 1, 9)))
    found = 0
    for expr in drawn(seed, SIZES):
        if is_nonnegative(expr):
            found += 1
            assert np.all(expr.evaluate(values) >= 0), str(expr)
            assert is_at_most(Expr.of(0), expr)
    assert found


@pytest.mark.parametrize("seed", range(3))
def test_what_is_never_negative_by_proof(seed: int) -> None:
    z3 = pytest.importorskip("z3")
    from tests.algebra.formulas import of_expr, refuted

    symbols = {KEYS[name]: z3.Int(name) for name in SIZES}
    positive = [s >= 1 for s in symbols.values()]
    for expr in drawn(50 + seed, SIZES):
        if is_nonnegative(expr):
            assert refuted(of_expr(expr, symbols) >= 0, *positive, limit=500) is None, str(expr)


@pytest.mark.parametrize("seed", range(10))
def test_bounds(seed: int) -> None:
    """No point is beyond them."""
    found = 0
    exprs = drawn(100 + seed, (*SIZES, *AXES))
    for extents, points in spaces(seed, 4):
        values = columns(points)
        for expr in exprs:
            low, high = lower_bound(expr, extents), upper_bound(expr, extents)
            found += low is not None and high is not None
            value = expr.evaluate(values)
            assert low is None or np.all(low.evaluate(values) <= value), (str(expr), str(low))
            assert high is None or np.all(high.evaluate(values) >= value), (str(expr), str(high))
    assert found > 20


@pytest.mark.parametrize("seed", range(10))
def test_simplified_expressions_are_equal(seed: int) -> None:
    changed = 0
    exprs = drawn(200 + seed, (*SIZES, *AXES))
    i, j = (SYMBOLS[a] for a in AXES)
    for extents, points in spaces(seed, 4):
        values = columns(points)
        e = extents[KEYS["i1"]]
        linear = i * e + j
        typical = [linear // e, linear % e, linear // (2 * e), linear % (3 * e), (linear + 1) // e,
                   (2 * linear + 1) // (2 * e), (4 * i + 2) % 4, (8 * i + j) // 24]
        for expr in [*exprs, *typical]:
            simple = simplify(expr, extents)
            changed += simple != expr
            assert np.all(simple.evaluate(values) == expr.evaluate(values)), (
                str(expr), str(simple), {a: str(x) for a, x in extents.items()})
    assert changed > 5


@pytest.mark.parametrize("seed", range(3))
def test_simplified_expressions_are_equal_by_proof(seed: int) -> None:
    """For all sizes, where extents are constants."""
    z3 = pytest.importorskip("z3")
    from tests.algebra.formulas import of_expr, refuted

    source = random.Random(seed)
    extents = {KEYS[a]: Expr.of(source.choice((2, 3, 8, 64))) for a in AXES}
    symbols = {KEYS[name]: z3.Int(name) for name in SYMBOLS}
    given = [s >= 1 for n, s in symbols.items() if n not in extents]
    for axis, extent in extents.items():
        given += [symbols[axis] >= 0, symbols[axis] < extent.constant]
    for expr in drawn(300 + seed, (*SIZES, *AXES)):
        simple = simplify(expr, extents)
        if simple != expr:
            claim = of_expr(simple, symbols) == of_expr(expr, symbols)
            assert refuted(claim, *given, limit=500) is None, (str(expr), str(simple))


# ---------------------------------------------------------------------- maps of nests
def factored(source: random.Random, total: list[int]) -> list[int]:
    """A shape of as many elements: factors put together anew, with dims of 1 between."""
    shape: list[int] = []
    for factor in total:
        if shape and source.random() < 0.5:
            shape[-1] *= factor
        else:
            shape.append(factor)
        if source.random() < 0.2:
            shape.append(1)
    return shape


@pytest.mark.parametrize("seed", range(40))
def test_through_views(seed: int) -> None:
    """An element of a view is the one of its source with the same number, in row-major order."""
    source = random.Random(seed)
    factors = [source.choice((2, 3, 4, 5)) for _ in range(source.randint(1, 4))]
    target, origin = factored(source, factors), factored(source, factors)
    axes = [Symbol.axis(f"i{k}") for k in range(len(target))]
    extents = {a: Expr.of(n) for a, n in zip(axes, target, strict=True)}
    map_ = through_view([Expr.symbol(a) for a in axes], [Expr.of(n) for n in target],
                        [Expr.of(n) for n in origin], extents)
    if map_ is None:
        return
    places = np.indices(target).reshape(len(target), -1)
    values = dict(zip(axes, places, strict=True))
    at = [np.broadcast_to(e.evaluate(values), places.shape[1:]) for e in map_]
    wanted = np.arange(prod(target))
    found = np.ravel_multi_index(tuple(at), tuple(origin)) if origin else np.zeros_like(wanted)
    assert np.array_equal(found, wanted), (target, origin, [str(e) for e in map_])


@pytest.mark.parametrize("size", [2, 3, 7])
def test_through_views_with_a_name_for_a_size(size: int) -> None:
    n = SYMBOLS["n"]
    shapes = [([n, 6], [n, 2, 3]), ([n, 2, 3], [n, 6]), ([2 * n, 3], [n, 2, 3]), ([n * 6], [n, 6]),
              ([n, 2, 3], [2 * n, 3]), ([3, n, 4], [3, n * 4]), ([1, n, 5], [n, 5])]
    for target, origin in shapes:
        target, origin = ([Expr.of(e) for e in shape] for shape in (target, origin))
        axes = [Symbol.axis(f"i{k}") for k in range(len(target))]
        map_ = through_view([Expr.symbol(a) for a in axes], target, origin,
                            dict(zip(axes, target, strict=True)))
        if map_ is None:
            continue
        sizes = {KEYS["n"]: size}
        shape = [e.evaluate(sizes) for e in target]
        places = np.indices(shape).reshape(len(shape), -1)
        values = {**sizes, **dict(zip(axes, places, strict=True))}
        at = [np.broadcast_to(e.evaluate(values), places.shape[1:]) for e in map_]
        found = np.ravel_multi_index(tuple(at), tuple(e.evaluate(sizes) for e in origin))
        assert np.array_equal(found, np.arange(prod(shape)))


@pytest.mark.parametrize("seed", range(30))
def test_digits(seed: int) -> None:
    """A division by its step, and the remainder by its extent, finds each axis again."""
    source = random.Random(seed)
    extents = [source.choice((1, 2, 3, 4)) for _ in range(source.randint(1, 3))]
    axes = [Axis(Symbol.axis(f"i{k}"), Expr.of(n)) for k, n in enumerate(extents)]
    order = source.sample(range(len(axes)), len(axes))
    steps = {k: prod(extents[j] for j in order[place + 1:]) for place, k in enumerate(order)}
    if source.random() < 0.3:
        steps[order[0]] += 1
    expr = sum((Expr.symbol(axes[k].name) * s for k, s in steps.items()), Expr.of(0))
    found = digits_of(expr, axes)
    if found is None:
        return
    places = np.indices(extents).reshape(len(extents), -1)
    values = {axis.name: place for axis, place in zip(axes, places, strict=True)}
    value = expr.evaluate(values)
    for name, step, extent in found:
        assert np.array_equal(value // step % extent.constant, values[name])

"""Loops that need their first iteration built apart: values whose rank it changes.

    v = 0.0                                       a placeholder, as exporters write it
    for i in range(trips):                        v_0 = body(0, v)
        v = body(i, v)        f32[b, 5]   ->      for i in range(trips - 1): v_0 = body(i + 1, v_0)

The number of dims of every tensor is known, and without an iteration it is another one than after
some. So whether there is a first iteration is a choice (`choices.py`), unless it is certain. If the
next iteration changes the rank again, it is built apart, too: each number of iterations that give
another rank has a program of its own.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.frontend import formulas as f
from compiler.frontend.branches import zeros
from compiler.frontend.builder import Builder
from compiler.frontend.choices import choose, equal
from compiler.frontend.faults import Fault, Skip
from compiler.frontend.loops import Body, Loop, Reranked, Turn, build_loop
from compiler.frontend.stretching import stretched
from compiler.frontend.values import Value
from dialects.graph.base import ShapeError
from dialects.graph.inference import certain_sign
from dialects.strata import types as t
from dialects.strata.assumptions import Outcome
from dialects.symbolic.expr import Expr

EXPECTED = 2
"""The number of iterations that change the rank of a value in most models that do so at all."""
MOST = 16
"""The number of iterations that are built before a loop."""

Results = tuple[list[Value], list[Value]]


def repeat(build: Builder, loop: Loop, body: Body) -> Results:
    """Build a loop; returns the final carried values, and the stacked ones with a new first dim.

    The body is called several times. Raises Fault, or Skip if the body has a recorded problem.
    """
    mark, warnings = build.mark(), len(build.faults.warnings)
    plain = replace(loop, fixed={*loop.fixed}, rigid={*loop.rigid}, initial=list(loop.initial))
    try:
        carried, stacked = build_loop(build, loop, body)
        if loop.levelled:
            _check_ranks(build, plain, loop, body)
        return _ranked(build, plain, loop, carried), stacked
    except Reranked as fault:
        if plain.peeled == MOST:
            raise
        noted = build.faults.problems[mark.faults[0]:]
        build.restore(mark)
        del build.faults.warnings[warnings:]
        try:
            return _peeled(build, plain, body)
        except (Fault, ShapeError, Skip):
            build.restore(mark)
            build.faults.problems += noted
            raise fault from None


def _check_ranks(build: Builder, plain: Loop, loop: Loop, body: Body) -> None:
    """Raise Reranked unless one iteration gives all values the ranks that the loop gives them.

    The loop was built with the higher rank of single elements that change theirs, from the first
    iteration on. Other values may have ranks that follow from it, and in some iterations only.
    """
    final = [len(loop.levelled.get(k, v.shape)) for k, v in enumerate(loop.initial)]
    mark, node = build.mark(), build.node
    with build.function(loop.name) as frame:
        carried = [frame.view(v) for v in plain.initial]
        for step in range(2):
            carried = list(body(Expr.of(step), carried).carried)
            for k, (value, rank) in enumerate(zip(carried, final, strict=True)):
                if value.rank != rank:
                    raise Reranked(f"its loop-carried value {k} is {value.type.short} after "
                                   f"iteration {step}, and of rank {rank} after others")
    build.restore(mark)
    build.node = node


def _ranked(build: Builder, plain: Loop, loop: Loop, carried: list[Value]) -> list[Value]:
    """The final values, with the ranks of single elements that had a higher one in the loop."""
    shapes = {k: s for k, s in loop.levelled.items() if len(s) != plain.initial[k].rank}
    begins = _begins(build, plain) if shapes else ""
    if begins == "none":
        shapes = {k: plain.initial[k].shape for k in shapes}
    return [v.reshape(shapes[k]) if begins and k in shapes else v for k, v in enumerate(carried)]


def _peeled(build: Builder, loop: Loop, body: Body) -> Results:
    """Build the first iteration, if there is one, and a loop of the others."""
    match _begins(build, loop):
        case "some":
            return _first_apart(build, loop, body)
        case "none":
            return list(loop.initial), _no_stacks(build, loop, body)
        case _:
            raise Fault("it has iterations at one time and none at another in a single run")


def _begins(build: Builder, loop: Loop) -> str:
    """"some" if there is a first iteration, "none" if not; a choice where only a run can tell."""
    calls = Expr.of(1) if loop.trip is None else loop.trip
    if loop.condition is not None:
        sizes = build.bind(loop.condition.reshape([]).cast(t.i64), "begins")
        calls = calls * Expr.of(0 if sizes is None else sizes.reshape(-1)[0])
    if certain_sign(calls) is not None:
        return "some" if certain_sign(calls) == 1 else "none"
    outcomes = [Outcome("some", Expr.of(1), "<=", calls), equal(calls, 0, "none")]
    return choose(build, outcomes if loop.peeled < EXPECTED else outcomes[::-1])


def _first_apart(build: Builder, loop: Loop, body: Body) -> Results:
    node = build.node
    first = body(Expr.of(0), list(loop.initial))
    build.node = node
    if len(first.carried) != len(loop.initial):
        raise Fault(f"its body returns {len(first.carried)} loop-carried values instead of "
                    f"{len(loop.initial)}")

    def others(step: Expr, carried: list[Value]) -> Turn:
        return body(step + 1, carried)

    rest = Loop(loop.name, None if loop.trip is None else loop.trip - 1, first.condition,
                list(first.carried), loop.fixed, loop.rigid, peeled=loop.peeled + 1)
    carried, stacked = repeat(build, rest, others)
    pairs = zip(first.stacked, stacked, strict=True)
    return carried, [_stacked(build, *pair) for pair in pairs]


def _stacked(build: Builder, first: Value, others: Value) -> Value:
    """The stacked values of all iterations. Those of none may have other sizes than the first."""
    for axis, size in enumerate(first.shape, 1):
        own = others.shape[axis]
        if own != size and own.constant is None:
            build.assume(others.shape[0] * (own - size), "==", 0)
            others = stretched(build, others, axis, size)
    return f.concat([first.reshape([1, *first.shape]), others], axis=0)


def _no_stacks(build: Builder, loop: Loop, body: Body) -> list[Value]:
    """The stacked values of no iterations; the body tells their other dims."""
    mark, node = build.mark(), build.node
    with build.function(loop.name) as frame:
        turn = body(Expr.of(0), [frame.view(v) for v in loop.initial])
        types = [(v.type.dtype, [Expr.of(0) if frame.hides(s) else s for s in v.shape])
                 for v in turn.stacked]
    build.restore(mark)
    build.node = node
    return [zeros(build, dtype, [Expr.of(0), *shape]) for dtype, shape in types]

"""If, Loop and Scan: bodies are made of the same specifications, and read what is outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.fuzz.solver.draft import (
    ALL,
    BOOL,
    I64,
    NUMBERS,
    Body,
    Domain,
    Draft,
    Impossible,
    Value,
    same,
)
from tests.fuzz.solver.specs import elementwise, movement, products, reductions
from tests.fuzz.solver.specs.elementwise import unary_of

INSIDE = (*elementwise.SPECS, *movement.SPECS, *reductions.SPECS, products.matmul)
DEEPEST = 2


@contextmanager
def body(draft: Draft, inputs: Sequence[Value]) -> Iterator[Body]:
    """A scope: nodes go into the body, and its values are not seen outside."""
    outer, seen, made = draft.body, list(draft.values), Body(list(inputs))
    if draft.depth >= DEEPEST:
        raise Impossible
    draft.depth += 1
    draft.body = made
    draft.values.extend(inputs)
    try:
        yield made
    finally:
        draft.depth -= 1
        placed = [v for v in draft.values if v.placeholder and v not in seen]
        draft.values[:] = [*seen, *placed]
        draft.body = outer


def some_nodes(draft: Draft, most: int = 3) -> None:
    """A few operators of any kind."""
    for _ in range(draft.integer(1, most)):
        draft.choose(INSIDE)(draft)


def _result(draft: Draft, made: Body, like: Value) -> Value:
    """A value of the body with the type and shape of another: found, or computed."""
    names = {name for node in made.nodes for name in node.outputs}
    found = [v for v in draft.values if v.name in names and v.dtype == like.dtype
             and v.rank == like.rank]
    if found and draft.chance(0.5):
        value = draft.choose(found)
        draft.require(*(same(a, b) for a, b in zip(value.shape, like.shape, strict=True)))
        return value
    if like.dtype in NUMBERS and found and draft.chance(0.3):
        scalars = [v for v in draft.values if v.dtype == like.dtype and v.rank == 0]
        if scalars and like.dtype in draft.allowed("Add"):
            return draft.node("Add", [like, draft.choose(scalars)], like.dtype, like.shape)
    return unary_of(draft, like)


def condition(draft: Draft) -> Value:
    """A truth value: an input, or one that is computed."""
    if draft.chance():
        return draft.placeholder(BOOL, [], Domain("flag"), fixed=draft.chance(0.2))
    x = draft.pick(draft.allowed("Greater"), 1, 3)
    draft.require(*(d >= 1 for d in x.shape))
    largest = draft.node("ReduceMax", [x], x.dtype, [], keepdims=0, keep=False) \
        if x.dtype in draft.allowed("ReduceMax") else None
    if largest is None:
        raise Impossible
    return draft.node("Greater", [largest, draft.constant(2, x.dtype)], BOOL, [], keep=False)


def if_(draft: Draft) -> None:
    flag = condition(draft)
    x = draft.pick(ALL)
    branches: list[Body] = []
    for _ in range(2):
        with body(draft, []) as made:
            if draft.chance(0.6):
                some_nodes(draft)
            made.outputs = [_result(draft, made, x)]
        branches.append(made)
    draft.node("If", [flag], x.dtype, x.shape, then_branch=branches[0], else_branch=branches[1])


def loop(draft: Draft) -> None:
    """A carried value, perhaps an exit, perhaps a stacked result."""
    x = draft.pick(NUMBERS)
    trips = draft.integer(1, 4)
    step, go = Value(draft.fresh("i"), I64, ()), Value(draft.fresh("b"), BOOL, ())
    state = Value(draft.fresh("x"), x.dtype, x.shape)
    stacks = draft.chance(0.5)
    exits = not stacks and draft.chance(0.5)
    with body(draft, [step, go, state]) as made:
        if draft.chance(0.6):
            some_nodes(draft, 2)
        after = _result(draft, made, state)
        more = draft.node("Less", [step, draft.constant(draft.integer(0, 3))], BOOL, []) \
            if exits else draft.node("Identity", [go], BOOL, [])
        made.outputs = [more, after, *([draft.node("Identity", [after], x.dtype, x.shape)]
                                       if stacks else [])]
    count = draft.constant(trips) if draft.chance(0.6) or stacks else draft.placeholder(
        I64, [], Domain("count")).name
    start = draft.constant(True, bool) if draft.chance() or stacks else ""
    results = [(x.dtype, x.shape), *([(x.dtype, [trips, *x.shape])] if stacks else [])]
    draft.nodes("Loop", [count, start, x], results, body=made)


def scan(draft: Draft) -> None:
    """One state, one or two scanned values, one stacked result."""
    x = draft.pick(NUMBERS, 1, 4)
    if draft.smallest == 0:
        draft.require(x.shape[0] >= 1)
    draft.require(x.shape[0] <= 9)
    row = Value(draft.fresh("r"), x.dtype, x.shape[1:])
    start = draft.like(x.dtype, x.shape[1:])
    state = Value(draft.fresh("x"), x.dtype, x.shape[1:])
    with body(draft, [state, row]) as made:
        if draft.chance(0.4):
            some_nodes(draft, 2)
        if x.dtype not in draft.allowed("Add"):
            raise Impossible
        both = draft.node(draft.choose(("Add", "Sub")), [state, row], x.dtype, row.shape)
        stacked = _result(draft, made, both)
        if stacked is both:  # onnxruntime mixes up outputs of one name
            stacked = draft.node("Identity", [both], x.dtype, row.shape)
        made.outputs = [both, stacked]
    back = draft.integer(0, 1)
    draft.nodes("Scan", [start, x], [(x.dtype, start.shape), (x.dtype, x.shape)], body=made,
                num_scan_inputs=1, scan_input_directions=[back],
                scan_output_directions=[draft.integer(0, 1)])


SPECS = {if_: 1.5, loop: 1.2, scan: 0.8}

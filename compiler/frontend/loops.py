"""Builds a `strata.loop` from a body that a Python function builds.

The loop-carried values are determined by building the body repeatedly until a fixed point:

    the types   those of the initial values; a dim that changes becomes a size of its own
    untouched   values that the body passes on unchanged are loop-invariant
    counters    values that grow by a constant per call are known: i0 + 2*step
    first call  if ranks differ after it, it is built before the loop (`peeling.py`)
    the count   `while i < n` with a counter and a size gives a trip count
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from compiler.frontend.branches import defined, flag
from compiler.frontend.builder import Builder
from compiler.frontend.elements import only_size
from compiler.frontend.faults import Fault, Skip
from compiler.frontend.frames import Frame, Mark
from compiler.frontend.slices import at_least_zero
from compiler.frontend.values import Value, computed, constant
from dialects.graph.base import ShapeError
from dialects.graph.inference import certain_sign
from dialects.graph.logic import GreaterOp, LessEqualOp, LessOp
from dialects.graph.shape import ReshapeOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.control import LoopOp
from dialects.strata.types import Array, TensorType
from dialects.symbolic.expr import Expr, maximum, minimum
from dialects.symbolic.symbol import Symbol

MAX_LOOPS = 6
"""The maximum nesting depth of loops: each builds its body several times."""


@dataclass
class Turn:
    """The results of one call of a body: whether to continue (None: true), the carried values, and
    the values to stack.
    """

    condition: Value | None
    carried: Sequence[Value]
    stacked: Sequence[Value]


class Reranked(Fault):
    """A carried value has another rank after an iteration than before."""


Body = Callable[[Expr, list[Value]], Turn]
"""body(number of the call, carried values)"""


@dataclass
class Loop:
    """A loop to be built, and what is known about it.

    `trip`: how many calls at most, None for any number; `condition`: whether there is a first one,
    None for true. `fixed`: the carried values that never change; `open`: the carried dims, as
    (value, dim), that change from call to call; `rates`: what counters grow by; `opaque`: the
    carried values that are not counters. `counted`: the condition is part of `trip`. `rigid`: dims
    that never change. `peeled`: the number of iterations that were built before it. `levelled`: the
    shapes after an iteration of single elements that had another rank before it.
    """

    name: str
    trip: Expr | None
    condition: Value | None
    initial: list[Value]
    fixed: set[int] = field(default_factory=set[int])
    rigid: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    open: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    rates: dict[int, Array] = field(default_factory=dict[int, Array])
    opaque: set[int] = field(default_factory=set[int])
    counted: bool = False
    peeled: int = 0
    levelled: dict[int, tuple[Expr, ...]] = field(default_factory=dict[int, "tuple[Expr, ...]"])
    general: bool = False

    def __post_init__(self) -> None:
        self.opaque = {k for k, v in enumerate(self.initial) if not _may_count(v)}

    @property
    def varying(self) -> list[int]:
        return [k for k in range(len(self.initial)) if k not in self.fixed]

    def generalize(self) -> None:
        """Discard everything known from the initial values except element types and ranks."""
        self.general, self.rates = True, {}
        self.open = {(k, d) for k, v in enumerate(self.initial) for d in range(v.rank)}
        self.open -= self.rigid
        self.opaque = {*range(len(self.initial))}

    def type_of(self, k: int, size: Callable[[], Expr]) -> TensorType:
        """The type of a carried value, with a new `size()` for each open dim."""
        value = self.initial[k]
        return t.tensor(value.element, [size() if (k, d) in self.open else s
                                        for d, s in enumerate(value.shape)])

    def count(self, k: int, step: Expr) -> Value:
        """The value of a counter in an iteration."""
        first = self.initial[k]
        assert first.expressions is not None
        grown = first.expressions + self.rates[k] * step
        return computed(first.build, _objects(grown), first.type)


def _objects(values: object) -> Array:
    """An object array, even if NumPy has returned a scalar."""
    return np.asarray(values, object)


def _may_count(value: Value) -> bool:
    """Whether a value is known to be non-negative integers."""
    known = value.expressions if value.is_small and value.element != t.i1 else None
    return known is not None and all(certain_sign(Expr.of(e)) in (0, 1) for e in known.reshape(-1))


def build_loop(build: Builder, loop: Loop, body: Body) -> tuple[list[Value], list[Value]]:
    """Build the loop; returns the final carried values, and the stacked ones with a new first dim.

    Raises Reranked if carried values do not keep their ranks; see `peeling.repeat`.
    """
    if build.frame.loops >= MAX_LOOPS:
        raise Fault(f"loops are nested more than {MAX_LOOPS} deep")
    while True:
        mark = build.mark()
        try:
            attempt = _build_body(build, loop, body)
            news = _learn(loop, attempt)
        except (Fault, ShapeError, Skip) as error:
            return _in_general(build, loop, body, mark, error)
        if not news:
            return _finish(build, loop, attempt)
        build.restore(mark)


def _in_general(
    build: Builder, loop: Loop, body: Body, mark: Mark, error: Exception
) -> tuple[list[Value], list[Value]]:
    """Build the loop without assumptions from the initial values, which may be special.

    Raises the original error if that fails, too.
    """
    if loop.general:
        raise error
    noted = build.faults.problems[mark.faults[0]:]
    build.restore(mark)
    loop.generalize()
    try:
        return build_loop(build, loop, body)
    except (Fault, ShapeError, Skip):
        build.restore(mark)
        build.faults.problems += noted
        raise error from None


# ---------------------------------------------------------------------- the body
@dataclass
class Attempt:
    """The body, built once; `arguments` represent the carried values."""

    frame: Frame
    counter: Symbol
    arguments: Sequence[Value]
    turn: Turn

    @property
    def step(self) -> Expr:
        """The number of the call."""
        return Expr.symbol(self.counter)


def _build_body(build: Builder, loop: Loop, body: Body) -> Attempt:
    with build.function(loop.name) as frame:
        counter = build.names.size("step")
        frame.step, frame.trip, step = counter, loop.trip, Expr.symbol(counter)
        arguments = [_argument(build, loop, frame, k, step) for k in range(len(loop.initial))]
        turn = body(step, list(arguments))
        if len(turn.carried) != len(loop.initial):
            raise Fault(f"its body returns {len(turn.carried)} loop-carried values instead of "
                        f"{len(loop.initial)}")
        turn.carried = [_levelled(build, loop, k, *pair) for k, pair in enumerate(
            zip(arguments, turn.carried, strict=True))]
        return Attempt(frame, counter, arguments, turn)


def _levelled(build: Builder, loop: Loop, k: int, before: Value, after: Value) -> Value:
    """A single element after an iteration, with its rank raised to that before the iteration.

    If it is the higher one, the initial value gets this rank in the next attempt, but only once.
    """
    if after.rank == before.rank or not (
            after.type.count.constant == before.type.count.constant == 1):
        return after
    build.faults.warn(f"value {k} of node '{build.node}' is {before.type.short} before an "
                      f"iteration and {after.type.short} after it; the body uses the higher rank")
    known = k in loop.levelled
    loop.levelled[k] = after.shape
    if after.rank < before.rank:
        return build(ReshapeOp, after, shape=list(before.shape))
    if known:
        return after
    assert build.frame.outer is not None
    with build.within(build.frame.outer):
        loop.initial[k] = build(ReshapeOp, loop.initial[k], shape=list(after.shape))
    return after


def _argument(build: Builder, loop: Loop, frame: Frame, k: int, step: Expr) -> Value:
    """The argument that represents a carried value in the body."""
    if k in loop.fixed:
        return frame.view(loop.initial[k])
    argument = build.value(frame.argument(loop.type_of(k, lambda: build.new_size("size"))))
    if k in loop.rates:
        return loop.count(k, step)
    if k not in loop.opaque:  # an assumption, to be checked against the body
        guess = np.empty(argument.type.static_shape or (), object)
        guess.reshape(-1)[:] = [build.new_size("count") for _ in range(guess.size)]
        argument.contents = guess
    return argument


def _learn(loop: Loop, attempt: Attempt) -> bool:
    """Update the knowledge about carried values from a body; returns whether it changed."""
    for k in loop.fixed - loop.levelled.keys():
        _check_fixed(attempt, k)
    news = [_learn_value(loop, attempt, k) for k in loop.varying]
    return any(news) or _learn_count(loop, attempt)


def _check_fixed(attempt: Attempt, k: int) -> None:
    """Raise Reranked if a value changes after all: Squeeze keeps x: [m, n], and changes [1, n]."""
    before, after = attempt.arguments[k], attempt.turn.carried[k]
    if after is not before:
        raise Reranked(f"its loop-carried value {k} is {before.type.short} before an iteration and "
                       f"{after.type.short} after it")


def _learn_value(loop: Loop, attempt: Attempt, k: int) -> bool:
    before, after = attempt.arguments[k], attempt.turn.carried[k]
    if after is before:
        loop.fixed.add(k)
        return True
    if before.rank != loop.initial[k].rank:  # the next attempt has the higher rank
        return True
    if (after.element, after.rank) != (before.element, before.rank):
        kind = Reranked if after.element == before.element else Fault
        raise kind(f"its loop-carried value {k} is {before.type.short} before an iteration and "
                   f"{after.type.short} after it")
    open_ = {(k, d) for d in range(after.rank) if after.shape[d] != before.shape[d]}
    news = bool(open_ - loop.open)
    loop.open |= open_
    return (k not in loop.opaque and _learn_rate(loop, k, before, after)) or news


def _learn_rate(loop: Loop, k: int, before: Value, after: Value) -> bool:
    """Update whether a carried value is a counter; returns whether the knowledge changed."""
    known = k in loop.rates
    rate = None
    if after.expressions is not None and before.expressions is not None and (
            after.shape == before.shape):
        rate = _objects(after.expressions - before.expressions)
    if rate is not None and all((Expr.of(e).constant or -1) > 0 for e in rate.reshape(-1)):
        loop.rates[k] = rate
        return not known
    loop.rates.pop(k, None)
    loop.opaque.add(k)
    return True


# ---------------------------------------------------------------------- the number of iterations
def _learn_count(loop: Loop, attempt: Attempt) -> bool:
    """Whether the condition was found to bound the trip count by a size."""
    condition = attempt.turn.condition
    if not loop.counted and condition is not None and _is_certain(condition, False) and (
            loop.condition is None or _is_certain(loop.condition, True)):
        loop.trip, loop.condition, loop.counted = Expr.of(1), None, True
        return True
    limit = None if loop.counted or condition is None else _bound(attempt, condition)
    if limit is None:
        return False
    counter, end = limit
    first = counter.substitute({attempt.counter: -1})
    count = end - first
    if loop.condition is None or _is_certain(loop.condition, True):
        count = count if certain_sign(count) == 1 else maximum(count, 1)
    elif _less(loop.condition) == (first, end):
        count = at_least_zero(count)
    else:
        return False
    loop.trip = count if loop.trip is None else minimum(loop.trip, count)
    loop.condition, loop.counted = None, True
    return True


def _is_certain(condition: Value, wanted: bool) -> bool:
    """Whether a condition is known to be that."""
    return condition.array is not None and bool(np.all(condition.array == wanted))


def _bound(attempt: Attempt, condition: Value) -> tuple[Expr, Expr] | None:
    """(counter, end) for `counter < end`, where the counter grows by 1 per iteration."""
    found = None if condition.ssa is None else _less(condition)
    if found is None:
        return None
    counter, end = found
    one_more = counter - attempt.step
    depends = attempt.counter in one_more.symbols or attempt.frame.hides(end)
    return None if depends or attempt.frame.hides(one_more) else found


def _less(condition: Value) -> tuple[Expr, Expr] | None:
    """(a, b) if the condition is a < b for two sizes."""
    op = None if condition.ssa is None else condition.ssa.owner
    if not isinstance(op, LessOp | GreaterOp | LessEqualOp):
        return None
    left, right = map(only_size, op.operands)
    if left is None or right is None:
        return None
    if isinstance(op, GreaterOp):
        return right, left
    return left, right + isinstance(op, LessEqualOp)


# ---------------------------------------------------------------------- the operation
def _finish(
    build: Builder, loop: Loop, attempt: Attempt
) -> tuple[list[Value], list[Value]]:
    """Build the operation once everything about the body is known."""
    frame, turn = attempt.frame, attempt.turn
    going = None if loop.counted else turn.condition
    all_calls = loop.condition is None and going is None
    if all_calls and loop.trip is None:
        raise Fault("its condition is always true, and nothing limits the number of iterations")
    counters = {k: loop.count(k, loop.trip) for k in loop.rates
                if all_calls and loop.trip is not None}
    carried = [k for k in loop.varying if k not in counters]
    captured = _close(build, attempt, carried, None if all_calls else _or_true(build, going))
    for place, k in reversed([*enumerate(loop.varying)]):
        if k in counters:
            frame.block.erase_arg(frame.block.args[place])
    frame.arrange(captured)
    defines: list[Symbol] = []
    types = [loop.type_of(k, lambda: defined(build, defines)) for k in carried]
    types += [_stacked(build, loop, frame, v, all_calls, defines) for v in turn.stacked]
    results = iter(build.add(LoopOp.of(
        frame.name, attempt.counter, loop.trip,
        None if all_calls else flag(build, _or_true(build, loop.condition)),
        [build.ssa(loop.initial[k]) for k in carried], [build.ssa(v) for v in captured], types,
        defines)))
    last = [v if k in loop.fixed else counters[k] if k in counters else next(results)
            for k, v in enumerate(loop.initial)]
    return last, list(results)


def _close(
    build: Builder, attempt: Attempt, carried: Sequence[int], condition: Value | None
) -> list[Value]:
    """Finish the body with its results, and return the values that it captures."""
    turn = attempt.turn
    with build.within(attempt.frame):
        values = [] if condition is None else [flag(build, condition)]
        values += [build.ssa(turn.carried[k]) for k in carried]
        values += [build.ssa(v) for v in turn.stacked]
    return attempt.frame.close(values)


def _or_true(build: Builder, condition: Value | None) -> Value:
    return constant(build, np.array(True)) if condition is None else condition


def _stacked(
    build: Builder, loop: Loop, frame: Frame, value: Value, all_calls: bool, defines: list[Symbol]
) -> TensorType:
    """The type of one value per call."""
    count = loop.trip if all_calls and loop.trip is not None else defined(build, defines)
    return t.tensor(value.element, [count, *(
        defined(build, defines) if frame.hides(s) else s for s in value.shape)])

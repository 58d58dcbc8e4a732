"""Combines two functions that have been built into a `strata.if` (loops are in loops.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.frames import Frame, Mark
from compiler.frontend.values import Value, computed, constant
from dialects.graph.elementwise import SubOp
from dialects.graph.shape import BroadcastOp, ReshapeOp
from dialects.graph.unary import CastOp
from dialects.records import dataclass
from dialects.strata import types as t
from dialects.strata.control import IfOp
from dialects.strata.sizes import SizeOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol


class Mismatch(Fault):
    """The results of the branches differ in rank. `of_single_elements`: all that do are single
    elements, so that they can be given the same rank."""

    of_single_elements = False


@dataclass
class Branch:
    """A branch that has been built, and its results."""

    frame: Frame
    results: Sequence[Value]


def flag(build: Builder, condition: Value) -> SSAValue:
    """A condition with a single element, as i1[]."""
    if condition.element != t.i1 or condition.type.count.constant not in (1, None):
        raise Fault(f"its condition is {condition.type.short}; it must be a single truth value")
    return build.ssa(condition if not condition.rank else build(ReshapeOp, condition, shape=[]))


# ---------------------------------------------------------------------- branches
def join(
    build: Builder, condition: Value, then: Branch, otherwise: Branch, mark: Mark,
    deepen: bool = False,
) -> list[Value]:
    """The results of one of two branches, which have equal element types and ranks.

    `mark`: taken before the branches were built, to discard them if they turn out to be
    unnecessary, because results that both have in common need no operation. They have none in
    common where a branch made a choice: it holds only in runs that take the branch, and the calls
    that break it must be noticed. Raises Mismatch if they differ in type.

    `deepen`: where single elements differ in rank, the result has the higher rank.
    """
    if deepen:
        then, otherwise = (
            _deepened(build, *pair) for pair in ((then, otherwise), (otherwise, then)))
    branches = (then, otherwise)
    chosen_within = build.choices.count != mark.choices
    shared = [None if chosen_within else _shared(build, then, otherwise, k)
              for k in range(len(then.results))]
    open_ = [k for k, value in enumerate(shared) if value is None]
    defines: list[Symbol] = []
    types = [_joined(build, then, otherwise, k, defines) for k in open_]
    if not open_:
        build.restore(mark)
        return [v for v in shared if v is not None]
    captured: dict[Value, None] = {}
    for branch in branches:
        with build.within(branch.frame):
            values = [build.ssa(branch.results[k]) for k in open_]
        captured |= dict.fromkeys(branch.frame.close(values))
    for branch in branches:
        branch.frame.arrange(list(captured))
    chosen = iter(build.add(IfOp.of(
        flag(build, condition), then.frame.name, otherwise.frame.name,
        [build.ssa(v) for v in captured], types, defines)))
    return [next(chosen) if value is None else value for value in shared]


def _deepened(build: Builder, branch: Branch, other: Branch) -> Branch:
    """The branch with the ranks of single elements raised to those in the other branch."""
    results = list(branch.results)
    for k, (own, wanted) in enumerate(zip(results, other.results, strict=True)):
        if _single(own) and _single(wanted) and own.rank < wanted.rank:
            build.faults.warn(f"result {k} of node '{build.node}' is {own.type.short} in one "
                              f"branch and {wanted.type.short} in the other; the latter is used")
            with build.within(branch.frame):
                results[k] = build(ReshapeOp, own, shape=list(wanted.shape))
    return Branch(branch.frame, results)


def _single(value: Value) -> bool:
    return value.type.count.constant == 1


def untaken(
    build: Builder, condition: Value, truth: bool, like: Branch, name: str, reason: str
) -> Branch:
    """Build a stand-in for the branch that is taken if the condition is `truth`, and that cannot be
    computed. Taking it is an error at run time. Its results are zeros with the types of the results
    of `like`, the other branch.

    `reason`: the error message of a run that takes it.
    """
    with build.function(name) as frame:
        node, build.node = build.node, reason
        flag_ = build(ReshapeOp, frame.view(condition), shape=[])
        taken = build(CastOp, flag_, to=t.i64)
        if not truth:
            taken = build(SubOp, constant(build, np.array(1)), taken)
        size = build.new_size("taken")
        build.add(SizeOp.of([*size.symbols], build.ssa(taken)))
        build.assume(size, "<=", 0)
        build.node = node
        return Branch(frame, [zeros(build, v.type.dtype, [
            Expr.of(0) if like.frame.hides(s) else s for s in v.shape]) for v in like.results])


def zeros(build: Builder, dtype: np.dtype[Any], shape: Sequence[Expr]) -> Value:
    """A tensor of zeros."""
    zero = constant(build, np.zeros((), dtype), node=build.node)
    return build(BroadcastOp, zero, shape=list(shape)) if shape else zero


def _shared(build: Builder, then: Branch, otherwise: Branch, k: int) -> Value | None:
    """Result k if it is the same value in both branches, otherwise None."""
    a, b = then.results[k], otherwise.results[k]
    if a.type == b.type and a.origin is not None and _source(a) is _source(b):
        return _source(a)
    if a.array is not None and b.array is not None:
        same = a.type == b.type and np.array_equal(a.array, b.array)
        return constant(build, a.array, a.label, build.node) if same else None
    left, right = a.expressions, b.expressions
    if a.type != b.type or left is None or right is None or not np.array_equal(left, right):
        return None
    hidden = any(then.frame.hides(Expr.of(e)) for e in left.reshape(-1))
    return None if hidden else computed(build, left, a.type, build.node)


def _source(value: Value) -> Value:
    """The value of an enclosing function that a view refers to."""
    while value.origin is not None:
        value = value.origin
    return value


def _joined(
    build: Builder, then: Branch, otherwise: Branch, k: int, defines: list[Symbol]
) -> TensorType:
    """The type of result k; sizes that differ, or that are local to a branch, get names."""
    a, b = then.results[k].type, otherwise.results[k].type
    if (a.element, a.rank) != (b.element, b.rank):
        kind = Mismatch if a.element == b.element else Fault
        fault = kind(
            f"its result {k} is {a.short} in one branch and {b.short} in the other",
            "both must have one element type, and one number of dims in all iterations, unless "
            "the condition is known: fix the sizes that it depends on with --dim or --shape")
        if isinstance(fault, Mismatch):
            fault.of_single_elements = all(
                x.rank == y.rank or (_single(x) and _single(y))
                for x, y in zip(then.results, otherwise.results, strict=True))
        raise fault
    sizes: list[Expr] = []
    for left, right in zip(a.shape, b.shape, strict=True):
        known = left == right and not then.frame.hides(left) and not otherwise.frame.hides(left)
        sizes.append(left if known else defined(build, defines))
    return t.tensor(a.element, sizes)


def defined(build: Builder, defines: list[Symbol]) -> Expr:
    """A new size, added to those that an operation defines."""
    size = build.new_size("size")
    defines += size.symbols
    return size

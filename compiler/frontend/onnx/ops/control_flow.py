"""Operators with subgraphs: If, Loop, Scan.

If the condition of an If is known, its branch is imported into the enclosing graph. All other
subgraphs become functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from compiler.frontend import formulas as f
from compiler.frontend.branches import Branch, Mismatch, join, untaken
from compiler.frontend.choices import choose, equal, unequal
from compiler.frontend.elements import only_size
from compiler.frontend.faults import Fault, Skip
from compiler.frontend.frames import Frame, Mark
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.slicing import entry_of_turn, reversed_
from compiler.frontend.onnx.sequences import AnyValue, Forms
from compiler.frontend.peeling import repeat
from compiler.frontend.slices import at_least_zero
from compiler.frontend.values import Value
from dialects.graph.logic import EqualOp
from dialects.graph.shape import ReshapeOp
from dialects.graph.unary import CastOp, NotOp
from dialects.strata import types as t
from dialects.strata.assumptions import MAX_SIZE
from dialects.symbolic.expr import Expr

StructuredTurn = tuple[Value | None, list[AnyValue], list[AnyValue]]
"""The condition to continue (None: true), the carried values, and the values to be stacked."""

_BRANCHES = {"then_branch": "then", "else_branch": "else"}


def known_truth(value: Value) -> bool | None:
    """A single truth value if it is known at compile time, otherwise None."""
    found = None if value.expressions is None else value.expressions.reshape(-1)
    if found is None or found.size != 1 or (number := Expr.of(found[0]).constant) is None:
        return None
    return bool(number)


@onnx_op("If", structured=True)
def if_(n: Node, condition: Value) -> list[AnyValue]:
    known = known_truth(condition)
    if known is not None:
        name = "then_branch" if known else "else_branch"
        return n.run(name, _BRANCHES[name])
    mark, equality = n.build.mark(), size_equality(n, condition)
    try:
        return _joined(n, condition, mark, *_branches(n, condition, mark))
    except Mismatch as mismatch:
        n.build.restore(mark)
        found = _chosen(n, condition, equality)
        if found is not None:
            return found
        if not mismatch.of_single_elements:
            raise
    return _joined(n, condition, mark, *_branches(n, condition, mark), deepen=True)


_Built = tuple[Frame, list[AnyValue]]


def _branches(n: Node, condition: Value, mark: Mark) -> list[_Built]:
    """Both branches.

    If one of them has a problem, for instance for these sizes only, a run that takes it fails, as
    in onnxruntime. Raises Skip if both have one, or if known contents of inputs might solve it.
    """
    built = [_branch(n, name, label) for name, label in _BRANCHES.items()]
    good = [branch for branch in built if branch is not None]
    if not good or n.build.faults.unknown - mark.faults[1]:
        raise Skip
    if len(good) == len(built):
        return good
    problem = n.build.faults.problems[mark.faults[0]]
    n.build.restore(mark)
    wrong = list(_BRANCHES.values())[built.index(None)]
    n.build.faults.warn(f"the {wrong} branch of node '{n.name}' cannot be computed, and must not "
                        f"be taken: {problem.what} (node '{problem.node}')")
    return _with_untaken(n, condition, wrong, f"{problem.node}: {problem.what}")


def _with_untaken(n: Node, condition: Value, wrong: str, reason: str) -> list[_Built]:
    """Both branches, where taking the one called `wrong` ends the run with an error."""
    [(name, label)] = [(name, label) for name, label in _BRANCHES.items() if label != wrong]
    good = _branch(n, name, label)
    if good is None:
        raise Skip
    forms = Forms.of(good[1])
    like = _as_tensors(n, forms, *good)
    zeros = untaken(n.build, condition, wrong == "then", like, f"{n.name}_{wrong}", reason)
    found = zeros.frame, forms.join(zeros.results)
    return [found, good] if wrong == "then" else [good, found]


def _joined(
    n: Node, condition: Value, mark: Mark, then: _Built, otherwise: _Built, *,
    deepen: bool = False,
) -> list[AnyValue]:
    if len(then[1]) != len(otherwise[1]):
        raise Fault("its branches have different numbers of results")
    forms = Forms.of(then[1])
    forms.learn(Forms.of(otherwise[1]))
    first, second = (_as_tensors(n, forms, *branch) for branch in (then, otherwise))
    return forms.join(join(n.build, condition, first, second, mark, deepen))


def _as_tensors(n: Node, forms: Forms, frame: Frame, results: list[AnyValue]) -> Branch:
    with n.build.within(frame):
        return Branch(frame, forms.split(n.build, results))


def _chosen(
    n: Node, condition: Value, equality: tuple[Expr, Expr, str] | None
) -> list[AnyValue] | None:
    """One of two branches whose results differ in rank, as a choice; None where runs take both.

    If the condition compares two sizes, it is the branch for equal sizes. Exporters write such
    conditions although they hold for all inputs that the model is made for: if this dim is 1,
    squeeze it. For all other conditions, it is the branch for true.
    """
    if equality is not None:
        left, right, name = equality
        other = next(b for b in _BRANCHES if b != name)
        outcomes = [equal(left, right, name), unequal(left, right, other)]
    else:
        sizes = n.build.bind(condition.reshape([]).cast(t.i64), "taken")
        if sizes is None:
            return None
        taken = Expr.of(sizes.reshape(-1)[0])
        outcomes = [equal(taken, 1 - k, name) for k, name in enumerate(_BRANCHES)]
    name = choose(n.build, outcomes)
    return n.run(name, _BRANCHES[name]) if name else None


def size_equality(n: Node, condition: Value) -> tuple[Expr, Expr, str] | None:
    """For a condition that compares two sizes: (a, b, the branch to take if they are equal)."""
    name, ssa = "then_branch", n.build.frame.source(condition)
    while ssa is not None and isinstance(ssa.owner, NotOp | CastOp | ReshapeOp):
        if isinstance(ssa.owner, NotOp):
            name = "else_branch" if name == "then_branch" else "then_branch"
        ssa = ssa.owner.operands[0]
    if ssa is None or not isinstance(ssa.owner, EqualOp):
        return None
    left, right = map(only_size, ssa.owner.operands)
    return None if left is None or right is None else (left, right, name)


def _branch(n: Node, name: str, label: str) -> tuple[Frame, list[AnyValue]] | None:
    """One branch; None if it has a problem, which is recorded."""
    with n.build.function(f"{n.name}_{label}") as frame:
        try:
            return frame, n.run(name, label)
        except Skip:
            return None


# ---------------------------------------------------------------------- loops
@onnx_op("Loop", structured=True)
def loop(
    n: Node, trip: Value | None = None, condition: Value | None = None, *initial: AnyValue
) -> list[AnyValue]:
    """The condition input of a body is always true, since otherwise the body would not run."""
    going = None if condition is None or known_truth(condition) else condition
    count = None if trip is None else trip_count(n, trip)

    def body(step: Expr, carried: list[AnyValue]) -> StructuredTurn:
        inputs = [n.of_size(step), n.constant(np.array(True)), *carried]
        again, *results = n.run("body", "body", inputs)
        if not isinstance(again, Value):
            raise Fault("the condition of its body is not a tensor")
        more = None if known_truth(again) else again
        return more, results[:len(initial)], results[len(initial):]

    return repeat_structured(n, count, going, initial, body, _untouched(n))


def _untouched(n: Node) -> set[int]:
    """The carried values that the body returns unchanged, so that known contents stay known."""
    graph = n.graph("body")
    sources = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity"}
    found: set[int] = set()
    for k, (before, after) in enumerate(zip(graph.input[2:], graph.output[1:], strict=False)):
        name = after.name
        while name in sources and name != before.name:
            name = sources.pop(name)
        found |= {k} if name == before.name else set()
    return found


class _Reformed(Exception):
    """A carried sequence needs another form, so the loop must be built again."""


def repeat_structured(
    n: Node, trip: Expr | None, condition: Value | None, initial: Sequence[AnyValue],
    body: Callable[[Expr, list[AnyValue]], StructuredTurn],
    untouched: Collection[int] = (),
) -> list[AnyValue]:
    """The same as `repeat`, for carried values that may be sequences and optionals.

    `untouched`: the indices of carried values that are known to stay unchanged.
    """
    forms = Forms.of(initial)

    def turn(step: Expr, parts: list[Value]) -> Turn:
        again, carried, stacked = body(step, forms.join(parts))
        if forms.learn(Forms.of(carried)):
            raise _Reformed
        tensors = [v for v in stacked if isinstance(v, Value)]
        if len(tensors) < len(stacked):
            raise Fault("only tensors can be stacked, but its body returns a sequence")
        return Turn(again, forms.split(n.build, carried), tensors)

    while True:
        mark = n.build.mark()
        first = forms.split(n.build, initial)
        try:
            fixed = {p for k, places in enumerate(forms.places) if k in untouched for p in places}
            plan = Loop(f"{n.name}_body", trip, condition, first, fixed, forms.ranks)
            last, stacked = repeat(n.build, plan, turn)
        except _Reformed:
            n.build.restore(mark)
        else:
            return [*forms.join(last), *stacked]


def trip_count(n: Node, trip: Value) -> Expr | None:
    """The maximum number of iterations; None for a number that no machine reaches."""
    known = trip.expressions
    if known is not None:
        count = at_least_zero(Expr.of(known.reshape(-1)[0]))
        return None if count.constant is not None and count.constant > MAX_SIZE else count
    number = trip.cast(t.i64)
    clamped = f.minimum(f.maximum(number, 0), MAX_SIZE)
    return n.known_sizes(clamped, "trips")[0]


# ---------------------------------------------------------------------- scan
@onnx_op("Scan", since=9)
def scan(n: Node, *inputs: Value) -> list[Value]:
    """Iterate over an axis of each of the last inputs, each in its own direction."""
    count = n.integer("num_scan_inputs")
    if not 0 < count <= len(inputs):
        raise Fault(f"num_scan_inputs is {count}; it must be from 1 to the number of inputs, "
                    f"{len(inputs)}")
    states, scanned = inputs[:len(inputs) - count], inputs[len(inputs) - count:]
    axes = _axes(n, "scan_input_axes", scanned)
    backward = n.ints("scan_input_directions", [0] * count)
    if len(backward) != count:
        raise Fault(f"scan_input_directions has {len(backward)} entries, not {count}")
    moved = [_front(x, axis) for x, axis in zip(scanned, axes, strict=True)]
    carried, stacked = _scan(n, states, moved, backward)
    return [*carried, *_placed(n, stacked)]


def _scan(
    n: Node, states: Sequence[Value], scanned: Sequence[Value], backward: Sequence[int]
) -> tuple[list[Value], list[Value]]:
    """The final states, and the stacked results.

    The first dim of all scanned inputs and of the stacked results is the step.
    """
    for x in scanned[1:]:
        n.build.assume(x.shape[0], "==", scanned[0].shape[0])

    def body(step: Expr, carried: list[Value]) -> Turn:
        inputs = [entry_of_turn(n, x, x.shape[0] - 1 - step if back else step)
                  for x, back in zip(scanned, backward, strict=True)]
        results = n.run_tensors("body", "body", [*carried, *inputs])
        return Turn(None, results[:len(states)], results[len(states):])

    return repeat(n.build, Loop(f"{n.name}_body", scanned[0].shape[0], None, list(states)), body)


def _axes(n: Node, name: str, values: Sequence[Value]) -> list[int]:
    given = n.ints(name, [0] * len(values))
    if len(given) != len(values):
        raise Fault(f"{name} has {len(given)} entries, not {len(values)}")
    return [n.axis(a, v.rank) for a, v in zip(given, values, strict=True)]


def _front(x: Value, axis: int) -> Value:
    """x with an axis moved to the front."""
    return x.transpose([axis, *(k for k in range(x.rank) if k != axis)])


def _placed(n: Node, stacked: Sequence[Value]) -> list[Value]:
    """Stacked results, with the steps in the node's direction and on the node's axis."""
    axes = _axes(n, "scan_output_axes", stacked)
    backward = n.ints("scan_output_directions", [0] * len(stacked))
    results: list[Value] = []
    for x, axis, back in zip(stacked, axes, backward, strict=True):
        turned = reversed_(n, x) if back else x
        order = list(range(1, x.rank))
        results.append(turned.transpose([*order[:axis], 0, *order[axis:]]))
    return results


@onnx_op("Scan", since=8)
def scan_of_batch(n: Node, lengths: Value | None, *inputs: Value) -> list[Value]:
    """Opset 8: the first dim of all inputs is the batch; the second dim of scanned ones, the step.
    """
    if lengths is not None:
        raise Fault("sequence_lens are not supported", "convert the model to opset 9 or later")
    count = n.integer("num_scan_inputs")
    cut = len(inputs) - count
    backward = n.ints("directions", [0] * count)

    def body(item: Expr, carried: list[Value]) -> Turn:
        parts = [entry_of_turn(n, x, item) for x in inputs]
        last, stacked = _scan(n, parts[:cut], parts[cut:], backward)
        return Turn(None, carried, [*last, *stacked])

    return repeat(n.build, Loop(f"{n.name}_items", inputs[0].shape[0], None, []), body)[1]


"""Operators on sequences and optionals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import AttributeProto

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.loops import Loop, Turn
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.onnx.ops.control_flow import (
    StructuredTurn,
    known_truth,
    repeat_structured,
)
from compiler.frontend.onnx.ops.slicing import entry
from compiler.frontend.onnx.sequences import (
    AnyValue,
    Items,
    Optional,
    Run,
    Texts,
    at_run,
    flattened,
    shape_row,
)
from compiler.frontend.peeling import repeat
from compiler.frontend.values import Value
from dialects.graph.reduce import ReduceProdOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr, minimum
from dialects.symbolic.size_products import product

Sequence = Items | Run


def _sequence(value: AnyValue) -> Sequence:
    if not isinstance(value, Items | Run):
        raise Fault("its input is not a sequence")
    return value


# ---------------------------------------------------------------------- construction
@onnx_op("SequenceEmpty", since=11)
def sequence_empty(n: Node) -> Items:
    return Items(n.element("dtype", t.f32), ())


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(n: Node, *values: Value) -> Items:
    if len({v.element for v in values}) > 1:
        raise Fault("its inputs have different element types")
    return Items(values[0].element, values)


@onnx_op("SequenceInsert", since=11, structured=True)
def sequence_insert(
    n: Node, given: AnyValue, value: AnyValue, position: Value | None = None
) -> Sequence:
    sequence = _sequence(given)
    if not isinstance(value, Value) or value.element != sequence.element:
        raise Fault("the inserted tensor does not have the sequence's element type")
    place = _known_place(sequence, position, 1)
    if isinstance(sequence, Items) and place is not None:
        items = list(sequence.items)
        items.insert(place, value)
        return Items(sequence.element, tuple(items))
    run = at_run(n.build, sequence, value.rank)
    if run.rank != value.rank:
        raise Fault(f"a tensor of {value.rank} dims is inserted among tensors of {run.rank}")
    new = _alone(n, value)
    if position is None:
        return _joined(run, new)
    before, after = _around(n, run, _place(n, run, position, 1), 0)
    return _joined(before, new, after)


@onnx_op("SequenceErase", since=11, structured=True)
def sequence_erase(n: Node, given: AnyValue, position: Value | None = None) -> Sequence:
    sequence = _sequence(given)
    place = _known_place(sequence, position, 0)
    if isinstance(sequence, Items) and place is not None:
        return Items(sequence.element, (*sequence.items[:place], *sequence.items[place + 1:]))
    run = at_run(n.build, sequence)
    return _joined(*_around(n, run, _place(n, run, position), 1))


def _known_place(sequence: Sequence, position: AnyValue | None, room: int) -> int | None:
    """Where to insert (room 1) or erase (room 0), if it is known. By default that is the end."""
    if not isinstance(position, Value | None):
        raise Fault("its position is a sequence instead of a number")
    if not isinstance(sequence, Items):
        return None
    count = len(sequence.items)
    if position is None:
        return count - 1 + room
    if position.expressions is None:
        return None
    place = Expr.of(position.expressions.reshape(-1)[0]).constant
    if place is not None and not -count <= place < count + room:
        raise Fault(f"position {place} is outside of its sequence of {count}")
    return None if place is None else place + count if place < 0 else place


# ---------------------------------------------------------------------- sequences of unknown length
def _place(n: Node, run: Run, position: Value | None, room: int = 0) -> Expr:
    """A position as a size, counted from the front. `room`: 1 if it may be the end."""
    if position is None:
        return run.length - 1
    n.require(-run.length, position, run.length + room)
    if position.expressions is not None:
        place = Expr.of(position.expressions.reshape(-1)[0])
        return run.length + place if (place.constant or 0) < 0 else place
    place = position.cast(t.i64).reshape(())
    count = n.of_size(run.length)
    is_negative = place < 0
    return n.known_sizes(f.where(is_negative, place + count, place), "position")[0]


def _start(n: Node, run: Run, place: Expr) -> Expr:
    """The offset in `data` of the tensor at a position, or the end of `data`."""
    sizes = run.shapes.part(0, 0, place)
    counts = n(ReduceProdOp, sizes, axes=[1], keepdims=False)
    return n.known_sizes(f.reduce_sum(counts, axes=[0]), "start")[0]


def _around(n: Node, run: Run, place: Expr, gone: int) -> tuple[Run, Run]:
    """The tensors before a position, and those after the `gone` tensors that start there."""
    start, end = _start(n, run, place), _start(n, run, place + gone)
    total = run.data.shape[0]
    before = Run(run.data.part(0, 0, start), run.shapes.part(0, 0, place))
    after = Run(run.data.part(0, end, total - end),
                run.shapes.part(0, place + gone, run.length - place - gone))
    return before, after


def _joined(*runs: Run) -> Run:
    return Run(f.concat((r.data for r in runs), axis=0), f.concat((r.shapes for r in runs), axis=0))


def _alone(n: Node, value: Value) -> Run:
    """The sequence of one tensor."""
    return Run(flattened(n.build, value), shape_row(n.build, value))


def _tensor(n: Node, run: Run, place: Expr) -> Value:
    """The tensor at a place."""
    sizes = n.known_sizes(entry(run.shapes, place), "size")
    start = _start(n, run, place)
    return run.data.part(0, start, product(sizes)).reshape(sizes)


# ---------------------------------------------------------------------- elements and length
@onnx_op("SequenceAt", since=11, structured=True)
def sequence_at(n: Node, given: AnyValue, position: Value) -> Value:
    sequence = _sequence(given)
    place = _known_place(sequence, position, 0)
    if isinstance(sequence, Items) and place is not None:
        return sequence.items[place]
    run = at_run(n.build, sequence)
    return _tensor(n, run, _place(n, run, position))


@onnx_op("SequenceLength", since=11, structured=True)
def sequence_length(n: Node, given: AnyValue) -> Value:
    return n.of_size(_length(_sequence(given)))


def _length(sequence: Sequence) -> Expr:
    return Expr.of(len(sequence.items)) if isinstance(sequence, Items) else sequence.length


# ---------------------------------------------------------------------- joining
@onnx_op("ConcatFromSequence", since=11, structured=True)
def concat_from_sequence(n: Node, given: AnyValue) -> Value:
    sequence = _sequence(given)
    if isinstance(sequence, Run):
        return _concat_run(n, sequence)
    if not sequence.items:
        raise Fault("its sequence is empty")
    parts, axis = list(sequence.items), _joining_axis(n, sequence.items[0].rank)
    if n.flag("new_axis"):
        parts = [p.reshape([*p.shape[:axis], 1, *p.shape[axis:]]) for p in parts]
    return f.concat(parts, axis=axis) if len(parts) > 1 else parts[0]


def _joining_axis(n: Node, rank: int) -> int:
    return n.axis(n.integer("axis"), rank + n.flag("new_axis"))


def _concat_run(n: Node, run: Run) -> Value:
    """Tensors stored one after another are already joined along the first dim."""
    axis = _joining_axis(n, run.rank)
    sizes = n.known_sizes(entry(run.shapes, Expr.of(0)), "size")
    if n.flag("new_axis"):
        stacked = _as_shape(n, run.data, [run.length, *sizes])
        return stacked.transpose([*range(1, axis + 1), 0, *range(axis + 1, run.rank + 1)])
    if axis == 0:
        rows = run.shapes.part(1, 0, 1)
        [total] = n.known_sizes(f.reduce_sum(rows, axes=[0, 1]), "total")
        return _as_shape(n, run.data, [total, *sizes[1:]])
    shape = [Expr.of(0) if k == axis else s for k, s in enumerate(sizes)]
    nothing = n.scalar(0, run.data).broadcast(shape)

    def body(step: Expr, carried: list[Value]) -> Turn:
        return Turn(None, [f.concat([carried[0], _tensor(n, run, step)], axis=axis)], [])

    return repeat(n.build, Loop(f"{n.name}_join", run.length, None, [nothing]), body)[0][0]


def _as_shape(n: Node, data: Value, sizes: list[Expr]) -> Value:
    n.build.assume(data.shape[0], "==", product(sizes))
    return data.reshape(sizes)


# ---------------------------------------------------------------------- splitting
MAX_PIECES = 4096
"""The maximum size of an axis that is split at compile time. Longer ones are split by a loop."""


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(n: Node, x: Value, sizes: Value | None = None) -> Sequence:
    axis = n.axis(n.integer("axis"), x.rank)
    size = x.shape[axis]
    if sizes is not None and sizes.rank == 1:
        parts = n.known_sizes(sizes, "sizes")
        n.build.assume(sum(parts, Expr.of(0)), "==", size)
        return _pieces(x, axis, parts, False)
    each = Expr.of(1) if sizes is None else n.known_sizes(sizes, "size")[0]
    single = sizes is None and not n.flag("keepdims", True)
    if size.constant is None or each.constant is None or size.constant > MAX_PIECES:
        return _split_at_run(n, x, axis, each, single)
    if each.constant < 1:
        raise Fault(f"the size of its pieces is {each.constant}")
    whole, rest = divmod(size.constant, each.constant)
    parts = [each] * whole + [Expr.of(rest)] * bool(rest)
    return _pieces(x, axis, parts, single)


def _pieces(x: Value, axis: int, parts: list[Expr], single: bool) -> Items:
    start, items = Expr.of(0), list[Value]()
    for size in parts:
        items.append(_piece(x, axis, start, size, single))
        start = start + size
    return Items(x.element, tuple(items))


def _piece(x: Value, axis: int, start: Expr, size: Expr, single: bool) -> Value:
    """A part of an axis. With `single`, the axis, of one entry, is removed."""
    piece = x.part(axis, start, size)
    return piece.reshape([*x.shape[:axis], *x.shape[axis + 1:]]) if single else piece


def _split_at_run(n: Node, x: Value, axis: int, each: Expr, single: bool) -> Sequence:
    """Pieces of an axis, whose number is known only at run time."""
    size = x.shape[axis]
    [count] = n.known_sizes(n.of_sizes([size.ceildiv(each)]), "count")
    empty = at_run(n.build, Items(x.element, ()), x.rank - single)

    def body(step: Expr, carried: list[AnyValue]) -> StructuredTurn:
        start = step * each
        piece = _piece(x, axis, start, minimum(each, size - start), single)
        [so_far] = carried
        assert isinstance(so_far, Run)
        return None, [_joined(so_far, _alone(n, piece))], []

    [found] = repeat_structured(n, count, None, [empty], body)
    return _sequence(found)


# ---------------------------------------------------------------------- map
@onnx_op("SequenceMap", since=17, structured=True)
def sequence_map(n: Node, given: AnyValue, *others: AnyValue) -> list[AnyValue]:
    """Call the body for each position of the sequences, and collect its results in sequences.

    Inputs that are tensors are passed to every call.
    """
    sequence = _sequence(given)
    inputs = [sequence, *others]
    if all(isinstance(v, Items | Value) for v in inputs):
        assert isinstance(sequence, Items)
        rows = [n.run_tensors("body", "body", [_at_known(v, k) for v in inputs])
                for k in range(len(sequence.items))]
        return [Items(column[0].element, tuple(column)) for column in zip(*rows, strict=True)]
    runs = [at_run(n.build, v) if isinstance(v, Items | Run) else v for v in inputs]
    return _map_at_run(n, _length(sequence), runs)


def _at_known(value: AnyValue, place: int) -> Value:
    return value.items[place] if isinstance(value, Items) else _plain(value)


def _plain(value: AnyValue) -> Value:
    if not isinstance(value, Value):
        raise Fault("its inputs must be sequences and tensors")
    return value


def _map_at_run(n: Node, count: Expr, inputs: Iterable[AnyValue]) -> list[AnyValue]:
    """A loop that appends to its results.

    The body is first built once on trial, to find the element types and ranks of the results.
    """
    def call(step: Expr) -> list[Value]:
        return n.run_tensors("body", "body", [
            _tensor(n, v, step) if isinstance(v, Run) else _plain(v) for v in inputs])

    mark = n.build.mark()
    with n.build.function(f"{n.name}_look") as frame:
        frame.step = step = n.build.names.size("step")
        kinds = [(v.element, v.rank) for v in call(Expr.symbol(step))]
    n.build.restore(mark)
    empties = [at_run(n.build, Items(element, ()), rank) for element, rank in kinds]

    def body(step: Expr, carried: list[AnyValue]) -> StructuredTurn:
        longer: list[AnyValue] = [_joined(so_far, _alone(n, v)) for so_far, v in zip(
            carried, call(step), strict=True) if isinstance(so_far, Run)]
        return None, longer, []

    return repeat_structured(n, count, None, empties, body)


# ---------------------------------------------------------------------- optionals
@onnx_op("Optional", since=15, structured=True)
def optional(n: Node, value: AnyValue | None = None) -> Optional:
    """An optional with the value, or an empty one of the type in the attribute."""
    there = n.constant(np.array(value is not None))
    if isinstance(value, Optional | Texts):
        kind = "strings" if isinstance(value, Texts) else "an optional"
        raise Fault(f"an optional of {kind} is not supported")
    return Optional(there, value if value is not None else _absent(n))


def _absent(n: Node) -> Items | None:
    """The contents of an empty optional: an empty sequence for a sequence type, else None."""
    found = n.attributes.get("type")
    if found is None or found.type != AttributeProto.TYPE_PROTO:
        raise Fault("neither a value nor a type is given")
    kind = found.tp
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if not kind.HasField("sequence_type"):
        return None
    return Items(element_type(kind.sequence_type.elem_type.tensor_type.elem_type), ())


@onnx_op("OptionalHasElement", since=15, structured=True)
def optional_has_element(n: Node, value: AnyValue | None = None) -> Value:
    """Whether an optional holds a value. Tensors and sequences do, a missing input does not."""
    return value.present if isinstance(value, Optional) else n.constant(np.array(value is not None))


@onnx_op("OptionalGetElement", since=15, structured=True)
def optional_get_element(n: Node, value: AnyValue) -> AnyValue:
    if not isinstance(value, Optional):
        return value
    there = known_truth(value.present)
    if there is False or value.content is None:
        raise Fault("its optional is empty")
    if there is None:  # checked at run time
        [present] = n.known_sizes(value.present.cast(t.i64), "present")
        n.build.assume(present, "==", 1)
    return value.content

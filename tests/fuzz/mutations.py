"""Model files that something went wrong with: mutant number k, always the same.

A mutant is a seed model after one to four mutations: of its bytes, or of its messages, of which any
field of any may change. A value is replaced by a strange one, or by one from another model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.seed_models import NUMBER_COMPOSED, WEIGHTS_FILE, seed_models

STRANGE_INTEGERS = (0, 0, -1, 1, 2, 3, 4, 5, 7, 9, 16, 64, 100, 1000, 2**20, 2**31 - 1, 2**31,
                    -2**31, 2**40, 2**62, 2**63 - 1, -2**63, -2, -7)
STRANGE_FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 3e38, 1e300)
STRANGE_TEXTS = ("", "x", "y", "n", "\0", "a b", "../up", "/etc/passwd", WEIGHTS_FILE, "é" * 9,
                 "z" * 5000, "%s", "n + 1", "-1", "i0", "ai.onnx", "com.microsoft", "ai.onnx.ml")
Random = np.random.Generator


def mutant(number: int) -> bytes:
    """A serialized model, or what was one."""
    random = np.random.default_rng([number, 14])
    model = onnx.ModelProto.FromString(_seed(random))
    kinds = random.choice(len(MUTATIONS), _choose((1, 1, 1, 2, 3, 4), random), p=WEIGHTS)
    for kind in kinds:
        MUTATIONS[kind](model, random)
    data = model.SerializeToString()
    return _spoil(data, random) if random.random() < 0.2 else data


def _seed(random: Random) -> bytes:
    """A composed model in one of three cases, else an operator's sample."""
    seeds = seed_models()
    composed = random.random() < 0.35
    low, high = (0, NUMBER_COMPOSED) if composed else (NUMBER_COMPOSED, len(seeds))
    return seeds[random.integers(low, high)]


def _choose(items: Sequence[Any], random: Random) -> Any:
    return items[int(random.integers(0, len(items)))]


# ---------------------------------------------------------------------- bytes
def _spoil(data: bytes, random: Random) -> bytes:
    """Bits turned over, bytes left out, put in, repeated, or cut off."""
    data, kind = bytearray(data), random.integers(0, 5)
    place = int(random.integers(0, len(data) or 1))
    end = place + int(random.integers(1, 20))
    if kind == 0:
        for k in random.integers(0, len(data) or 1, random.integers(1, 6)):
            data[k:k + 1] = bytes(b ^ (1 << int(random.integers(0, 8))) for b in data[k:k + 1])
    elif kind == 1:
        del data[place:end]
    elif kind == 2:
        data[place:place] = random.bytes(end - place)
    elif kind == 3:
        data[end:end] = data[place:end]
    else:
        del data[place:]
    return bytes(data)


# ---------------------------------------------------------------------- fields
def _messages(message: Message) -> Iterator[Message]:
    """A message and all within it."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)


def _pick(model: Message, random: Random) -> tuple[Message, FieldDescriptor] | None:
    """A message with something in it, and one of the fields that it has."""
    message = _choose(list(_messages(model)), random)
    fields = [field for field, _ in message.ListFields()]
    return (message, _choose(fields, random)) if fields else None


def change_field(model: onnx.ModelProto, random: Random) -> None:
    """Another value for a number, a text, or one of several; a message is cleared."""
    picked = _pick(model, random)
    if picked is None:
        return
    message, field = picked
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _change_messages(message, field, model, random)
    old = getattr(message, field.name)
    if not field.is_repeated:
        setattr(message, field.name, _other(field, old, model, random))
    elif len(old):
        old[int(random.integers(0, len(old)))] = _other(field, old[0], model, random)


def _other(field: FieldDescriptor, old: Any, model: Message, random: Random) -> Any:
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return _choose(STRANGE_FLOATS, random)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _spoil(old, random)
    if field.type == FieldDescriptor.TYPE_STRING:
        return _choose([*STRANGE_TEXTS, *_texts(model)], random)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _choose(field.enum_type.values, random).number
    number = _choose([*STRANGE_INTEGERS, old + 1, old - 1, old * 2, -old], random)
    if field.type == FieldDescriptor.TYPE_INT32:
        return (number + 2**31) % 2**32 - 2**31
    return number % 2**64 if field.type == FieldDescriptor.TYPE_UINT64 else (
        (number + 2**63) % 2**64 - 2**63)


def _texts(model: Message) -> list[str]:
    """All texts of a model."""
    return [text for message in _messages(model) for field, value in message.ListFields()
            if field.type == FieldDescriptor.TYPE_STRING
            for text in (value if field.is_repeated else [value])]


def _change_messages(
    message: Message, field: FieldDescriptor, model: Message, random: Random
) -> None:
    """Leave one out, repeat it, swap two, or put one in its place from elsewhere."""
    if not field.is_repeated:
        message.ClearField(field.name)
        return
    items, kind = getattr(message, field.name), random.integers(0, 4)
    k = int(random.integers(0, len(items)))
    if kind == 0:
        del items[k]
    elif kind == 1:
        items.add().CopyFrom(items[k])
    elif kind == 2:
        items.insert(int(random.integers(0, len(items))), items.pop(k))
    else:
        same = [m for m in _messages(model) if m.DESCRIPTOR is items[k].DESCRIPTOR]
        _replace(items[k], _choose(same, random))


def _replace(old: Message, new: Message) -> None:
    """Put a message in the place of another, which it may contain, or be a part of."""
    apart = type(new)()
    apart.CopyFrom(new)
    old.CopyFrom(apart)


def change_list(model: onnx.ModelProto, random: Random) -> None:
    """A list of numbers or names becomes shorter, longer, or goes out of order."""
    lists = [value for message in _messages(model) for field, value in message.ListFields()
             if field.is_repeated and field.type != FieldDescriptor.TYPE_MESSAGE]
    if not lists:
        return
    values, kind = _choose(lists, random), random.integers(0, 4)
    if kind == 0:
        values.pop()
    elif kind == 1:
        values.extend([values[0]] * int(random.integers(1, 9)))
    elif kind == 2:
        values[:] = list(values)[::-1]
    else:
        del values[:]


# ---------------------------------------------------------------------- what a graph is made of
def _all(model: Message, kind: type[Message]) -> list[Any]:
    return [m for m in _messages(model) if m.DESCRIPTOR.full_name == kind.DESCRIPTOR.full_name]


def change_edge(model: onnx.ModelProto, random: Random) -> None:
    """A node reads another value, perhaps its own result."""
    nodes = _all(model, onnx.NodeProto)
    names = [name for n in nodes for name in (*n.input, *n.output)]
    users = [n for n in nodes if n.input]
    if users:
        user = _choose(users, random)
        user.input[int(random.integers(0, len(user.input)))] = _choose([*names, ""], random)


def change_type(model: onnx.ModelProto, random: Random) -> None:
    """An input, an initializer or a cast of another element type."""
    tensors = [*_all(model, onnx.TensorProto), *_all(model, onnx.TypeProto.Tensor)]
    if tensors:
        tensor = _choose(tensors, random)
        name = "data_type" if isinstance(tensor, onnx.TensorProto) else "elem_type"
        setattr(tensor, name, int(random.integers(0, 27)))


def change_shape(model: onnx.ModelProto, random: Random) -> None:
    """A dim of an input, of an initializer, or a number in a list that may be a shape."""
    tensors = [t for t in _all(model, onnx.TensorProto) if t.dims]
    shapes = [t for t in _all(model, onnx.TensorShapeProto) if t.dim]
    found = [*tensors, *shapes]
    if not found:
        return
    size, tensor = _choose(STRANGE_INTEGERS, random), _choose(found, random)
    if isinstance(tensor, onnx.TensorProto):
        tensor.dims[int(random.integers(0, len(tensor.dims)))] = size
    elif random.random() < 0.3:
        _choose(tensor.dim, random).dim_param = _choose(STRANGE_TEXTS, random)
    else:
        _choose(tensor.dim, random).dim_value = size


def change_contents(model: onnx.ModelProto, random: Random) -> None:
    """A constant, perhaps a shape or an axis, with other numbers in it."""
    tensors = [t for t in _all(model, onnx.TensorProto) if t.raw_data]
    if not tensors:
        return
    tensor = _choose(tensors, random)
    numbers = bytearray(tensor.raw_data)
    if tensor.data_type == onnx.TensorProto.INT64:
        new = np.int64(_choose(STRANGE_INTEGERS, random)).tobytes()
    else:
        new = np.float32(_choose(STRANGE_FLOATS, random)).tobytes()
    place = len(new) * int(random.integers(0, max(len(numbers) // len(new), 1)))
    numbers[place:place + len(new)] = new
    tensor.raw_data = bytes(numbers)


def change_attribute(model: onnx.ModelProto, random: Random) -> None:
    """Another kind, another name, or strange numbers."""
    attributes = _all(model, onnx.AttributeProto)
    if not attributes:
        return
    attribute, kind = _choose(attributes, random), random.integers(0, 6)
    if kind == 0:
        attribute.type = int(random.integers(0, 15))
    elif kind == 1:
        attribute.name = _choose(attributes, random).name
    elif kind == 2:
        attribute.ref_attr_name = _choose([attribute.name, "", "axis"], random)
    elif kind == 3:
        attribute.f, attribute.floats[:] = math.nan, [math.nan] * len(attribute.floats)
    else:
        number = _choose(STRANGE_INTEGERS, random)
        attribute.i, attribute.ints[:] = number, [
            _choose([i, number], random) for i in attribute.ints]


def graft(model: onnx.ModelProto, random: Random) -> None:
    """Nodes of another model, which work on values of this one."""
    other = onnx.ModelProto.FromString(_seed(random))
    names = [name for n in model.graph.node for name in (*n.input, *n.output)] or [""]
    for node in other.graph.node[:3]:
        for k, name in enumerate(node.input):
            node.input[k] = _choose([*names, name], random)
        model.graph.node.append(node)
        names += node.output
    model.graph.initializer.extend(other.graph.initializer)
    if model.graph.output:
        model.graph.output[0].name = names[-1]


def swap_part(model: onnx.ModelProto, random: Random) -> None:
    """A message in the place of another of its kind, from another model."""
    theirs = _choose(list(_messages(onnx.ModelProto.FromString(_seed(random)))), random)
    places = [m for m in _messages(model) if m.DESCRIPTOR is theirs.DESCRIPTOR and m is not model]
    if places:
        _choose(places, random).CopyFrom(theirs)


# ---------------------------------------------------------------------- nesting
def nest(model: onnx.ModelProto, random: Random) -> None:
    """The whole graph inside of the branches of If nodes, a few or very many deep."""
    for _ in range(_choose((1, 2, 5, 20, 60), random)):
        inner = onnx.GraphProto(name="inner")
        inner.node.extend(model.graph.node)
        inner.output.extend(model.graph.output)
        condition = _choose([*(i.name for i in model.graph.input), "gone"], random)
        outer = onnx.NodeProto(op_type="If", input=[condition], name="deep",
                               output=[o.name for o in model.graph.output])
        small = onnx.GraphProto(name="small", output=inner.output)
        small.node.add(op_type="Relu", input=[condition], output=outer.output[:1])
        branches = {"then_branch": inner, "else_branch": _choose((inner, small), random)}
        for name, graph in branches.items():
            outer.attribute.add(name=name, type=onnx.AttributeProto.GRAPH, g=graph)
        if outer.ByteSize() > 1 << 17:
            return
        del model.graph.node[:]
        model.graph.node.append(outer)


def call(model: onnx.ModelProto, random: Random) -> None:
    """The graph as a function that calls another, which calls another, ... or itself."""
    graph, depth = model.graph, _choose((1, 2, 5, 20, 100, 1000), random)
    times, closed = _choose((1, 1, 2), random), random.random() < 0.2
    inputs, outputs = [i.name for i in graph.input], [o.name for o in graph.output]
    for k in range(depth):
        function = model.functions.add(domain="deep", name=f"f{k}", input=inputs, output=outputs)
        function.opset_import.extend(model.opset_import)
        function.opset_import.add(domain="deep", version=1)
        following = "f0" if closed and k == depth - 1 else f"f{k + 1}"
        for repeat in range(times):
            names = outputs if not repeat else [f"{o}_{repeat}" for o in outputs]
            function.node.add(op_type=following, domain="deep", input=inputs, output=names)
    last = model.functions.add(domain="deep", name=f"f{depth}", input=inputs, output=outputs)
    last.opset_import.extend(model.opset_import)
    last.node.extend(graph.node)
    del graph.node[:]
    graph.node.add(op_type="f0", domain="deep", input=inputs, output=outputs)
    model.opset_import.add(domain="deep", version=1)


Mutation = Callable[[onnx.ModelProto, Random], None]
CHANCES: dict[Mutation, int] = {
    change_field: 12, change_list: 3, change_edge: 3, change_type: 4, change_shape: 6,
    change_contents: 4, change_attribute: 6, graft: 5, swap_part: 3, nest: 1, call: 1}
MUTATIONS = tuple(CHANCES)
WEIGHTS = np.array(list(CHANCES.values())) / sum(CHANCES.values())


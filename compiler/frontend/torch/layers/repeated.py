"""Layers of a captured graph that repeat: only a few are imported.

    part 0, part 1, ..., part 31     -->     part 0, ..., part 4, part 31

Parts are equal if they have the same operators with the same arguments, results of the same types,
operands from the same places of their own or of the part before, and weights of the same types. A
part's results are read by the next part alone. `left_out` are the nodes of parts in the middle:
the last part reads the results of the last one before them instead. After the import,
`graph-call-layers` makes a function of what is left (`expansion.py`).

Only weights whose contents may be replaced can differ, because nothing depends on their contents.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, cast

from compiler.frontend.torch.provenance import path_of
from passes.analyses.graph.repetition import Repetition, Steps

KEPT = 6
"""How many parts are imported: enough for the four calls that a function is worth, if borders move
by a part and the first part is fused with what is before it."""
LEAST = 24
"""The fewest nodes that are worth leaving out."""

Slot: TypeAlias = "tuple[int, int]"
Place: TypeAlias = "tuple[str, Any]"
Names: TypeAlias = "dict[int | Slot, str]"
"""The names of a part's nodes and weights, by their places in the part."""


class Part(NamedTuple):
    """The nodes of a part, what each of their operands is, and the weights among the operands.

    Keys are the places of nodes in the part, and their places with the numbers of operands.
    """

    nodes: Mapping[int, Any]
    operands: Mapping[Slot, Place]
    weights: Mapping[Slot, str]


@dataclass(frozen=True)
class Repeated:
    """The parts, and the slots of the weights that are others in each of them.

    `before` and `after`: the nodes around the parts as if they were parts, too. They may differ in
    what they read, and only give the names that calls have whose borders are not those of parts.
    """

    parts: Sequence[Part]
    own: Sequence[Slot]
    before: Part
    after: Part

    @property
    def kept(self) -> list[Part]:
        return [*self.parts[:KEPT - 1], self.parts[-1]]

    @cached_property
    def left_out(self) -> frozenset[Any]:
        return frozenset(n for part in self.parts[KEPT - 1:-1] for n in part.nodes.values())

    @cached_property
    def stand_ins(self) -> dict[Any, Any]:
        """Nodes that are left out and that the last part reads -> those that it reads instead."""
        instead = self.parts[KEPT - 2].nodes
        return {node: instead[k] for k, node in self.parts[-2].nodes.items()}

    def unused(self) -> frozenset[str]:
        """The weights that only parts read that are left out."""
        return frozenset(part.weights[k] for part in self.parts[KEPT - 1:-1] for k in self.own)

    def names(self, parts: Sequence[Part], labels: Mapping[str, str]) -> list[Names]:
        """The names of parts and what is around them, as the locations of operations have them."""
        return [{**{k: path_of(node) for k, node in part.nodes.items()},
                 **{slot: labels.get(part.weights[slot], part.weights[slot])
                    for slot in self.own if slot in part.weights}}
                for part in (self.before, *parts, self.after)]


def find_repeated(graph: Any, parameters: Collection[str]) -> Repeated | None:
    """The equal parts of a graph; None if there are too few to leave some out."""
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    if len(nodes) < KEPT + LEAST:
        return None
    steps = Steps(nodes, [_kind(n, parameters) for n in nodes])
    found = _longest(steps)
    return None if found is None else _checked(nodes, found, parameters)


def _longest(steps: Steps) -> Repetition | None:
    """The repetition of which most nodes can be left out."""
    found = None
    for length in steps.lengths(KEPT + 2):
        for first, last in steps.runs(length):
            count = (last - first) // length + 1
            if (count - KEPT) * length >= LEAST and count > KEPT + 1 and (
                    found is None or count * length > found.count * found.length):
                found = Repetition(first, length, count, length)
    return found


# ---------------------------------------------------------------------- what makes nodes equal
def _kind(node: Any, parameters: Collection[str]) -> Hashable:
    value = node.meta.get("val")
    used = [_key(user.args[1:], parameters) for user in node.users] if isinstance(
        value, (list, tuple)) else None
    return (node.target, _key(node.args, parameters), _key(node.kwargs, parameters),
            _type(value), str(used))


def _key(argument: Any, parameters: Collection[str]) -> Hashable:
    """What an argument is, apart from which result or parameter."""
    if hasattr(argument, "all_input_nodes"):
        if argument.op == "call_function":
            return "result"
        if argument.name in parameters:
            return "parameter", _type(argument.meta.get("val"))
        return "other", argument.name
    if isinstance(argument, (list, tuple)):
        return tuple(_key(a, parameters) for a in cast(Sequence[Any], argument))
    if isinstance(argument, Mapping):
        items = cast(Mapping[str, Any], argument).items()
        return tuple((k, _key(a, parameters)) for k, a in items)
    return type(argument).__name__, str(argument)


def _type(value: Any) -> Hashable:
    """The type of a result, as the fake tensor tells."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_type, cast(Sequence[Any], value)))
    if hasattr(value, "dtype"):
        return value.dtype, str(tuple(value.shape)), str(value.stride()), str(value.device)
    return type(value).__name__, str(value)


# ---------------------------------------------------------------------- whether parts are equal
def _checked(
    nodes: Sequence[Any], found: Repetition, parameters: Collection[str]
) -> Repeated | None:
    """The parts of a repetition; None if they are not wired alike."""
    length, count = found.length, found.count
    places = {node: divmod(k - found.start, length) for k, node in enumerate(nodes)}
    parts = [_part(n, found, nodes, places, parameters) for n in range(-1, count + 1)]
    before, wired, after = parts[0], parts[1:-1], parts[-1]
    own = _own_weights([part.weights for part in wired])
    alike = all(part.operands == wired[1].operands for part in wired[2:]) and _starts(
        wired[0].operands, wired[1].operands)
    if own is None or not alike:
        return None
    for n, part in enumerate(wired):
        read = {operand for node in part.nodes.values() for operand in _operands(node)
                if operand.name in {part.weights[slot] for slot in own}}
        results = part.nodes.values() if n + 1 < count else ()
        if any(_place(user, places)[0] not in (n, n + 1) for v in results for user in v.users) or (
                any(_place(user, places)[0] != n for v in read for user in v.users)):
            return None
    return Repeated(wired, own, before, after)


def _place(node: Any, places: Mapping[Any, tuple[int, int]]) -> tuple[int, int]:
    """The part of a node, and its place there."""
    return places.get(node, (-2, 0))


def _part(
    number: int, found: Repetition, nodes: Sequence[Any],
    places: Mapping[Any, tuple[int, int]], parameters: Collection[str],
) -> Part:
    """The part of a number; -1 and `count` are around the parts, and may be cut off."""
    own = {k: nodes[at] for k, at in enumerate(found.part(number)) if 0 <= at < len(nodes)}
    operands, weights = dict[Slot, Place](), dict[Slot, str]()
    for k, node in own.items():
        for j, operand in enumerate(_operands(node)):
            there, place = _place(operand, places)
            if operand.name in parameters:
                weights[k, j] = operand.name
                operands[k, j] = "weight", list(weights.values()).index(operand.name)
            elif operand in places and number - there in (0, 1) and there >= 0:
                operands[k, j] = f"{number - there} before", place
            else:
                operands[k, j] = "outside", operand.name
    return Part(own, operands, weights)


def _operands(node: Any) -> Iterator[Any]:
    """The nodes among a node's arguments, in order."""
    return _nodes_in([node.args, node.kwargs])


def _nodes_in(argument: Any) -> Iterator[Any]:
    if hasattr(argument, "all_input_nodes"):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for inner in cast(Sequence[Any], argument):
            yield from _nodes_in(inner)
    elif isinstance(argument, Mapping):
        for inner in cast(Mapping[str, Any], argument).values():
            yield from _nodes_in(inner)


def _starts(first: Mapping[Slot, Place], second: Mapping[Slot, Place]) -> bool:
    """Whether the first part is wired as the others, but for what these read of the part before.
    """
    return first.keys() == second.keys() and all(
        a == second[k] or (second[k][0] == "1 before" and a[0] == "outside")
        for k, a in first.items())


def _own_weights(weights: Sequence[Mapping[Slot, str]]) -> list[Slot] | None:
    """The slots of the weights that each part has for itself; None if parts share some of them."""
    own = [k for k in weights[0] if len({part[k] for part in weights}) > 1]
    sets = [{part[k] for k in own} for part in weights]
    shared = {name for part in weights for k, name in part.items() if k not in own}
    is_apart = len(set[str]().union(*sets, shared)) == sum(map(len, sets)) + len(shared)
    return own if is_apart else None

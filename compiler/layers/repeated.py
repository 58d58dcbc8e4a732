"""Layers of a model that repeat: only a few are imported.

    part 0, part 1, ..., part 31     -->     part 0, ..., part 4, part 31

Parts are equal if they have the same operators with the same arguments, operands from the same
places of their own or of the part before, and weights of the same types. A part's results are read
by the next part alone. The parts in the middle are left out: the last part reads the results of
the last one before them instead. After the import, `graph-call-layers` makes a function of what is
left (`expansion.py`).

A frontend describes its nodes as `LayerNode`s. Only weights whose contents nothing depends on may
differ.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, cast

from dialects.records import dataclass
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


class NotAlike(Exception):
    """The imported parts do not stand for the others, or did not become calls of one function."""


class LayerNode(NamedTuple):
    """A node of a model.

    `name`: as the locations of operations have it. `kind`: what equal nodes share, apart from what
    they read; None if the node equals no other. `operands`, `results`: the names of the values that
    it reads and makes; a result may have the name "". `node`: the frontend's own.
    """

    name: str
    kind: Hashable
    operands: Sequence[str]
    results: Sequence[str]
    node: Any


class Part(NamedTuple):
    """The nodes of a part, what each of their operands is, and the weights and constants among
    them.

    Keys are the places of nodes in the part, and their places with the numbers of operands.
    """

    nodes: Mapping[int, LayerNode]
    operands: Mapping[Slot, Place]
    weights: Mapping[Slot, str]
    constants: Mapping[Slot, str]


@dataclass(frozen=True)
class Repeated:
    """The parts, the slots of the weights that are others in each of them (`own`), and those of the
    constants that only have other names (`named`).

    `gap`: the places of the nodes that are left out. `before` and `after`: the nodes around the
    parts as if they were parts, too. They may differ in what they read, and only give the names
    that calls have whose borders are not those of parts.
    """

    parts: Sequence[Part]
    own: Sequence[Slot]
    named: Sequence[Slot]
    gap: range
    before: Part
    after: Part

    @property
    def kept(self) -> list[Part]:
        return [*self.parts[:KEPT - 1], self.parts[-1]]

    @cached_property
    def stand_ins(self) -> dict[str, str]:
        """The values that are left out -> those of the last part before them."""
        instead = self.parts[KEPT - 2].nodes
        return {name: other for part in self.parts[KEPT - 1:-1] for k, node in part.nodes.items()
                for name, other in zip(node.results, instead[k].results, strict=True) if name}

    def last_results(self) -> list[tuple[str, str]]:
        """Each result of the last two parts before those that are left out."""
        first, second = (self.parts[k].nodes for k in (KEPT - 3, KEPT - 2))
        return [pair for k, node in first.items()
                for pair in zip(node.results, second[k].results, strict=True) if pair[0]]

    @cached_property
    def weights(self) -> frozenset[str]:
        """The weights that differ."""
        return frozenset(part.weights[slot] for part in self.parts for slot in self.own)

    @cached_property
    def later_names(self) -> frozenset[str]:
        """The names of the nodes of all parts but the first."""
        return frozenset(node.name for part in self.parts[1:] for node in part.nodes.values())

    def unused(self) -> frozenset[str]:
        """The weights that only parts read that are left out."""
        return frozenset(part.weights[k] for part in self.parts[KEPT - 1:-1] for k in self.own)

    def names(self, parts: Sequence[Part], labels: Mapping[str, str]) -> list[Names]:
        """The names of parts and what is around them, as the locations of operations have them."""
        return [{**{k: node.name for k, node in part.nodes.items()},
                 **{slot: labels.get(part.weights[slot], part.weights[slot])
                    for slot in self.own if slot in part.weights},
                 **{slot: part.constants[slot] for slot in self.named if slot in part.constants}}
                for part in (self.before, *parts, self.after)]


    def results(self, parts: Sequence[Part]) -> list[dict[Slot, str]]:
        """The names of the results of parts and what is around them."""
        return [{(k, j): name for k, node in part.nodes.items()
                 for j, name in enumerate(node.results) if name}
                for part in (self.before, *parts, self.after)]


def find_repeated(
    nodes: Sequence[LayerNode], weights: Collection[str], used: Collection[str],
    constants: Collection[str] = (),
) -> Repeated | None:
    """The equal parts of a model; None if there are too few to leave some out.

    `weights`: the names of those that may differ. `constants`: the names of those whose contents
    are part of the kinds of nodes. `used`: the values that others than these nodes read, as the
    model's results.
    """
    found = longest([node.kind for node in nodes])
    return None if found is None else _Wiring(nodes, found, weights, constants).checked(used)


def longest(kinds: Sequence[Hashable]) -> Repetition | None:
    """The repetition of which most nodes can be left out, from the kinds of the nodes alone."""
    if len(kinds) < KEPT + LEAST:
        return None
    steps, found = Steps(cast("Sequence[Any]", kinds), kinds), None
    for length in steps.lengths(KEPT + 2):
        for first, last in steps.runs(length):
            count = (last - first) // length + 1
            if (count - KEPT) * length >= LEAST and count > KEPT + 1 and (
                    found is None or count * length > found.count * found.length):
                found = Repetition(first, length, count, length)
    return found


class _Wiring:
    """Where the nodes of a repetition get their operands, and who reads their results."""

    def __init__(
        self, nodes: Sequence[LayerNode], found: Repetition, weights: Collection[str],
        constants: Collection[str],
    ):
        self.nodes, self.found = nodes, found
        self.weights, self.constants = weights, constants
        self.makers: dict[str, tuple[int, Slot]] = {}
        """Value -> the part that makes it, and the place there of the node and of the result."""
        self.readers: dict[str, set[int]] = {}
        """Value -> the parts that read it."""
        for at, node in enumerate(nodes):
            part, place = divmod(at - found.start, found.length)
            self.makers |= {name: (part, (place, k)) for k, name in enumerate(node.results)
                            if name}
            for name in node.operands:
                self.readers.setdefault(name, set()).add(part)

    def checked(self, used: Collection[str]) -> Repeated | None:
        """The parts; None if they are not wired alike."""
        before, *wired, after = (self._part(n) for n in range(-1, self.found.count + 1))
        own = _own_weights([part.weights for part in wired])
        alike = all(part.operands == wired[1].operands for part in wired[2:]) and _starts(
            wired[0].operands, wired[1].operands)
        if own is None or not alike or not all(
                self._is_apart(n, part, own, used) for n, part in enumerate(wired)):
            return None
        gap = range(self.found.part(KEPT - 1).start, self.found.part(self.found.count - 1).start)
        named = [k for k in wired[0].constants if len({p.constants[k] for p in wired}) > 1]
        return Repeated(wired, own, named, gap, before, after)

    def _is_apart(
        self, number: int, part: Part, own: Sequence[Slot], used: Collection[str]
    ) -> bool:
        """Whether only the part itself reads its weights, and only it and the next one its
        results, which may leave the last part."""
        results = [] if number + 1 == self.found.count else [
            name for node in part.nodes.values() for name in node.results if name]
        weights = [part.weights[slot] for slot in own]
        return not any(name in used for name in (*results, *weights)) and all(
            self.readers.get(name, set()) <= {number, number + 1} for name in results) and all(
            self.readers[name] == {number} for name in weights)

    def _part(self, number: int) -> Part:
        """The part of a number; -1 and `count` are around the parts, and may be cut off."""
        own = {k: self.nodes[at] for k, at in enumerate(self.found.part(number))
               if 0 <= at < len(self.nodes)}
        operands, numbers = dict[Slot, Place](), dict[str, int]()
        weights, constants = dict[Slot, str](), dict[Slot, str]()
        for k, node in own.items():
            for j, name in enumerate(node.operands):
                there, place = self.makers.get(name, (-2, (0, 0)))
                if name in self.weights:
                    weights[k, j] = name
                    operands[k, j] = "weight", numbers.setdefault(name, len(numbers))
                elif name in self.constants:
                    constants[k, j] = name
                    operands[k, j] = "constant", numbers.setdefault(name, len(numbers))
                elif there >= 0 and number - there in (0, 1):
                    operands[k, j] = f"{number - there} before", place
                else:
                    operands[k, j] = "outside", name
        return Part(own, operands, weights, constants)


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

"""Calls of a layer for all parts of a graph, of which only a few have been imported.

    %a = strata.call @layer number 0 of ["layers.0/linear"] (%x)          number 0 to 5
                                                                   -->    number 0 to 31

Call k reads what call 0 reads, in the names of the nodes and weights k parts later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Block, OpResult, SSAValue

from compiler.frontend.origins import ModelNode
from compiler.layers.repeated import KEPT, LayerNode, Names, NotAlike, Repeated, Slot
from dialects.graph.constant import ConstantOp, label_of
from dialects.records import dataclass
from dialects.strata.control import CallOp
from dialects.strata.types import WeightAttr, WeightsAttr
from dialects.strata.weights import WeightStore
from dialects.text.syntax import identifier, location, location_names
from passes.base import StrataContext
from passes.graph.call_layers import GraphCallLayers
from passes.rewrites.calls import called
from passes.rewriting import erase, functions

Handle: TypeAlias = "Callable[[str], WeightAttr]"
"""The handle of a weight of a part that was left out, by its label. Raises NotAlike for others."""
Origin: TypeAlias = "Callable[[LayerNode], tuple[str, str]]"
"""The scope and the source line of a node."""


@dataclass
class Expansion:
    """`kept`: the names of the imported parts. `all`: those of all parts."""

    module: ModuleOp
    repeated: Repeated
    kept: Sequence[Names]
    all: Sequence[Names]

    def __post_init__(self) -> None:
        self.places: dict[str, tuple[int, int | Slot]] = {}
        for number, names in enumerate(self.kept):
            for place, name in names.items():
                found = self.places.setdefault(name, (number, place))
                if found[0] != number or type(found[1]) is not type(place):
                    raise NotAlike(f"two parts have '{name}', or a node and a weight")

    def run(self, store: WeightStore, handle: Handle) -> None:
        """Make a function of the imported parts, and call it for all. Raises NotAlike."""
        GraphCallLayers().run(StrataContext(weights=store), self.module)
        found = called(self.module)
        if len(found) != 1:
            raise NotAlike("there is not one function")
        [(name, calls)] = found.items()
        function = next(f for f in functions(self.module) if f.sym_name.data == name)
        pattern = _pattern(calls)
        self._check_names(calls)
        total = len(calls) + len(self.all) - len(self.kept)
        members = [(op, self._weights(op, len(calls), total, handle))
                   for op in function.body.block.ops if isinstance(op, ConstantOp)]
        for op, value in members:
            op.value = value or op.value
        self._name_common(calls[0].parent)
        self._call_all(calls, pattern, total)

    def _name_common(self, block: Block | None) -> None:
        """Let what is computed once for all parts stand for their nodes, too."""
        for op in block.ops if block is not None else ():
            known = [(name, self.places.get(name)) for name in location_names(op)]
            count = Counter(found[1] for _, found in known if found is not None)
            if not isinstance(op, CallOp) and any(n > 1 for n in count.values()):
                op.location = location(*(part for name, found in known for part in (
                    name, *(self._between(found[1]) if found and found[0] == KEPT - 1 else ()))))

    def _between(self, place: int | Slot) -> list[str]:
        """The names in a place of all parts that were left out."""
        return [names[place] for names in self.all[KEPT:-2]]

    def _check_names(self, calls: Sequence[CallOp]) -> None:
        first = calls[0].node_names
        for k, call in enumerate(calls):
            if call.node_names != [self._later(name, k, self.kept) for name in first]:
                raise NotAlike("calls stand for other nodes")

    def _later(self, name: str, count: int, parts: Sequence[Names]) -> str:
        """The name of the node or weight in the place of this one, so many parts later."""
        if name not in self.places:  # of all parts
            return name
        number, place = self.places[name]
        names = parts[number + count] if number + count < len(parts) else {}
        if place not in names:
            raise NotAlike("calls reach beyond the last part")
        return names[place]

    def _weights(
        self, op: ConstantOp, calls: int, total: int, handle: Handle
    ) -> WeightsAttr | None:
        """The value of a constant for all calls; None if it is the same in them."""
        labels = [label_of(weight) for weight in op.weights]
        if not op.varies:
            if any(self.places.get(label, (0, None))[1] in self.repeated.own for label in labels):
                raise NotAlike("a weight of one part is that of all calls")
            return None
        if labels != [self._later(labels[0], k, self.kept) for k in range(calls)]:
            raise NotAlike("calls read other weights")
        known, names = dict(zip(labels, op.weights, strict=True)), [
            self._later(labels[0], k, self.all) for k in range(total)]
        return WeightsAttr(ArrayAttr([known.get(name) or handle(name) for name in names]))

    def _call_all(self, calls: Sequence[CallOp], pattern: Sequence[int], total: int) -> None:
        first, last = calls[0], calls[-1]
        block, before = first.parent, first
        assert block is not None
        types, hints = list(first.result_types), self._hints(first)
        for number in range(1, total):
            names = [self._later(name, number, self.all) for name in first.node_names]
            inputs = [given if k < 0 else before.results[k]
                      for k, given in zip(pattern, first.inputs, strict=True)]
            call = CallOp.of(first.callee.data, number, names, inputs, types)
            call.location = location(*dict.fromkeys(names))
            for result, hint in zip(call.results, hints, strict=True):
                result.name_hint = hint(number)
            block.insert_op_before(call, last)
            before = call
        for old, new in zip(last.results, before.results, strict=True):
            old.replace_all_uses_with(new)
            new.name_hint = old.name_hint
        for call in reversed(calls[1:]):
            erase(call)


    def _hints(self, first: CallOp) -> list[Callable[[int], str | None]]:
        """For each result of the first call, how that of the call of a number is shown."""
        kept, every = (self.repeated.results(parts)
                       for parts in (self.repeated.kept, self.repeated.parts))
        places: dict[str | None, tuple[int, Slot]] = {}
        for number, names in enumerate(kept):
            for place, name in names.items():
                places.setdefault(SSAValue.extract_valid_name(identifier(name)), (number, place))

        def hint(shown: str | None, count: int) -> str | None:
            number, place = places.get(shown, (len(every), None))
            names = every[number + count] if number + count < len(every) else {}
            return identifier(names[place]) if place in names else None

        return [partial(hint, result.name_hint) for result in first.results]


def _pattern(calls: Sequence[CallOp]) -> list[int]:
    """For each operand, which result of the call before it is; -1 for what all calls read.

    Raises NotAlike if calls differ in that, or if others read the result of one but the last.
    """
    found = [[_result_of(value, before, given) for value, given in zip(
        call.inputs, calls[0].inputs, strict=True)] for before, call in pairwise(calls)]
    if any(pattern != found[0] for pattern in found):
        raise NotAlike("calls read other values")
    for call, after in pairwise(calls):
        if any(use.operation is not after for result in call.results for use in result.uses):
            raise NotAlike("others read what a part computes")
    return found[0]


def _result_of(value: SSAValue, before: CallOp, given: SSAValue) -> int:
    if isinstance(value, OpResult) and value.op is before:
        return value.index
    if value is given:
        return -1
    raise NotAlike("calls read values of other operations")


def expand(
    module: ModuleOp, store: WeightStore, repeated: Repeated, nodes: Sequence[ModelNode],
    labels: Mapping[str, str], handle: Handle, origin: Origin,
) -> list[ModelNode]:
    """Call what the imported parts have become for all parts. Returns all nodes of the model.

    `labels`: the labels of weights whose names are others. Raises NotAlike if the parts have not
    become calls of one function.
    """
    kept, every = (repeated.names(parts, labels) for parts in (repeated.kept, repeated.parts))
    Expansion(module, repeated, kept, every).run(store, handle)
    return _all_nodes(nodes, repeated, every, origin)


def _all_nodes(
    nodes: Sequence[ModelNode], repeated: Repeated, every: Sequence[Names], origin: Origin
) -> list[ModelNode]:
    """The nodes that were imported, and those of the parts that were left out between them."""
    by_name, old = {node.name: node for node in nodes}, every[KEPT - 1]
    found: list[ModelNode] = []
    for part, new in zip(repeated.parts[KEPT - 1:-1], every[KEPT:-2], strict=True):
        names = {name: new[place] for place, name in old.items()}
        found += [_own(by_name[old[k]], names, node.name, origin(node))
                  for k, node in part.nodes.items()]
    at = next(k for k, node in enumerate(nodes) if node.name == every[-2][0])
    return [*nodes[:at], *found, *nodes[at:]]


def _own(
    like: ModelNode, names: Mapping[str, str], name: str, origin: tuple[str, str]
) -> ModelNode:
    """A node in the place of another one, in whose part nodes have other names."""
    gone = re.sub(r"'([^']*)'", lambda match: f"'{names.get(match[1], match[1])}'", like.gone)
    return ModelNode(name, like.op, gone, *origin)

"""Validates a model before importing it: operators, names, order, attributes.

All problems are collected, so that they can be fixed at once.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import onnx

from compiler.diagnostics import count_of, some_of
from compiler.frontend.faults import Faults
from compiler.frontend.onnx.functions import Functions
from compiler.frontend.onnx.ops import find_importer
from compiler.frontend.onnx.schema import (
    Schema,
    attribute_kind,
    find_schema,
    newest_opset,
    normalize,
)
from dialects.records import dataclass

NamedNodes = list[tuple[str, onnx.NodeProto]]
Around = tuple[set[str], ...]
MAX_DEPTH = 64
"""The maximum nesting depth of functions and subgraphs."""
MAX_NODES = 200_000
"""The maximum number of nodes with all function calls inlined."""


def node_name(node: onnx.NodeProto, index: int) -> str:
    """The node's own name, else `OpType#index`."""
    return node.name or f"{node.op_type}#{index}"


def named_nodes(graph: onnx.GraphProto) -> NamedNodes:
    return [(node_name(n, k), n) for k, n in enumerate(graph.node)]


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node has as attributes: branches, or the body of a loop."""
    for _, graph in labelled_subgraphs(node):
        yield graph


def labelled_subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Each graph with its label in paths: `then`, `else`, `body`."""
    for attribute in node.attribute:
        label = attribute.name.removesuffix("_branch")
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield label, attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from ((label, graph) for graph in attribute.graphs)


class Extent(NamedTuple):
    """The number of nodes with all calls inlined, and their nesting depth."""

    nodes: int = 0
    depth: int = 0

    def beside(self, other: Extent) -> Extent:
        return Extent(self.nodes + other.nodes, max(self.depth, other.depth))

    def inside(self) -> Extent:
        """The extent of a node that consists of this body."""
        return Extent(self.nodes, self.depth + 1)


@dataclass
class Validation:
    """The checks of one model. `sorted_nodes` are the graph's nodes, each after what it uses."""

    model: onnx.ModelProto
    functions: Functions
    faults: Faults
    sorted_nodes: list[tuple[str, onnx.NodeProto]] = field(
        default_factory=list[tuple[str, onnx.NodeProto]])
    unsupported: dict[tuple[str, str, int], list[str]] = field(
        default_factory=dict[tuple[str, str, int], list[str]])
    extents: dict[str, Extent] = field(default_factory=dict[str, Extent])
    """The extents of the functions that have been checked."""

    def run(self) -> None:
        opsets = self._opsets(self.model.opset_import)
        graph = self.model.graph
        for domain, name in self.functions.defined_twice():
            self.faults.add(f"function {domain}.{name} is defined more than once")
        self._check_extent(self._check_operators(named_nodes(graph), opsets, ()))
        self._report_unsupported()
        if not graph.output:
            self.faults.add("the graph has no outputs")
        self._check_graph(graph, "", ())
        self.sorted_nodes = in_order(graph)

    # ------------------------------------------------------------------ opsets and operators
    def _opsets(self, imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
        opsets = {normalize(o.domain): o.version for o in imports}
        standard, newest = opsets.get("", newest_opset()), newest_opset()
        if standard > newest:
            self.faults.add(f"opset {standard} is newer than the installed onnx package knows "
                            f"({newest})", hint="install a newer onnx or export an older opset")
        for domain, version in opsets.items():
            if version < 1:
                self.faults.add(f"opset {version} of domain '{domain or 'ai.onnx'}' is not a "
                                "version: versions count from 1")
        return opsets

    def _check_operators(
        self, named: Iterable[tuple[str, onnx.NodeProto]], opsets: Mapping[str, int],
        calls: tuple[str, ...],
    ) -> Extent:
        """Check every node's operator, and the node against the operator's schema if there is one.

        `calls`: the functions that are being checked. Returns the extent of the nodes.
        """
        total = Extent()
        for name, node in named:
            function = self.functions.local(node)
            if function is not None:
                total = total.beside(self._check_function(function, calls).inside())
                continue
            self._check_node(name, node, opsets)
            total = total.beside(Extent(nodes=1))
            for label, graph in labelled_subgraphs(node):
                inner = [(f"{name}/{label}/{own}", n) for own, n in named_nodes(graph)]
                total = total.beside(self._check_operators(inner, opsets, calls).inside())
        return total

    def _check_function(self, function: onnx.FunctionProto, calls: tuple[str, ...]) -> Extent:
        """Check a function's body, once, however often it is called."""
        overload = function.overload and f":{function.overload}"
        name = f"{function.domain}.{function.name}{overload}"
        if name in calls:
            self.faults.add(f"function {name} calls itself")
        elif name not in self.extents and len(calls) <= MAX_DEPTH:
            named = [(f"{name}/{node_name(n, k)}", n) for k, n in enumerate(function.node)]
            opsets = self._opsets(function.opset_import)
            self.extents[name] = self._check_operators(named, opsets, (*calls, name))
        return self.extents.get(name, Extent())

    def _check_extent(self, extent: Extent) -> None:
        """Note calls that are nested too deep, or that would inline to too many nodes: a few
        functions that call each other can exceed any memory.
        """
        if extent.depth > MAX_DEPTH:
            self.faults.add(f"functions and subgraphs are nested more than {MAX_DEPTH} deep",
                            hint="inline them before the export")
        if extent.nodes > MAX_NODES:
            self.faults.add(f"with all functions inlined the model has {extent.nodes} nodes; at "
                            f"most {MAX_NODES} are taken")

    def _check_node(self, name: str, node: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
        domain = normalize(node.domain)
        version = opsets.get(domain, 1)
        schema = find_schema(domain, node.op_type, version)
        importer = find_importer(domain, node.op_type, version, self.functions.plugins)
        if importer is None and not self.functions.defined(domain, node.op_type, version):
            self.unsupported.setdefault((domain, node.op_type, version), []).append(name)
            return
        if domain not in opsets and domain:
            self.faults.warn(f"it has operators of domain '{domain}', and does not import that; "
                             f"version {version} is taken")
        elif domain not in opsets:
            self.faults.add("the model imports no opset of the standard domain")
        if schema is not None:
            self._check_signature(name, node, schema)
        elif not domain:  # of other domains ONNX may know nothing
            self.faults.add(f"opset {version} has no operator {node.op_type}", name)

    def _report_unsupported(self) -> None:
        for (domain, op_type, version), nodes in sorted(self.unsupported.items()):
            self.faults.add(
                f"operator {domain or 'ai.onnx'}.{op_type} (opset {version}) is not supported: "
                f"{count_of(nodes, 'node')}, {some_of(nodes)}", hint="export the "
                "model without it, or give its importer in a --plugin file: one function")

    def _check_signature(self, name: str, node: onnx.NodeProto, schema: Schema) -> None:
        """The numbers of inputs and outputs, and the attributes."""
        for count, allowed, what in ((len(node.input), schema.inputs, "inputs"),
                                     (len(node.output), schema.outputs, "outputs")):
            if count not in allowed:
                bound = f"at least {allowed.start}" if count < allowed.start else (
                    f"at most {allowed.stop - 1}")
                self.faults.add(f"the number of {what} of {node.op_type} is {count}; it takes "
                                f"{bound}", name)
        for k in schema.lacking(node.input):
            self.faults.add(f"{node.op_type} needs its input {k}", name)
        for attribute in node.attribute:
            self._check_attribute(name, node.op_type, attribute, schema)
        for missing in sorted(schema.needed - {a.name for a in node.attribute}):
            self.faults.add(f"{node.op_type} needs attribute '{missing}'", name)

    def _check_attribute(
        self, name: str, op_type: str, attribute: onnx.AttributeProto, schema: Schema
    ) -> None:
        wanted = schema.attributes.get(attribute.name)
        if wanted is None:
            self.faults.add(f"{op_type} has no attribute '{attribute.name}' (since opset "
                            f"{schema.since})", name)
        elif attribute.type != wanted:
            self.faults.add(f"attribute '{attribute.name}' of {op_type} is of type "
                            f"{attribute_kind(attribute.type)}, not {attribute_kind(wanted)}", name)

    # ------------------------------------------------------------------ names and order
    def _check_graph(self, graph: onnx.GraphProto, path: str, around: Around) -> None:
        """Note names that are defined twice or nowhere, and cycles; also in subgraphs.

        `path`: that of the node that the graph belongs to, followed by a `/`; `around`: the names
        that are known in the graphs around it.
        """
        self._check_names(graph, path)
        known = (*around, defined_names(graph))
        named = named_nodes(graph)
        for name, node in named:
            for value in node.input:
                if value and not _is_known(value, known):
                    self.faults.add(f"{node.op_type} uses value '{value}', which nothing defines",
                                    f"{path}{name}")
            for label, inner in labelled_subgraphs(node):
                self._check_graph(inner, f"{path}{name}/{label}/", known)
        for output in graph.output:
            if not _is_known(output.name, known):
                what = "graph output" if not path else "output"
                self.faults.add(f"no node defines {what} '{output.name}'", path.rstrip("/"))
        self._check_order(named, path)

    def _check_names(self, graph: onnx.GraphProto, path: str) -> None:
        weights = [t.name for t in (*graph.initializer, *(
            sparse.values for sparse in graph.sparse_initializer))]
        inputs = [i.name for i in graph.input if i.name not in set(weights)]
        results = [o for n in graph.node for o in n.output if o]
        seen: set[str] = set()
        for name in sorted(w for w, times in Counter(weights).items() if times > 1):
            self.faults.warn(f"initializer '{name}' is given more than once; the last one is used")
        for name in (*inputs, *dict.fromkeys(weights), *results):
            if name in seen:
                self.faults.add(f"value '{name}' is defined more than once", path.rstrip("/"))
            seen.add(name)

    def _check_order(self, named: NamedNodes, path: str) -> None:
        """Note a cycle."""
        waits = _waits(named)
        order = _order(waits)
        if len(order) < len(named):
            cycle = _cycle(waits, set(range(len(named))) - set(order))
            self.faults.add(f"nodes depend on each other in a cycle: "
                            f"{some_of([path + named[k][0] for k in cycle], 10)}",
                            path + named[cycle[0]][0])


# ---------------------------------------------------------------------- names and order
def _is_known(name: str, known: Around) -> bool:
    return any(name in names for names in reversed(known))


def weight_names(graph: onnx.GraphProto) -> set[str]:
    """The names of a graph's own tensors, dense or sparse."""
    return {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}


def defined_names(graph: onnx.GraphProto) -> set[str]:
    """The names that a graph defines."""
    names = {i.name for i in graph.input} | weight_names(graph)
    return names | {o for n in graph.node for o in n.output if o}


def free_names(graph: onnx.GraphProto) -> set[str]:
    """The names that a graph uses and does not define, which belong to enclosing graphs."""
    used = {o.name for o in graph.output}
    for node in graph.node:
        used |= used_names(node)
    return used - defined_names(graph)


def used_names(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, also in its subgraphs."""
    used = {name for name in node.input if name}
    for graph in subgraphs(node):
        used |= free_names(graph)
    return used


def _waits(named: NamedNodes) -> list[set[int]]:
    """For each node, the indices of the nodes whose results it uses, also in its subgraphs."""
    makers = {o: k for k, (_, n) in enumerate(named) for o in n.output if o}
    return [{makers[v] for v in used_names(node) if v in makers} for _, node in named]


def in_order(graph: onnx.GraphProto) -> NamedNodes:
    """The nodes, each after those it uses, otherwise in the model's order. Without cycles."""
    named = named_nodes(graph)
    return [named[k] for k in _order(_waits(named))]


def _order(waits: Sequence[set[int]]) -> list[int]:
    """Indices, each after those that it depends on, otherwise ascending. Those in cycles are left
    out.
    """
    if all(not w or max(w) < k for k, w in enumerate(waits)):
        return list(range(len(waits)))
    users: list[list[int]] = [[] for _ in waits]
    for k, wait in enumerate(waits):
        for maker in wait:
            users[maker].append(k)
    open_, order = [len(w) for w in waits], list[int]()
    ready = [k for k, count in enumerate(open_) if not count]
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for user in users[k]:
            open_[user] -= 1
            if not open_[user]:
                heapq.heappush(ready, user)
    return order


def _cycle(waits: Sequence[set[int]], stuck: set[int]) -> list[int]:
    """One cycle among nodes that all depend on others of them."""
    path: list[int] = [min(stuck)]
    while True:
        following = min(waits[path[-1]] & stuck)
        if following in path:
            return path[path.index(following):]
        path.append(following)

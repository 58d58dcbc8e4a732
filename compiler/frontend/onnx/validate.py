"""What can be said of a model before importing it: operators, names, order, attributes.

Everything is noted at once, so that a model has to be mended only once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from compiler.diagnostics import count_of, some_of
from compiler.frontend.onnx.faults import Faults
from compiler.frontend.onnx.functions import Functions
from compiler.frontend.onnx.ops import find_importer
from compiler.frontend.onnx.schema import (
    OLDEST_OPSET,
    Schema,
    attribute_kind,
    find_schema,
    newest_opset,
    normalize,
)

Nodes = Sequence[onnx.NodeProto]


def node_name(node: onnx.NodeProto, index: int) -> str:
    """The node's own name, else `OpType#index`."""
    return node.name or f"{node.op_type}#{index}"


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

    def run(self) -> None:
        opsets = self._opsets(self.model.opset_import)
        graph = self.model.graph
        named = [(node_name(n, k), n) for k, n in enumerate(graph.node)]
        self._check_operators(named, opsets, frozenset())
        self._report_unsupported()
        given = self._check_names(graph)
        self.sorted_nodes = self._sort(named, given)
        self._check_outputs(graph, given)

    # ------------------------------------------------------------------ opsets and operators
    def _opsets(self, imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
        opsets = {normalize(o.domain): o.version for o in imports}
        standard, newest = opsets.get("", newest_opset()), newest_opset()
        if standard > newest:
            self.faults.add(f"opset {standard} is newer than the installed onnx package knows "
                            f"({newest})", hint="install a newer onnx or export an older opset")
        return opsets

    def _check_operators(
        self, named: Iterable[tuple[str, onnx.NodeProto]], opsets: Mapping[str, int],
        inside: frozenset[str],
    ) -> None:
        """Check every node's operator and, where there is a schema, the node against it."""
        for name, node in named:
            function = self.functions.local(node)
            if function is not None:
                self._check_function(function, inside)
            else:
                self._check_node(name, node, opsets)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    inner = [(f"{name}/{node_name(n, k)}", n)
                             for k, n in enumerate(attribute.g.node)]
                    self._check_operators(inner, opsets, inside)

    def _check_function(self, function: onnx.FunctionProto, inside: frozenset[str]) -> None:
        name = f"{function.domain}.{function.name}"
        if name in inside:
            self.faults.add(f"function {name} calls itself")
            return
        named = [(f"{name}/{node_name(n, k)}", n) for k, n in enumerate(function.node)]
        self._check_operators(named, self._opsets(function.opset_import), inside | {name})

    def _check_node(self, name: str, node: onnx.NodeProto, opsets: Mapping[str, int]) -> None:
        domain = normalize(node.domain)
        version = opsets.get(domain, 1)
        schema = find_schema(domain, node.op_type, version)
        importer = find_importer(domain, node.op_type, version)
        if importer is None and not self.functions.defined(domain, node.op_type, version):
            self.unsupported.setdefault((domain, node.op_type, version), []).append(name)
        elif domain not in opsets:
            self.faults.add(f"operator {node.op_type} is of domain '{node.domain}', which the "
                            "model does not import", name)
        elif schema is not None:
            self._check_age(node, version, schema)
            self._check_signature(name, node, schema)
        elif not domain:  # of other domains ONNX may know nothing
            self.faults.add(f"opset {version} has no operator {node.op_type}", name)

    def _check_age(self, node: onnx.NodeProto, version: int, schema: Schema) -> None:
        """Before the oldest version that is read, operators may mean something else."""
        if normalize(node.domain) or version >= OLDEST_OPSET:
            return
        oldest = find_schema("", node.op_type, OLDEST_OPSET)
        if oldest is None or oldest.since != schema.since:
            self.faults.add(f"opset {version} is too old for operator {node.op_type}",
                            hint=f"convert the model to opset {OLDEST_OPSET} or later with "
                            "onnx.version_converter")

    def _report_unsupported(self) -> None:
        for (domain, op_type, version), nodes in sorted(self.unsupported.items()):
            self.faults.add(
                f"operator {domain or 'ai.onnx'}.{op_type} (opset {version}) is not supported: "
                f"{count_of(nodes, 'node')}, {some_of(nodes)}", hint="export the "
                "model without it, or add its importer to compiler/frontend/onnx/ops: one function")

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
    def _check_names(self, graph: onnx.GraphProto) -> set[str]:
        """Note names that are defined twice; the names known before any node runs."""
        weights = [t.name for t in graph.initializer]
        inputs = [i.name for i in graph.input if i.name not in set(weights)]
        results = [o for n in graph.node for o in n.output if o]
        seen: set[str] = set()
        for name in (*inputs, *weights, *results):
            if name in seen:
                self.faults.add(f"value '{name}' is defined more than once")
            seen.add(name)
        for tensor in graph.sparse_initializer:
            self.faults.add(f"initializer '{tensor.values.name}' is sparse; only dense ones are "
                            "supported")
        return {*inputs, *weights}

    def _sort(
        self, named: list[tuple[str, onnx.NodeProto]], given: set[str]
    ) -> list[tuple[str, onnx.NodeProto]]:
        """The nodes, each after those it uses, otherwise in the model's order.

        Notes values that nothing defines, and cycles.
        """
        makers = {o: k for k, (_, n) in enumerate(named) for o in n.output if o}
        waits: list[set[int]] = []
        for name, node in named:
            for value in node.input:
                if value and value not in given and value not in makers:
                    self.faults.add(f"{node.op_type} uses value '{value}', which nothing defines",
                                    name)
            waits.append({makers[v] for v in node.input if v in makers and v not in given})
        order = _order(waits)
        if len(order) < len(named):
            cycle = _cycle(waits, set(range(len(named))) - set(order))
            self.faults.add(f"nodes depend on each other in a circle: "
                            f"{some_of([named[k][0] for k in cycle], 10)}", named[cycle[0]][0])
        return [named[k] for k in order]

    def _check_outputs(self, graph: onnx.GraphProto, given: set[str]) -> None:
        made = {o for n in graph.node for o in n.output}
        if not graph.output:
            self.faults.add("the graph has no outputs")
        for output in graph.output:
            if output.name not in made and output.name not in given:
                self.faults.add(f"graph output '{output.name}' is defined by no node")


def _order(waits: Sequence[set[int]]) -> list[int]:
    """Indices, each after all that it waits for, else ascending; those in cycles are left out."""
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
    """One cycle among nodes that all wait for others of them."""
    path: list[int] = [min(stuck)]
    while True:
        following = min(waits[path[-1]] & stuck)
        if following in path:
            return path[path.index(following):]
        path.append(following)

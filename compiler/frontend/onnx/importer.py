"""Imports an ONNX file as a module with `strata.func @main` over graph operations.

The input is a file's path and the user's options; the result is the module, its weights and its
name. Shape computations become size expressions over the names of the inputs' sizes. Every
operation has the name of its node as location.

Problems are collected and raised together: first those that validation finds, then those of nodes
whose shapes or attributes contradict each other. Nodes that depend on a bad node are skipped.

A name that a subgraph does not define belongs to an enclosing graph. A subgraph that becomes a
function of its own accesses such values through views (compiler/frontend/frames.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import BlockArgument, Operation

from compiler.diagnostics import StrataError, log
from compiler.frontend import ImportedModel, ImportOptions
from compiler.frontend.builder import Builder
from compiler.frontend.choices import Choices, first_possible
from compiler.frontend.faults import LEVEL, Fault, Faults, Skip, UnknownValue
from compiler.frontend.onnx.declared import check_declared
from compiler.frontend.onnx.functions import (
    Functions,
    attributes_of,
    call_attributes,
    opsets_of,
    standard_body,
)
from compiler.frontend.onnx.inputs import Inputs, defaults_of, defaults_replaced
from compiler.frontend.onnx.layers import find_layers, is_settled
from compiler.frontend.onnx.load import OnnxFile, load_file, parse
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import find_importer, takes_sequences
from compiler.frontend.onnx.origin import origin_of
from compiler.frontend.onnx.schema import find_schema, normalize
from compiler.frontend.onnx.scope import Missing, Scope, Tensor, name_value, without_spans
from compiler.frontend.onnx.sequences import (
    VALUES,
    AnyValue,
    Form,
    Texts,
    form_of,
    tensors,
    view,
    whole,
)
from compiler.frontend.onnx.texts import Table, constant_of, is_text, moved
from compiler.frontend.onnx.validate import (
    NamedNodes,
    Validation,
    in_order,
    node_name,
    weight_names,
)
from compiler.frontend.onnx.wire import Span
from compiler.frontend.origins import ModelNode, node_of
from compiler.frontend.values import Value, constant
from compiler.io import structures
from compiler.io.defaults import mark_defaults
from compiler.io.structures import texts_of
from compiler.layers.expansion import expand
from compiler.layers.repeated import NotAlike, Repeated
from dialects.graph.base import ShapeError
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, TensorType, WeightAttr
from dialects.strata.weights import WeightStore
from dialects.text.syntax import identifier

SUBGRAPHS = ("If", "Loop")
"""Operators that pass strings to their subgraphs."""


def import_file(path: str, options: ImportOptions) -> ImportedModel:
    """Import an ONNX file. Raises StrataError with every problem that could be found."""
    file = load_file(Path(path))
    found = _import(file, Faults(path), options)
    return replace(found, files=tuple(map(str, (file.path, *file.external.mapped))))


def import_bytes(name: str, data: bytes, options: ImportOptions) -> ImportedModel:
    """Import the contents of an ONNX file of that name. Raises StrataError as `import_file` does.
    """
    return _import(parse(Path(name), data), Faults(name), options)


def _import(file: OnnxFile, faults: Faults, options: ImportOptions) -> ImportedModel:
    graph, functions = file.proto.graph, Functions(file.proto, options.plugins)
    validation = Validation(file.proto, functions, faults)
    validation.run()
    weights = weight_names(graph)
    given = defaults_replaced(file.proto, options)
    inputs = Inputs([i for i in graph.input if i.name not in weights or i.name in given], options,
                    faults)
    types, constants = inputs.types(), inputs.constants()
    faults.raise_any()
    # declarations are for other sizes, if some are fixed
    fixed = bool(options.shapes or options.dims or options.outcomes)
    declared = () if fixed else (*graph.output, *graph.value_info)
    defaults = defaults_of(file.proto, given)

    def imported(choices: Choices, repeated: Repeated | None) -> ImportedModel:
        own = replace(faults, problems=[], warnings=[*faults.warnings], unknown=set())
        importer = _Importer(file, functions, own, types, constants, inputs.structured)
        importer.build.choices = choices
        mark_defaults(importer.module, defaults)
        module = importer.run(validation.sorted_nodes, declared, repeated)
        own.tell_warnings()
        return ImportedModel(module, importer.build.weights, file.path.stem,
                             nodes=tuple(importer.nodes))

    repeated = find_layers(validation.sorted_nodes, file, functions, given) if (
        options.layers and not options.plugins) else None
    try:
        if repeated is not None:
            return imported(Choices(options.outcomes), repeated)
    except (NotAlike, StrataError) as why:
        log().debug("equal parts of the model are imported one by one: %s", why)
    return first_possible(lambda choices: imported(choices, None), options.outcomes)


class _Importer:
    """The walk over the nodes of one model."""

    def __init__(
        self, file: OnnxFile, functions: Functions, faults: Faults, types: dict[str, TensorType],
        constants: Mapping[str, Array], structured: Mapping[str, Form],
    ):
        self.file, self.functions, self.faults = file, functions, faults
        self.function = FuncOp.of("main", list(types), list(types.values()))
        self.module = ModuleOp([self.function])
        self.build = Builder(self.function.body.block, WeightStore(), faults=faults)
        opsets = {normalize(o.domain): o.version for o in file.proto.opset_import}
        graph = file.proto.graph
        tensors = zip(graph.initializer, file.spans, strict=True)
        self.scope = Scope(opsets, self.build.frame, weights={
            **without_spans(graph), **{t.name: (t, s) for t, s in tensors}})
        for name, argument in zip(types, self.function.body.block.args, strict=True):
            argument.name_hint = identifier(name)
            self.scope.values[name] = self.build.value(argument)
        for name, array in constants.items():
            self.scope.values[name] = constant(self.build, array, name, name)
        for name, form in structured.items():
            parts = [self.scope.values[part] for part in form.names(name)]
            self.scope.values[name] = whole(form, iter(p for p in parts if isinstance(p, Value)))
        self.forms, self.table = dict(structured), Table(self.build)
        self.unknown: Collection[str] = ()
        """The weights whose contents importers do not get to know."""
        self.nodes: list[ModelNode] = []

    def run(
        self, nodes: NamedNodes, declared: Iterable[onnx.ValueInfoProto],
        repeated: Repeated | None,
    ) -> ModuleOp:
        """The model's module, whose values must be as `declared`. Raises StrataError.

        Of `repeated` parts a few are imported; NotAlike is raised if they do not stand for all.
        """
        if repeated is None:
            self._import_nodes(nodes, self.scope)
        else:
            self._import_some(nodes, repeated)
        check_declared(declared, self.scope.values, self.faults)
        results = {o.name: self._output(o.name) for o in self.file.proto.graph.output}
        self.faults.raise_any()
        named: dict[str, Value] = {}
        for name, value in results.items():
            assert value is not None
            form = form_of(value)
            named |= zip(form.names(name), tensors(self.build, value, form), strict=True)
            if form.kind != "tensor":
                self.forms[name] = form
        self.function.finish(list(named), [self.build.ssa(v) for v in named.values()])
        if self.forms:
            self.module.attributes[structures.ATTRIBUTE] = DictionaryAttr({
                name: StringAttr(form.text if form.kind != "texts" else texts_of(self.table.places))
                for name, form in self.forms.items()})
        self.build.finish()
        if repeated is not None:
            self._expand(repeated)
        return self.module

    def _expand(self, repeated: Repeated) -> None:
        """Call what the imported parts have become for all parts. Raises NotAlike."""
        def handle(name: str) -> WeightAttr:
            tensor, span = self.scope.weights.get(name, (None, None))
            if not isinstance(tensor, onnx.TensorProto):
                raise NotAlike(f"'{name}' is not the name of a weight")
            return self.build.weights.add(name, self.file.tensor(tensor, span))

        self.nodes = expand(self.module, self.build.weights, repeated, self.nodes, {}, handle,
                            lambda n: origin_of(n.node, n.name))

    def _output(self, name: str) -> AnyValue | None:
        try:
            return self._lookup(name, self.scope)
        except Fault as fault:
            self.faults.add(f"graph output '{name}': {fault.what}", level=LEVEL, hint=fault.hint)
        except Skip:
            pass
        return None

    # ------------------------------------------------------------------ nodes
    def _import_some(self, nodes: NamedNodes, repeated: Repeated) -> None:
        """Import the nodes around those that are left out. Raises NotAlike."""
        self.unknown, values = repeated.weights, self.scope.values
        self._import_nodes(nodes[:repeated.gap.start], self.scope)
        self.faults.raise_any()
        if not is_settled(repeated, values):
            raise NotAlike("a part has results of other types or contents than the one before")
        values |= {name: values[other] for name, other in repeated.stand_ins.items()}
        self._import_nodes(nodes[repeated.gap.stop:], self.scope)
        if not repeated.later_names.isdisjoint(self.build.choices.count):
            raise NotAlike("parts choose by sizes that only a call has")

    def _import_nodes(self, nodes: NamedNodes, scope: Scope) -> None:
        for name, node in nodes:
            path = f"{scope.path}/{name}" if scope.path else name
            results = self._try_node(path, node, scope)
            self.nodes.append(node_of(path, node.op_type, results, *origin_of(node, path)))
            for k, output in enumerate(node.output):
                if output:
                    scope.values[output] = results[k] if k < len(results) else Missing(
                        f"output {k} of {node.op_type} '{path}' is not supported")
                    name_value(scope.values[output], output)

    def _try_node(
        self, path: str, node: onnx.NodeProto, scope: Scope
    ) -> Sequence[AnyValue | Missing]:
        """A node's results, which are Missing if it has a problem. The problem is noted."""
        try:
            inputs = [self._lookup(name, scope) if name else None for name in node.input]
            return self._import_node(path, node, inputs, scope)
        except (Fault, ShapeError) as error:
            if isinstance(error, UnknownValue):
                self.faults.unknown |= self._inputs_of(error.value)
            what, hint = (error.what, error.hint) if isinstance(error, Fault) else (str(error), "")
            self.faults.add(f"{node.op_type}: {what}", path, LEVEL, hint)
        except Skip:
            pass
        return [Missing() for _ in node.output]

    def _import_node(
        self, path: str, node: onnx.NodeProto, inputs: Sequence[AnyValue | None], scope: Scope
    ) -> Sequence[AnyValue | Missing]:
        attributes = attributes_of(node, scope.attributes)
        function = self.functions.local(node)
        if function is not None:
            return self._call(function, path, inputs, attributes)
        domain = normalize(node.domain)
        version = scope.opsets.get(domain, 1)
        importer = find_importer(domain, node.op_type, version, self.functions.plugins)
        if importer is None and not self.functions.defined(domain, node.op_type, version):
            raise Fault("it is not supported; the definition of an operator uses it")
        if importer is None:
            types = [None if v is None else v.type for v in _tensors_only(inputs)]
            body = standard_body(node, version, types, attributes)
            return self._call(body, path, inputs, attributes)
        schema = find_schema(domain, node.op_type, version)
        for k in schema.lacking([v is not None for v in inputs]) if schema is not None else ():
            raise Fault(f"it needs its input {k}, which a call leaves out")
        self.build.node = path
        seen = Node(path, self.build, node.op_type, domain, version, inputs, list(node.output),
                    attributes, self.file, partial(self._run_subgraph, path, scope))
        if domain == "" and node.op_type == "Constant" and (
                texts := constant_of(self.table, node, path)) is not None:
            return [texts]

        def run(inputs: Sequence[AnyValue | None]) -> Any:
            given = inputs if takes_sequences(importer) else _tensors_only(inputs)
            return importer(seen, *given)

        strings = any(isinstance(v, Texts) for v in inputs) and node.op_type not in SUBGRAPHS
        results: Any = moved(node.op_type, inputs, run) if strings else run(inputs)
        single = isinstance(results, VALUES)
        return [results] if single else results

    def _run_subgraph(
        self, path: str, scope: Scope, label: str, graph: onnx.GraphProto,
        inputs: Sequence[AnyValue],
    ) -> list[AnyValue]:
        """The outputs of a graph on these inputs, built in the current function.

        Raises Skip if one of them has a problem, after noting it.
        """
        if len(inputs) != len(graph.input):
            raise Fault(f"its {label} takes {len(graph.input)} inputs, not {len(inputs)}")
        inner = Scope(scope.opsets, self.build.frame, f"{path}/{label}", scope.attributes,
                      without_spans(graph), scope)
        inner.values.update(zip([i.name for i in graph.input], inputs, strict=True))
        self._import_nodes(in_order(graph), inner)
        results = [self._subgraph_output(o.name, inner) for o in graph.output]
        if any(r is None for r in results):
            raise Skip
        return [r for r in results if r is not None]

    def _subgraph_output(self, name: str, scope: Scope) -> AnyValue | None:
        try:
            return self._lookup(name, scope)
        except Fault as fault:
            self.faults.add(f"output '{name}': {fault.what}", scope.path, LEVEL, fault.hint)
        except Skip:
            pass
        return None

    def _call(
        self, function: onnx.FunctionProto, path: str, inputs: Sequence[AnyValue | None],
        attributes: Mapping[str, AttributeProto],
    ) -> Sequence[AnyValue | Missing]:
        """The results of a function's nodes on these inputs."""
        # some of ONNX's own functions do not list every domain that they use
        opsets = {**self.scope.opsets, **opsets_of(function)}
        scope = Scope(opsets, self.build.frame, path, call_attributes(function, attributes))
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        scope.values = dict(zip(function.input, padded, strict=False))
        self._import_nodes([(node_name(n, k), n) for k, n in enumerate(function.node)], scope)
        return [self._result(name, scope) for name in function.output]

    def _result(self, name: str, scope: Scope) -> AnyValue | Missing:
        try:
            return self._lookup(name, scope) or Missing(f"'{name}' is left out")
        except Fault as fault:  # an optional result that this call does not compute
            return Missing(fault.what)
        except Skip:
            return Missing()

    # ------------------------------------------------------------------ values
    def _inputs_of(self, value: Value) -> set[str]:
        """The inputs of the model that a value is computed from."""
        found, open_ = set[str](), [self.build.frame.source(value)]
        while open_:
            ssa = open_.pop()
            if isinstance(ssa, BlockArgument):
                outer = self.build.frame.outer_value(ssa)
                if ssa.block is self.function.body.block:
                    found.add(self.function.input_names[ssa.index])
                elif outer is not None:
                    open_.append(outer)
            elif ssa is not None and isinstance(ssa.owner, Operation):
                open_ += ssa.owner.operands
        return found

    def _lookup(self, name: str, scope: Scope) -> AnyValue | None:
        """The value of a name; None inside a function for an input that the call omits.

        Raises Fault or Skip if it is missing.
        """
        found = self._find(name, scope)
        if not isinstance(found, Missing):
            return found
        raise Fault(found.reason) if found.reason else Skip

    def _find(self, name: str, scope: Scope) -> AnyValue | Missing | None:
        if name in scope.values:
            return scope.values[name]
        if name in scope.weights:
            found = self._weight(name, *scope.weights[name])
        elif scope.around is None:
            return Missing(f"value '{name}' is defined nowhere")
        else:
            found = self._find(name, scope.around)
            if not isinstance(found, Missing | None) and scope.frame is not scope.around.frame:
                found = view(scope.frame, found)
        scope.values[name] = found
        return found

    def _weight(self, name: str, tensor: Tensor, span: Span | None) -> AnyValue | Missing:
        try:
            sparse = isinstance(tensor, onnx.SparseTensorProto)
            if not sparse and is_text(tensor):
                return self.table.tensor(tensor, name)
            array = self.file.dense(tensor) if sparse else self.file.tensor(tensor, span)
            if name in self.unknown:
                return self.build.weight(name, array)
            return constant(self.build, array, name, name)
        except Fault as fault:
            self.faults.add(f"initializer '{name}': {fault.what}", hint=fault.hint)
            return Missing()


def _tensors_only(inputs: Sequence[AnyValue | None]) -> list[Value | None]:
    """The inputs of an operator that takes tensors only. Raises Fault for others."""
    tensors: list[Value | None] = []
    for k, value in enumerate(inputs):
        if value is not None and not isinstance(value, Value):
            raise Fault(f"its input {k} is not a tensor, but a {form_of(value).kind}")
        tensors.append(value)
    return tensors

"""From an ONNX file to a module with `strata.func @main` over graph operations.

Enters: a file's path and the user's options. Leaves: the module, its weights, its name. Shape
computations are gone: sizes are expressions over the names of the inputs' sizes. Every operation
carries the name of the node that it comes from.

Problems are collected and raised together: first those that validation finds, then those of nodes
whose shapes or attributes contradict themselves. What depends on a bad node is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import AttributeProto
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import BlockArgument, Operation

from compiler.frontend import ImportedModel, ImportOptions
from compiler.frontend.onnx.builder import Builder
from compiler.frontend.onnx.faults import Fault, Faults, UnknownValue
from compiler.frontend.onnx.functions import (
    Functions,
    attributes_of,
    call_attributes,
    opsets_of,
    standard_body,
)
from compiler.frontend.onnx.inputs import Inputs
from compiler.frontend.onnx.load import OnnxFile, load_file, parse
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import find_importer
from compiler.frontend.onnx.schema import find_schema, normalize
from compiler.frontend.onnx.validate import Validation, node_name
from compiler.frontend.onnx.values import Value, constant
from dialects.func import FuncOp
from dialects.graph.base import ShapeError
from dialects.syntax import identifier
from dialects.types import Array, TensorType
from dialects.weights import WeightStore

LEVEL = "graph"
SIZE_NAMES = "strata.size_names"
"""The module attribute that maps size symbols to the model's own names, where they differ."""

NamedNodes = Iterable[tuple[str, onnx.NodeProto]]


def import_file(path: str, options: ImportOptions) -> ImportedModel:
    """Import an ONNX file. Raises StrataError with every problem that could be found."""
    return _import(load_file(Path(path)), Faults(path), options)


def import_bytes(name: str, data: bytes, options: ImportOptions) -> ImportedModel:
    """Import what an ONNX file of that name would hold. Raises StrataError as `import_file`."""
    return _import(parse(Path(name), data), Faults(name), options)


def _import(file: OnnxFile, faults: Faults, options: ImportOptions) -> ImportedModel:
    graph, functions = file.proto.graph, Functions(file.proto)
    validation = Validation(file.proto, functions, faults)
    validation.run()
    weights = {t.name for t in graph.initializer}
    inputs = Inputs([i for i in graph.input if i.name not in weights], options, faults)
    types, constants = inputs.types(), inputs.constants()
    faults.raise_any()
    importer = _Importer(file, functions, faults, types, constants)
    module = ModuleOp([importer.run(validation.sorted_nodes)])
    if inputs.names.changed:
        names = {k: StringAttr(v) for k, v in inputs.names.changed.items()}
        module.attributes[SIZE_NAMES] = DictionaryAttr(names)
    return ImportedModel(module, importer.build.weights, file.path.stem)


@dataclass(frozen=True)
class Missing:
    """A value that cannot be had. Without a reason its node has a problem that is noted."""

    reason: str = ""


@dataclass
class Scope:
    """What names mean inside the graph, or inside one call of a function."""

    opsets: Mapping[str, int]
    path: str = ""
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict[str, AttributeProto])
    values: dict[str, Value | Missing | None] = field(
        default_factory=dict[str, "Value | Missing | None"])


class _Skip(Exception):
    """A node needs what a node with a known problem should have made."""


class _Importer:
    """The walk over the nodes of one model."""

    def __init__(
        self, file: OnnxFile, functions: Functions, faults: Faults, types: dict[str, TensorType],
        constants: Mapping[str, Array],
    ):
        self.file, self.functions, self.faults = file, functions, faults
        self.function = FuncOp.of("main", list(types), list(types.values()))
        self.build = Builder(self.function.body.block, WeightStore())
        opsets = {normalize(o.domain): o.version for o in file.proto.opset_import}
        self.scope = Scope(opsets)
        for (name, type_), argument in zip(
                types.items(), self.function.body.block.args, strict=True):
            argument.name_hint = identifier(name)
            self.scope.values[name] = Value(type_, argument)
        for name, array in constants.items():
            self.scope.values[name] = constant(array, name, name)
        self.initializers = {t.name: k for k, t in enumerate(file.proto.graph.initializer)}

    def run(self, nodes: NamedNodes) -> FuncOp:
        """The model's function. Raises StrataError."""
        self._import_nodes(nodes, self.scope)
        names = [o.name for o in self.file.proto.graph.output]
        results = [self._output(name) for name in names]
        self.faults.raise_any()
        self.function.finish(names, [self.build.ssa(v) for v in results if v is not None])
        self.build.finish()
        return self.function

    def _output(self, name: str) -> Value | None:
        try:
            return self._lookup(name, self.scope)
        except Fault as fault:
            self.faults.add(f"graph output '{name}': {fault.what}", level=LEVEL, hint=fault.hint)
        except _Skip:
            pass
        return None

    # ------------------------------------------------------------------ nodes
    def _import_nodes(self, nodes: NamedNodes, scope: Scope) -> None:
        for name, node in nodes:
            path = f"{scope.path}/{name}" if scope.path else name
            results = self._try_node(path, node, scope)
            for k, output in enumerate(node.output):
                if output:
                    scope.values[output] = results[k] if k < len(results) else Missing(
                        f"output {k} of {node.op_type} '{path}' is not supported")
                    _name_value(scope.values[output], output)

    def _try_node(
        self, path: str, node: onnx.NodeProto, scope: Scope
    ) -> Sequence[Value | Missing]:
        """A node's results; they are missing when it has a problem, which is noted."""
        try:
            inputs = [self._lookup(name, scope) if name else None for name in node.input]
            return self._import_node(path, node, inputs, scope)
        except (Fault, ShapeError) as error:
            if isinstance(error, UnknownValue):
                self.faults.unknown |= self._inputs_behind(error.value)
            what, hint = (error.what, error.hint) if isinstance(error, Fault) else (str(error), "")
            self.faults.add(f"{node.op_type}: {what}", path, LEVEL, hint)
        except _Skip:
            pass
        return [Missing() for _ in node.output]

    def _import_node(
        self, path: str, node: onnx.NodeProto, inputs: Sequence[Value | None], scope: Scope
    ) -> Sequence[Value | Missing]:
        attributes = attributes_of(node, scope.attributes)
        function = self.functions.local(node)
        if function is not None:
            return self._call(function, path, inputs, attributes)
        domain = normalize(node.domain)
        version = scope.opsets.get(domain, 1)
        importer = find_importer(domain, node.op_type, version)
        if importer is None and not self.functions.defined(domain, node.op_type, version):
            raise Fault("it is not supported; the definition of an operator uses it")
        if importer is None:
            body = standard_body(node, version, inputs, attributes)
            return self._call(body, path, inputs, attributes)
        schema = find_schema(domain, node.op_type, version)
        for k in schema.lacking([v is not None for v in inputs]) if schema is not None else ():
            raise Fault(f"it needs its input {k}, which a call leaves out")
        self.build.node = path
        seen = Node(path, node.op_type, domain, version, inputs, list(node.output), attributes,
                    self.build, self.file)
        results = importer(seen, *inputs)
        return [results] if isinstance(results, Value) else results

    def _call(
        self, function: onnx.FunctionProto, path: str, inputs: Sequence[Value | None],
        attributes: Mapping[str, AttributeProto],
    ) -> Sequence[Value | Missing]:
        """The results of a function's nodes on these inputs."""
        scope = Scope(opsets_of(function), path, call_attributes(function, attributes))
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        scope.values = dict(zip(function.input, padded, strict=False))
        self._import_nodes([(node_name(n, k), n) for k, n in enumerate(function.node)], scope)
        return [self._result(name, scope) for name in function.output]

    def _result(self, name: str, scope: Scope) -> Value | Missing:
        try:
            return self._lookup(name, scope) or Missing(f"'{name}' is left out")
        except Fault as fault:  # an optional result that this call does not make
            return Missing(fault.what)
        except _Skip:
            return Missing()

    # ------------------------------------------------------------------ values
    def _inputs_behind(self, value: Value) -> set[str]:
        """The inputs of the model that a value is computed from."""
        found, open_ = set[str](), [value.ssa]
        while open_:
            ssa = open_.pop()
            if isinstance(ssa, BlockArgument):
                found.add(self.function.input_names[ssa.index])
            elif ssa is not None and isinstance(ssa.owner, Operation):
                open_ += ssa.owner.operands
        return found

    def _lookup(self, name: str, scope: Scope) -> Value | None:
        """What a name stands for; None inside a function for an input that the call leaves out.

        Raises Fault or _Skip when it cannot be had.
        """
        if name not in scope.values and scope is self.scope and name in self.initializers:
            scope.values[name] = self._initializer(name)
        found = scope.values.get(name, Missing(f"value '{name}' is defined nowhere"))
        if not isinstance(found, Missing):
            return found
        raise Fault(found.reason) if found.reason else _Skip

    def _initializer(self, name: str) -> Value | Missing:
        try:
            return constant(self.file.initializer(self.initializers[name]), name, name)
        except Fault as fault:
            self.faults.add(f"initializer '{name}': {fault.what}", hint=fault.hint)
            return Missing()


def _name_value(value: Value | Missing | None, name: str) -> None:
    """Let the IR show the model's name for a value that has none yet."""
    if not isinstance(value, Value):
        return
    if value.ssa is None:
        value.label = value.label or name
    elif value.ssa.name_hint is None:
        value.ssa.name_hint = identifier(name)

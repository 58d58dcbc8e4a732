"""Operators that are defined by other operators: a model's functions, and those of ONNX itself.

    Mish(x)  ->  Softplus, Tanh, Mul           if Strata has no importer of its own

Some of ONNX's definitions are fixed; others are built from a node and its input types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import ModuleType

import onnx
from onnx import AttributeProto, helper

from compiler.frontend.onnx.element_types import data_type_of
from compiler.frontend.onnx.ops import find_importer
from compiler.frontend.onnx.schema import Definition, find_definition, normalize
from dialects.records import dataclass
from dialects.strata.types import TensorType


@dataclass
class Functions:
    """The functions of one model, and those that ONNX defines.

    `plugins`: modules with importers of operators.
    """

    model: onnx.ModelProto
    plugins: tuple[ModuleType, ...] = ()
    known: dict[tuple[str, str, int], bool] = field(
        default_factory=dict[tuple[str, str, int], bool])

    @cached_property
    def _locals(self) -> dict[tuple[str, str, str], onnx.FunctionProto]:
        return {(normalize(f.domain), f.name, f.overload): f for f in self.model.functions}

    def defined_twice(self) -> list[tuple[str, str]]:
        """The domains and names of functions that the model defines more than once."""
        count = Counter((normalize(f.domain), f.name, f.overload) for f in self.model.functions)
        return [(domain, name) for (domain, name, _), times in count.items() if times > 1]

    def local(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        """The model's own function that a node calls."""
        return self._locals.get((normalize(node.domain), node.op_type, node.overload))

    def defined(self, domain: str, op_type: str, version: int) -> bool:
        """Whether ONNX defines the operator by operators that can be imported.

        The contents of a definition that depends on input types are known only once it is built.
        """
        key = (domain, op_type, version)
        if key not in self.known:
            self.known[key] = False  # while its own definition is examined
            self.known[key] = self._importable(domain, op_type, version)
        return self.known[key]

    def _importable(self, domain: str, op_type: str, version: int) -> bool:
        definition = find_definition(domain, op_type, version)
        if definition is None:
            return False
        if not (definition.has_function or definition.has_context_dependent_function):
            return False
        if definition.has_context_dependent_function:
            return bool(definition.context_dependent_function_opset_versions)
        body = _plain_body(definition, version)
        opsets = opsets_of(body)
        return all(self.supports(n, opsets) for n in body.node)

    def supports(self, node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
        """Whether a node's operator can be imported."""
        key = (normalize(node.domain), node.op_type, opsets.get(normalize(node.domain), 1))
        return find_importer(*key, self.plugins) is not None or self.defined(*key)


def standard_body(
    node: onnx.NodeProto, version: int, inputs: Sequence[TensorType | None],
    attributes: Mapping[str, AttributeProto],
) -> onnx.FunctionProto:
    """ONNX's definition of a node's operator, for inputs of these types and these attributes.

    Its `attribute_proto` holds the operator's defaults.
    """
    definition = find_definition(normalize(node.domain), node.op_type, version)
    assert definition is not None
    body = (_plain_body(definition, version) if definition.has_function
            else _built_body(definition, version, _with_attributes(node, attributes), inputs))
    defaults = {n: a.default_value for n, a in definition.attributes.items()}
    for name, default in defaults.items():
        if default.type and name not in {a.name for a in body.attribute_proto}:
            body.attribute_proto.append(default)
    return body


def _built_body(
    definition: Definition, version: int, node: onnx.NodeProto,
    inputs: Sequence[TensorType | None],
) -> onnx.FunctionProto:
    types = [helper.make_tensor_type_proto(data_type_of(v.element), _dims(v)).SerializeToString()
             if v is not None else b"" for v in inputs]
    best = _version(definition.context_dependent_function_opset_versions, version)
    return onnx.FunctionProto.FromString(
        definition.get_context_dependent_function_with_opset_version(
            best, node.SerializeToString(), types))


def _plain_body(definition: Definition, version: int) -> onnx.FunctionProto:
    best = _version(definition.function_opset_versions, version)
    return onnx.FunctionProto.FromString(definition.get_function_with_opset_version(best))


def _version(versions: Sequence[int], wanted: int) -> int:
    """The newest definition that is not newer than wanted, else the oldest."""
    return max((v for v in versions if v <= wanted), default=min(versions))


def _with_attributes(
    node: onnx.NodeProto, attributes: Mapping[str, AttributeProto]
) -> onnx.NodeProto:
    """The node with attributes that refer to no others."""
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    del plain.attribute[:]
    for name, attribute in attributes.items():
        plain.attribute.append(attribute)
        plain.attribute[-1].name = name
    return plain


def _dims(type_: TensorType) -> list[int | str]:
    return [str(s) if s.constant is None else s.constant for s in type_.shape]


def opsets_of(function: onnx.FunctionProto) -> dict[str, int]:
    """Domain -> opset version that the function's body uses."""
    return {normalize(o.domain): o.version for o in function.opset_import}


def attributes_of(
    node: onnx.NodeProto, outer: Mapping[str, AttributeProto]
) -> dict[str, AttributeProto]:
    """A node's attributes; one that refers to an attribute of the calling node becomes that."""
    found: dict[str, AttributeProto] = {}
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
        elif attribute.ref_attr_name in outer:
            found[attribute.name] = outer[attribute.ref_attr_name]
    return found


def call_attributes(
    function: onnx.FunctionProto, given: Mapping[str, AttributeProto]
) -> dict[str, AttributeProto]:
    """The attributes that hold inside a call: the function's defaults, then those given."""
    return {a.name: a for a in function.attribute_proto} | dict(given)

"""Schemas of operators: inputs, outputs, attributes, and their first version.

ONNX provides those of its own operators; a table provides those of onnxruntime's. The two names of
the standard domain, `""` and `ai.onnx`, are both treated as the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, cast

import onnx
from onnx import AttributeProto, defs

from compiler.frontend.onnx.contrib_signatures import MICROSOFT, STANDARD


class Definition(Protocol):
    """The used part of `onnx.defs.OpSchema`, whose type stubs lack some functions."""

    since_version: int
    min_input: int
    max_input: int
    min_output: int
    max_output: int
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    attributes: Mapping[str, Any]
    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: Sequence[int]
    context_dependent_function_opset_versions: Sequence[int]

    def get_function_with_opset_version(self, version: int) -> bytes: ...

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: Sequence[bytes]
    ) -> bytes: ...


class Schema(NamedTuple):
    """One operator at one opset version."""

    since: int
    inputs: range  # allowed numbers
    outputs: range
    optional: tuple[bool, ...]  # per declared input; the last one also holds for all further ones
    attributes: dict[str, int]  # name -> AttributeProto.AttributeType
    needed: frozenset[str]  # attributes without a default

    def lacking(self, given: Sequence[object]) -> list[int]:
        """Indices of the inputs that are left out (false) but must not be."""
        last = len(self.optional) - 1
        return [k for k, there in enumerate(given) if not there and not self.optional[min(k, last)]]


def newest_opset() -> int:
    """The newest version of the standard operators that the installed onnx package knows."""
    return defs.onnx_opset_version()


def normalize(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


@cache
def find_schema(domain: str, op_type: str, version: int) -> Schema | None:
    """The operator's schema at an opset version; None if there is none.

    A deprecated operator keeps its last schema.
    """
    schema = find_definition(domain, op_type, version)
    if schema is None:
        return contrib_schemas().get((domain, op_type))
    attributes = {name: a.type.value for name, a in schema.attributes.items()}
    optional = defs.OpSchema.FormalParameterOption.Optional
    return Schema(
        schema.since_version, range(schema.min_input, schema.max_input + 1),
        range(schema.min_output, schema.max_output + 1),
        tuple(i.option == optional for i in schema.inputs), attributes,
        frozenset(name for name, a in schema.attributes.items() if a.required),
    )


@cache
def find_definition(domain: str, op_type: str, version: int) -> Definition | None:
    """The operator's own definition in the onnx package."""
    if not 0 < version < 2**31:  # for which the package's lookup fails
        return None
    try:
        return cast(Definition, defs.get_schema(op_type, version, domain))
    except defs.SchemaError:
        return None


# ---------------------------------------------------------------------- onnxruntime's operators
_SIGNATURE = re.compile(r"(\w+)\((.*?)\) -> ([^{]*?)\s*(?:\{(.*)\})?")
_MANY = 2**31 - 1


@cache
def contrib_schemas() -> dict[tuple[str, str], Schema]:
    """(domain, operator) -> its schema, of the operators that only onnxruntime defines."""
    tables = {"": STANDARD, "com.microsoft": MICROSOFT}
    return {(domain, name): schema for domain, table in tables.items()
            for name, schema in map(_read_signature, re.split(r"\n(?=\w)", table.strip()))}


def _read_signature(text: str) -> tuple[str, Schema]:
    """`Name(input, optional?, any number*) -> outputs {attribute: type, needed: type!}`."""
    found = _SIGNATURE.fullmatch(" ".join(text.split()))
    assert found is not None, text
    name, inputs, outputs, attributes = found.groups()
    ports = [port.strip() for port in inputs.split(",")]
    pairs = [pair.split(":") for pair in (attributes or "").split(",") if pair]
    kinds = {a.strip(): AttributeProto.AttributeType.Value(kind.strip(" !").upper())
             for a, kind in pairs}
    needed = frozenset(a.strip() for a, kind in pairs if kind.endswith("!"))
    return name, Schema(1, _counts(ports), _counts(outputs.split(",")),
                        tuple(port.endswith("?") for port in ports), kinds, needed)


def _counts(ports: Sequence[str]) -> range:
    """How many may be given: all up to the last one that is not optional, or more."""
    least = max((k + 1 for k, port in enumerate(ports) if not port.endswith("?")), default=0)
    return range(least, (_MANY if ports[-1].endswith("*") else len(ports)) + 1)


def attribute_kind(kind: int) -> str:
    """The name of an attribute type for messages: `int`, `floats`, ..."""
    return onnx.AttributeProto.AttributeType.Name(kind).lower()

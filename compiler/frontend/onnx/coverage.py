"""The supported ONNX operators, opsets and element types, determined from the code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import onnx
from onnx import defs, helper

from compiler.frontend.onnx.element_types import onnx_type_names
from compiler.frontend.onnx.functions import Functions, opsets_of, standard_body
from compiler.frontend.onnx.ops import OpImporter, find_importer, importers
from compiler.frontend.onnx.schema import find_definition, newest_opset
from dialects.strata import types as t

_PLAIN = t.tensor(t.f32, (2, 2, 4, 4))


@dataclass(frozen=True)
class Coverage:
    """One operator. `opsets`: the supported versions. `own`: whether Strata has an importer for it.
    `elements`: Strata's element types that ONNX allows for its first input.
    """

    name: str
    opsets: tuple[int, ...]
    own: bool
    elements: tuple[str, ...]

    @property
    def summary(self) -> str:
        how = "" if self.own else ", by ONNX's definition"
        return f"opset {opset_text(self.opsets)}{how}; {' '.join(self.elements)}"


def opset_text(opsets: tuple[int, ...]) -> str:
    """`7 to 26`, or `7 to 12, 20`: runs of versions."""
    runs: list[list[int]] = []
    for version in opsets:
        if runs and runs[-1][-1] == version - 1:
            runs[-1][1:] = [version]
        else:
            runs.append([version])
    return ", ".join(" to ".join(map(str, run)) for run in runs)


def covered() -> list[Coverage]:
    """The supported operators of the standard domain, then those of other domains, by name."""
    functions, newest = Functions(onnx.ModelProto()), newest_opset()
    names = sorted({s.name for s in defs.get_all_schemas() if not s.domain})
    found: list[Coverage] = []
    for name in names:
        readable = {v: find_importer("", name, v) is not None
                    for v in range(1, newest + 1) if _is_read(functions, name, v)}
        if readable:
            last = max(readable)
            found.append(Coverage(name, tuple(readable), readable[last], _elements(name, last)))
    return found + [_other(domain, name) for domain, name in sorted(importers())
                    if (domain or name not in names) and _opsets(domain, name)]


def _other(domain: str, name: str) -> Coverage:
    """An operator of another domain, or one that onnxruntime adds to the standard one."""
    opsets = _opsets(domain, name)
    known = find_definition(domain, name, opsets[-1]) is not None
    elements = _elements(name, opsets[-1], domain) if known else ()
    return Coverage(f"{domain}.{name}" if domain else name, opsets, True, elements)


def _opsets(domain: str, name: str) -> tuple[int, ...]:
    """The versions for which there is an importer that does more than report why the operator is
    not supported.
    """
    found = ((v, find_importer(domain, name, v)) for v in range(1, _newest(domain) + 1))
    return tuple(v for v, importer in found if importer is not None and not _refuses(importer))


@cache
def _newest(domain: str) -> int:
    """The newest version of a domain that ONNX knows; 1 of others."""
    return max((s.since_version for s in defs.get_all_schemas_with_history()
                if s.domain == domain), default=1)


def _refuses(importer: OpImporter) -> bool:
    """Whether an importer only reports why the operator is not supported."""
    return importer.__annotations__.get("return") == "NoReturn"


def _is_read(functions: Functions, name: str, version: int) -> bool:
    definition = find_definition("", name, version)
    if definition is None or find_importer("", name, version) is not None:
        return definition is not None
    if definition.has_function or not functions.defined("", name, version):
        return functions.defined("", name, version)
    return _is_built_of_known(functions, name, definition.min_input, version)


def _is_built_of_known(functions: Functions, name: str, inputs: int, version: int) -> bool:
    """Whether a definition that depends on the node consists of supported operators, for a node
    without attributes.
    """
    node = helper.make_node(name, [f"x{k}" for k in range(inputs)], ["y"])
    try:
        body = standard_body(node, version, [_PLAIN] * inputs, {})
    except ValueError:  # ONNX needs attributes to build its definition
        return False
    known = [functions.supports(n, opsets_of(body)) for n in body.node]
    return bool(known) and all(known)


def _elements(name: str, version: int, domain: str = "") -> tuple[str, ...]:
    """The element types of the first input, or of the first output if there is no input."""
    definition = find_definition(domain, name, version)
    assert definition is not None
    ports = definition.inputs or definition.outputs
    allowed = {text for port in ports[:1] for text in port.types}
    return tuple(ours for theirs, ours in onnx_type_names().items() if theirs in allowed)

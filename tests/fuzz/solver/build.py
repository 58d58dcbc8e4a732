"""Writes a draft as an ONNX model, with the dims that Z3 found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import z3
from onnx import helper, numpy_helper

from tests.fuzz.solver.draft import Array, Body, Dim, Draft, Node, Placeholder, Value

IR_VERSION = 10


def contents(dim: Dim | bool, solution: z3.ModelRef) -> int:
    """The number that a dim is in a solution."""
    if isinstance(dim, int):
        return int(dim)
    return solution.eval(dim, model_completion=True).as_long()  # type: ignore[attr-defined]


@dataclass
class Builder:
    """`constants`: what the weights hold."""

    draft: Draft
    solution: z3.ModelRef
    constants: Mapping[str, Array]

    def __post_init__(self) -> None:
        self.used = set(_reads(self.draft.body))
        self.inputs: list[Placeholder] = [
            p for p in self.draft.placeholders if not p.fixed and p.value.name in self.used]

    def model(self, opened: Mapping[str, str]) -> onnx.ModelProto:
        """The file. `opened`: the symbols that stay open, and their names."""
        draft = self.draft
        infos = [self._info(p.value, opened) for p in self.inputs]
        constants = [numpy_helper.from_array(a, name) for name, a in self._arrays()]
        outputs = [self._plain(v) for v in self._results()]
        graph = helper.make_graph(self._nodes(draft.body), "drawn", infos, outputs, constants)
        domains = [helper.make_opsetid("", draft.opset), *(
            helper.make_opsetid(d, 1) for d in sorted(_domains(draft.body)) if d)]
        return helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)

    def _arrays(self) -> Iterable[tuple[str, Array]]:
        yield from ((n, a) for n, a in self.draft.arrays.items() if n in self.used)
        yield from ((n, a) for n, a in self.constants.items() if n in self.used)
        for ints in self.draft.ints:
            if ints.name in self.used:
                yield ints.name, self._int_array(ints.data, ints.dtype)

    def _int_array(self, data: Any, dtype: np.dtype[Any]) -> Array:
        if isinstance(data, list | tuple):
            return np.asarray([contents(d, self.solution) for d in data], dtype)
        return np.asarray(contents(data, self.solution), dtype)

    def _results(self) -> list[Value]:
        """What nothing else reads, and now and then something between."""
        computed = {name for node in self.draft.body.nodes for name in node.outputs}
        values = {v.name: v for v in self.draft.values if v.name in computed}
        last = [v for v in values.values() if v.name not in self.used]
        more = [v for v in values.values() if v.name in self.used and self.draft.chance(0.1)]
        return [*last, *more][:6] or list(values.values())[-1:]

    # ------------------------------------------------------------------ pieces
    def _nodes(self, body: Body) -> list[onnx.NodeProto]:
        return [self._node(node) for node in body.nodes]

    def _node(self, node: Node) -> onnx.NodeProto:
        attributes = {k: self._attribute(v) for k, v in node.attributes.items()
                      if not isinstance(v, list) or v}
        return helper.make_node(node.op_type, node.inputs, node.outputs,
                                name=f"{node.op_type}_{node.outputs[0]}", domain=node.domain,
                                **attributes)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, Body):
            return helper.make_graph(
                self._nodes(value), "body", [self._plain(v) for v in value.inputs],
                [self._plain(v) for v in value.outputs])
        if isinstance(value, np.ndarray):
            return numpy_helper.from_array(value)
        if isinstance(value, list):
            return [contents(v, self.solution) if z3.is_expr(v) else v for v in value]
        return value

    def _plain(self, value: Value) -> onnx.ValueInfoProto:
        """A declaration of the rank alone."""
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_value_info(value.name, kind, [None] * value.rank)

    def _info(self, value: Value, opened: Mapping[str, str]) -> onnx.ValueInfoProto:
        dims = [opened.get(str(d)) or contents(d, self.solution) for d in value.shape]
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        return helper.make_tensor_value_info(value.name, kind, dims)

    # ------------------------------------------------------------------ what stays
    def fixed(self, opened: Mapping[str, str]) -> list[Any]:
        """That everything which the file holds is as it is there, whatever the open sizes."""
        expressions: list[Any] = [d for ints in self.draft.ints for d in _flat(ints.data)]
        expressions += _attributes(self.draft.body)
        for placeholder in self.draft.placeholders:
            is_input = placeholder in self.inputs
            expressions += [d for d in placeholder.value.shape
                            if not is_input or str(d) not in opened]
        expressions += self.draft.pinned
        bounds = [p.domain.bound for p in self.draft.placeholders if p.fixed]
        return [*(e == contents(e, self.solution) for e in expressions if z3.is_expr(e)),
                *(b >= contents(b, self.solution) for b in bounds if z3.is_expr(b))]


def _flat(data: Any) -> Sequence[Any]:
    return data if isinstance(data, list | tuple) else [data]


def _attributes(body: Body) -> Iterable[Any]:
    for node in body.nodes:
        for value in node.attributes.values():
            if isinstance(value, Body):
                yield from _attributes(value)
            else:
                yield from (v for v in _flat(value) if z3.is_expr(v))


def _reads(body: Body) -> Iterable[str]:
    """The names that nodes read, also those of bodies."""
    for node in body.nodes:
        yield from node.inputs
        for value in node.attributes.values():
            if isinstance(value, Body):
                yield from _reads(value)
                yield from (v.name for v in value.outputs)


def _domains(body: Body) -> set[str]:
    """The domains of nodes, also those in bodies."""
    found = {node.domain for node in body.nodes}
    inner = (v for node in body.nodes for v in node.attributes.values() if isinstance(v, Body))
    return found.union(*map(_domains, inner))

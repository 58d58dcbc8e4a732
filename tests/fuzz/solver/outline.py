"""Makes functions of the model out of runs of its nodes, as exporters of modules do.

    a = Elu<alpha = 0.5>(x); y = Add(a, x)    ->    y = drawn.f0<alpha0 = 0.5>(x)

A float attribute becomes one of the function, told by the call or left to its default. A function
may hold calls of others, its names are those of everything else, and a second call with other
attributes adds a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, helper

DOMAIN = "drawn"
MOST = 4
"""Functions of a model."""
REAL = ("alpha", "beta", "epsilon", "bias", "lambd")
"""Attributes that may be any number of about their size."""


def outline(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """Change the model in place: some nodes become calls."""
    scopes: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph]
    for number in range(int(random.integers(1, MOST + 1))):
        scope = scopes[int(random.integers(len(scopes)))]
        made = _outlined(model, scope, f"f{number}", random)
        scopes.append(made)
    _renamed_functions(model, random)
    if not any(o.domain == DOMAIN for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _outlined(
    model: onnx.ModelProto, scope: onnx.GraphProto | onnx.FunctionProto, name: str,
    random: np.random.Generator,
) -> onnx.FunctionProto:
    """Nodes that follow each other, as a function; their place takes its call."""
    first = int(random.integers(len(scope.node)))
    last = int(random.integers(first, min(first + 6, len(scope.node)))) + 1
    nodes, rest = list(scope.node[first:last]), [*scope.node[:first], *scope.node[last:]]
    inputs = _free(nodes)
    wanted = {n for node in rest for n in _read(node)} | _results(scope)
    outputs = [n for node in nodes for n in node.output if n in wanted]
    told, defaults = _attributes(nodes, random)
    function = helper.make_function(
        DOMAIN, name, inputs, outputs, nodes, _imports(model), [a.name for a in told], defaults)
    model.functions.append(function)
    call = helper.make_node(name, inputs, outputs, domain=DOMAIN, name=f"call_{name}")
    call.attribute.extend(told)
    call.attribute.extend(_given(d, random) for d in defaults if random.random() < 0.5)
    calls = [call]
    if isinstance(scope, onnx.GraphProto) and (told or defaults) and random.random() < 0.5:
        calls.append(_second_call(scope, call, [*told, *defaults], random))
    del scope.node[first:]
    scope.node.extend([*calls, *rest[first:]])
    return model.functions[-1]


def _imports(model: onnx.ModelProto) -> list[onnx.OperatorSetIdProto]:
    found = {o.domain: o.version for o in model.opset_import} | {DOMAIN: 1}
    return [helper.make_opsetid(domain, version) for domain, version in found.items()]


def _results(scope: onnx.GraphProto | onnx.FunctionProto) -> set[str]:
    if isinstance(scope, onnx.GraphProto):
        return {value.name for value in scope.output}
    return set(scope.output)


def _read(node: onnx.NodeProto) -> Iterable[str]:
    """What a node reads, and what its bodies read of the outside."""
    yield from (n for n in node.input if n)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from body_reads(attribute.g)


def body_reads(graph: onnx.GraphProto) -> list[str]:
    """What a body reads of the outside."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own |= {n for node in graph.node for n in node.output}
    names = [n for node in graph.node for n in _read(node)] + [v.name for v in graph.output]
    return [n for n in names if n not in own]


def _free(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """What nodes read that they do not compute, each once."""
    made = {n for node in nodes for n in node.output}
    return list(dict.fromkeys(n for node in nodes for n in _read(node) if n not in made))


# ---------------------------------------------------------------------- attributes
def _attributes(
    nodes: Sequence[onnx.NodeProto], random: np.random.Generator
) -> tuple[list[AttributeProto], list[AttributeProto]]:
    """Some float attributes, which nodes refer to from now on: those that calls must state, and
    those with a default. An attribute that refers to one of the surrounding function is handed on
    by the call.
    """
    told: list[AttributeProto] = []
    defaults: list[AttributeProto] = []
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type != AttributeProto.FLOAT:
                continue
            name = f"{attribute.name}{len(told) + len(defaults)}"
            if attribute.ref_attr_name:
                told.append(_handed_on(attribute, name))
                attribute.ref_attr_name = name
                continue
            kept = told if random.random() < 0.5 else defaults
            kept.append(helper.make_attribute(name, attribute.f))
            attribute.ClearField("f")
            attribute.ref_attr_name = name
    return told, defaults


def _handed_on(attribute: AttributeProto, name: str) -> AttributeProto:
    """What a call states for its attribute `name`: what the given attribute refers to."""
    result = AttributeProto()
    result.CopyFrom(attribute)
    result.name = name
    return result


def _given(attribute: AttributeProto, random: np.random.Generator) -> AttributeProto:
    """The same attribute; another number, where it may be any."""
    free = attribute.name.rstrip("0123456789") in REAL and random.random() < 0.5
    return helper.make_attribute(attribute.name, attribute.f + (0.25 if free else 0.0))


def _second_call(
    scope: onnx.GraphProto, call: onnx.NodeProto, attributes: Sequence[AttributeProto],
    random: np.random.Generator,
) -> onnx.NodeProto:
    """The same function of the same values with other attributes, whose results are the model's
    where those of the first call are.
    """
    names = {name: f"{name}_{call.op_type}" for name in call.output}
    again = helper.make_node(call.op_type, call.input, list(names.values()), domain=DOMAIN,
                             name=f"{call.name}_again")
    again.attribute.extend(_given(a, random) for a in attributes)
    for value in [v for v in scope.output if v.name in names]:
        scope.output.add().CopyFrom(value)
        scope.output[-1].name = names[value.name]
    return again


# ---------------------------------------------------------------------- names
def _renamed_functions(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """Names within functions that stand for other things outside."""
    outside = [n for node in model.graph.node for n in node.output if n]
    for function in model.functions:
        if random.random() < 0.3:
            continue
        names = [*function.input, *(n for node in function.node for n in node.output if n)]
        pool = [f"t{k}" for k in range(len(names))] + outside
        fresh = dict(zip(names, random.permutation(sorted(set(pool)))[:len(names)], strict=True))
        function.input[:] = [str(fresh[n]) for n in function.input]
        function.output[:] = [str(fresh[n]) for n in function.output]
        _rename(function.node, {k: str(v) for k, v in fresh.items()})


def _rename(nodes: Iterable[onnx.NodeProto], names: dict[str, str]) -> None:
    """Also what bodies read of the outside; their own names stay, made unlike the new ones."""
    for node in nodes:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_body(attribute.g, names)


def _rename_body(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    own = [v.name for v in graph.input] + [n for node in graph.node for n in node.output if n]
    names = {**names, **{n: f"own_{n}" for n in own}}
    for value in [*graph.input, *graph.output]:
        value.name = names.get(value.name, value.name)
    _rename(graph.node, names)

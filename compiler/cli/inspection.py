"""Describes a model: inputs, outputs, sizes, operators, parameters, unsupported parts.

    model        as given on the command line
    format       ONNX, PyTorch, or the level of a text; for ONNX also ir_version, opsets, producer,
                 functions
    inputs       [{"name", "type"}], also outputs: as imported, or as declared in the file
    sizes        name of an open size -> where it occurs, `x dim 0`
    operators    name -> count, including subgraphs and functions
    parameters   {"tensors", "elements", "bytes"}
    unsupported  [{"what", "node", "hint"}], empty where the model can be compiled

A model that cannot be imported is described as far as its file is readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import LONGEST, LONGEST_NAME, StrataError, cut
from compiler.frontend import MemoryModel, describe
from compiler.io.signature import Signature, signature_of
from compiler.pipeline.driver import weights_of_model
from compiler.pipeline.source import Source, is_text, read_model

if TYPE_CHECKING:
    from compiler.options import CompileOptions
    from compiler.plugins.loading import Plugins

Facts = dict[str, Any]
_PLUMBING = ("strata.func", "strata.return", "strata.assume", "strata.size", "graph.constant")
"""Structural operations, which are not operators of a model."""


def inspect_model(
    model: str | MemoryModel, options: CompileOptions, plugins: Plugins
) -> Facts:
    """The facts of a model. Raises StrataError if the file cannot be read."""
    facts: Facts = {"model": str(model)}
    text = is_text(str(model))
    facts |= {} if text else describe(model)
    try:
        source = read_model(model, options, plugins, weights_of_model)
    except StrataError as error:
        if "format" not in facts:  # nothing else is known about it
            raise
        return facts | {"sizes": {}, "unsupported": _unsupported(error)}
    signature = signature_of(source.module)
    if text:
        facts["format"] = f"a text of {source.level} level"
    return _of_source(source) | facts | _of_signature(signature) | {"unsupported": []}


def _of_source(source: Source) -> Facts:
    """The facts in an imported module, whatever its frontend."""
    counts = Counter(op.name for op in source.module.body.walk() if op.name not in _PLUMBING)
    arrays = source.weights.arrays.values()
    return {"format": "PyTorch", "operators": dict(counts.most_common()),
            "parameters": {"tensors": len(arrays), "elements": sum(a.size for a in arrays),
                           "bytes": sum(a.nbytes for a in arrays)}}


def _of_signature(signature: Signature) -> Facts:
    inputs = list(zip(signature.input_names, signature.input_types, strict=True))
    outputs = zip(signature.output_names, signature.output_types, strict=True)
    places: dict[str, list[str]] = {}
    for name, type_ in inputs:
        for k, size in enumerate(type_.shape):
            if size.as_symbol is not None:
                places.setdefault(size.as_symbol.name, []).append(f"{name} dim {k}")
    return {"inputs": [{"name": n, "type": t.short} for n, t in inputs],
            "outputs": [{"name": n, "type": t.short} for n, t in outputs], "sizes": places}


def _unsupported(error: StrataError) -> list[Facts]:
    return [{"what": p.what, "node": p.node, "hint": p.hint} for p in error.problems] or [
        {"what": error.message, "node": "", "hint": ""}]


# ---------------------------------------------------------------------- for people
def report(facts: Facts) -> Iterator[str]:
    """The facts as lines, each cut where a text of the model is long."""
    yield from (cut(line, LONGEST) for line in _report(facts))


def _report(facts: Facts) -> Iterator[str]:
    yield f"{facts['model']}: {', '.join(_origin(facts))}"
    for title in ("inputs", "outputs"):
        yield title
        yield from _columns([(p["name"], p["type"]) for p in facts[title]])
    if facts["sizes"]:
        yield "sizes that are open (--dim NAME=N fixes one)"
        yield from _columns([(n, ", ".join(places)) for n, places in facts["sizes"].items()])
    held = facts["parameters"]
    yield (f"parameters: {held['elements']:,} in {held['tensors']:,} tensors, "
           f"{_amount(held['bytes'])}")
    counts = facts["operators"]
    yield f"operators: {sum(counts.values()):,} of {len(counts)} kinds"
    width = max((len(str(n)) for n in counts.values()), default=0)
    yield from (f"  {count:{width}}  {name}" for name, count in counts.items())


def _origin(facts: Facts) -> Iterator[str]:
    yield facts["format"]
    if "opsets" in facts:
        yield "opset " + ", ".join(f"{version}" if domain == "ai.onnx" else f"{domain} {version}"
                                   for domain, version in facts["opsets"].items())
        yield f"IR version {facts['ir_version']}"
    if facts.get("functions"):
        yield f"{facts['functions']} functions"
    if facts.get("producer"):
        yield f"made by {facts['producer']}"


def _columns(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    short = [(cut(name, LONGEST_NAME), text) for name, text in rows]
    width = max((len(name) for name, _ in short), default=0)
    yield from (f"  {name:{width}}  {text}" for name, text in short)


def _amount(size: int) -> str:
    """`102.2 MB`."""
    number, units = float(size), iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while number >= 1000 and (larger := next(units, None)):
        number, unit = number / 1000, larger
    return f"{size} bytes" if unit == "bytes" else f"{number:.1f} {unit}"

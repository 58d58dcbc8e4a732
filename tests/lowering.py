"""Takes modules through the whole pipeline, and compares what they compute on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.traits import SymbolOpInterface

from compiler.measuring.comparison import error_of, tolerance_of
from compiler.pipeline.steps import PIPELINE
from dialects.strata.types import Array
from dialects.text.syntax import location, location_names
from dialects.verifying import verify
from dialects.walking import walked
from passes.base import StrataContext
from passes.registry import parse_passes
from targets.reference.interpret import interpret

STEPS = tuple(step.spec for step in PIPELINE)


@cache
def _passes(spec: str) -> Sequence[ModulePass]:
    return parse_passes(spec)


class Watched:
    """Tells whether a module is another than at the last question, without printing it.

    Passes that change nothing leave the very operations, values and attributes. All of them are
    held, so that no other object gets the identity of one that is gone.
    """

    def __init__(self) -> None:
        self._parts: list[object] = []

    def changed(self, module: ModuleOp) -> bool:
        parts = _parts_of(module)
        before, self._parts = self._parts, parts
        return len(parts) != len(before) or any(
            a is not b for a, b in zip(parts, before, strict=True))


def _parts_of(module: ModuleOp) -> list[object]:
    """All that a module's text is made of."""
    parts: list[object] = []
    for op in walked(module):
        parts.append(op)
        parts += op.operands
        parts += op.attributes.values()
        parts += op.properties.values()
        _add_values(op.results, parts)
        for region in op.regions:
            for block in region.blocks:
                _add_values(block.args, parts)
    return parts


def _add_values(values: Sequence[SSAValue], parts: list[object]) -> None:
    for value in values:
        parts += (value, value.type)


def form_of(module: ModuleOp) -> tuple[object, ...]:
    """What a module's text says, but for the names of values. Equal for equal modules."""
    parts, numbers = list[object](), dict[SSAValue, int]()
    for op in walked(module):
        parts += (op.name, len(op.regions), len(op.results), *map(numbers.get, op.operands))
        parts += (*op.attributes.items(), *op.properties.items())
        values = [*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)]
        parts += (value.type for value in values)
        parts += (len(b.ops) for r in op.regions for b in r.blocks)
        numbers.update(zip(values, range(len(numbers), len(numbers) + len(values)), strict=True))
    return tuple(parts)


def lower(module: ModuleOp, context: StrataContext, steps: Sequence[str] = STEPS) -> Iterator[str]:
    """Run the steps one by one, in place; after each, its name. What they leave is verified.

    Operations have locations at the end of the whole pipeline, as if each came from a node.
    """
    watched = Watched()
    for number, op in enumerate(module.walk()):
        if not location_names(op):
            op.location = location(f"n{number}")
    for step in steps:
        for pass_ in _passes(step):
            pass_.apply(context, module)
        if step in ("graph-to-loop", *STEPS[-6:]) and watched.changed(module):
            verify(module)
        if step == STEPS[-1]:
            check_locations(module)
        yield step


def check_locations(module: ModuleOp) -> None:
    """At most one operation in a hundred has lost its node."""
    ops = [op for op in module.walk() if not op.has_trait(SymbolOpInterface) and op is not module]
    lost = [op.name for op in ops if not location_names(op)]
    assert 100 * len(lost) <= len(ops), f"{len(lost)} of {len(ops)} name no node: {set(lost)}"


def check_levels(
    module: ModuleOp, context: StrataContext, inputs: Sequence[Array], expected: Sequence[Array],
    tolerance: float, known: set[tuple[object, ...]],
) -> None:
    """Lower a module, and execute it after every pass of the loop level and below.

    `known`: forms that were executed before, here or on the way to another target.
    """
    target, watched = context.facts.target or "no target", Watched()
    for step in lower(module, context):
        if (step.startswith("graph-") and step != "graph-to-loop") or not watched.changed(module):
            continue
        form = form_of(module)
        if form in known:
            continue
        known.add(form)
        outputs = interpret(module, context.weights, inputs)
        assert_close(outputs, expected, tolerance, f"{target}, after {step}")


def assert_close(
    outputs: Sequence[Array], expected: Sequence[Array], tolerance: float, where: str
) -> None:
    """Errors are relative to the largest magnitude; NaN and infinities stand where expected."""
    for number, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        error = error_of(got, want)
        limit = max(tolerance_of(want), tolerance if tolerance_of(want) else 0)
        assert error <= limit, f"{where}: output {number} is off by {error}:\n{got}\n{want}"


def without_subnormals(arrays: Sequence[Array]) -> list[Array]:
    """The arrays with zeros for numbers that the CPU target flushes to zero."""
    return [np.where(np.abs(a) < ml_dtypes.finfo(a.dtype).tiny, np.copysign(np.zeros_like(a), a), a)
            if a.dtype in (np.float32, np.float64) else a for a in arrays]

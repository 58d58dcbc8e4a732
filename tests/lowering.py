"""Takes modules through the whole pipeline, and compares what they compute on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from compiler.measuring.comparison import error_of, tolerance_of
from compiler.pipeline.steps import PIPELINE
from dialects.strata.types import Array
from passes.base import StrataContext
from passes.registry import parse_passes
from targets.reference.interpret import interpret

STEPS = tuple(step.spec for step in PIPELINE)


@cache
def _passes(spec: str) -> Sequence[ModulePass]:
    return parse_passes(spec)


def lower(module: ModuleOp, context: StrataContext, steps: Sequence[str] = STEPS) -> Iterator[str]:
    """Run the steps one by one, in place; after each, its name. What they leave is verified."""
    for step in steps:
        for pass_ in _passes(step):
            pass_.apply(context, module)
        if step in ("graph-to-loop", *STEPS[-6:]):
            module.verify()
        yield step


def check_levels(
    module: ModuleOp, context: StrataContext, inputs: Sequence[Array], expected: Sequence[Array],
    tolerance: float, known: set[str],
) -> None:
    """Lower a module, and execute it after every pass of the loop level and below.

    `known`: texts that were executed before, here or on the way to another target.
    """
    target = context.facts.target or "no target"
    for step in lower(module, context):
        text = str(module)
        if (step.startswith("graph-") and step != "graph-to-loop") or text in known:
            continue
        known.add(text)
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

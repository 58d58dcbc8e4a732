"""Compiles a drawn model, runs it at each set of sizes, and says what is wrong.

The CPU target against the reference in f64, element by element, within what rounding explains
(`precise.py`); then the reference against onnxruntime likewise. NaN passes only where the reference
computes NaN in the model's own types. A model is valid by construction, so a refusal is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, CompilerFault
from dialects.strata.assumptions import SizeError
from dialects.strata.binding import EvaluationError
from dialects.strata.types import Array, element_of, largest, precision
from targets.reference.interpret import interpret
from tests.fuzz.solver.generate import Generated
from tests.fuzz.solver.peers import Peer, peer_of
from tests.fuzz.solver.precise import F64, Allowance, is_wide

GRANTED = 6
"""How many times what the runs with rounding show."""
UNITS = 2
"""How many units in its last place any element may be off."""
PEER = {"float64": 1e-6, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""What onnxruntime may be off besides, of the largest magnitude or of 1: it computes functions
coarser, and is only asked what operators mean.
"""
STAGES = (0, 6, 18, 40)
"""How many such runs are made, as long as elements are beyond."""


@dataclass(frozen=True)
class Finding:
    """`kind`: fault, refused, wrong, reference, peer, or invalid; empty: nothing is wrong."""

    kind: str = ""
    text: str = ""
    feed: int = 0

    def __bool__(self) -> bool:
        return bool(self.kind)


def judge(generated: Generated, peer: bool = True, plain: bool = False) -> Finding:
    """What is wrong with a model. `peer`: compare with onnxruntime, too; `plain`: with denormals,
    and without the forms of convolution that let infinities reach neighbours.
    """
    model = MemoryModel("drawn.onnx", generated.proto.SerializeToString())
    check = True if generated.number % 2 else None  # accesses, in half of the models
    compilation = Compiler(model, CompileOptions(
        cache="off", threads=1, tuned="off", check=check, exact=plain,
        denormals="keep" if plain else "flush"))
    try:
        state = compilation.read()
        module, weights = state.module.clone(), type(state.context.weights)(
            dict(state.context.weights.arrays))
        compilation.run(state, compilation.plan(state, None))
        program = compilation.load(state)
    except StrataError as error:
        return Finding("refused", str(error))
    except CompilerFault as error:
        return Finding("fault", str(error))
    theirs = peer_of(generated.proto) if peer else None
    if isinstance(theirs, str):
        return Finding("invalid", theirs)
    for number, feed in enumerate(generated.feeds):
        found = _judge_feed(module, weights, program, theirs, feed, generated)
        if found:
            return Finding(found.kind, found.text, number)
    return Finding()


def _judge_feed(
    module: Any, weights: Any, program: Any, peer: Peer | None, feed: Mapping[str, Array],
    generated: Generated,
) -> Finding:
    inputs = [feed[n] for n in program.input_names]
    found, allowance = compared(module, weights, program, inputs, Rule(False, generated.special))
    if found or allowance is None:
        return found
    theirs = None if peer is None or generated.special else (
        peer.run(feed, allowance.native))
    if theirs is None:
        return Finding()
    text = differs(theirs, allowance.native, allowance, program.output_names, Rule(True))
    return Finding("peer", text) if text else Finding()


def compared(
    module: Any, weights: Any, program: Any, inputs: Sequence[Array], rule: Rule
) -> tuple[Finding, Allowance | None]:
    """What is wrong with a run of the code, and what its numbers may be."""
    try:
        native = interpret(module, weights, inputs)
        allowance = Allowance.of(module, weights, inputs, native)
    except (EvaluationError, SizeError) as error:
        return Finding("reference", f"{error}{_also_refused(program, inputs)}"), None
    try:
        actual = program.run(inputs)
    except ValueError as error:
        return Finding("refused", f"at a run: {error}"), allowance
    text = differs(actual, native, allowance, program.output_names, rule)
    return (Finding("wrong", text) if text else Finding()), allowance


def _also_refused(program: Any, inputs: Sequence[Array]) -> str:
    """What the code says of a run that the reference does not do; empty if it does it."""
    try:
        program.run(inputs)
    except ValueError as error:
        return f"\nand at a run: {error}"
    return ""


# ---------------------------------------------------------------------- comparison
@dataclass(frozen=True)
class Rule:
    """`peer`: numbers of onnxruntime are compared. `extreme`: inputs hold the largest numbers."""

    peer: bool = False
    extreme: bool = False


def differs(
    actual: Sequence[Array], native: Sequence[Array], allowance: Allowance, names: Sequence[str],
    rule: Rule,
) -> str:
    """What is beyond the allowance; empty if nothing is."""
    for name, got, want in zip(names, actual, native, strict=True):
        if got.shape != want.shape or got.dtype != want.dtype:
            return (f"output {name} is {got.dtype}{list(got.shape)}, not "
                    f"{want.dtype}{list(want.shape)}")
    text = ""
    for stage in STAGES:
        allowance.widen(stage - allowance.trials)
        text = next(filter(None, (
            _beyond(name, got, want, exact, slack, rule) for name, got, want, exact, slack in zip(
                names, actual, native, allowance.exact, allowance.slack, strict=True))), "")
        if not text:
            return ""
    return text


def _beyond(
    name: str, got: Array, native: Array, exact: Array, slack: Array, rule: Rule
) -> str:
    """The worst element of an output that nothing explains."""
    wide, own = got.astype(F64), native.astype(F64)
    if exact.shape != got.shape:
        return f"output {name} has the shape {list(exact.shape)} in f64"
    with np.errstate(all="ignore"):
        right = _allowed(got, wide, exact.astype(F64), slack, rule)
        # what leaves the range of the model's own type does so in the reference, too
        right |= ~np.isfinite(own) & ((wide == own) | (np.isnan(wide) & np.isnan(own)))
        if rule.extreme:  # and there an inner number may have left it
            right |= _allowed(got, wide, own, slack, rule)
    if right.all():
        return ""
    place = tuple(int(k) for k in np.argwhere(~right)[0])
    return (f"output {name} {got.dtype}{list(got.shape)} at {list(place)}: {wide[place]!r}, not "
            f"{exact[place]!r} ({own[place]!r} in its own type) within "
            f"{GRANTED * slack[place]:.2g}; {int((~right).sum())} of {right.size} elements")


def _allowed(got: Array, wide: Array, exact: Array, slack: Array, rule: Rule) -> Array:
    """Per element: whether rounding explains it."""
    element = element_of(got.dtype)
    if not is_wide(element):  # integers, truth values, and floats of 8 bits
        return (wide == exact) | (np.abs(wide - exact) <= GRANTED * slack)
    limit = GRANTED * slack + UNITS * precision(element) * np.abs(exact) + _smallest(got.dtype)
    if rule.peer:
        top = np.abs(exact[np.isfinite(exact)]).max(initial=1.0)
        limit = limit + PEER[got.dtype.name] * top
    overflow = np.isinf(wide) & (np.sign(wide) == np.sign(exact)) & (
        np.abs(exact) + limit >= largest(element))
    return (np.abs(wide - exact) <= limit) | (wide == exact) | overflow | (
        np.isinf(slack) & ~np.isnan(wide))


def _smallest(dtype: np.dtype[Any]) -> float:
    """The least normal number: smaller ones may be flushed to zero."""
    return {"float64": 2.0**-1022, "float16": 2.0**-14 * 2.0**-10}.get(dtype.name, 2.0**-126)

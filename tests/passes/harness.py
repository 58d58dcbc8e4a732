"""Runs a pass on a text and holds it to what every pass must keep.

A file starts with `// PASSES: pipeline` and has CHECK lines for the text that leaves (see
`tests/filecheck.py`). `// TARGET: cpu avx2` names a target and its features, for passes that ask
one, and `// TUNED: KEY <grid a0 tile 1, ...>` a schedule that was found by tuning. Beyond these,
without a line in the file:

- every function that no other calls computes what it computed before, on random inputs (bit for
  bit, unless `// TOLERANCE: 1e-5` says how far results may be off);
- every operation that leaves has the location of a node that entered;
- the same passes once more change nothing.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.graph.interpret import evaluate_func
from dialects.host.interpret import interpret_host
from dialects.ranks.attributes import world_of
from dialects.ranks.peers import Peers, run_ranks
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.control import ControlOp
from dialects.strata.func import FuncOp
from dialects.strata.schedule import parse_schedule
from dialects.strata.types import Array, TensorType
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location, location_name
from dialects.verifying import verify
from passes.base import StrataContext
from passes.contract import Choice
from passes.registry import parse_passes
from passes.rewriting import functions
from targets.base import TargetOptions, find_target
from tests.filecheck import filecheck


def parse(text: str, context: StrataContext) -> ModuleOp:
    """The module of a text; every operation comes from a node of its own: `n0`, `n1` ..."""
    module = Parser(context, text).parse_module()
    verify(module)
    for number, op in enumerate(module.walk()):
        op.location = location(f"n{number}")
    return module


def run_passes(module: ModuleOp, pipeline: str, context: StrataContext) -> str:
    """The text behind the passes, which must leave a valid module."""
    for pass_ in parse_passes(pipeline):
        pass_.apply(context, module)
        verify(module)
    return str(module)


def check_file(text: str) -> None:
    """Hold the passes that the text names to its CHECK lines and to the rules above."""
    context = _context(_header(text, "TARGET"))
    context.choices = _choices(text)
    module = parse(text, context)
    before = [Run.of(f) for f in _uncalled(module)]
    expected = [run.results(f, context) for run, f in zip(before, _uncalled(module), strict=True)]
    pipeline = _header(text, "PASSES")
    after = run_passes(module, pipeline, context)
    filecheck(text, after)
    check_locations(module)
    _check_meaning(module, before, expected, float(_header(text, "TOLERANCE") or 0), context)
    assert run_passes(module, pipeline, context) == after


def _context(target: str) -> StrataContext:
    """Without a target, or for `cpu avx2`: its name and features."""
    if not target:
        return StrataContext.with_dialects()
    name, _, features = target.partition(" ")
    return find_target(name).bind(TargetOptions(features=features or None)).context()


def _choices(text: str) -> dict[str, Choice]:
    return {key: Choice(parse_schedule(schedule), 1.5)
            for key, schedule in re.findall(r"^// TUNED: ([\w.]+) (<.*>)$", text, re.MULTILINE)}


def _header(text: str, word: str) -> str:
    found = re.search(rf"^// {word}: (.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def check_locations(module: ModuleOp) -> None:
    lost = [op.name for op in module.walk() if not location_name(op)]
    assert not lost, f"without a location: {lost}"


@dataclass(frozen=True)
class Run:
    """Inputs for a function: small sizes for its symbols, random numbers."""

    inputs: Sequence[Array]

    @staticmethod
    def of(func: FuncOp) -> Run:
        types = [a.type for a in func.body.block.args if isinstance(a.type, TensorType)]
        symbols = sorted({s for t in types for e in t.shape for s in e.symbols})
        sizes = {name: 3 + k for k, name in enumerate(symbols)}
        rng = np.random.default_rng(zlib.crc32(func.sym_name.data.encode()))
        return Run([_random(t, sizes, rng) for t in types])

    def results(self, func: FuncOp, context: StrataContext) -> list[Array]:
        """What the first rank computes, if the function is that of several."""
        def on_rank(peers: Peers | None) -> list[Array]:
            known = EvaluationContext(weights=context.weights, peers=peers)
            return evaluate_func(func, self.inputs, known)

        count = world_of(func)
        return on_rank(None) if count == 1 else run_ranks(count, on_rank)[0]


def _random(type_: TensorType, sizes: Mapping[Symbol, int], rng: np.random.Generator) -> Array:
    shape = [int(e.evaluate(sizes)) for e in type_.shape]
    if type_.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if type_.dtype.kind in "iu":
        return rng.integers(0, 3, shape).astype(type_.dtype)
    return rng.standard_normal(shape).astype(type_.dtype)


def _uncalled(module: ModuleOp) -> list[FuncOp]:
    """The functions that no other calls."""
    called = {name for f in functions(module) for op in f.body.block.ops
              if isinstance(op, ControlOp) for name in op.callees}
    return [f for f in functions(module) if f.sym_name.data not in called]


def _check_meaning(
    module: ModuleOp, runs: Sequence[Run], expected: Sequence[list[Array]], tolerance: float,
    context: StrataContext,
) -> None:
    funcs = _uncalled(module)
    if funcs:
        actual = [run.results(f, context) for run, f in zip(runs, funcs, strict=True)]
    else:  # one function: the driver
        assert len(runs) == 1
        actual = [interpret_host(module, runs[0].inputs, context.weights)]
    for found, wanted in zip(actual, expected, strict=True):
        for a, b in zip(found, wanted, strict=True):
            assert_same(a, b, tolerance)


def assert_same(actual: Array, expected: Array, tolerance: float = 0.0) -> None:
    """Equal dtype, shape and values; bit for bit, signs of zeros too, without a tolerance."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if tolerance:
        np.testing.assert_allclose(actual.astype(float), expected.astype(float),
                                   rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(actual, expected)
        if actual.dtype.kind not in "biu":
            np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))

"""Operators at sizes that only a run knows: each sample with all dims open, at many shapes.

A sample is compiled once, with a size of its own for every dim. Then it runs at shapes of 0, 1, 2,
3 and a prime, and at shapes that contradict each other. What NumPy makes of the operator must come
out; where NumPy refuses, so must the compiled code, by an error that says why. Every run is in a
process of its own, and every input ends where that process may read no further: a read outside is
a fault, and not a number.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import pickle
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import dialects.graph as g
from compiler.measuring.comparison import error_of, tolerance_of
from dialects.graph.base import ShapeError
from dialects.graph.interpret import EvaluationError, evaluate_func
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.assumptions import SizeError
from dialects.strata.func import FuncOp, main_function
from dialects.strata.types import Array, TensorType, element_of, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol
from passes.base import PassError
from targets.base import TargetOptions, find_target
from tests import processes
from tests.lowering import lower
from tests.op_samples.sample import Random, Sample

EXTENTS = (0, 1, 2, 3, 7)
RUNS = 12
TIMEOUT = 120
_INDEXED = (g.GatherOp, g.GatherElementsOp, g.GatherNdOp, g.ScatterElementsOp, g.ScatterNdOp)
"""Their integers are indices, which zeros are everywhere; others are out of range at some sizes."""
_OF_DATA = (g.SearchSortedOp, g.ScatterElementsOp, g.ScatterNdOp)
"""What they give depends on an order: of data, or of updates of one element."""


@dataclass(frozen=True)
class Finding:
    """What went wrong at which shapes."""

    shapes: tuple[tuple[int, ...], ...]
    text: str


# ---------------------------------------------------------------------- modules
def open_module(sample: Sample) -> tuple[ModuleOp, EvaluationContext] | None:
    """The sample with a size of its own for every dim, or else as it names its sizes.

    None where the operator takes neither.
    """
    shapes = [tuple(Expr.size(f"s{k}d{d}") for d in range(len(o.shape)))
              for k, o in enumerate(sample.operands)]
    named = any(isinstance(v, Expr) and v.symbols for v in _flat(sample.attributes.values()))
    for dims in ([] if named else [shapes]) + ([_named(sample)] if sample.dims else []):
        context = EvaluationContext()
        types = [tensor(element_of(np.dtype(o.dtype)), s)
                 for o, s in zip(sample.operands, dims, strict=True)]
        function = FuncOp.of("main", [f"x{k}" for k in range(len(types))], types)
        try:
            op = sample.op.of(*function.body.block.args[:sample.used], **sample.attributes)
        except ShapeError:
            continue
        function.body.block.add_op(op)
        function.finish([f"y{k}" for k in range(len(op.results))], op.results)
        return ModuleOp([function]), context
    return None


def _named(sample: Sample) -> list[tuple[Expr, ...]]:
    return [tuple(map(expr_of, part.split())) for part in sample.dims.split(";")]


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        yield from _flat(value) if isinstance(value, list) else [value]


# ---------------------------------------------------------------------- inputs
def settings(module: ModuleOp, seed: int, runs: int) -> Sequence[Mapping[Symbol, int]]:
    """Values of all sizes: all alike, then each by itself, some of them as another one."""
    names = sorted({s for type_ in _types(module) for e in type_.shape for s in e.symbols})
    rng = np.random.default_rng(seed)
    alike = [dict.fromkeys(names, extent) for extent in EXTENTS]
    mixed = [{name: int(rng.choice(EXTENTS)) for name in names} for _ in range(runs)]
    one_apart = [{**dict.fromkeys(names, 3), name: extent}
                 for name, extent in itertools.product(names, (0, 2, 7))]
    rng.shuffle(one_apart)  # type: ignore[arg-type]
    return [*alike, *one_apart[:runs], *mixed][:len(alike) + 2 * runs]


def _types(module: ModuleOp) -> list[TensorType]:
    return [a.type for a in main_function(module).body.block.args
            if isinstance(a.type, TensorType)]


def inputs_for(sample: Sample, module: ModuleOp, sizes: Mapping[Symbol, int]) -> list[Array] | None:
    """Inputs of these sizes; None where an expression of sizes is negative."""
    rng = np.random.default_rng(zlib.crc32(repr(sorted(sizes.items())).encode()))
    found: list[Array] = []
    for operand, type_ in zip(sample.operands, _types(module), strict=True):
        shape = tuple(int(e.evaluate(sizes)) for e in type_.shape)
        if min(shape, default=0) < 0:
            return None
        dtype = np.dtype(operand.dtype)
        made = (operand if isinstance(operand, Random) else Random((), dtype))
        array = Random(shape, dtype, made.low, made.high).make(rng)
        if dtype.kind in "iu" and sample.op in _INDEXED:
            array = np.zeros(shape, dtype)
        found.append(at_the_end(array))
    return found


def at_the_end(array: Array) -> Array:
    """A copy whose last byte is the last that may be read."""
    page = mmap.PAGESIZE
    room = -(-max(array.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, room + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + room), page, 0)
    place = np.frombuffer(memory, np.uint8, array.nbytes, room - array.nbytes)
    result = place.view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


# ---------------------------------------------------------------------- runs
def check(sample: Sample, runs: int = RUNS) -> list[Finding]:
    """Whatever is wrong with a sample at some shapes."""
    made = open_module(sample)
    if made is None or sample.op in _OF_DATA:
        return []
    module, context = made
    seed = zlib.crc32(sample.label.encode())
    wanted = [(sizes, inputs_for(sample, module, sizes))
              for sizes in settings(module, seed, runs)]
    cases = [(sizes, arrays) for sizes, arrays in wanted if arrays is not None]
    found = in_process(lambda: _run_all(sample, module, context, [a for _, a in cases]))
    if isinstance(found, str):  # find the shapes that it dies of
        for _, arrays in cases:
            alone = in_process(lambda a=arrays: _run_all(sample, open_module(sample)[0],  # type: ignore[index,misc]
                                                         context, [a]))
            if isinstance(alone, str):
                return [Finding(_shapes(arrays), alone)]
        return [Finding((), found)]
    return found


def _run_all(
    sample: Sample, module: ModuleOp, context: EvaluationContext, cases: Sequence[list[Array]]
) -> list[Finding]:
    function = main_function(module)
    expected = [_outcome(lambda a=arrays: evaluate_func(  # type: ignore[misc]
        function, a, EvaluationContext(weights=context.weights))) for arrays in cases]
    options, target = TargetOptions(threads=1), find_target("cpu")
    strata = target.bind(options).context(context.weights)
    try:
        list(lower(module, strata))
    except PassError:  # refused by name: a recurrent operator of open length, say
        return []
    executable = target.bind(options).running.load(module, strata.weights)
    findings: list[Finding] = []
    for arrays, want in zip(cases, expected, strict=True):
        got = _outcome(lambda a=arrays: executable.run(a))  # type: ignore[misc]
        text = _difference(sample, got, want)
        findings += [Finding(_shapes(arrays), text)] if text else []
    return findings


def _shapes(arrays: Sequence[Array]) -> tuple[tuple[int, ...], ...]:
    return tuple(a.shape for a in arrays)


def _outcome(compute: Callable[[], Sequence[Array]]) -> list[Array] | str:
    """Arrays, or what an error says; one that is not about sizes is raised."""
    try:
        with np.errstate(all="ignore"):
            return [np.array(a) for a in compute()]
    except (SizeError, EvaluationError, ValueError) as error:
        return str(error)


def _difference(sample: Sample, got: list[Array] | str, want: list[Array] | str) -> str:
    if isinstance(got, str):  # what NumPy broadcasts at run time, code need not
        return "" if "size" in got or "must be" in got else f"unclear: {got}"
    if isinstance(want, str):
        return f"gives {[a.shape for a in got]}, where NumPy says: {want}"
    for actual, wanted in zip(got, want, strict=True):
        if (actual.shape, actual.dtype) != (wanted.shape, wanted.dtype):
            return f"gives {actual.dtype}{actual.shape}, not {wanted.dtype}{wanted.shape}"
        allowed = max(tolerance_of(wanted), sample.tolerance or 0 if tolerance_of(wanted) else 0)
        if not error_of(actual, wanted) <= allowed:
            return f"is off by {error_of(actual, wanted)}: {actual!r}, not {wanted!r}"
    return ""


def in_process(compute: Callable[[], Any]) -> Any:
    """What a forked process computes; a text where it dies or takes too long."""
    reading, writing = os.pipe()
    child = processes.fork()
    if not child:
        os.close(reading)
        signal.alarm(TIMEOUT)
        try:
            found = compute()
        except BaseException as error:  # of the compiler, say: a finding like any other
            found = f"{type(error).__name__}: {error}"[:400]
        with os.fdopen(writing, "wb") as stream:
            stream.write(pickle.dumps(found))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        written = stream.read()
    status = os.waitpid(child, 0)[1]
    return pickle.loads(written) if written else f"ended by signal {status & 127}"

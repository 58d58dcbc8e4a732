"""Runs a program with a driver that times launches, in turns with the plain one.

Nothing of this is in programs that are not profiled. The driver reads a counter before each launch,
on the thread that runs all of them; the counter's frequency follows from the clock of the run
itself. `profile` is the Python interface.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.explaining.collect import CONSTANT, Explanation
from compiler.explaining.memory import timeline
from compiler.explaining.work import value_of
from compiler.frontend import model_of
from compiler.io.signature import Signature, signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.profiling.result import Launch, ProfileResult
from compiler.profiling.roofline import measured
from dialects.host import host_function
from dialects.strata.assumptions import IndexRangeError
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.instrument import Instrument
    from compiler.pipeline.state import State
    from dialects.strata.types import Array
    from targets.interface import Executable as Loaded
    from targets.interface import Profile

SECONDS = 1.0
"""About how long each of the two programs is timed."""
ROUNDS = 8


def profile_model(
    model: str | MemoryModel, options: CompileOptions,
    inputs_of: Callable[[Signature], Sequence[Array]], instruments: Sequence[Instrument] = (),
    command: str = "", seconds: float = SECONDS,
) -> ProfileResult:
    """The profile of a model on some inputs. Raises StrataError."""
    found = Explanation(target=options.target)
    compilation = Compiler(model, options, [*instruments, found], command)
    compilation.begin()
    state = compilation.prepare()
    return profile_state(compilation, state, found, inputs_of(signature_of(state.module)), seconds)


def profile_state(
    compilation: Compiler, state: State, found: Explanation, given: Sequence[Array],
    seconds: float = SECONDS,
) -> ProfileResult:
    """The profile of a lowered model that `found` has watched. Raises StrataError."""
    options = compilation.options
    inputs = [np.ascontiguousarray(a) for a in given]
    with compilation.guard("profile", state=state):
        running, weights = compilation.parts.running, state.context.weights
        timed = running.profile(state.module, weights)
        plain = running.load(state.module, weights)
    compilation.report(f"timing {state.name}")
    sizes = _sizes(state.module, inputs)
    runs = _Runs(timed, plain, inputs, seconds)
    arena = value_of(host_function(state.module).arena_bytes or Expr.of(0), sizes)
    return ProfileResult(
        state.name, runs.wall * 1e3, runs.plain * 1e3, runs.host * 1e3, runs.calls,
        getattr(plain, "threads", options.threads or 1), arena,
        _launches(found, timed, runs, sizes), measured(options))


class _Runs:
    """The timed runs: mean seconds of a call of each program, and of each launch."""

    def __init__(self, timed: Profile, plain: Loaded, inputs: Sequence[Array], seconds: float):
        self.timed, self.inputs = timed, inputs
        count = self._count(plain, seconds)
        self._start()
        first, began = timed.last, time.perf_counter()
        walls, plains = list[float](), list[float]()
        for _ in range(ROUNDS):
            walls.append(self._mean(timed.executable, count))
            plains.append(self._mean(plain, count))
        self.calls, rows = ROUNDS * count, timed.rows()
        timed.executable.run(inputs)  # so that the counter and the clock are read together
        frequency = (timed.last - first) / (time.perf_counter() - began)
        _, host, *launches = [(ticks / frequency / self.calls, runs / self.calls)
                              for ticks, runs in rows]
        self.wall, self.plain = float(np.mean(walls)), float(np.mean(plains))
        self.host, self.launches = host[0], launches

    def _start(self) -> None:
        """Warm up, and end with a run, from whose end the counter's frequency is measured."""
        for _ in range(3):
            self.timed.executable.run(self.inputs)
        self.timed.clear()

    def _count(self, plain: Loaded, seconds: float) -> int:
        """The calls of a round. Raises StrataError for inputs that the model refuses."""
        try:
            plain.run(self.inputs)
        except (ValueError, IndexRangeError) as error:
            raise StrataError("the model cannot run on these inputs", [
                Problem(str(error))]) from error
        once = self._mean(plain, 2)
        return int(min(max(seconds / ROUNDS / max(once, 1e-7), 1), 1e5))

    def _mean(self, executable: Loaded, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            executable.run(self.inputs)
        return (time.perf_counter() - started) / count


def _launches(
    found: Explanation, timed: Profile, runs: _Runs, sizes: dict[Symbol, int]
) -> list[Launch]:
    known = {n.name: n for n in found.nodes}
    live = {s.operation: s.live for s in timeline(found.functions, sizes).steps}
    result: list[Launch] = []
    for op, (seconds, times) in zip(timed.launches, runs.launches, strict=True):
        moved, flops = found.work_of(op, sizes)
        names = [n for n in location_names(op) if n in known and known[n].op != CONSTANT]
        result.append(Launch(op.kernel.data, names, seconds * 1e3, times, moved * times,
                             flops * times, live.get(op, 0)))
    return result


def _sizes(module: Any, inputs: Sequence[Array]) -> dict[Symbol, int]:
    """The sizes of these inputs; empty if they do not fit, which the run then tells."""
    function = host_function(module)
    types = [a.type for a in function.input_arguments if isinstance(a.type, BufferType)]
    try:
        return dict(bind_sizes(types, inputs, function.input_names))
    except (EvaluationError, ValueError):
        return {}


def profile(
    fn: Any, *args: Any, target: str = "cpu", threads: int | None = None, **options: Any
) -> ProfileResult:
    """How long each kernel of a program takes, and how far from this machine's limit it is.

    `fn`: an executable of `compile`, a model as `compile` takes it, or a PyTorch module or
    function, also one that `torch.compile` returned. `args`: its inputs, NumPy arrays or tensors.
    A PyTorch program is exported, so it is timed as one graph, without guards. `options`: those of
    `compile`. `result.lines()`, `result.json` and `result.trace` show the figures. Raises
    StrataError.
    """
    from compiler.executable import Executable
    from compiler.io.arrays import to_numpy

    if isinstance(fn, Executable):
        model, chosen = fn.model, replace(fn.options, specialize=None)
    else:
        model = model_of(_exported(fn, args))
        chosen = CompileOptions(target=target, threads=threads, **options)
    arrays = [to_numpy(a) for a in args]
    return profile_model(model, chosen, lambda _: arrays)


def _exported(fn: Any, args: Sequence[Any]) -> Any:
    """A module or a function of PyTorch as a program; other models as they are."""
    import sys

    torch = sys.modules.get("torch")
    fn = getattr(fn, "_orig_mod", getattr(fn, "_torchdynamo_orig_callable", fn))
    if torch is None or not callable(fn) or isinstance(fn, (str, bytes)):
        return fn
    module: Any = fn if isinstance(fn, torch.nn.Module) else _as_module(torch, fn)
    with torch.no_grad():
        return torch.export.export(module.eval(), tuple(args))


def _as_module(torch: Any, function: Callable[..., Any]) -> Any:
    class Program(torch.nn.Module):  # pyright: ignore[reportUntypedBaseClass]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Program()

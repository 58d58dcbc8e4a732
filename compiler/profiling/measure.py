"""Times the launches of a program, as its target can, and joins the times with nodes and work.

Nothing of this is in programs that are not profiled. On the CPU a driver reads a counter before
each launch, on the thread that runs all of them; on a GPU events lie between launches, which run
one after another. `profile` is the Python interface.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from compiler.agreement import Agreement, WeightsDigest, agree
from compiler.diagnostics import Problem, StrataError
from compiler.explaining.collect import CONSTANT, Explanation
from compiler.explaining.memory import timeline
from compiler.explaining.work import buffer_bytes, value_of
from compiler.frontend import model_of
from compiler.io.arrays import contiguous
from compiler.io.signature import Signature, signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.profiling.program import ProgramProfile, profile_parts
from compiler.profiling.result import Launch, ProfileResult
from compiler.profiling.roofline import measured
from dialects.host import CollectiveOp, host_function
from dialects.strata.assumptions import DataError
from dialects.strata.binding import EvaluationError, bind_sizes
from dialects.strata.types import BufferType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel
    from compiler.instrument import Instrument
    from compiler.pipeline.state import State
    from dialects.host import LaunchOp
    from dialects.strata.types import Array
    from targets.profiles import LaunchTime, Profile, Timings

SECONDS = 1.0
"""About how long each of the two programs is timed."""


def profile_model(
    model: str | MemoryModel, options: CompileOptions,
    inputs_of: Callable[[Signature], Sequence[Array]], instruments: Sequence[Instrument] = (),
    command: str = "", seconds: float = SECONDS,
) -> ProfileResult:
    """The profile of a model on some inputs. Raises StrataError."""
    found, weights = Explanation(target=options.target), WeightsDigest(bool(options.mesh))
    compilation = Compiler(model, options, [*instruments, found, weights], command)
    compilation.begin()
    state = compilation.prepare()
    agree(Agreement(str(model), options, signature_of(state.module), [
        op.collective.facts() for op in state.module.walk() if isinstance(op, CollectiveOp)],
        weights.text))
    return profile_state(compilation, state, found, inputs_of(signature_of(state.module)), seconds)


def profile_state(
    compilation: Compiler, state: State, found: Explanation, given: Sequence[Array],
    seconds: float = SECONDS,
) -> ProfileResult:
    """The profile of a lowered model that `found` has watched. Raises StrataError."""
    inputs = [contiguous(a) for a in given]
    if compilation.parts.running.measures_apart:
        _import_torch()
    with compilation.guard("profile", state=state):
        profile = compilation.parts.running.profile(state.module, state.context.weights)
    compilation.report(f"timing {state.name}")
    with compilation.guard("profile", state=state):
        times = _times(profile, inputs, seconds)
    sizes = _sizes(state.module, inputs)
    arena = value_of(host_function(state.module).arena_bytes or Expr.of(0), sizes)
    launches = _launches(found, profile.launches, times, sizes)
    limits = measured(compilation.options, any(x.narrow for x in launches))
    return ProfileResult(state.name, times, arena, launches, limits)


def _import_torch() -> None:
    """A program on a device takes inputs that lie there only from PyTorch; without it, calls from
    the host also copy them."""
    from compiler.frontend.torch.library import torch_module

    with suppress(ImportError):
        torch_module()


def _times(profile: Profile, inputs: Sequence[Array], seconds: float) -> Timings:
    """The times of runs. Raises StrataError for inputs that the model refuses."""
    try:
        return profile.measure(inputs, seconds)
    except (ValueError, DataError) as error:
        raise StrataError("the model cannot run on these inputs", [Problem(str(error))]) from error


def _launches(
    found: Explanation, ops: Sequence[LaunchOp | CollectiveOp], times: Timings,
    sizes: dict[Symbol, int],
) -> list[Launch]:
    known = {n.name: n for n in found.nodes}
    live = {s.operation: s.live for s in timeline(found.functions, sizes).steps}
    result: list[Launch] = []
    for op, time in zip(ops, times.launches, strict=True):
        if isinstance(op, CollectiveOp):
            result.append(_exchange(op, time, sizes))
            continue
        moved, flops = found.work_of(op, sizes)
        names = [n for n in location_names(op) if n in known and known[n].op != CONSTANT]
        result.append(Launch(
            op.kernel.data, names, time.seconds * 1e3, time.runs, moved * time.runs,
            flops * time.runs, live.get(op, 0), found.is_narrow(op), time.code))
    return result


def _exchange(op: CollectiveOp, time: LaunchTime, sizes: dict[Symbol, int]) -> Launch:
    """A collective operation: the bytes that a rank gives and gets."""
    moved = buffer_bytes(op.source, sizes) + buffer_bytes(op.target, sizes)
    name = f"{op.kind.data}({op.group.data.name})"
    return Launch(name, list(location_names(op)), time.seconds * 1e3, time.runs, moved * time.runs,
                  0.0)


def _sizes(module: Any, inputs: Sequence[Array]) -> dict[Symbol, int]:
    """The sizes of these inputs; empty if they do not fit, which the run then tells."""
    function = host_function(module)
    types = [a.type for a in function.input_arguments if isinstance(a.type, BufferType)]
    try:
        return dict(bind_sizes(types, inputs, function.input_names))
    except (EvaluationError, ValueError):
        return {}


def profile(
    fn: Any, *args: Any, target: str | None = None, threads: int | None = None, **options: Any
) -> ProfileResult | ProgramProfile:
    """How long each kernel of a program takes, and how far from this machine's limit it is.

    `fn`: an executable of `compile`, a model as `compile` takes it, or a PyTorch module or
    function, also one that `torch.compile(backend="strata")` returned. `args`: its inputs, NumPy
    arrays or tensors. `target`: by default where the inputs lie. `options`: those of `compile`.
    `result.lines()`, `result.json` and `result.trace` show the figures.

    A program of `torch.compile` is called once as it would run, compiled with the options that it
    was given; arguments override them. The result is a `ProgramProfile` of all its parts, forward
    and backward where PyTorch records gradients, but not for a module in evaluation mode whose
    inputs require none. The backward changes no `.grad`. Every part is timed with the inputs of its
    first call. Other PyTorch programs are exported and timed as one graph of inference. Raises
    StrataError.
    """
    from compiler.api import prepared_options
    from compiler.executable import Executable
    from compiler.io.arrays import is_on_gpu, to_numpy
    from compiler.torch.inspected.chosen import chosen_of

    given = {**options, **({} if target is None else {"target": target}),
             **({} if threads is None else {"threads": threads})}
    if isinstance(fn, Executable):
        model, chosen = fn.model, replace(fn.options, specialize=None)
    elif chosen_of(fn) is not None:
        return _of_parts(fn, args, given)
    else:
        model = model_of(_exported(fn, args))
        there = "cuda" if any(map(is_on_gpu, args)) else "cpu"
        chosen = prepared_options(model, {"target": there, **given})
    arrays = [to_numpy(a) for a in args]
    return profile_model(model, chosen, lambda _: arrays)


def _of_parts(fn: Any, args: Sequence[Any], given: dict[str, Any]) -> ProgramProfile:
    from compiler.torch.inspected.recorded import RecordedPart, recorded

    def measure(part: RecordedPart) -> ProfileResult:
        options = replace(part.executable.options, specialize=None)
        return profile_model(part.executable.model, options, lambda _: part.inputs)

    return profile_parts(recorded(fn, args, given), measure)


def _exported(fn: Any, args: Sequence[Any]) -> Any:
    """A module or a function of PyTorch as a program; other models as they are."""
    from compiler.torch.inspected.chosen import is_program, plain_of
    from compiler.torch.inspected.failures import refused

    fn = plain_of(fn)
    if not is_program(fn):
        return fn
    torch = sys.modules["torch"]
    module: Any = fn if isinstance(fn, torch.nn.Module) else _as_module(torch, fn)
    with refused("export", fn, args), torch.no_grad():
        return torch.export.export(module.eval(), tuple(args))


def _as_module(torch: Any, function: Callable[..., Any]) -> Any:
    class Program(torch.nn.Module):  # pyright: ignore[reportUntypedBaseClass]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Program()

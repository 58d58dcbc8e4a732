"""Profiles of programs on a GPU, for `Running.profile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import UnionType
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp

from dialects.host import CollectiveOp, LaunchOp, host_function, host_functions
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from targets.cuda.build.compile import CompileOptions
from targets.cuda.planning.plan import is_straight
from targets.cuda.planning.program import load_module, program_of
from targets.cuda.profiling.timed_calls import LaunchSums, TimedKernels
from targets.cuda.profiling.timed_graph import ROUND, TimedGraph
from targets.cuda.runtime import driver
from targets.cuda.runtime.control import ControlPlan
from targets.cuda.runtime.executable import CudaExecutable
from targets.cuda.runtime.memory.device import current_stream, tensor_of, torch_on_device
from targets.profiles import Profile, Timings, mean_seconds, quick_part, runs_in

DISTURBED = 1.1
"""By how much all rounds may take longer than the quickest before a note says so."""
_OUTSIDE = "between runs, the start of the next one"


def profile_module(
    module: ModuleOp, weights: WeightStore, options: CompileOptions, one_launch: bool
) -> GraphProfile | CallProfile:
    """A profile of a module at block level. Raises CudaError without a suitable device.

    `one_launch`: whether the plain program is one graph, where it is straight.
    """
    plain = load_module(module, weights, options, one_launch)
    if is_straight(host_function(module)):
        timed = plain if one_launch else load_module(module, weights, options)
        return GraphProfile(module, timed, plain)
    program = program_of(module, options)
    assert isinstance(program.host, ControlPlan)
    kernels = TimedKernels(options, program.sources, program.host)
    return CallProfile(module, CudaExecutable(program, weights, options, kernels), plain)


class _CudaProfile(Profile):
    TIMED: ClassVar[UnionType | type] = LaunchOp
    """The operations that have a time of their own."""

    def __init__(self, module: ModuleOp, timed: CudaExecutable, plain: CudaExecutable) -> None:
        self.launches = [op for f in host_functions(module) for op in f.body.block.ops
                         if isinstance(op, self.TIMED)]
        self.timed, self.plain = timed, plain


class GraphProfile(_CudaProfile):
    """A straight program: a chain of its launches, beside the plain program."""

    TIMED: ClassVar[UnionType | type] = LaunchOp | CollectiveOp

    def measure(self, inputs: Sequence[Array], seconds: float) -> Timings:
        self.timed.run(inputs)
        with self.timed.last_state("time") as (state, runner):
            found = TimedGraph(runner, state.order.own).measure(seconds)
        alone = sum(x.seconds for x in found.launches) + found.copies
        plain = self._plain_seconds(inputs, seconds)
        notes = [_compared(alone, plain, self.plain is self.timed)]
        if found.all_walls > DISTURBED * found.wall:
            notes.append(
                f"a run took {found.all_walls * 1e3:.4g} ms in the mean of all rounds; the "
                "quickest quarter counts, in which others used the device least")
        return Timings(
            found.wall, plain, found.clocks + found.copies, found.between, found.calls,
            found.launches, driver.device_name(), "clocks and copies between launches", _OUTSIDE,
            notes)

    def _plain_seconds(self, inputs: Sequence[Array], seconds: float) -> float:
        """Of a run of the plain program, on inputs that are on the device."""
        if self.plain is not self.timed:
            return _run_seconds(self.plain, inputs, seconds)
        self.plain.replay(3)
        once, exchanges = self.plain.replay(3) / 1e3, self.plain.exchanges
        count = runs_in(ROUND, once, exchanges)
        return _quick_mean([self.plain.replay(count) / 1e3
                            for _ in range(runs_in(seconds, count * once, exchanges))])


class CallProfile(_CudaProfile):
    """A program with control flow: the same program with events around its launches."""

    def measure(self, inputs: Sequence[Array], seconds: float) -> Timings:
        kernels = self.timed.kernels
        assert isinstance(kernels, TimedKernels)
        sums = LaunchSums(kernels.log, len(self.launches))
        run, wait = _runner(self.timed, inputs)
        for _ in range(3):
            _one_run(run, wait, sums)
        count = runs_in(seconds, _one_run(run, wait, sums), self.plain.exchanges)
        sums = LaunchSums(sums.log, len(self.launches))
        wall = 0.0
        for _ in range(count):
            wall += _one_run(run, wait, sums)
            sums.add()
        launches = sums.means(count)
        inside = sum(x.seconds for x in launches)
        return Timings(
            wall / count, _run_seconds(self.plain, inputs, seconds),
            max(wall / count - inside, 0.0), 0.0, count, launches, driver.device_name(),
            "the host's steps, and waiting for the device's answers", _OUTSIDE,
            ["the host makes the launches one by one; times of short kernels include its own"])


def _compared(alone: float, plain: float, is_graph: bool) -> str:
    """What the plain program gains or loses against its launches one after another."""
    ms = f"its launches one after another take {alone * 1e3:.4g} ms"
    if plain < alone:
        return f"{ms}; in the plain program they overlap, which saves {1e3 * (alone - plain):.4g}"
    way = "between the nodes of its graph" if is_graph else "between launches from the host"
    return f"{ms}; the plain program has gaps of {1e3 * (plain - alone):.4g} ms {way}"


# ---------------------------------------------------------------------- runs from the host
def _one_run(run: Callable[[], object], wait: Callable[[], None], sums: LaunchSums) -> float:
    """The seconds of a run until the device has ended it."""
    sums.log.begin()

    def whole() -> None:
        run()
        wait()

    return mean_seconds(whole, 1)


def _run_seconds(executable: CudaExecutable, inputs: Sequence[Array], seconds: float) -> float:
    """The mean seconds of runs in a row, in the quickest rounds."""
    run, wait = _runner(executable, inputs)

    def runs(count: int) -> float:
        def all_runs() -> None:
            mean_seconds(run, count)
            wait()

        return mean_seconds(all_runs, 1) / count

    runs(3)
    once, exchanges = runs(3), executable.exchanges
    count = runs_in(ROUND, once, exchanges)
    return _quick_mean([runs(count) for _ in range(runs_in(seconds, count * once, exchanges))])


def _quick_mean(rounds: Sequence[float]) -> float:
    """The mean of the quickest of some rounds, as `TimedGraph` chooses its own."""
    kept = quick_part(rounds, lambda seconds: seconds)
    return sum(kept) / len(kept)


def _runner(
    executable: CudaExecutable, inputs: Sequence[Array]
) -> tuple[Callable[[], object], Callable[[], None]]:
    """A run, on the device's tensors if the caller uses torch, and what waits for its end."""
    torch = torch_on_device()
    if torch is None:
        return lambda: executable.run(inputs), lambda: None
    given = [tensor_of(a, current_stream()) for a in inputs]
    driver.synchronize(current_stream())
    return lambda: executable.run(given), lambda: driver.synchronize(current_stream())

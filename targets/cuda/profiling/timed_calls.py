"""A program with control flow, in which each launch lies between two events of its stream.

The host makes the launches one by one. Where it is slower than the device, the first event of a
launch is reached before the launch is there, so such times include the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dialects.symbolic.symbol import Symbol
from targets.cuda.build.compile import CompileOptions
from targets.cuda.libraries.calls import LibraryLaunch
from targets.cuda.profiling.code_facts import code_facts
from targets.cuda.runtime import driver
from targets.cuda.runtime.control import ControlPlan
from targets.cuda.runtime.kernels import Kernels, PackedLaunch
from targets.cuda.runtime.planned import KernelCall
from targets.cuda.runtime.variants.variant import Sources, Variant
from targets.profiles import LaunchTime


@dataclass
class Log:
    """The launches of a run, each with two events, which later runs use again."""

    entries: list[tuple[int, driver.Event, driver.Event]] = field(
        default_factory=list["tuple[int, driver.Event, driver.Event]"])
    code: dict[int, Mapping[str, int]] = field(default_factory=dict[int, "Mapping[str, int]"])
    _events: list[driver.Event] = field(default_factory=list["driver.Event"])

    def begin(self) -> None:
        """A new run."""
        self.entries.clear()

    def events(self, number: int) -> tuple[driver.Event, driver.Event]:
        """The events of one more launch."""
        place = 2 * len(self.entries)
        while len(self._events) < place + 2:
            self._events.append(driver.Event(timing=True))
        start, end = self._events[place: place + 2]
        self.entries.append((number, start, end))
        return start, end


@dataclass
class TimedLaunch:
    """A launch between two events. `number`: that of its operation."""

    launch: PackedLaunch | LibraryLaunch
    number: int
    log: Log

    def __call__(self, stream: int) -> None:
        start, end = self.log.events(self.number)
        start.record(stream)
        self.launch(stream)
        end.record(stream)

    def point_at(self, addresses: Sequence[int]) -> None:
        """Set the addresses of all buffers for later launches."""
        self.launch.point_at(addresses)


class TimedKernels(Kernels):
    """Kernels whose launches are timed: those of the calls in a plan, numbered in its order."""

    def __init__(self, options: CompileOptions, sources: Sources, plan: ControlPlan) -> None:
        super().__init__(options, sources)
        self.log = Log()
        self._numbers = {id(step.call): k for k, step in enumerate(
            s for f in plan.functions for s in f.launches)}

    def pack(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, call: KernelCall, sizes: Mapping[Symbol, int], addresses: Sequence[int],
        others: Callable[[], Iterable[Variant]] = tuple,
    ) -> TimedLaunch | None:
        launch = super().pack(call, sizes, addresses, others)
        if launch is None:
            return None
        number = self._numbers[id(call)]
        self.log.code[number] = code_facts(launch)
        return TimedLaunch(launch, number, self.log)


@dataclass
class LaunchSums:
    """The launches of several runs, added up."""

    log: Log
    count: int
    seconds: list[float] = field(init=False)
    runs: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.seconds, self.runs = [0.0] * self.count, [0] * self.count

    def add(self) -> None:
        """Add the last run, which has ended."""
        for number, start, end in self.log.entries:
            self.seconds[number] += end.milliseconds_since(start) / 1e3
            self.runs[number] += 1

    def means(self, runs: int) -> list[LaunchTime]:
        """The launches of one of so many runs."""
        return [LaunchTime(s / runs, n / runs, self.log.code.get(k, {}))
                for k, (s, n) in enumerate(zip(self.seconds, self.runs, strict=True))]

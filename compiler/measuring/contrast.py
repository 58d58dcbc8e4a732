"""The measurement of `compare`: strategies, groups of passes, and peers, in one contest.

Programs that are equal, because a group changes nothing in them, are compiled and timed once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from compiler.diagnostics import Problem, StrataError
from compiler.faults import CompilerFault
from compiler.measuring.branches import Failure
from compiler.measuring.contest import (
    Contest,
    Interval,
    Waiting,
    difference,
    intervals,
    rounds_within,
)
from compiler.measuring.programs import (
    Builder,
    Prepared,
    Program,
    attempted,
    with_groups,
)
from compiler.measuring.trial import trial
from compiler.peers import Request, load_peer
from compiler.pipeline.strategies import GROUPS, PER_OP, STRATEGIES, WHOLE_GRAPH
from compiler.suggestions import hint_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.frontend.torch.capture import Captured
    from compiler.options import CompileOptions
    from compiler.peers import Run

Made = Program | StrataError | CompilerFault
SECONDS = 60.0
"""About how long all calls may take together, unless the number of rounds is given."""
LEAST_ROUNDS, MOST_ROUNDS = 7, 40
HELD = 6
"""The programs that are in memory at a time while their code is compiled, before they load."""


def parse_groups(text: str) -> tuple[str, ...]:
    """The groups of an ablation: `all`, `none`, or names with commas. Raises StrataError."""
    names = [name for part in text.split(",") if (name := part.strip())]
    if names == ["all"]:
        return tuple(GROUPS)
    unknown = [name for name in names if name not in GROUPS and names != ["none"]]
    if unknown:
        raise StrataError("--groups names what is no group of passes", [
            Problem(f"'{name}'", hint=hint_for(name, GROUPS)) for name in unknown], exit_status=2)
    return () if names == ["none"] else tuple(dict.fromkeys(names))


@dataclass
class Contrast:
    """What was made and measured. `times`: by the code of programs and the names of peers."""

    strategies: dict[str, Made] = field(default_factory=dict[str, Made])
    without: dict[str, Made] = field(default_factory=dict[str, Made])
    alone: dict[str, Made] = field(default_factory=dict[str, Made])
    times: dict[str, Interval] = field(default_factory=dict[str, Interval])
    first_s: dict[str, float] = field(default_factory=dict[str, float])
    """The seconds until the first result, of peers."""
    differences: dict[str, float] = field(default_factory=dict[str, float])
    """How far outputs are from those of `whole-graph`, of strategies and peers."""
    problems: dict[str, StrataError | CompilerFault] = field(
        default_factory=dict[str, "StrataError | CompilerFault"])
    """Why a strategy, a group or a peer has no figures, by its name."""
    cannot_run: str = ""
    rounds: int = 0
    others: float = 0.0
    """The share of the time in which other programs had this thread's processor."""

    def ms(self, made: Made | None) -> Interval | None:
        return self.times.get(made.code) if isinstance(made, Program) else None

    def paid_after(self, strategy: str) -> int | None:
        """After how many calls the time that compiling takes longer than `per-op` has paid; None:
        never, or unknown."""
        made, base = self.strategies[strategy], self.strategies[PER_OP]
        ours, theirs = self.ms(made), self.ms(base)
        if not (isinstance(made, Program) and isinstance(base, Program) and ours and theirs):
            return None
        return calls_to_pay(made.compile_s - base.compile_s, ms_saved(ours, theirs))

    def paid_against(self, peer: str) -> int | None:
        """After how many calls compiling the whole graph has paid against a peer."""
        made, theirs = self.strategies[WHOLE_GRAPH], self.times.get(peer)
        ours = self.ms(made)
        if not (isinstance(made, Program) and ours and theirs):
            return None
        return calls_to_pay(made.compile_s - self.first_s[peer], ms_saved(ours, theirs))


def ms_saved(ours: Interval, theirs: Interval) -> float:
    """The milliseconds that a call takes less; 0 where the intervals overlap."""
    overlap = ours.low <= theirs.high and theirs.low <= ours.high
    return 0.0 if overlap else theirs.median - ours.median


def calls_to_pay(seconds: float, ms_saved: float) -> int | None:
    """0 if nothing is to be paid; None if a call saves nothing."""
    if seconds <= 0 and ms_saved >= 0:
        return 0
    return math.ceil(1e3 * seconds / ms_saved) if ms_saved > 0 and seconds > 0 else None


class _Waiting(NamedTuple):
    """A program that is to be loaded, and where it is to be entered."""

    name: str
    prepared: Prepared
    into: dict[str, Made]
    group: str


@dataclass
class Contrasting:
    """The measurement. `report`: called with what is done now; `count`: with how many rounds are
    done, and how many there are."""

    builder: Builder
    options: CompileOptions
    threads: int
    report: Callable[[str], None]
    count: Callable[[int, int], None]
    found: Contrast = field(default_factory=Contrast)
    _waiting: deque[_Waiting] = field(default_factory=deque["_Waiting"])

    def compile(self, groups: Sequence[str]) -> None:
        """The three strategies, without any cache, and the programs of the ablation.

        Raises the first error if none can be compiled.
        """
        self.builder.prepare(self.options)
        found = self.found
        found.cannot_run = self.builder.cannot_run
        cold = replace(self.options, cache="off")
        for strategy in STRATEGIES:
            found.strategies[strategy] = self._made(strategy, with_groups(cold, strategy))
        if not any(isinstance(made, Program) for made in found.strategies.values()):
            raise next(iter(found.problems.values()))
        self._vary(WHOLE_GRAPH, "without", {
            g: with_groups(self.options, WHOLE_GRAPH, (), (g,)) for g in groups}, found.without)
        self._vary(PER_OP, "with", {
            g: with_groups(self.options, PER_OP, (g,), ()) for g in groups
            if g not in STRATEGIES[PER_OP]}, found.alone)
        self._finish(0)
        found.without = {g: found.without[g] for g in groups}
        found.alone = {g: found.alone.get(g, found.strategies[PER_OP]) for g in groups}

    def _vary(
        self, strategy: str, how: str, variants: Mapping[str, CompileOptions],
        into: dict[str, Made],
    ) -> None:
        """Add the program of each variant of a strategy. None of their compile times is told, so
        they are lowered together, and code is compiled while others are lowered."""
        self.report(f"lowering variants of {strategy}")
        for group, prepared in self._lowered(strategy, variants):
            name = f"{strategy} {how} {group}"
            if isinstance(prepared, Prepared):
                self._waiting.append(_Waiting(name, prepared, into, group))
                self._finish(HELD)
                self.report(f"lowering variants of {strategy}")
            else:
                into[group] = self.found.strategies[strategy] if prepared is None else (
                    self._entered(name, prepared))

    def _finish(self, most: int) -> None:
        """Load what was lowered first: all beyond so many, and what waits for no code."""
        waiting = self._waiting
        while len(waiting) > most or (waiting and not waiting[0].prepared.ready):
            first = waiting.popleft()
            self.report(f"compiling {first.name}")
            first.into[first.group] = self._entered(first.name, attempted(
                lambda made=first.prepared: self.builder.finished(made)))

    def _lowered(
        self, strategy: str, variants: Mapping[str, CompileOptions]
    ) -> Iterator[tuple[str, Prepared | Failure | None]]:
        """What the passes make of each variant; with those of the strategy, unless these fail."""
        left = dict(variants)
        if isinstance(self.found.strategies[strategy], Program):
            with suppress(StrataError, CompilerFault):
                for group, prepared in self.builder.varied(
                        with_groups(self.options, strategy), variants):
                    del left[group]
                    yield group, prepared
        for group, options in left.items():
            yield group, attempted(lambda own=options: self.builder.prepared(own))

    def _made(self, name: str, options: CompileOptions) -> Made:
        self.report(f"compiling {name}")
        return self._entered(name, attempted(lambda: self.builder.build(options)))

    def _entered(self, name: str, made: Made) -> Made:
        """A program that runs, or the problem, which is kept."""
        if isinstance(made, Program):
            made = self._called(name, made)
        if not isinstance(made, Program):
            self.found.problems[name] = made
        return made

    def _called(self, name: str, made: Program) -> Made:
        """The program, or why it does not run on the inputs."""
        try:
            if made.run is not None:
                made.run()
        except Exception as error:  # of the model or its inputs, in any way
            return StrataError(f"{name} does not run", [Problem(
                f"{type(error).__name__}: {error}")])
        return made

    # ------------------------------------------------------------------ times
    def time(self, peers: Mapping[str, str | None], models: Mapping[str, Captured | None],
             model: str, rounds: int | None) -> None:
        """Call everything that runs, in turns. `models`: the programs of PyTorch models."""
        found = self.found
        made = [*found.strategies.values(), *found.without.values(), *found.alone.values()]
        runs: dict[str, Run] = {m.code: m.run for m in made
                                if isinstance(m, Program) and m.run is not None}
        contest = Contest(self.threads)
        for strategy, program in found.strategies.items():
            if isinstance(program, Program) and program.run is not None:
                contest.add(strategy, program.run, program.compile_s)
        for name, twin in peers.items():
            self._add_peer(contest, name, self._request(twin or model, models))
        runs |= {name: contest.entrants[name].run for name in peers if name in contest.entrants}
        if not runs:
            return
        self.report(f"timing {model}")
        found.rounds = rounds or rounds_within(runs, SECONDS, LEAST_ROUNDS, MOST_ROUNDS)
        waiting, first = Waiting(), self.builder.first
        on_host = first is None or not first.takes_gpu_tensors
        found.times = intervals(runs, found.rounds, self.threads, self.count,
                                waiting if on_host else None)
        found.others = waiting.share
        ours = contest.entrants.get(WHOLE_GRAPH) or next(iter(contest.entrants.values()))
        for name, entrant in contest.entrants.items():
            found.differences[name] = difference(entrant.outputs, ours.outputs)
            found.first_s[name] = entrant.load_s

    def _request(self, model: str, models: Mapping[str, Captured | None]) -> Request:
        signature = self.builder.signature
        assert signature is not None
        shapes = [tuple(size.constant for size in t.shape) for t in signature.input_types]
        first = self.builder.first
        on_gpu = first is not None and first.takes_gpu_tensors
        return Request(model, models[model], list(signature.input_names), self.builder.inputs,
                       shapes, self.threads, self.options.precision, "cuda" if on_gpu else "cpu")

    def _add_peer(self, contest: Contest, name: str, request: Request) -> None:
        """Try it in a process of its own first, where that can be done: not with a GPU in use."""
        self.report(f"loading {name}")
        if self.found.cannot_run:
            contest.problems[name] = StrataError(f"{name} is not measured", [Problem(
                f"programs for {self.options.target} do not run here, so there is nothing to "
                "compare it with")])
        elif request.device == "cpu" and (problem := trial(
                name, lambda: load_peer(name, replace(request, threads=1)))) is not None:
            contest.problems[name] = problem
        else:
            contest.add_peer(name, lambda: load_peer(name, request))
        if name in contest.problems:
            self.found.problems[name] = contest.problems[name]


def figures(found: Contrast) -> dict[str, Any]:
    """The measurement as JSON can hold it."""
    return {"strategies": {name: _strategy(found, name) for name in found.strategies},
            "ablation": [_ablation(found, group) for group in found.without],
            "peers": {name: {"ms": list(found.times[name]), "first_result_s": found.first_s[name],
                             "difference": found.differences[name],
                             "paid_after": found.paid_against(name)}
                      for name in found.times if name in found.first_s},
            "rounds": found.rounds, "others": found.others, "cannot_run": found.cannot_run,
            "problems": {name: str(error) for name, error in found.problems.items()}}


def _strategy(found: Contrast, name: str) -> dict[str, Any]:
    made, ms = found.strategies[name], found.ms(found.strategies[name])
    if not isinstance(made, Program):
        empty = dict.fromkeys(("kernels", "launches", "bytes", "flops", "arena", "compile_s", "ms"))
        return {**empty, "problem": str(made)}
    return {**vars(made.work), "compile_s": made.compile_s, "ms": None if ms is None else list(ms),
            "difference": found.differences.get(name), "paid_after": found.paid_after(name),
            "groups": sorted(STRATEGIES[name])}


def _ablation(found: Contrast, group: str) -> dict[str, Any]:
    row: dict[str, Any] = {"group": group, "strategies": [
        name for name, groups in STRATEGIES.items() if group in groups]}
    for name, made, base in (("without", found.without[group], WHOLE_GRAPH),
                             ("alone", found.alone[group], PER_OP)):
        ms, work = found.ms(made), made.work if isinstance(made, Program) else None
        row |= {f"{name}_ms": None if ms is None else ms.median,
                f"{name}_interval": None if ms is None else list(ms),
                f"{name}_launches": None if work is None else work.launches,
                f"{name}_bytes": None if work is None else work.bytes,
                f"{name}_same": made is found.strategies[base]}
    return row

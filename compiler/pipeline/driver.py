"""Runs the pipeline: reads a model, lowers it, and emits code or creates an executable.

The input is a MODEL's name and the options; the result is a module at some level, target code as
text, or an executable. Instruments observe every step. Modules are verified and checked against
their level's contract at the end of each level, and with `debug` after every pass.

There are two kinds of errors: StrataError for an error in the model or the options, and
CompilerFault for a fault of the compiler, for which a reproducer folder is written.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from compiler.diagnostics import Problem, StrataError, cut, disk_error
from compiler.faults import CompilerFault, Reproducer
from compiler.instrument import Instrument
from compiler.instrument.kept import MAKING_CODE
from compiler.limits import check_limits
from compiler.options import CompileOptions
from compiler.pipeline.command_again import command_again
from compiler.pipeline.levels import LEVEL_NAMES, ContractError, check_functions, strangers
from compiler.pipeline.passes_option import SCHEDULE_PASS, with_schedule
from compiler.pipeline.plan import PlannedStep, plan
from compiler.pipeline.source import TEXT_SUFFIX, Snapshot, Source, read_model, weight_labels
from compiler.pipeline.state import IMPORT, State
from compiler.pipeline.steps import PIPELINE
from compiler.pipeline.strategies import STRATEGIES, WHOLE_GRAPH
from compiler.pipeline.text import format_module
from compiler.plugins.loading import Plugins
from compiler.plugins.own_packages import hidden_package
from compiler.plugins.plugin_faults import definition_of, origin_of, wrong_type
from compiler.plugins.plugin_files import load_plugins
from compiler.programs.collection import rare_collections
from compiler.suggestions import guess
from compiler.tuning.files import tuned_files
from dialects.ranks.mesh import Mesh
from dialects.verifying import verify
from passes.base import PassError, StrataContext
from passes.contract import Facts
from targets.base import Executable, TargetError

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.frontend import MemoryModel
    from compiler.instrument.verify import Check
    from compiler.plugins.plugin_faults import Origin
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore
    from passes.contract import Choices
    from targets.base import Parts, Target

_LOWERINGS = ("graph-decompose", "graph-to-loop")
"""The passes that replace graph operations by what plugins say of them."""


class WrongNumbers(Exception):
    """Lowered code computes results that differ from the model's."""


class Compiler:
    """One compilation. `command`: the command that repeats it, for reproducers."""

    def __init__(
        self, model: str | MemoryModel | Snapshot, options: CompileOptions,
        instruments: Sequence[Instrument] = (), command: str = "",
    ):
        self.source, self.model = model, str(model)
        self.options, self.instruments = options, instruments
        self.command = command or (
            f"compiler.compile({self.model!r}, target={options.target!r}, ...)")
        self.plugins: Plugins = load_plugins(options.plugins)
        self.target: Target = self.plugins.find_target(options.target)
        with self.guard("options"):
            self.parts: Parts = self.target.bind(options.target_options())
        self.planned: list[PlannedStep] = []
        self.files: tuple[str, ...] = ()
        """The files from which the model was read, its own file first; empty if unknown."""

    # ------------------------------------------------------------------ reading and lowering
    @rare_collections()
    def read(self) -> State:
        """Read the model into a verified module."""
        source = self.read_source()
        self.files = source.files
        check_limits(source.module, self.model, source.level)
        return State(source.module, self.make_context(source), source.name, source.level,
                     source.after, source.nodes)

    def read_source(self) -> Source:
        self.report(f"reading {self.model}")
        with self.guard(IMPORT):
            return read_model(self.source, self.options, self.plugins, weights_of_model)

    def keep(self) -> Snapshot:
        """Read the model once, to compile it in its current state any number of times.

        Raises StrataError for a text that is not at graph level.
        """
        source = self.read_source()
        if source.level != LEVEL_NAMES[0]:
            raise StrataError(f"{self.model} is at {source.level} level; sizes can be fixed at "
                              f"{LEVEL_NAMES[0]} level only")
        self.source = Snapshot(self.model, source)
        return self.source

    def make_context(self, source: Source) -> StrataContext:
        with self.guard("options"):
            facts = cast(Any, self.parts.facts)
            if not isinstance(facts, Facts):
                raise wrong_type("what Target.facts returns", facts, "Facts",
                                 type(self.target).facts)
        context = self.parts.context(source.weights)
        context.exact = self.options.exact
        context.choices = self.choices
        context.mesh = Mesh.parse(self.options.mesh) if self.options.mesh else None
        context.rank = self.options.rank
        context.plugins = self.plugins.modules
        context.schedule_options = self.plugins.schedule_options(self.target)
        self.plugins.register_dialects(context)
        return context

    @cached_property
    def choices(self) -> Choices:
        """The schedules found by tuning for this target and machine."""
        key = self.parts.tuning.key()
        if key is None or not tuned_files(self.options):
            return {}
        from compiler.tuning.database import choices_for

        return choices_for(self.options, key, *self.parts.tuning.library_keys())

    def lower(self, to: str | None = None) -> State:
        """Read the model and run the pipeline up to level `to`; None: all of it."""
        self.check_passes(to)
        state = self.read()
        self.run_to(state, to)
        if to is not None and state.level != to:
            raise StrataError(f"--to {to}: the passes leave the module at {state.level} level",
                              [Problem(f"--passes has no step that leads to {to} level")])
        return state

    def run_to(self, state: State, to: str | None) -> None:
        """Run the pipeline from a module's place in it up to level `to`; None: all of it."""
        self.planned = self.plan(state, to)
        self.run(state, self.planned)

    def prepare(self) -> State:
        """The module for `load`: at the final level, or as read if the target does not lower."""
        if self.target.lowers:
            self.check_passes(None)
        elif self.options.groups != STRATEGIES[WHOLE_GRAPH]:
            raise StrataError(f"target {self.target.name} runs a model as it is read", [Problem(
                "no pass runs, so a strategy has no effect",
                hint="leave out --strategy, --with and --without")])
        state = self.read()
        with self.guard("load"):
            self.parts.building.expect(state.module)
        if self.target.lowers:
            self.run_to(state, None)
        else:
            self.run(state, ())
        return state

    def is_code(self, level: str) -> bool:
        """Whether a level is one of target code. Raises StrataError for an unknown level."""
        if level in (levels := self.plugins.level_names()):
            return False
        if level in self.target.levels:
            return True
        there = (*levels, *self.target.levels)
        guessed = guess(level, there)
        raise StrataError(f"target {self.target.name} has no level '{cut(level)}'", [
            Problem("no such level", hint=f"{guessed}there are: {', '.join(there)}")])

    def check_passes(self, to: str | None) -> None:
        """Raise StrataError for invalid passes before the model is read.

        Texts are checked later, since only reading one determines its place in the pipeline.
        """
        if not self.model.endswith(TEXT_SUFFIX):
            plan(self.options.passes, LEVEL_NAMES[0], (), None, to, self.plugins,
                 self.options.groups)

    def plan(self, state: State, to: str | None) -> list[PlannedStep]:
        """The steps to run. Raises StrataError for options that do not fit model or pipeline."""
        passes = with_schedule(self.options.passes, self.options.schedule)
        planned = plan(passes, state.level, state.after, self.options.start, to, self.plugins,
                       self.options.groups)
        if self.options.schedule and not any(i.step.name == SCHEDULE_PASS for i in planned):
            raise StrataError(f"--schedule has no effect: {SCHEDULE_PASS}, which gives kernels "
                              "their schedules, is none of the passes that run")
        return planned

    @rare_collections()
    def run(self, state: State, planned: Sequence[PlannedStep]) -> None:
        """Run steps, verify at the end of each level, and notify the instruments."""
        for instrument in self.instruments:
            instrument.start(state)
        for k in range(len(planned)):
            self.observed_step(state, planned, k)
        for instrument in self.instruments:
            instrument.finish(state)

    def observed_step(self, state: State, planned: Sequence[PlannedStep], k: int) -> None:
        """Run one step, and notify the instruments."""
        watch = any(i.wants_changes for i in self.instruments)
        before = state.body_text() if watch else ""
        self.count(k, len(planned))
        seconds = self.run_step(state, planned, k)
        changed = not watch or state.body_text() != before
        for instrument in self.instruments:
            instrument.after(planned[k].step, state, seconds, changed)

    def run_step(self, state: State, planned: Sequence[PlannedStep], k: int) -> float:
        """Run one step, and return the seconds that its pass took."""
        item = planned[k]
        for instrument in self.instruments:
            instrument.before(item.step, state)
        started = time.perf_counter()
        with self.guard(item.step.name, planned[: k + 1]):
            item.pass_.apply(state.context, state.module)
        seconds = time.perf_counter() - started
        state.moved(item.step.level, item.label)
        ends_level = k + 1 == len(planned) or planned[k + 1].step.level != item.step.level
        whole = ends_level or self.options.debug
        if whole or item.step.name in self.plugins.passes:  # a plugin's mistake is found at once
            with self.guard(item.step.name, planned[: k + 1]):
                self.check(state, item, whole)
        return seconds

    def check(self, state: State, item: PlannedStep, whole: bool) -> None:
        """Verify the module; `whole`: also that its level allows all of its operations."""
        verify(state.module)
        check_functions(state.module, self.plugins.find_level(state.level))
        if whole:
            self.check_contract(state, item)

    def check_contract(self, state: State, item: PlannedStep) -> None:
        """Raises an error if the module contains operations that its level does not allow."""
        found = strangers(state.module, self.plugins.find_level(state.level))
        if not found:
            return
        names = ", ".join(f"{name} ({n})" for name, n in sorted(found.items()))
        message = f"after {item.step.name} the module breaks the contract of {state.level} level"
        if self.options.passes != "default":
            hint = "--passes leaves out a pass that is needed, or adds one too early"
            raise StrataError(message, [Problem(f"not allowed there: {names}", hint=hint)])
        if place := self.plugins.places.get(("level", state.level)):
            raise StrataError(message, [Problem(
                f"not allowed there: {names}", file=place,
                hint="the level's `operations` or its `steps` are not what was meant")])
        raise ContractError(f"{message}: {names}")

    # ------------------------------------------------------------------ the end
    def begin(self) -> None:
        """Refuse what could not be loaded here, and start the target's slow preparations."""
        with self.guard("options"):
            self.parts.running.check_machine()
        self.parts.building.begin()

    @rare_collections()
    def emit(self, state: State, level: str) -> str:
        """Emit target code of one of the target's levels. The module must be at the final level."""
        self.require_final(state)
        self.report(f"{state.name}: emitting {level}")
        started = time.perf_counter()
        with self.guard(f"emit-{level}", state=state):
            text = cast(Any, self.parts.emission.emit(state.module, level))
            if not isinstance(text, str):
                maker = type(self.parts.emission).emit
                raise wrong_type("what Emission.emit returns", text, "text", maker)
        for instrument in self.instruments:
            instrument.emitted(level, text, time.perf_counter() - started)
        return text

    @rare_collections()
    def load(self, state: State) -> Executable:
        """Compile the module to an executable."""
        if self.target.lowers:
            self.require_final(state)
        self.report(f"{state.name}: {MAKING_CODE}")
        self.count(0, 0)
        if not any(i.wants_changes for i in self.instruments):  # no earlier text will be run
            state.context.weights.forget({key for key, _ in weight_labels(state.module)})
        with self.guard("load", state=state):
            running, weights = self.parts.running, state.context.weights
            made = cast(Any, running.load(state.module, weights, self.count))
            if not isinstance(made, Executable):
                maker = type(running).load
                raise wrong_type("what Running.load returns", made, "an Executable", maker)
            return made

    def is_final(self, state: State) -> bool:
        """Whether a module can become target code: at block level, or at a plugin's level after it.
        """
        levels = self.plugins.level_names()
        return levels.index(state.level) >= levels.index(LEVEL_NAMES[-1])

    def require_final(self, state: State) -> None:
        if not self.is_final(state):
            final = LEVEL_NAMES[-1]
            raise StrataError(f"the passes leave the module at {state.level} level; target code "
                              f"needs {final} level", [Problem(
                                  f"--passes has no step that leads to {final} level",
                                  hint="start it with 'default'")])

    def report(self, phase: str) -> None:
        for instrument in self.instruments:
            instrument.report(phase)

    def count(self, done: int, total: int, seconds: float | None = None) -> None:
        """Report progress of the current phase to the instruments."""
        for instrument in self.instruments:
            instrument.count(done, total, seconds)

    # ------------------------------------------------------------------ faults
    @contextmanager
    def guard(
        self, phase: str, ran: Sequence[PlannedStep] = (), state: State | None = None
    ) -> Generator[None]:
        """Turn an unexpected exception into a CompilerFault with a reproducer.

        `ran`: the steps so far, the failing one last. `state`: a module that is still intact.
        """
        try:
            yield
        except (StrataError, CompilerFault):
            raise
        except PassError as error:
            raise self.unsupported(error, phase) from error
        except TargetError as error:
            raise StrataError(f"target {self.target.name} cannot do that",
                              [Problem(str(error))]) from error
        except MemoryError:
            raise StrataError(f"out of memory in {phase} on {self.model}") from None
        except Exception as error:  # anything else is reported as a fault of the compiler
            if phase == IMPORT and isinstance(error, RecursionError):
                raise StrataError(f"{self.model} is nested too deeply to be read") from error
            if explained := disk_error(error) or hidden_package(error):
                raise explained from error
            fault = CompilerFault(phase, self.model, error, origin_of(error, self.options.plugins))
            fault.folder = self.reproducer(fault, ran, state).write()
            raise fault from error

    def unsupported(self, error: PassError, phase: str) -> StrataError:
        """The error for parts of the model that a pass does not support."""
        level = next((s.level for s in PIPELINE if s.name == phase), "")
        problems = [Problem(text, node, level if node else "") for node, text in error.faults]
        place = definition_of(type(self.target), self.options.plugins)
        if place and any(text.startswith("the schedule of") for _, text in error.faults):
            problems.append(Problem(f"the target '{self.target.name}' makes these schedules",
                                    file=str(place)))
        return StrataError(f"{error.pass_name} failed on {self.model}", problems)

    def wrong_numbers(
        self, state: State, check: Check, before: str, inputs: Mapping[str, Array], *words: str
    ) -> CompilerFault:
        """The fault for a pass, or target code, with wrong results on `inputs`. `words`: options
        of `verify` that show it.
        """
        cause = WrongNumbers(f"{check.wrong} (error {check.error:.1e}, at {check.level} level)")
        origin = self.suspect(check, before)
        fault = CompilerFault(check.made_by, self.model, cause, origin)
        passes = [i.step.spec for i in self.planned if i.label == check.made_by]
        command = command_again(self.options, "verify", *words, "--inputs", "inputs.npz",
                                *(("--passes", passes[0]) if passes else ()))
        fault.folder = Reproducer(fault, self.command, command, before,
                                  state.context.weights, inputs).write()
        return fault

    def suspect(self, check: Check, before: str) -> Origin | None:
        """The plugin's definition that made wrong numbers, if there is one: the pass, the target,
        or an operation in the text before that was lowered to something else than its meaning.
        """
        passes = [type(i.pass_) for i in self.planned if i.label == check.made_by]
        target = [] if passes else [type(self.target)]
        lowers = check.made_by.partition("@")[0] in _LOWERINGS
        operations = [op for load in self.plugins.dialect_loaders().values()
                      for op in load().operations if lowers and f" {op.name} " in before]
        places = (definition_of(c, self.options.plugins) for c in (*passes, *target, *operations))
        return next(filter(None, places), None)

    def reproducer(
        self, fault: CompilerFault, ran: Sequence[PlannedStep], state: State | None
    ) -> Reproducer:
        """The reproducer of a fault; for a pass, with the module before that pass."""
        if not ran:
            text = state.text if state is not None else None
            weights = state.context.weights if state is not None else None
            again = command_again(self.options, "run")
            return Reproducer(fault, self.command, again, text, weights)
        text, item, weights = self.replay(ran)
        fault.phase = item.step.name
        fault.origin = fault.origin or definition_of(type(item.pass_), self.options.plugins)
        again = command_again(self.options, "opt", "--passes", item.step.spec)
        return Reproducer(fault, self.command, again, text, weights)

    def replay(self, ran: Sequence[PlannedStep]) -> tuple[str, PlannedStep, WeightStore]:
        """Rerun the steps to find the first that fails, and the text before it.

        Passes modify the module in place, and normally nothing is printed. The steps are therefore
        run again, printing the module before and verifying it after each.
        """
        source = read_model(self.source, self.options, self.plugins, weights_of_model)
        state = State(source.module, self.make_context(source), source.name, source.level,
                      source.after)
        text = state.text
        for item in ran:
            text = state.text
            try:
                item.pass_.apply(state.context, state.module)
                state.moved(item.step.level, item.label)
                verify(state.module)
            except Exception:  # the expected fault
                return text, item, source.weights
        return text, ran[-1], source.weights


def weights_of_model(model: Path, options: CompileOptions) -> WeightStore:
    """The weights of a model, and all arrays that the pipeline computes from them.

    Keys are content hashes, so any weight that is found is the right one.
    """
    plain = replace(options, start=None, dump_dir=None, weights=None)
    return Compiler(str(model), plain).lower().context.weights


def lower_to_text(compilation: Compiler, level: str, locations: bool = True) -> str:
    """The text of a level, or of the target's code. Raises StrataError."""
    if compilation.is_code(level):
        return compilation.emit(compilation.lower(), level)
    return format_module(compilation.lower(level).module, locations)

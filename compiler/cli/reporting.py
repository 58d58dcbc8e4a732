"""The work of `report` on parsed arguments: compile, emit, measure, and keep what fails."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.cli.execution import WantedInputs
from compiler.cli.session import Session, read_at_once, session
from compiler.diagnostics import Problem, StrataError
from compiler.explaining.collect import Explanation
from compiler.faults import CompilerFault, versions
from compiler.instrument import Instrument
from compiler.io.signature import signature_of
from compiler.reporting.facts import Collected
from compiler.reporting.history import History
from dialects.strata.binding import EvaluationError, bind_sizes

if TYPE_CHECKING:
    from compiler.pipeline.driver import Compiler
    from compiler.pipeline.state import State

NOW = "now"
"""Compare strategies now, instead of reading a file."""
Failure = StrataError | CompilerFault
_OF_PROFILES = ("wall_ms", "host_ms", "call_ms", "where", "notes", "roofline", "kernels", "nodes")
_OF_COMPARISONS = ("strategies", "ablation", "peers")


def collected_of(arguments: argparse.Namespace) -> tuple[Collected, Failure | None]:
    """What the report shows, and why compilation failed, if it did.

    Raises StrataError for files that cannot be read, and for inputs that cannot be made.
    """
    model = str(arguments.model)
    profile = figures_in(arguments.profile, _OF_PROFILES, model)
    compared = None if str(arguments.compare) == NOW else figures_in(
        arguments.compare, _OF_COMPARISONS, model)
    wanted = WantedInputs(arguments)
    found = Explanation(target=arguments.target, scheduled=arguments.schedule is not None)
    with session(arguments) as started:
        result = Collected(str(arguments.model), found, History(arguments.changes),
                           started.command, versions(), profile=profile, comparison=compared)
        failure = _Making(arguments, started, result, wanted).run()
    if failure is None and str(arguments.compare) == NOW:
        _compare(arguments, result)
    return result, failure


def figures_in(path: Path | None, needed: Sequence[str], model: str) -> dict[str, Any] | None:
    """The JSON that another command wrote of the model. Raises StrataError if it is something else.
    """
    if path is None:
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StrataError(f"cannot read {path}: {error}") from None
    missing = [key for key in needed if not isinstance(cast(Any, found), dict) or key not in found]
    if missing:
        raise StrataError(f"{path} is not what --json writes", [Problem(
            f"it lacks {', '.join(missing)}",
            hint="write it with `profile --json` or `compare --json`")])
    other = str(found.get("model", model))
    if _name(other) != _name(model):
        raise StrataError(f"{path} has figures of another model, {other}")
    return found


def _name(model: str) -> str:
    """That of the function of a .py file, else of a file without its suffix."""
    _, of_function, name = Path(model).name.rpartition(".py:")
    return name if of_function else Path(model).stem


@dataclass
class _SizesOfInputs(Instrument):
    """Lets an explanation count at the sizes of the inputs on which the model is timed."""

    wanted: WantedInputs
    found: Explanation

    def start(self, state: State) -> None:
        signature = signature_of(state.module)
        with suppress(EvaluationError, ValueError):  # sizes that do not fit are told by the run
            self.found.sizes = dict(bind_sizes(signature.input_types,
                                               self.wanted.arrays(signature)))


class _Making:
    """Compiles a model, emits its code and times it, and keeps how far this came."""

    def __init__(
        self, arguments: argparse.Namespace, started: Session, result: Collected,
        wanted: WantedInputs,
    ):
        self.arguments, self.started, self.result = arguments, started, result
        self.wanted, self.phase = wanted, "lowering"

    def run(self) -> Failure | None:
        try:
            self._run()
        except (StrataError, CompilerFault) as error:
            history = self.result.history
            where = history.running or ("import" if history.state is None else self.phase)
            self.result.failure = where, str(error)
            history.keep_last()
            return error
        return None

    def _run(self) -> None:
        history, found = self.result.history, self.result.explanation
        compilation = self.started.compiler(
            read_at_once(self.arguments.model), self.wanted,
            _SizesOfInputs(self.wanted, found), found, history)
        target = compilation.target
        self.result.environment = [*versions(), f"target {target.name}: {target.description}",
                                   *(f"  {line}" for line in target.report())]
        state = compilation.lower()
        for level in target.levels:
            self.phase = f"code of level {level}"
            self.result.code[level] = compilation.emit(state, level)
        if self.result.profile is None:
            self._time(compilation, state)

    def _time(self, compilation: Compiler, state: State) -> None:
        """Time the kernels, if the program can run here; else say why not."""
        from compiler.profiling.measure import profile_state

        if self.arguments.seconds <= 0:
            return
        try:
            with compilation.guard("options"):
                compilation.parts.running.check_machine()
            inputs = self.wanted.arrays(signature_of(state.module))
            self.result.profile = profile_state(
                compilation, state, self.result.explanation, inputs, self.arguments.seconds).json
        except StrataError as error:
            self.result.notes.append(f"no times: {error}")


def _compare(arguments: argparse.Namespace, result: Collected) -> None:
    """Compare the strategies on the same model."""
    from compiler.cli.comparing import contrast_of
    from compiler.measuring.contrast import figures

    given = argparse.Namespace(**{**vars(arguments), "groups": "all", "rounds": None})
    try:
        found = contrast_of(given)
    except (StrataError, CompilerFault) as error:
        result.notes.append(f"no comparison: {error}")
        return
    result.comparison = {"model": result.model, "target": arguments.target, **figures(found)}

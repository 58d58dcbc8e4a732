"""Plans the passes to run: the pipeline, edited by `--passes`, from a module's start to its end.

The input is the options and the module's place in the pipeline; the result is steps with their
passes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError

from compiler.diagnostics import Problem, StrataError
from compiler.pipeline.pass_options import option_faults
from compiler.pipeline.passes_option import edit_steps, is_explicit
from compiler.pipeline.steps import Step
from compiler.pipeline.strategies import GROUPS, ONE_LAUNCH, steps_of
from compiler.plugins.loading import Plugins

if TYPE_CHECKING:
    from xdsl.passes import ModulePass
    from xdsl.utils.arg_spec import ArgSpec


class PlannedStep(NamedTuple):
    """A step, its pass, and a label that distinguishes its occurrences: `graph-simplify@2`."""

    step: Step
    pass_: ModulePass
    label: str


class Flow(NamedTuple):
    """The default pipeline and the levels in order, including those of plugins."""

    steps: tuple[Step, ...]
    levels: tuple[str, ...]

    def changes(self) -> set[str]:
        """The passes that lead from one level to the next."""
        return {b.name for a, b in pairwise(self.steps) if a.level != b.level}


def plan(
    passes: str, level: str, after: Sequence[str], start: str | None, to: str | None,
    plugins: Plugins, groups: frozenset[str] = frozenset(GROUPS),
) -> list[PlannedStep]:
    """The steps for a module at `level` after the passes `after`.

    `start`: run the level's passes from the first, whatever ran before. `to`: the last level, None
    for all. `groups`: the groups of passes that optimize. Raises StrataError for contradictory
    levels, unknown passes and bad options.
    """
    whole = plugins.pipeline()
    flow = Flow(steps_of(whole, groups), plugins.level_names())
    _check_levels(level, start, to, flow.levels)
    _check_groups(passes, groups, {s.name: s.group for s in whole if s not in flow.steps})
    steps = edit_steps(passes, flow.steps, level, plugins.place_of)
    _check_needed(steps, passes, level, () if start else after, to, flow)
    labels = label_steps(steps)
    if is_explicit(passes):
        first, last = 0, len(steps)
    else:
        first = first_step(flow, steps, labels, level, () if start else after)
        last = len(steps) if to is None else _end(flow, steps, to)
    return [_planned(step, make_pass(step.spec, plugins), label)
            for step, label in list(zip(steps, labels, strict=True))[first:last]]


def _planned(step: Step, pass_: ModulePass, label: str) -> PlannedStep:
    return PlannedStep(replace(step, rounds=getattr(pass_, "rounds", False)), pass_, label)


def first_step(
    flow: Flow, steps: Sequence[Step], labels: Sequence[str], level: str, after: Sequence[str]
) -> int:
    """The index after the last of the passes `after` in the steps, or of the level's first pass."""
    for label in reversed(after):
        if label in labels:
            return labels.index(label) + 1
    changes = flow.changes()
    last = max((k for k, s in enumerate(steps) if s.level == level), default=len(steps))
    ends = [k + 1 for k, s in enumerate(steps[:last + 1])
              if flow.levels.index(s.level) < flow.levels.index(level)
              or (s.level == level and s.name in changes)]
    return max(ends, default=0)


def label_steps(steps: Sequence[Step]) -> list[str]:
    """The names of the steps, numbered from their second occurrence on."""
    seen: Counter[str] = Counter()
    labels: list[str] = []
    for step in steps:
        seen[step.name] += 1
        labels.append(step.name if seen[step.name] == 1 else f"{step.name}@{seen[step.name]}")
    return labels


def make_pass(spec: str, plugins: Plugins) -> ModulePass:
    """The pass of a spec such as `loop-fuse{limit=3}`. Raises StrataError."""
    try:
        parsed = _parsed(spec)
        class_ = plugins.find_pass(parsed.name)
        if not parsed.parameters and not class_.required_fields():
            return class_()  # without options, nothing is to be read from their types
        if faults := option_faults(class_, parsed):
            raise StrataError(f"cannot read the pass '{spec}'",
                              [Problem(text, hint=hint) for text, hint in faults])
        return class_.from_spec(parsed)
    except (ArgSpecParseError, ValueError) as error:
        hint = f"`list passes` shows the options of {spec.partition('{')[0]}"
        raise StrataError(f"cannot read the pass '{spec}'",
                          [Problem(str(error).strip(), hint=hint)]) from None


@lru_cache(256)
def _parsed(spec: str) -> ArgSpec:
    """The first pass of a text, which is short and the same in every compilation."""
    return next(iter(parse_pipeline(spec)))


def _end(flow: Flow, steps: Sequence[Step], to: str) -> int:
    """The index after the last step at `to`; if there is none, at the levels before it."""
    there = [k + 1 for k, s in enumerate(steps) if s.level == to]
    before = (k + 1 for k, s in enumerate(steps)
              if flow.levels.index(s.level) < flow.levels.index(to))
    return there[-1] if there else max(before, default=0)


def _check_needed(
    steps: Sequence[Step], passes: str, level: str, after: Sequence[str], to: str | None,
    flow: Flow,
) -> None:
    """Raise StrataError if passes are left out that later levels need.

    It is not checked if passes are added or listed explicitly, since these may replace them.
    """
    names = {s.name for s in steps}
    if is_explicit(passes) or names - {s.name for s in flow.steps}:
        return
    begin = first_step(flow, flow.steps, label_steps(flow.steps), level, after)
    end = len(flow.steps) if to is None else _end(flow, flow.steps, to)
    missing = [s for s in flow.steps[begin:end] if s.needed and s.name not in names
               and (s.name in flow.changes() or s.level != to)]
    if missing:
        raise StrataError("--passes leaves out what is needed", [
            Problem(f"{s.name}: {s.needed}", level=s.level,
                    hint=f"end with --to {_last_without(flow, s)}, or put your own pass in its "
                         "place")
            for s in missing], exit_status=2)


def _last_without(flow: Flow, step: Step) -> str:
    """The last level that can be reached without a step."""
    place = flow.levels.index(step.level)
    return flow.levels[place - (step.name in flow.changes())]


def _check_groups(passes: str, groups: frozenset[str], apart: Mapping[str, str]) -> None:
    """Raise StrataError if passes are chosen both by groups and one by one.

    `apart`: the passes that groups leave out or change, and their groups.
    """
    for name in re.findall(r"[\w-]+", passes):
        if name in apart:
            raise StrataError(f"--passes names {name}, which the strategy leaves out or changes", [
                Problem(f"it belongs to the group {apart[name]}",
                        hint=f"--with {apart[name]} adds the group")], exit_status=2)
    if is_explicit(passes) and groups | {ONE_LAUNCH} < GROUPS.keys():
        raise StrataError("--passes lists the passes to run, so a strategy has no effect", [
            Problem("both --passes and --strategy, --with or --without choose passes",
                    hint=f'write --passes "default,...", or leave out the strategy; {ONE_LAUNCH} '
                         "is no pass, and may be left out")], exit_status=2)


def _check_levels(
    level: str, start: str | None, to: str | None, levels: Sequence[str]
) -> None:
    if start is not None and start != level:
        raise StrataError(f"--from {start}: the model is at {level} level")
    if to is not None and levels.index(to) < levels.index(level):
        raise StrataError(f"--to {to}: the model is at {level} level already, and there is no way "
                          "back up")

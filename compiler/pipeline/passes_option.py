"""The option `--passes`: the default pipeline with edits, or an explicit list of passes.

    default                                     the pipeline of steps.py
    default,after(loop-fuse)=my-pass{size=4}    a pass after another (its last occurrence)
    default,before(loop-fuse)=my-pass           ... before another (its first occurrence)
    default,my-pass                             a plugin's pass that declares its place
    default,without(graph-cse)                  leave out all occurrences of a pass
    default,loop-schedule{tile=64}              options for a pass of the pipeline
    graph-dce,graph-cse                         only these, in this order

The input is the text and the steps of the default pipeline; the result is the steps to run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from compiler.diagnostics import Problem, StrataError, cut
from compiler.pipeline.steps import Step
from compiler.suggestions import hint_for

DEFAULT = "default"
SCHEDULE_PASS = "loop-apply-schedules"
TUNED_SCHEDULES, TARGET_SCHEDULES = "loop-apply-tuned", "loop-schedule"
_ITEM = re.compile(
    r"(?:(?P<edit>after|before)\((?P<anchor>[\w-]+)\)=|without\((?P<out>[\w-]+)\)$)?"
    r"(?P<spec>[\w-]+(?:\{.*\})?)?", re.DOTALL)


def edit_steps(
    text: str, steps: Sequence[Step], level: str, place_of: Callable[[str], str] = lambda _: "",
) -> list[Step]:
    """The steps that `text` describes. `level`: where a list without `default` starts. `place_of`:
    the place that a pass outside the pipeline declares, such as `after(PASS)`, or an empty string.

    Raises StrataError for malformed text, and if `after`, `before` or `without` names a pass that
    is not in the pipeline.
    """
    items = _items(text)
    if DEFAULT not in items:
        return _levelled([_plain(item) for item in items], steps, level)
    result = list(steps)
    for item in items:
        if item != DEFAULT:
            result = _edited(result, _placed(result, item, place_of))
    return result


def with_schedule(text: str, file: Path | None) -> str:
    """The passes, with the file's schedules applied before the target chooses its own. Entries that
    decide how operands are packed are applied where tuned schedules are, and kernels that entries
    hand over to the user's own are replaced where those passes run."""
    if file is None or is_explicit(text):
        return text
    from passes.rewrites.handing_over import PLACE, PREFIX

    early = f'before({TUNED_SCHEDULES})={SCHEDULE_PASS}{{file="{file}" early=true}}'
    found = [f'before({TARGET_SCHEDULES})={SCHEDULE_PASS}{{file="{file}"}}',
             *(f"{PLACE}={PREFIX}{name}{{scheduled=true}}" for name in handed_over_in(file))]
    return ",".join([early, *found, text])


def handed_over_in(file: Path) -> list[str]:
    """The users' kernels that a file of schedules names. What cannot be read is told later."""
    from passes.scripts.steps import HANDED

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    pattern = rf"(?:^\s+hand\s+over\s+to\s+|\b{HANDED}\s*=\s*)(\w[\w-]*)"
    names: list[str] = re.findall(pattern, text, re.MULTILINE)
    return list(dict.fromkeys(name.replace("_", "-") for name in names))


def is_explicit(text: str) -> bool:
    """Whether `text` is an explicit list of passes."""
    return DEFAULT not in _items(text)


def _items(text: str) -> list[str]:
    return [item.strip() for item in _split(text) if item.strip()]


def _levelled(specs: Sequence[str], steps: Sequence[Step], level: str) -> list[Step]:
    """Assign levels: a pass of the pipeline has its level there; any other keeps the current one.
    """
    known = {step.name: step.level for step in steps}
    result: list[Step] = []
    for spec in specs:
        level = known.get(spec.partition("{")[0], level)
        result.append(Step(level, spec))
    return result


def _edited(steps: list[Step], item: str) -> list[Step]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _malformed(item)
    edit, anchor, out, spec = match.group("edit", "anchor", "out", "spec")
    if out:
        _positions(steps, out, item)
        return [s for s in steps if s.name != out]
    if edit and spec:
        places = _positions(steps, anchor, item)
        return _inserted(steps, places, spec, after=edit == "after")
    if spec and not edit:
        _positions(steps, spec.partition("{")[0], item)
        return [replace(s, spec=spec) if s.name == spec.partition("{")[0] else s for s in steps]
    raise _malformed(item)


def _placed(steps: Sequence[Step], item: str, place_of: Callable[[str], str]) -> str:
    """Turn `my-pass` into `after(graph-cse)=my-pass`, if the pass declares its place.

    Raises StrataError for a pass that neither is in the pipeline nor declares a place.
    """
    match, name = _ITEM.fullmatch(item), item.partition("{")[0]
    plain = match is not None and match["spec"] is not None and match["edit"] is None
    if not plain or any(step.name == name for step in steps):
        return item
    if place := place_of(name):
        return f"{place}={item}"
    names = list(dict.fromkeys(s.name for s in steps))
    raise StrataError(f"--passes: no pass '{cut(name)}' in this part of the pipeline, for "
                      f"'{cut(item)}'", [
        Problem("the pipeline has no such pass", hint=hint_for(name, names)
                + f"; a new pass needs a place, as in default,after(PASS)={cut(item)}")])


def _inserted(steps: list[Step], places: list[int], spec: str, after: bool) -> list[Step]:
    """Insert a step. Its level is that of the pass before it."""
    if after:
        at = places[-1] + 1
    else:
        at = places[0]
    level = steps[at - 1].level if at else steps[0].level
    return [*steps[:at], Step(level, spec), *steps[at:]]


def _positions(steps: Sequence[Step], name: str, item: str) -> list[int]:
    found = [k for k, step in enumerate(steps) if step.name == name]
    if not found:
        names = list(dict.fromkeys(s.name for s in steps))
        raise StrataError(f"--passes: no pass '{cut(name)}' in this part of the pipeline, for "
                          f"'{cut(item)}'", [
                              Problem("the pipeline has no such pass", hint=hint_for(name, names))])
    return found


def _plain(item: str) -> str:
    match = _ITEM.fullmatch(item)
    if match is None or match["edit"] or match["out"] or not match["spec"]:
        raise _malformed(item)
    return item


def _malformed(item: str) -> StrataError:
    hint = ("write a pass as name{option=value}, or start with 'default' and use "
            "after(pass)=new, before(pass)=new, without(pass)")
    return StrataError(f"--passes: cannot read '{item}'",
                       [Problem("it is neither a pass nor a change to the pipeline", hint=hint)],
                       exit_status=2)


def _split(text: str) -> list[str]:
    """Split at commas outside of braces and parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "{(") - (character in "})")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts

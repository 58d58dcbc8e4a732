"""The rows of `list`: operations, passes, groups of them, targets, levels, frontends, options."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_type_hints

from compiler.pipeline.pass_options import type_words
from compiler.pipeline.strategies import GROUPS, STRATEGIES
from compiler.plugins.loading import Plugins

Row = dict[str, Any]


def table(found: list[Row]) -> str:
    """The rows in columns."""
    texts = [[str(value) for value in row.values()] for row in found]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = ["  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip()
             for row in texts]
    return "\n".join(lines)


def rows(kind: str, plugins: Plugins) -> list[Row]:
    """The rows of one kind; the first column is the name."""
    makers = {"ops": _ops, "passes": _passes, "groups": _groups, "targets": _targets,
              "levels": _levels, "frontends": _frontends, "options": _schedule_options}
    return makers[kind](plugins)


def _ops(plugins: Plugins) -> list[Row]:
    """Strata's operations, then the supported operators of models, by frontend."""
    from dialects.registry import dialect_loaders

    loaders = dialect_loaders() | plugins.dialect_loaders()
    ours = [{"name": op.name, "kind": "operation", "summary": _summary(op)}
            for load in loaders.values() for op in load().operations]
    return ours + _operators(plugins)


def _operators(plugins: Plugins) -> list[Row]:
    """The operators of the frontends that list what they support."""
    from compiler.frontend import frontends

    found: list[Row] = []
    for kind, frontend in frontends(plugins.modules).items():
        summaries = getattr(frontend, "operator_summaries", None)
        names = getattr(frontend, "operators", list[str])
        described: dict[str, str] = summaries() if summaries else dict.fromkeys(names(), "")
        found += [{"name": n, "kind": kind, "summary": text} for n, text in described.items()]
    return found + plugins.operator_rows()


def _passes(plugins: Plugins) -> list[Row]:
    default = {step.name for step in plugins.pipeline()}
    found: list[Row] = []
    for name in plugins.pass_names():
        class_ = plugins.find_pass(name)
        types = get_type_hints(class_)
        options = " ".join(_option(f, types[f.name]) for f in dataclasses.fields(class_))
        found.append({"name": name, "default": "default" if name in default else "on request",
                      "options": f"{{{options}}}" if options else "", "summary": _summary(class_)})
    return found


def _groups(plugins: Plugins) -> list[Row]:
    """The groups of passes, and the strategies that have them."""
    passes = {name: dict.fromkeys(s.name for s in plugins.pipeline() if s.group == name)
              for name in GROUPS}
    return [{"name": name, "strategies": ", ".join(s for s, found in STRATEGIES.items()
                                                   if name in found),
             "summary": summary, "passes": ", ".join(passes[name])}
            for name, summary in GROUPS.items()]


def _option(field: dataclasses.Field[Any], type_: Any) -> str:
    """`limit=1024 (an integer)`, or `file=... (a text)` for an option that must be given."""
    default: object = "..." if field.default is dataclasses.MISSING else field.default
    shown = str(default).lower() if isinstance(default, bool) else default
    return f"{field.name.replace('_', '-')}={shown} ({type_words(type_)})"


def _targets(plugins: Plugins) -> list[Row]:
    targets = [plugins.find_target(name) for name in plugins.target_names()]
    return [{"name": t.name, "levels": ", ".join(t.levels), "summary": t.description}
            for t in targets]


def _levels(plugins: Plugins) -> list[Row]:
    found = [{"name": level.name, "target": "", "summary": level.description}
             for level in plugins.all_levels()]
    for name in plugins.target_names():
        target = plugins.find_target(name)
        found += [{"name": level, "target": name, "summary": "target code"}
                  for level in target.levels]
    return found


def _frontends(plugins: Plugins) -> list[Row]:
    from compiler.frontend import frontends

    known = frontends(plugins.modules)
    return [{"name": name, "summary": f.DESCRIPTION} for name, f in known.items()]


def _schedule_options(plugins: Plugins) -> list[Row]:
    """The options that schedules may have; those of several targets once."""
    found = {option: None for option in plugins.schedule_options().declared()}
    return [{"name": o.name, "owner": o.owner, "values": o.values,
             "default": "" if o.default == "" else int(o.default) if o.default in (0, 1)
             else o.default, "meaning": o.meaning} for o in found]


def _summary(class_: type) -> str:
    """The first sentence of a docstring."""
    text = inspect.cleandoc(class_.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return text.partition(". ")[0].rstrip(".")

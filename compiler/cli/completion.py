"""Scripts for the completion of shells, made by shtab from the parser of the command line."""

# shtab has no types for what it reads of a parser.
# pyright: reportUnknownMemberType=false, reportMissingImports=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import importlib
from typing import Any

from compiler.cli.arguments import TEXT_LEVELS
from compiler.cli.commands import commands
from compiler.cli.parser import make_parser
from compiler.diagnostics import Problem, StrataError
from compiler.peers import peer_names
from compiler.version import __version__

PROGRAM = "strata"


def script(shell: str) -> str:
    """The script for a shell. Raises StrataError where shtab is not installed."""
    try:
        shtab: Any = importlib.import_module("shtab")
    except ImportError:
        raise StrataError("completion needs the package shtab", [Problem(
            "it is not installed", hint="pip install shtab")]) from None
    parser = make_parser("", f"strata {__version__}", commands(), PROGRAM)
    kinds = {"file": shtab.FILE, "directory": shtab.DIRECTORY}
    choices = _choices()
    for command in parser.parsers.values():
        for action in command._actions:  # pyright: ignore[reportPrivateUsage]
            _complete(action, kinds, choices)
    return shtab.complete(parser, shell)


def _complete(
    action: argparse.Action, kinds: dict[str, Any], choices: dict[str, list[str]]
) -> None:
    """Let shtab know what may stand for an argument."""
    kind = getattr(action, "complete", None)
    if kind is not None:
        action.complete = kinds[kind]  # type: ignore[attr-defined]
    names = [choices[o] for o in action.option_strings if o in choices]
    if names and action.choices is None:
        action.choices = names[0]


def _choices() -> dict[str, list[str]]:
    """What may stand behind options that take names which packages can add to."""
    from compiler.plugins.loading import Plugins

    targets = Plugins().target_names()
    levels = [level for name in targets for level in Plugins().find_target(name).levels]
    return {"--target": targets, "--to": [*TEXT_LEVELS, *dict.fromkeys(levels)],
            "--against": peer_names(), "--passes": ["default"]}

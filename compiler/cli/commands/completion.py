"""Print a shell completion script for commands, options, targets and file names.

    bash   strata completion bash > ~/.local/share/bash-completion/completions/strata
    zsh    strata completion zsh > "${fpath[1]}/_strata"
    fish   strata completion fish > ~/.config/fish/completions/strata.fish

It completes the command `strata`. Print it again after installing packages that extend Strata.
"""

# shtab has no type annotations. pyright: reportUnknownMemberType=false, reportMissingImports=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import argparse
import importlib
from typing import Any

SUMMARY = "print a shell completion script"
TOPIC = "About Strata"
PROGRAM = "strata"
SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> int:
    from compiler.io.output import write_text

    write_text(script(arguments.shell), None)
    return 0


def script(shell: str) -> str:
    """The script for a shell. Raises StrataError if shtab is not installed."""
    from compiler.cli.commands import commands
    from compiler.cli.parser import make_parser
    from compiler.diagnostics import Problem, StrataError
    from compiler.version import __version__

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
    """Tell shtab the possible values of an argument."""
    kind = getattr(action, "complete", None)
    if kind is not None:
        action.complete = kinds[kind]  # type: ignore[attr-defined]
    names = [choices[o] for o in action.option_strings if o in choices]
    if names and action.choices is None:
        action.choices = names[0]


def _choices() -> dict[str, list[str]]:
    """The values of options whose names can be extended by packages."""
    from compiler.cli.arguments import TEXT_LEVELS
    from compiler.peers import peer_names
    from compiler.plugins.loading import Plugins

    targets = Plugins().target_names()
    levels = [level for name in targets for level in Plugins().find_target(name).levels]
    return {"--target": targets, "--to": [*TEXT_LEVELS, *dict.fromkeys(levels)],
            "--against": peer_names(), "--passes": ["default"]}

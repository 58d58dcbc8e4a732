"""The commands of the command line, one per file; a file has the name of its command.

    SUMMARY: str                                       one line for `--help`
    TOPIC: str                                         the help section; optional
    def add_arguments(parser: argparse.ArgumentParser) -> None
    def run(arguments: argparse.Namespace) -> int      the exit status

The module's docstring is the command's help. A command imports what it needs inside `run`.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from typing import Protocol, cast


class Command(Protocol):
    """The parts of a command module."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


def commands() -> dict[str, Command]:
    """All commands by name."""
    return {m.name: cast(Command, importlib.import_module(f"{__name__}.{m.name}"))
            for m in pkgutil.iter_modules(__path__)}

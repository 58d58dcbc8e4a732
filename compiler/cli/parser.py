"""The command-line parser: argparse with concise messages and help.

An error is a single message that says what is wrong and suggests the nearest names, without a
usage line. The help groups commands by topic, and a command's options by subject.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from compiler.diagnostics import visible_lines
from compiler.suggestions import nearest

if TYPE_CHECKING:
    from compiler.cli.commands import Command

TOPICS = ("Compile and run", "Look inside", "Make it faster", "About Strata")
"""In the order of the help. Commands with another topic, or with none, come last."""
_CHOICE = re.compile(r"invalid choice: '?(?P<given>[^']*?)'? \(choose from (?P<known>.*)\)",
                     re.DOTALL)


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    def __init__(self, prog: str, description: str | None = None):
        super().__init__(prog=prog, description=description, usage=f"{prog} [options] ...",
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def finish(self) -> None:
        """Set the usage line from the arguments that have been added, without listing options
        again.
        """
        names = [str(a.metavar or a.dest) for a in self._actions if not a.option_strings]
        self.usage = " ".join(["%(prog)s", *names, "[options]"])

    def error(self, message: str) -> NoReturn:
        said = message.removeprefix("argument ")
        text = visible_lines(f"error: {said}{_choice_hint(said)}")
        self.exit(2, f"{text}\n  help:  {self.prog} --help\n")

    def option_names(self) -> list[str]:
        return [text for action in self._actions for text in action.option_strings]


class RootParser(CommandParser):
    """The parser of all commands."""

    def __init__(self, prog: str, description: str, commands: Mapping[str, Command]):
        super().__init__(prog, description)
        self.commands = commands
        self.parsers: dict[str, CommandParser] = {}

    def finish(self) -> None:
        self.usage = "%(prog)s COMMAND ..."

    def parse_command(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words. Unknown ones are reported with the nearest options of the command."""
        found, rest = self.parse_known_args(words)
        if rest:
            parser = self.parsers[found.command]
            parser.error("\n".join(_unknown_words(rest, parser.option_names())))
        return found

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, [], [])
        formatter.add_text(self.description)
        for topic, names in _by_topic(self.commands):
            formatter.start_section(topic)
            formatter.add_arguments([_row(n, self.commands[n].SUMMARY) for n in names])
            formatter.end_section()
        formatter.start_section("Options")
        formatter.add_arguments([a for a in self._actions if a.option_strings])
        formatter.end_section()
        return formatter.format_help()


def program_name() -> str:
    """The name under which the command line was started: `strata` or `python -m compiler`."""
    return "strata" if Path(sys.argv[0]).name == "strata" else "python -m compiler"


def make_parser(
    description: str, version: str, commands: Mapping[str, Command], prog: str = ""
) -> RootParser:
    """The parser of these commands. `prog` defaults to `program_name()`."""
    parser = RootParser(prog or program_name(), description, commands)
    parser.finish()
    parser.add_argument("--version", action="version", version=version)
    choices = parser.add_subparsers(metavar="COMMAND", dest="command", required=True,
                                    prog=parser.prog, parser_class=CommandParser)
    for name, command in commands.items():
        sub = choices.add_parser(name, help=command.SUMMARY, description=command.__doc__)
        command.add_arguments(sub)
        sub.finish()
        sub.set_defaults(run=command.run)
        parser.parsers[name] = sub
    return parser


def _by_topic(commands: Mapping[str, Command]) -> Iterator[tuple[str, list[str]]]:
    other = "Other"
    topics = {name: getattr(command, "TOPIC", other) for name, command in commands.items()}
    for topic in (*TOPICS, *sorted({*topics.values()} - {*TOPICS})):
        names = [name for name, found in topics.items() if found == topic]
        if names:
            yield topic, names


def _row(name: str, summary: str) -> argparse.Action:
    """A line of the help."""
    return argparse.Action([], dest=name, help=summary.replace("%", "%%"), metavar=name)


def _choice_hint(message: str) -> str:
    """A hint with the nearest of the choices in argparse's message."""
    match = _CHOICE.search(message)
    if match is None:
        return ""
    known = [text.strip().strip("'") for text in match["known"].split(",")]
    return _hint(nearest(match["given"], known))


def _unknown_words(words: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    unknown = [word for word in words if word.startswith("-")]
    if not unknown:
        yield from (f"unexpected argument '{word}'" for word in words)
    for word in unknown:  # the others may be their values
        name = word.partition("=")[0]
        near = [n for n in nearest(name, options, cutoff=0.7) if n.startswith("--")]
        yield f"there is no option '{name}'{_hint(near[:1])}"


def _hint(near: Sequence[str]) -> str:
    return f"\n  hint:  did you mean {' or '.join(near)}?" if near else ""

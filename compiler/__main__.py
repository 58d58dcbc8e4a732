"""The command line: `python -m compiler COMMAND ...`, also installed as `strata`.

A command is a file of its name in `compiler/cli/`. Exit status: 0 done; 1 the model or the options
are at fault; 2 usage; 3 a fault of the compiler, with a reproducer folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from compiler import __version__
from compiler.cli import commands
from compiler.collection import rare_collections
from compiler.options import DEBUG_VARIABLE

DESCRIPTION = """\
Compiles neural networks through levels that can be read, edited, executed and started from again.

`python -m compiler COMMAND --help` tells about one command. MODEL is an .onnx file, or a .mlir text
of any level."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m compiler", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"strata {__version__}")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in commands().items():
        sub = choices.add_parser(name, help=command.SUMMARY, description=command.__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return parser


@rare_collections()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = make_parser().parse_args(words)
    options.command_words = words
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, `head` for instance, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # nobody is to see a traceback unasked
        return _report(error, words)


def _report(error: Exception, words: Sequence[str]) -> int:
    from compiler.arguments import shell_command
    from compiler.diagnostics import StrataError, disk_error
    from compiler.faults import CompilerFault, Reproducer, debug_print

    error = disk_error(error) or error
    if isinstance(error, StrataError):
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    if os.environ.get(DEBUG_VARIABLE):
        debug_print(error)
    if not isinstance(error, CompilerFault):
        fault = CompilerFault("command", " ".join(words[:1]), error)
        fault.folder = Reproducer(fault, shell_command(words), "", None, None).write()
        error = fault
    print(f"error: {error}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main())

"""The command line: `python -m compiler COMMAND ...`, also installed as `strata`.

Each command is a file of the same name in `compiler/cli/commands/`. The exit status is 0 for
success, also if the reader of the output closes it early; 1 for an error in the model or the
options; 2 for wrong usage; 3 for a fault of the compiler, with a reproducer folder; 130 if
interrupted.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from compiler.cli.commands import commands
from compiler.cli.interrupt import STATUS, Interrupt
from compiler.cli.parser import make_parser
from compiler.io.printing import show_text
from compiler.options import DEBUG_VARIABLE
from compiler.plugins.own_packages import check_packages, hidden_package
from compiler.version import __version__

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

DESCRIPTION = """\
Compiles neural networks through levels that can be read, edited, executed and resumed.

`%(prog)s COMMAND --help` describes one command. MODEL is an .onnx file, a .pt2
file of torch.export, a .mlir text of any level, file.py:function, or - for standard input."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. `arguments` defaults to those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    interrupt = Interrupt()
    if arguments is None:
        interrupt.watch()
    try:
        status = _run(words, interrupt)
        if arguments is None:
            gc.freeze()  # the process ends: to look for garbage first takes 0.4 s after compiling
        return status
    except BrokenPipeError:  # the reader, for instance `head`, closed the pipe
        _drop_output(sys.stdout, sys.stderr)
        return 0
    except OSError as error:  # the remaining output does not fit on the disk
        _drop_output(sys.stdout)
        return _report(error, words, ())
    except KeyboardInterrupt:
        interrupt.report()
        if arguments is None:
            interrupt.leave()
        return STATUS


def _run(words: Sequence[str], interrupt: Interrupt) -> int:
    try:
        options = make_parser(DESCRIPTION, f"strata {__version__}", commands()).parse_command(words)
        options.command_words, options.interrupt = list(words), interrupt
        return _flushed(_status(options, words))
    except SystemExit as stop:  # argparse exits this way
        return _flushed(int(stop.code or 0))


def _status(options: argparse.Namespace, words: Sequence[str]) -> int:
    try:
        check_packages()
        from compiler.cli.arguments import read_machine
        from compiler.programs.collection import rare_collections

        read_machine(options)
        with rare_collections():
            return int(options.run(options))
    except BrokenPipeError:
        raise
    except Exception as error:  # users do not see tracebacks unless they ask
        return _report(error, words, getattr(options, "plugin", ()))


def _flushed(status: int) -> int:
    """Flush all output, and return the status. Raises BrokenPipeError."""
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _drop_output(*streams: TextIO) -> None:
    """Discard buffered output, which Python would otherwise write at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())


def _report(error: Exception, words: Sequence[str], plugins: Sequence[Path]) -> int:
    """Print an error, and return the exit status."""
    from compiler.cli.arguments import shell_command
    from compiler.diagnostics import StrataError, disk_error
    from compiler.faults import CompilerFault, Reproducer, debug_print
    from compiler.plugins.plugin_faults import origin_of, unloadable

    error = unloadable(error) or hidden_package(error) or disk_error(error) or error
    if isinstance(error, StrataError):
        return _print_error(error, error.exit_status)
    if os.environ.get(DEBUG_VARIABLE):
        debug_print(error)
    if not isinstance(error, CompilerFault):
        origin = origin_of(error, plugins)
        fault = CompilerFault("command", " ".join(words[:1]), error, origin)
        fault.folder = Reproducer(fault, shell_command(words), "", None, None).write()
        error = fault
    return _print_error(error, error.exit_status)


def _print_error(error: Exception, status: int) -> int:
    from dialects.ranks.launcher import rank_text, tell_launcher

    show_text(f"error{rank_text()}: {error}", file=sys.stderr)
    tell_launcher(f"error{rank_text()}: {error}")
    return status


if __name__ == "__main__":
    sys.exit(main())

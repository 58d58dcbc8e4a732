"""The work of `compare` on parsed arguments."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from compiler.cli.execution import WantedInputs
from compiler.cli.session import read_at_once, session
from compiler.diagnostics import Problem, StrataError, count_of
from compiler.faults import CompilerFault
from compiler.frontend import MemoryModel
from compiler.measuring.contrast import Contrast, Contrasting, parse_groups
from compiler.measuring.measure import captured_model
from compiler.measuring.programs import Builder
from compiler.peers import parse_peers


def contrast_of(arguments: argparse.Namespace) -> Contrast:
    """Compile and measure. Raises StrataError for unknown peers and groups, for inputs that do not
    fit, and for a model that no strategy can compile."""
    peers, groups = parse_peers(arguments.against), parse_groups(arguments.groups)
    threads = arguments.threads or len(os.sched_getaffinity(0))
    wanted = WantedInputs(arguments)
    with session(arguments, threads) as current:
        model = read_at_once(arguments.model)
        names = (str(model), *filter(None, peers.values()))
        captured = {name: captured_model(name) for name in names}
        program = captured[str(model)]
        if program is not None:
            model = MemoryModel(str(model), program.program)
        builder = Builder(model, wanted, current.instruments, current.command)
        work = Contrasting(builder, current.options, threads, current.progress.report,
                           current.progress.count)
        work.compile(groups)
        work.time(peers, captured, str(model), arguments.rounds)
    return work.found


def failure_of(
    problems: Mapping[str, StrataError | CompilerFault]
) -> StrataError | CompilerFault:
    """The error of rows without figures; a fault of the compiler first."""
    faults = [error for error in problems.values() if isinstance(error, CompilerFault)]
    if faults:
        return faults[0]
    if len(problems) == 1:
        return next(iter(problems.values()))
    return StrataError(f"{count_of([*problems], 'row')} have no figures", [
        Problem(f"{name}: {error}") for name, error in problems.items()])

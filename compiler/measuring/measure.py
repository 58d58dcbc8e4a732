"""The measurement of `bench`: a compiled model, its specialization, and peers, in one contest."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler.agreement import check_agreement
from compiler.cli.execution import (
    WantedInputs,
    run_loaded,
    tell_notes,
    tell_precision_error,
)
from compiler.cli.session import Session, session
from compiler.diagnostics import Problem, StrataError, count_of, some_of
from compiler.frontend import MemoryModel
from compiler.io.signature import Signature
from compiler.measuring.contest import Contest
from compiler.measuring.trial import trial
from compiler.peers import Request, load_peer, parse_peers
from compiler.ranks import own_rank, refuse_mesh
from compiler.specialization import specialize
from compiler.suggestions import guess
from dialects.symbolic.symbol import Symbol
from targets.communication import all_of, slowest

if TYPE_CHECKING:
    from compiler.executable import Executable
    from compiler.frontend.torch.capture import Captured
    from dialects.strata.types import Array


def measure(
    arguments: argparse.Namespace,
) -> tuple[list[dict[str, Any]], dict[str, StrataError]]:
    """A row per runtime, ours first: name, median_ms, best_ms, cpu_ms, load_s, difference.

    A peer that cannot run the model, or crashes on it, has a problem instead. Raises StrataError
    if Strata cannot run it.
    """
    peers = parse_peers(arguments.against)
    _check_ranks(arguments)
    threads = arguments.threads or len(os.sched_getaffinity(0))
    contest = Contest(threads)
    with session(arguments, threads) as current:
        captured = {m: captured_model(m) for m in (arguments.model, *filter(None, peers.values()))}
        exe, request = _add_ours(contest, current, arguments, captured[arguments.model])
        for name, twin in peers.items():
            model = twin or arguments.model
            wanted = replace(request, model=model, captured=captured[model])
            current.progress.report(f"trying {name}")
            alone = replace(wanted, threads=1)
            problem = trial(name, lambda name=name, wanted=alone: load_peer(name, wanted))
            if problem is not None:
                contest.problems[name] = problem
                continue
            current.progress.report(f"loading {name}")
            contest.add_peer(name, lambda name=name, wanted=wanted: load_peer(name, wanted))
        current.progress.report(f"timing {arguments.model}")
        rows = of_ranks(contest.rows(arguments.rounds, current.progress.count))
    tell_precision_error(exe, request.inputs)
    return rows, contest.problems


def captured_model(model: str) -> Captured | None:
    """A PyTorch model, captured once for all runtimes; None for other models."""
    from compiler.frontend.torch import accepts
    from compiler.frontend.torch.load import capture

    return capture(model) if accepts(model) else None


def request_of(
    exe: Executable, inputs: Sequence[Array], model: str, captured: Captured | None
) -> Request:
    """The request to peers: the same model on the same inputs."""
    shapes = [tuple(size.constant for size in type_.shape) for type_ in exe.signature.input_types]
    return Request(model, captured, exe.input_names, inputs, shapes, exe.options.threads or 1,
                   exe.options.precision)


def _add_ours(
    contest: Contest, current: Session, arguments: argparse.Namespace, captured: Captured | None
) -> tuple[Executable, Request]:
    """Add the compiled program, and the specialized one, as entrants."""
    model = arguments.model
    started = time.perf_counter()
    wanted = WantedInputs(arguments)
    exe = current.compile(model if captured is None else MemoryModel(model, captured.program),
                          wanted)
    seconds = time.perf_counter() - started
    check_agreement(exe)
    contest.agreed = partial(slowest, exchanges=exe.loaded.general.exchanges)
    tell_notes(exe.loaded.notes)
    inputs = wanted.arrays(exe.signature)
    contest.add("strata", lambda: run_loaded(exe, inputs), seconds)
    if arguments.specialize:
        _check_sizes(exe.signature, arguments.dim)
        started = time.perf_counter()
        fixed = specialize(exe.loaded, inputs)
        seconds = time.perf_counter() - started
        contest.add("strata, sizes fixed", lambda: fixed.run(inputs), seconds)
    return exe, request_of(exe, inputs, model, captured)


def _check_ranks(arguments: argparse.Namespace) -> None:
    """Raises StrataError for what is not measured on several ranks."""
    if own_rank(arguments.mesh) is None:
        return
    for name in ("against", "specialize"):
        if vars(arguments)[name]:
            refuse_mesh(arguments.mesh, f"--{name}")


def of_ranks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with the times of the slowest rank; `ranks` lists the medians of all."""
    found = all_of(rows)
    for own, *same in zip(rows, *found, strict=True) if len(found) > 1 else ():
        medians = [row["median_ms"] for row in same]
        own |= {**max(same, key=lambda row: row["median_ms"]), "ranks": medians}
    return rows


def check_problems(problems: Sequence[StrataError]) -> None:
    """Raises StrataError with all problems of peers."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise StrataError(f"{count_of(problems, 'peer')} cannot run the model",
                          [Problem(str(error)) for error in problems])


def _check_sizes(signature: Signature, named: Sequence[tuple[str, int]]) -> None:
    """Raise StrataError for unknown names of open sizes, which the import does not check."""
    symbols = signature.symbols()
    unknown = [name for name, _ in named if Symbol.size(name) not in symbols]
    if unknown:
        raise StrataError(f"--dim names '{unknown[0]}', which is not a size of the model", [Problem(
            f"{guess(unknown[0], [s.name for s in symbols])}its sizes are "
            f"{some_of([s.name for s in symbols], 20) or 'all constant'}")])

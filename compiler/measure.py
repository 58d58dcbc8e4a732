"""Times a model and its peers in turns."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compiler.comparison import worst
from compiler.diagnostics import Problem, StrataError, some_of
from compiler.execution import input_arrays, run_loaded
from compiler.peers import load_peer
from compiler.session import session
from compiler.signature import Signature
from compiler.specialization import specialize
from dialects.syntax import size_symbol

if TYPE_CHECKING:
    from dialects.types import Array

Run = Callable[[], Sequence["Array"]]


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per runtime, ours first: name, median_ms, best_ms, load_s, difference from ours."""
    threads = arguments.threads or len(os.sched_getaffinity(0))
    with session(arguments, threads) as current:
        started = time.perf_counter()
        exe = current.compile(arguments.model)
        loads = [time.perf_counter() - started]
        inputs = input_arrays(arguments, exe.signature)
        runs: dict[str, Run] = {"strata": lambda: run_loaded(exe, inputs)}
        if arguments.specialize:
            _check_sizes(exe.signature, arguments.dim)
            started = time.perf_counter()
            fixed = specialize(exe.loaded, inputs)
            loads.append(time.perf_counter() - started)
            runs["strata, sizes fixed"] = lambda: fixed.run(inputs)
        named = dict(zip(exe.input_names, inputs, strict=True))
        for name in filter(None, arguments.against.split(",")):
            started = time.perf_counter()
            peer = load_peer(name, arguments.model, threads)
            loads.append(time.perf_counter() - started)
            runs[name] = lambda peer=peer: peer.run(named)
        current.progress.tell(f"timing {arguments.model}")
        return _rows(runs, loads, arguments.rounds)


def _check_sizes(signature: Signature, named: Sequence[tuple[str, int]]) -> None:
    """Sizes that stay open are not looked up by the import. Raises StrataError for others."""
    symbols = signature.symbols()
    strange = [name for name, _ in named if size_symbol(name) not in symbols]
    if strange:
        raise StrataError(f"--dim names '{strange[0]}', which is no size of the model", [Problem(
            f"its sizes are {some_of(symbols, 20) or 'all constant'}")])


def _rows(runs: dict[str, Run], loads: Sequence[float], rounds: int) -> list[dict[str, Any]]:
    outputs = [run() for run in runs.values()]
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            taken[name].append(1e3 * (time.perf_counter() - started))
    return [{"name": name, "median_ms": statistics.median(taken[name]),
             "best_ms": min(taken[name]), "load_s": load,
             "difference": worst(outputs[0], found)[0]}
            for name, load, found in zip(runs, loads, outputs, strict=True)]

"""Times a whole model with the rules' schedules and with the tuned ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from compiler.executable import compile_with
from compiler.measuring.contest import rounds_within, take_turns
from compiler.options import OFF
from compiler.plugins.plugin_files import load_plugins
from dialects.symbolic.symbol import Symbol
from targets.interface import TargetError

if TYPE_CHECKING:
    from compiler.executable import Executable
    from compiler.frontend import MemoryModel
    from compiler.measuring.contest import Run
    from compiler.options import CompileOptions
    from dialects.strata.types import Array
    from targets.parts import Running

CONTEST_SECONDS = 10.0
"""About how long the whole model is timed."""
TURNS = 15
"""The number of turns with the target's own timer."""


def whole_model(
    model: str | MemoryModel, options: CompileOptions, database: str, sizes: Mapping[str, int],
    jobs: int,
) -> str:
    """One line with the time of the whole model with the rules' schedules and the tuned ones.

    `jobs`: processes that compile what is not in the cache.
    """
    target = load_plugins(options.plugins).find_target(options.target)
    running = target.bind(options.target_options()).running
    threads = jobs if running.measures_apart else 1
    plain = replace(options, threads=threads, specialize=None, dump_dir=None)
    ways = [compile_with(model, replace(plain, tuned=tuned)) for tuned in (OFF, database)]
    if ways[0].loaded.general.exchanges:
        return ("the whole model was not timed: it runs on several ranks, and `bench` under "
                "torchrun times it")
    known = {Symbol.size(name): size for name, size in sizes.items()}
    inputs = list(ways[0].signature.random(0, known).values())
    runs: dict[str, Run] = {
        name: lambda exe=exe: exe.run(inputs)
        for name, exe in zip(("rules", "tuned"), ways, strict=True)}
    if running.measures_apart:
        return _apart(running, ways, inputs)
    try:
        times = take_turns(runs, rounds_within(runs, CONTEST_SECONDS), 1)
    except ValueError as error:
        return f"the whole model was not timed: {error}"
    rules, tuned = times["rules"].cpu_ms, times["tuned"].cpu_ms
    return (f"whole model, one thread: {rules:.3f} ms by the rules, {tuned:.3f} ms tuned "
            f"({rules / tuned:.3f}x)")


def _apart(running: Running, ways: Sequence[Executable], inputs: Sequence[Array]) -> str:
    """The same, with the target's own timer, in turns."""
    for way in ways:
        way.run(inputs)
    try:
        timers = [running.timer(way.loaded.general, inputs, 0) for way in ways]
    except TargetError as error:
        return f"the whole model was not timed: {error}"
    turns = [[timer(1) for timer in timers] for _ in range(TURNS)]
    rules, tuned = (1e3 * statistics.median(times) for times in zip(*turns, strict=True))
    return (f"whole model: {rules:.4f} ms by the rules, {tuned:.4f} ms tuned "
            f"({rules / tuned:.3f}x)")

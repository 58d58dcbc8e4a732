"""Strategies: how much of a model a compilation looks at when it optimizes.

    per-op        each operator of the model is computed apart, as eager frameworks do: its results
                  are in memory, and its kernels are launched one by one; attention that the model
                  has as one operator is one kernel
    block         kernels are fused around each product or reduction, as Triton's users write them,
                  and launched one by one; tensors keep their layouts
    whole-graph   everything (the default)

A strategy is a set of groups of passes. `compiler/pipeline/steps.py` says to which group each pass
belongs; passes without a group are needed, or cost no optimization, and always run. The group
`one-launch` has no pass: with it, a target runs the whole program at once instead of each launch.
Any group can be added to a strategy (`--with`) or left out of it (`--without`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from compiler.diagnostics import Problem
from compiler.option_values import shown
from compiler.pipeline.steps import Step
from compiler.suggestions import hint_for

GROUPS: dict[str, str] = {
    "fold": "compute what depends on constants only, at compile time",
    "simplify": "algebra across operators, and equal operations once",
    "quantize": "quantized products in integers instead of floats",
    "precision": "shorter formats of factors, where the options permit them",
    "split": "sums split among programs, and grouped products in tiles",
    "winograd": "convolutions with fewer multiplications",
    "fuse": "operators around a product or a reduction in one kernel",
    "chain": "products and the reductions between them in one kernel, as in attention",
    "layout": "orders of dims that suit the kernels",
    "pack": "operands copied to where a kernel reads them fast, as libraries do inside a product",
    "schedule": "axes and prefetching that suit the machine",
    "share": "equal layers and equal kernels compiled once",
    "memory": "one arena, in which values share memory",
    "one-launch": "the whole program in one launch",
}
"""What the passes of each group do."""

PER_OP, BLOCK, WHOLE_GRAPH = "per-op", "block", "whole-graph"
_KERNELS = frozenset(("precision", "split", "pack", "schedule", "share", "memory"))
STRATEGIES: dict[str, frozenset[str]] = {
    PER_OP: _KERNELS,
    BLOCK: _KERNELS | {"fold", "simplify", "quantize", "winograd", "fuse"},
    WHOLE_GRAPH: frozenset(GROUPS),
}
"""The groups of each strategy."""
ONE_LAUNCH = "one-launch"
SHARE = "share"


def groups_of(
    strategy: str, with_: Sequence[str] = (), without: Sequence[str] = ()
) -> frozenset[str]:
    """The groups of a strategy, with some added and others left out."""
    return (STRATEGIES[strategy] | {*with_}) - {*without}


def strategy_problems(strategy: object, with_: object, without: object) -> Iterator[Problem]:
    """What is wrong with the options: unknown names, with the nearest, and contradictions."""
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        yield Problem(f"strategy is {shown(strategy)}, which is none of its values",
                      hint=hint_for(strategy if isinstance(strategy, str) else "", STRATEGIES))
    for option, names in (("with_groups", with_), ("without_groups", without)):
        yield from _group_problems(option, names)
    for name in GROUPS:
        if _names(with_, name) and _names(without, name):
            yield Problem(f"the group {shown(name)} is both added and left out")


def _names(names: object, group: str) -> bool:
    return isinstance(names, tuple) and group in names


def _group_problems(option: str, names: object) -> Iterator[Problem]:
    if not isinstance(names, tuple):
        yield Problem(f"{option} is {shown(names)}; it must be a tuple of names of groups")
        return
    for name in cast("tuple[object, ...]", names):
        if not isinstance(name, str) or name not in GROUPS:
            yield Problem(f"{option} has {shown(name)}, which is no group of passes",
                          hint=hint_for(name if isinstance(name, str) else "", GROUPS))


def steps_of(pipeline: Sequence[Step], groups: frozenset[str]) -> tuple[Step, ...]:
    """The pipeline with these groups; a pass of another group runs apart, or not at all."""
    if groups >= GROUPS.keys():
        return tuple(pipeline)
    apart = (s if not s.group or s.group in groups else replace(s, spec=s.apart) for s in pipeline)
    return tuple(step for step in apart if step.spec)

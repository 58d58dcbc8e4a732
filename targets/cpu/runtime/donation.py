"""Outputs in the memory of donated inputs, as `targets/memory.py` places them.

A step of the host function ends before the next one begins, so steps are the time.

Where the caller wants the contents of an output in an input, as with a cache of keys, it may also
begin as a copy of this input, which is the last that reads it. Nothing is then copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from targets.memory import ALIGNMENT, Home, homes_of

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.symbolic.symbol import Symbol
    from targets.cpu.runtime.plan import RunPlan
    from targets.cpu.runtime.results import Result

def homes(
    plan: RunPlan, donated: Collection[int], sizes: Mapping[Symbol, int],
    outputs: Sequence[Result],
) -> dict[int, Home]:
    """The numbers of outputs -> their places in donated inputs.

    There are none for a program that may end early and then run in another way on its inputs.
    """
    times = plan.times
    if not times.writes or _may_run_again(plan):
        return {}
    rooms = {k: prod(int(s.evaluate(sizes)) for s in plan.inputs[k].shape)
             * plan.inputs[k].dtype.itemsize for k in donated}
    written = {k: v.nbytes for k, v in enumerate(outputs) if times.writes[k] >= 0}
    return homes_of(rooms, dict(enumerate(times.reads)), written, dict(enumerate(times.writes)))


def shared(plan: RunPlan, pairs: Mapping[int, int]) -> dict[int, int]:
    """Of the pairs output -> input whose contents the caller wants there, those that may share
    memory: an input must be whole if the program ends early."""
    times = plan.times
    if not times.writes or _may_run_again(plan):
        return {}
    found: dict[int, int] = {}
    for output, given in pairs.items():
        read, written = times.reads[given], times.writes[output]
        begins = read < written or (read == written and times.copies[output:output + 1] == (given,))
        if written > max(times.checked, default=-1) and begins and given not in found.values() and (
                plan.inputs[given] == plan.outputs[output]):
            found[output] = given
    return found


def _may_run_again(plan: RunPlan) -> bool:
    return any(check.kind in ("size", "assumption") for check in plan.checks)


class _Part:
    """A part of the memory of an object, which it keeps alive."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: object, address: int, count: int):
        self.__array_interface__ = {
            "data": (address, False), "shape": (count,), "typestr": "|u1", "version": 3}
        self._owner = owner


def lender(
    result: Result, home: Home | None, address: Callable[[Any], int]
) -> Callable[[Sequence[Any]], Array] | None:
    """What makes an output from the inputs of a call: in its home if it has one, else in memory of
    its own; None if its memory is small."""
    if home is None:
        return (lambda inputs: result.array()) if result.is_large else None
    number, offset = home

    def lend(inputs: Sequence[Any]) -> Array:
        owner = inputs[number]
        start = address(owner) + offset
        if start % ALIGNMENT:  # the input is a view
            return result.array()
        part = np.asarray(_Part(owner, start, result.nbytes))
        return np.ndarray(result.shape, result.dtype, part)

    return lend

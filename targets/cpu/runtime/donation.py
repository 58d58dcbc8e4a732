"""Outputs in the memory of inputs that nobody needs after the call, once all of them is read.

    backward(%saved: 4 MiB, ...) -> (%dw: 2 MiB, %dv: 2 MiB)     %dw and %dv lie where %saved lay

So a backward pass needs no memory for most of the gradients: what the forward pass has saved makes
room for them. A step of the host function ends before the next one begins, so an output may have
the memory of an input that is read for the last time in an earlier step than the one that first
writes the output.

An output keeps all memory of its input alive. Outputs therefore move in only together with others
that fill most of it.

Where the caller wants the contents of an output in an input, as with a cache of keys, it may also
begin as a copy of this input, which is the last that reads it. Nothing is then copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dialects.records import NamedTuple
from targets.memory import ALIGNMENT

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.symbolic.symbol import Symbol
    from targets.cpu.runtime.plan import RunPlan
    from targets.cpu.runtime.results import Result

LEAST = 1 << 16
"""Size in bytes from which an output moves in. A smaller one is not worth the look at a table."""

MOST_LEFT = 4
"""At most one part in so many of an input's memory may stay unused."""


class Home(NamedTuple):
    """Where an output lies: the number of an input, and the offset in its memory, in bytes."""

    given: int
    offset: int


def homes(
    plan: RunPlan, donated: Collection[int], sizes: Mapping[Symbol, int],
    outputs: Sequence[Result],
) -> dict[int, Home]:
    """The numbers of outputs -> their places in donated inputs.

    There are none for a program that may end early and then run in another way on its inputs.
    """
    times, found = plan.times, dict[int, Home]()
    if not times.writes or _may_run_again(plan):
        return found
    rest = sorted((k for k, v in enumerate(outputs) if v.nbytes >= LEAST and times.writes[k] >= 0),
                  key=lambda k: -outputs[k].nbytes)
    rooms = {k: prod(int(s.evaluate(sizes)) for s in plan.inputs[k].shape)
             * plan.inputs[k].dtype.itemsize for k in donated}
    for given in sorted(rooms, key=lambda k: (-rooms[k], k)):
        end, chosen = 0, dict[int, Home]()
        for k in rest:
            if times.reads[given] < times.writes[k] and end + outputs[k].nbytes <= rooms[given]:
                chosen[k] = Home(given, end)
                end += -(-outputs[k].nbytes // ALIGNMENT) * ALIGNMENT
        if chosen and MOST_LEFT * (rooms[given] - end) <= rooms[given]:
            found |= chosen
            rest = [k for k in rest if k not in chosen]
    return found


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

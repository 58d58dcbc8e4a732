"""Donated inputs: outputs computed in the memory of inputs that the caller no longer needs.

A typical case is a key-value cache. As with XLA's input-output aliasing, the caller names the
pairs. Whether a pair is possible is decided here, from the steps: the input must have been read
before the first write of the output, or by the kernel that writes it. In that kernel each program
must read exactly the elements that it then writes.

The caller may also name inputs alone that it does not need after a call. Outputs then lie in their
memory wherever `targets/memory.py` finds room.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from dialects.strata.array_type import ArrayType
from targets.cuda.runtime.constants import ALIGNMENT
from targets.cuda.runtime.planned import Copy, HostPlan, Launch, Place, PlannedStep
from targets.memory import Home, homes_of

Step = PlannedStep


def donated(plan: HostPlan, pairs: Mapping[int, int]) -> dict[int, int]:
    """Of the pairs output -> donated input, by number, those that may share memory."""
    found: dict[int, int] = {}
    for output, given in pairs.items():
        if given not in found.values() and plan.inputs[given] == plan.outputs[output] and (
                _may_share(plan.steps, given, len(plan.inputs) + output)):
            found[output] = given
    return found


def with_donations(plan: HostPlan, pairs: Mapping[int, int]) -> list[Step]:
    """The steps with these outputs in the memory of their inputs, without copies to themselves."""
    count = len(plan.inputs)
    memories = {count + output: given for output, given in pairs.items()}

    def at(place: Place) -> Place:
        return replace(place, memory=memories.get(place.memory, place.memory))

    moved = [step.moved(at) for step in plan.steps]
    return [s for s in moved if not (isinstance(s, Copy) and s.source == s.target)]


def homes(plan: HostPlan, spare: Collection[int]) -> dict[int, Home]:
    """The outputs -> their places in inputs that are spare, by number; none for open sizes, or for
    a program of several ranks."""
    count = len(plan.inputs)
    if plan.exchanges or any(t.count.constant is None for t in (*plan.inputs, *plan.outputs)):
        return {}
    first, last = dict[int, int](), dict[int, int]()
    for at, step in enumerate(plan.steps):
        for place in step.places:
            first.setdefault(place.memory, at)
            last[place.memory] = at
    written = {k: _bytes(t) for k, t in enumerate(plan.outputs) if count + k in first}
    return homes_of({k: _bytes(plan.inputs[k]) for k in spare},
                    {k: last.get(k, -1) for k in spare}, written,
                    {k: first[count + k] for k in written}, ALIGNMENT)


def with_homes(plan: HostPlan, found: Mapping[int, Home]) -> list[Step]:
    """The steps with these outputs in their homes."""
    moved = {len(plan.inputs) + k: home for k, home in found.items()}

    def at(place: Place) -> Place:
        home = moved.get(place.memory)
        if home is None:
            return place
        return replace(place, memory=home.given, offset=place.offset + home.offset)

    return [step.moved(at) for step in plan.steps]


def _bytes(type_: ArrayType) -> int:
    return (type_.count.constant or 0) * type_.dtype.itemsize


def _may_share(steps: Sequence[Step], given: int, output: int) -> bool:
    users = [[k for k, p in enumerate(s.places) if p.memory == given] for s in steps]
    last = max((n for n, places in enumerate(users) if places), default=-1)
    first = next((n for n, s in enumerate(steps) if any(
        p.memory == output for p in s.places)), len(steps))
    if last != first:
        return last < first
    step = steps[first]
    written = [k for k, p in enumerate(step.places) if p.memory == output]
    if len(written) > 1 or len(users[first]) > 1:
        return False
    if isinstance(step, Launch):
        return (users[first][0], written[0]) in step.kernel.overwrites
    return isinstance(step, Copy)

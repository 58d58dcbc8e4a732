"""Schedules that were found by measuring (`Choices`), and which kernel each is for: `key_of`.

A key says what is computed and what a schedule may depend on: shapes, types, maps and bodies, by
canonical names, and which arguments are constants, for these are packed when the model is compiled.
It is taken when axes are final and nothing is packed or scheduled yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dialects.loop import CallOp, KernelOp
from dialects.schedule import Schedule
from passes.loop.canonical import Canonical
from passes.loop.pack_operands import constant_behind


@dataclass(frozen=True)
class Choice:
    """The fastest schedule, its axes by canonical names; None where the rules' own is.

    `gain`: how many times as fast as the rules' own it was.
    """

    schedule: Schedule | None
    gain: float = 1.0


Choices = Mapping[str, Choice]
"""By key. One mapping is for one target and machine."""


def key_of(call: CallOp, kernel: KernelOp) -> tuple[str, Canonical]:
    """The key of a kernel that is called so, and its names."""
    canonical = Canonical.of(kernel)
    constants = tuple(constant_behind(v) is not None for v in call.inputs)
    return canonical.digest(constants), canonical

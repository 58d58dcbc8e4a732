"""Schedules that were found by measuring (`Choices`), and which kernel each is for.

A key says what is computed and what a schedule may depend on: shapes, types, maps and bodies, by
canonical names, and which arguments are constants, for these are packed when the model is compiled;
but for those that the caller holds, which are read as they lie.
It is taken when axes are final and nothing is packed or scheduled yet. Behind the point it has what
the rules choose, which is what the schedule was faster than: where they choose otherwise by now,
it counts for nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dialects.loop import CallOp, KernelOp
from dialects.strata.schedule import Schedule
from dialects.strata.weights import WeightStore
from passes.analyses.loop.canonical import Canonical
from passes.analyses.loop.constants import constant_behind
from passes.contract import Choice, Choices

_RULES_LENGTH = 8


def text_key(call: CallOp, kernel: KernelOp, weights: WeightStore) -> tuple[str, Canonical]:
    """The key of a kernel that is called so, up to the point, and its names."""
    canonical = Canonical.of(kernel)
    constants = [constant_behind(v) for v in call.inputs]
    packed = tuple(c is not None and not c.is_held(weights) for c in constants)
    return canonical.digest(packed), canonical


def key_of(text: str, canonical: Canonical, rules: Schedule) -> str:
    """The whole key, for what the rules choose."""
    found = hashlib.sha256(str(canonical.neutral(rules)).encode()).hexdigest()
    return f"{text}.{found[:_RULES_LENGTH]}"


@dataclass
class Choosing:
    """Looks choices up. `rules`: what they choose, which is asked only where a choice may count."""

    choices: Choices
    weights: WeightStore
    rules: Callable[[KernelOp], Schedule]

    @cached_property
    def texts(self) -> frozenset[str]:
        """What keys begin with."""
        return frozenset(key.partition(".")[0] for key in self.choices)

    def of(self, call: CallOp, kernel: KernelOp) -> tuple[Canonical, Choice]:
        """The choice for a kernel that is called so, the rules' own without any; its names."""
        text, canonical = text_key(call, kernel, self.weights)
        if text not in self.texts:
            return canonical, Choice(None)
        key = key_of(text, canonical, self.rules(kernel))
        return canonical, self.choices.get(key, Choice(None))

"""Schedules that were found by measuring (`Choices`), and the kernels that they apply to.

A key describes what is computed, and what a schedule may depend on: shapes, types, maps and bodies
in canonical names, and which arguments are constants, because those are packed at compile time.
Constants that the caller holds do not count, because they are read as they are. The key is computed
once axes are final, and before anything is packed or scheduled. Its part after the dot identifies
the rules' own schedule, which the measured one was compared with. If the rules choose differently
by now, the measured schedule does not apply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property

from dialects.loop import CallOp, KernelOp
from dialects.records import dataclass
from dialects.strata.schedule import Schedule
from dialects.strata.weights import WeightStore
from passes.analyses.loop.canonical import Canonical
from passes.analyses.loop.constants import constant_source
from passes.contract import Choice, Choices

_RULES_LENGTH = 8


def text_key(call: CallOp, kernel: KernelOp, weights: WeightStore) -> tuple[str, Canonical]:
    """The key of a called kernel, up to the dot, and the kernel's canonical form."""
    canonical = Canonical.of(kernel)
    constants = [constant_source(v) for v in call.inputs]
    packed = tuple(c is not None and not c.is_held(weights) for c in constants)
    return canonical.digest(packed), canonical


def key_of(text: str, canonical: Canonical, rules: Schedule) -> str:
    """The complete key, for a schedule that the rules choose."""
    found = hashlib.sha256(str(canonical.neutral(rules)).encode()).hexdigest()
    return f"{text}.{found[:_RULES_LENGTH]}"


@dataclass
class Choosing:
    """Looks choices up. `rules` computes the rules' own schedule, only where a choice may apply."""

    choices: Choices
    weights: WeightStore
    rules: Callable[[KernelOp], Schedule]

    @cached_property
    def texts(self) -> frozenset[str]:
        """The keys up to the dot."""
        return frozenset(key.partition(".")[0] for key in self.choices)

    def of(self, call: CallOp, kernel: KernelOp) -> tuple[Canonical, Choice]:
        """A called kernel's canonical form, and the choice for it; by default the rules' own."""
        text, canonical = text_key(call, kernel, self.weights)
        if text not in self.texts:
            return canonical, Choice(None)
        key = key_of(text, canonical, self.rules(kernel))
        return canonical, self.choices.get(key, Choice(None))

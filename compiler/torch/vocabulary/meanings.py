"""The meaning of a word of PyTorch's compiler: one of ours, without effect, or refused.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Ours = Callable[[Any], Mapping[str, Any]]


def nothing(value: Any) -> bool:
    """No value is refused."""
    return False


@dataclass(frozen=True)
class Meaning:
    """What an option means. `note`: a sentence for readers. `ours`: our options for a value; None
    if it has no effect. `refused`: whether a value is refused, with the note as what to do.
    `is_switch`: whether the value in `torch._inductor.config` counts, too."""

    note: str
    ours: Ours | None = None
    refused: Callable[[Any], bool] = nothing
    is_switch: bool = True

    @property
    def kind(self) -> str:
        if self.refused is not nothing:
            return "refused"
        return "no effect" if self.ours is None else "ours"


def refused(note: str, values: Callable[[Any], bool] = bool) -> Meaning:
    """Refused if it asks for something: what to do instead."""
    return Meaning(note, refused=values)

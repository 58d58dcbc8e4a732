"""A graph as `torch.compile` brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CapturedGraph:
    """A graph of Core ATen without mutations, as `torch.compile` makes them.

    `weights`: placeholder -> the tensor that is constant, and stays as it is as long as anything is
    used that was made of the graph; `results`: numbers of the outputs that the function returns.
    """

    module: Any
    weights: Mapping[str, Any]
    results: Sequence[int]

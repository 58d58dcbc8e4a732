"""Functions, operations and regions of a StableHLO text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dialects.strata.types import TensorType


@dataclass
class Region:
    """A block: its arguments, with their types, and its operations."""

    arguments: list[tuple[str, TensorType]]
    operations: list[Op]


@dataclass
class Op:
    """An operation. `results`: the names of its values. `line`: where its text begins, or its
    number in a file without lines, whose `place` names it."""

    name: str
    operands: list[str]
    attributes: dict[str, Any]
    regions: list[Region]
    results: list[str]
    types: list[TensorType]
    line: int
    words: list[str] = field(default_factory=list[str])
    place: str = ""

    @property
    def where(self) -> str:
        return self.place or f"line {self.line}"


@dataclass
class Function:
    """A function. Sizes of its arguments that are `?` have names of their own. `types`: those of
    its results; None where the file's reader does not tell."""

    name: str
    body: Region
    types: list[TensorType] | None

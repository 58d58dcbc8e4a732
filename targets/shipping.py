"""What the compiler asks of a target that writes libraries. It does not import xDSL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from dialects.records import dataclass
from targets.interface import TargetError

SHARED, ARCHIVE, OBJECT, FOLDER = ".so", ".a", ".o", ""
"""The forms of a library, by the suffix of its path; a folder has all pieces."""
FOREIGN = (".dylib", ".dll", ".wasm")
"""The suffixes of shared libraries of other systems."""
FORMS = (SHARED, ARCHIVE, OBJECT, FOLDER, *FOREIGN)


@dataclass(frozen=True)
class Shipment:
    """A library that is wanted.

    `name`: what its functions start with. `path`: the file or folder. `weights`: the file that
    gets the constants; None if they are part of the library. `facts`: what the compiler says about
    the model, to which the target adds its own. `labels`: what numbers of outputs stand for, if a
    page for browsers is wanted beside the library; None if none is.
    """

    name: str
    path: str
    form: str
    version: str
    weights: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    labels: Sequence[str] | None = None


class Cargo(ABC):
    """A compiled model that can be written as a library."""

    def beside(self, others: Sequence[tuple[Mapping[str, int], Cargo]]) -> Cargo:
        """The same with code of its own for some sizes: what was compiled with sizes that are
        fixed. Raises TargetError if libraries of this target have one program for all sizes."""
        if others:
            raise TargetError("a library of this target has one program for all sizes")
        return self

    @property
    def contents(self) -> str:
        """What was compiled for it, as users count it: `104 kernels for sm_80`. Empty: no count."""
        return ""

    @abstractmethod
    def write(self, shipment: Shipment, others: Sequence[Cargo] = ()) -> None:
        """Write a library. `others`: the same model, compiled by the same target for other
        processors; the library chooses when it is loaded.

        Raises TargetError if the machine does not allow that, and OSError for a disk that cannot be
        written.
        """

"""What the compiler asks of a target that writes libraries. It does not import xDSL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHARED, ARCHIVE, OBJECT, FOLDER = ".so", ".a", ".o", ""
"""The forms of a library, by the suffix of its path; a folder has all pieces."""
FORMS = (SHARED, ARCHIVE, OBJECT, FOLDER)


@dataclass(frozen=True)
class Shipment:
    """A library that is wanted.

    `name`: what its functions start with. `path`: the file or folder. `weights`: the file that
    gets the constants; None if they are part of the library. `facts`: what the compiler says about
    the model, to which the target adds its own.
    """

    name: str
    path: str
    form: str
    version: str
    weights: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

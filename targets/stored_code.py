"""The interface of targets whose executables can be kept in files: a module `stored` per target.

That module imports only what loading needs, neither xDSL nor a code generator.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore
    from targets.interface import Executable


class Loading(NamedTuple):
    """How a program runs, which its code does not depend on. `cache`: the folder of compiled code,
    for targets that compile more while a program runs."""

    threads: int | None = None
    cache: str | None = None


class StoredCode(Protocol):
    """The functions of such a module."""

    def identity(self) -> str | None:
        """What code for this machine depends on; None if that is not known."""
        ...

    def needs(self, features: str | None) -> list[str]:
        """What code needs that this machine compiled for these features: instruction sets, or the
        architecture of a device."""
        ...

    def lacking(self, needs: Sequence[str]) -> list[str]:
        """What of that this process cannot use."""
        ...

    def refusal(self, lacking: Sequence[str]) -> tuple[str, str]:
        """What to say of a program that needs what is lacking: why it cannot run, what to do."""
        ...

    def convention(self) -> str:
        """What the code and the Python around it agree on; equal texts fit each other."""
        ...

    def parts(
        self, executable: Executable, open_: Collection[str] = ()
    ) -> tuple[dict[str, Any], list[Array]] | None:
        """An executable as facts and blobs, the code first; None for one that cannot be kept.

        `open_`: the keys of weights that are not among the blobs, since `load` is given them.
        """
        ...

    def load(
        self, facts: Mapping[str, Any], blobs: Sequence[Array], loading: Loading,
        weights: WeightStore | None = None,
    ) -> Executable:
        """The executable from its parts. `weights`: those that are not among the blobs."""
        ...

    def load_library(
        self, path: str, facts: Mapping[str, Any], threads: int | None
    ) -> Executable:
        """The executable of a shared library of these facts, whose contents were checked."""
        ...


def checksum(folder: str, names: Sequence[str]) -> str:
    """A checksum of Python sources: files of a folder, and all of those in folders of it."""
    found = 0
    for name in names:
        path = os.path.join(folder, name)
        files = sorted(os.listdir(path)) if os.path.isdir(path) else [""]
        for file in (os.path.join(path, f) if f else path for f in files):
            if file.endswith(".py"):
                with open(file, "rb") as source:
                    found = zlib.crc32(source.read(), found)
    return f"{found:08x}"

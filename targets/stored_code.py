"""The interface of targets whose executables can be kept in files: a module `stored` per target.

That module imports only what loading needs, neither xDSL nor a code generator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore
    from targets.interface import Executable


class StoredCode(Protocol):
    """The functions of such a module."""

    def identity(self) -> str | None:
        """What code for this machine depends on; None if that is not known."""
        ...

    def needs(self, features: str | None) -> list[str]:
        """The instruction sets of code that this machine compiled for these features."""
        ...

    def lacking(self, needs: Sequence[str]) -> list[str]:
        """Those of the instruction sets that this process cannot use."""
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
        self, facts: Mapping[str, Any], blobs: Sequence[Array], threads: int | None,
        weights: WeightStore | None = None,
    ) -> Executable:
        """The executable from its parts. `weights`: those that are not among the blobs."""
        ...

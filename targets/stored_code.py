"""What a target offers whose executables can be kept in files: a module `stored` in its folder.

That module imports nothing that loading does not need, neither xDSL nor a code generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from targets.interface import Executable


class StoredCode(Protocol):
    """The functions of such a module."""

    def identity(self) -> str | None:
        """What code for this machine depends on; None where that is not known."""
        ...

    def parts(self, executable: Executable) -> tuple[dict[str, Any], list[Array]] | None:
        """An executable as facts and blobs, the code first; None for one that cannot be kept."""
        ...

    def load(
        self, facts: Mapping[str, Any], blobs: Sequence[Array], threads: int | None
    ) -> Executable:
        """The executable of which these are the parts."""
        ...

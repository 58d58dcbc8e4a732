"""The cache slots of graphs in memory, such as those of `torch.compile`.

    programs/entries/<key>    a compiled graph, without the weights that its caller may replace
    programs/graphs/<key>     for a graph and all circumstances: the names of the parameters on
                              whose contents programs depend, a list for each program

The key of a program is a hash of what the graph says, of all circumstances, and of the contents of
these parameters. Others are packed as the program's recipes say, whatever their values are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from compiler.options import cache_limit
from compiler.programs.entries import Entries, Found
from compiler.programs.entry import DAMAGE
from compiler.programs.recipes import recipes_of
from dialects.strata.weights import content_key
from targets.files import folder_fault, read_private, trim, warn_unkept, write_whole

if TYPE_CHECKING:
    from compiler.parameters import Parameters
    from dialects.strata.types import Array
    from targets.interface import Executable
    from targets.stored_code import Loading, StoredCode

_MOST_LISTS = 8
"""For how many different lists of parameters programs of one graph are found."""
_RECORDS_LIMIT = 64 << 20


class Graph(Protocol):
    """A graph in memory. `identity`: what it says, but for the contents of parameters."""

    identity: str

    def values(self) -> Mapping[str, Array]:
        """The contents of the parameters, by name."""
        ...

    def tensors(self) -> Mapping[str, Any]:
        """The weights that lie on a device, by name."""
        ...


class GraphSlot:
    """The cache slot of one graph compiled with some options."""

    def __init__(
        self, folder: str, graph: Graph, circumstances: Sequence[str], code: StoredCode,
        loading: Loading,
    ):
        self.folder, self.graph = folder, graph
        self.name = _hash([*circumstances, graph.identity])
        self.entries = Entries(os.path.join(folder, "entries"), code,
                               loading, cache_limit())
        self.paths: list[str] = []
        """The files of the model, of which there are none."""

    def find(self) -> Found | None:
        """The cached program for the graph's parameters; None if there is none."""
        lists = self._lists()
        values: Mapping[str, Array] = self.graph.values() if lists else {}
        for names in lists:
            with contextlib.suppress(*DAMAGE):
                hashes = {name: content_key(values[name]) for name in names}
                found = self.entries.load(self._key(hashes), values, self.graph.tensors())
                if found is not None:
                    return found
        return None

    def keep(
        self, paths: Sequence[str], model: Mapping[str, Any], executable: Executable,
        parameters: Parameters | None,
    ) -> None:
        """Store an executable if possible. A disk that cannot be written is reported once."""
        recipes = recipes_of(parameters) if parameters else None
        if parameters is not None and recipes is None:
            return None
        folder = os.path.dirname(self._record)
        if why := folder_fault(folder):
            return warn_unkept(folder, why)
        read: Mapping[str, str] = recipes.read if recipes else {}
        if not self.entries.write(self._key(read), model, executable, recipes):
            return None
        others = [names for names in self._lists() if names != sorted(read)]
        with contextlib.suppress(OSError):
            write_whole(self._record, [json.dumps([sorted(read), *others][:_MOST_LISTS]).encode()])
        trim(folder, _RECORDS_LIMIT)
        return None

    def _lists(self) -> list[list[str]]:
        """The lists of parameters on whose contents programs of this graph depend."""
        with contextlib.suppress(*DAMAGE):
            text = read_private(self._record)
            return [] if text is None else [list(map(str, names)) for names in json.loads(text)]
        return []

    @property
    def _record(self) -> str:
        return os.path.join(self.folder, "graphs", self.name)

    def _key(self, hashes: Mapping[str, str]) -> str:
        return _hash([self.name, *(f"{n} {hashes[n]}" for n in sorted(hashes))])


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()

"""Compiled programs in the cache's folder, by key, each in its target's parts (`entry.py`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from compiler.programs.entry import WHOLE, entry_size, read_entry, write_entry
from targets.files import folder_fault, mark_used, trim, warn_unkept

if TYPE_CHECKING:
    from compiler.parameters import Parameters
    from compiler.programs.recipes import Recipes
    from dialects.strata.types import Array
    from targets.interface import Executable
    from targets.stored_code import Loading, StoredCode


class Found(NamedTuple):
    """A program from the cache. `facts`: those about its model."""

    facts: dict[str, Any]
    loaded: Executable
    parameters: Parameters | None = None


class Entries(NamedTuple):
    """The programs of a target in a folder that holds at most `limit` bytes of them."""

    folder: str
    code: StoredCode
    loading: Loading
    limit: int

    def load(
        self, key: str, values: Mapping[str, Array] | None = None,
        tensors: Mapping[str, Any] | None = None,
    ) -> Found | None:
        """The program of a key, with these contents of its parameters; None if it is not for them.

        `tensors`: those on a device that hold weights, by name.

        Raises one of `kept.DAMAGE` if there is no such program, or it is not what was written.
        """
        path = os.path.join(self.folder, key)
        entry = read_entry(path, key)
        facts, count = entry.facts, entry.facts["blobs"]
        if facts["recipes"] is None:
            loaded = self.code.load(facts["target"], entry.blobs[:count], self.loading)
            mark_used(path)
            return Found(facts["model"], loaded)
        from compiler.parameters import Parameters
        from compiler.programs.recipes import read_recipes

        store = read_recipes(facts["recipes"], entry.blobs[count:], values or {}, tensors)
        if store is None:
            return None
        loaded = self.code.load(facts["target"], entry.blobs[:count], self.loading, store)
        mark_used(path)
        parameters = Parameters(loaded, store, facts["recipes"]["keys"])
        parameters.release()
        return Found(facts["model"], loaded, parameters)

    def write(
        self, key: str, model: Mapping[str, Any], executable: Executable,
        recipes: Recipes | None = None,
    ) -> bool:
        """Keep a program if possible; whether it is. A disk that cannot be written is reported
        once.

        `recipes`: those of its parameters, if it has any.
        """
        parts = self.code.parts(executable, recipes.open if recipes else ())
        if parts is None:
            return False
        facts = {"model": model, "target": parts[0], "blobs": len(parts[1]),
                 "recipes": recipes and recipes.facts}
        blobs = [*parts[1], *(recipes.arrays if recipes else ())]
        if entry_size(blobs) > self.limit:
            return False
        try:
            why = folder_fault(self.folder)
            if not why:
                write_entry(os.path.join(self.folder, key), key, facts, blobs)
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            warn_unkept(self.folder, why)
            return False
        trim(self.folder, self.limit, WHOLE)
        return True

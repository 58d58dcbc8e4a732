"""Small facts that follow from the software alone, or from a graph, kept beside the programs.

    programs/notes/<key>      JSON

A process that loads its programs need not load the compiler for such a fact either.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from compiler.options import cache_limit, cache_root
from compiler.programs.circumstances import software_text
from compiler.programs.entry import DAMAGE
from targets.files import folder_fault, mark_used, read_private, trim, write_whole

_LIMIT = 16 << 20


class Note:
    """What is known about `subject` with this software. `cache`: as the option of `compile`."""

    def __init__(self, cache: str, subject: Sequence[str]):
        root = cache_root(cache)
        self._folder = None
        if root is not None and cache_limit() and not folder_fault(os.path.join(root, "programs")):
            self._folder = os.path.join(root, "programs", "notes")
            self._key = hashlib.sha256("\0".join([software_text(), *subject]).encode()).hexdigest()

    def find(self) -> Any:
        """The fact; None if it is not known."""
        if self._folder is None or folder_fault(self._folder):
            return None
        path = os.path.join(self._folder, self._key)
        with suppress(*DAMAGE):
            text = read_private(path)
            if text is not None:
                key, fact = json.loads(text)
                mark_used(path)
                return fact if key == self._key else None
        return None

    def keep(self, fact: Any) -> None:
        """Keep a fact that JSON can represent, if possible."""
        if self._folder is not None and not folder_fault(self._folder):
            with suppress(OSError):
                write_whole(os.path.join(self._folder, self._key),
                            [json.dumps([self._key, fact]).encode()])
            trim(self._folder, _LIMIT)

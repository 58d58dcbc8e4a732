"""A store of files on disk. A key is the hash, in hex, of everything that its contents depend on.

    SHA-256 of the key and the contents | contents

Several processes may share a folder, because files appear atomically (written aside, then renamed).
A file that is damaged, or that belongs to another key, counts as absent. A folder that cannot be
written, or that others can write to, is not an error: it is not used, and one warning says so. The
least recently used files make room for new ones.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from dialects.records import dataclass
from targets.files import (
    folder_fault,
    mark_used,
    read_private,
    trim,
    warn_unkept,
    write_whole,
)

LIMIT = 1 << 30
"""The most bytes that are kept in one folder, but for a few files."""
TRIMMING = 32
"""Keys of which one leads to a look at the folder's size."""
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class KeptFiles:
    """A folder of such files, whose names end in `suffix`. A folder of None keeps nothing."""

    folder: str | None
    suffix: str

    def get(self, key: str) -> bytes | None:
        """The contents of a key, or None if they are absent or damaged."""
        if self.folder is None or folder_fault(self.folder):
            return None
        found = read_private(self._path(self.folder, key))
        if found is None or found[:_DIGEST] != _digest(key, found[_DIGEST:]):
            return None
        mark_used(self._path(self.folder, key))
        return found[_DIGEST:]

    def put(self, key: str, contents: bytes) -> None:
        """Keep contents. If they cannot be written, one warning says so."""
        if self.folder is None:
            return
        why = folder_fault(self.folder)
        if not why:
            try:
                return write_whole(self._path(self.folder, key), [_digest(key, contents), contents])
            except OSError as error:
                why = error.strerror or str(error)
        return warn_unkept(self.folder, why)

    def trim(self, new: Iterable[str]) -> None:
        """Remove the least recently used files beyond the limit.

        `new`: the keys that were just kept. It takes milliseconds to look at a full folder, so only
        one in `TRIMMING` of all keys, which are hashes, leads to that.
        """
        if self.folder is not None and any(int(key[:8], 16) % TRIMMING == 0 for key in new):
            trim(self.folder, LIMIT)

    def _path(self, folder: str, key: str) -> str:
        return os.path.join(folder, f"{key}{self.suffix}")


def _digest(key: str, contents: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(contents)
    return digest.digest()

"""Object code on disk, by the hash of all that it depends on.

Several processes may share a folder: files appear whole (written aside, then renamed), carry a
checksum, and one that is damaged counts as absent. A folder that cannot be written, or that others
can write to, is no error: it is not used. What was used longest ago makes room.
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from targets.files import mark_used, private_folder, read_private, trim, write_whole

LIMIT = 1 << 30
"""Bytes of object code that are kept."""
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class ObjectCache:
    """Compiled code in a folder; None keeps nothing."""

    folder: Path | None

    def get(self, key: str) -> bytes | None:
        """The object code of a key, or None if it is absent or damaged."""
        if self.folder is None or not private_folder(self._place):
            return None
        content = read_private(self._path(key))
        if content is None:
            return None
        checksum, code = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(code).digest() != checksum:
            return None
        mark_used(self._path(key))
        return code

    def put(self, key: str, code: bytes) -> None:
        """Keep object code. Does nothing where the folder cannot be written."""
        if self.folder is None or not private_folder(self._place):
            return
        with contextlib.suppress(OSError):
            write_whole(self._path(key), [hashlib.sha256(code).digest(), code])

    def trim(self) -> None:
        """Keep no more than the limit."""
        if self.folder is not None:
            trim(self._place, LIMIT)

    @property
    def _place(self) -> str:
        return os.path.join(self.folder or "", "cpu")

    def _path(self, key: str) -> str:
        return os.path.join(self._place, f"{key}.o")


def object_key(text: str, machine_key: str) -> str:
    """The key of an LLVM text's object code for a machine and the installed LLVM."""
    versions = f"{llvmlite.__version__} {llvm.llvm_version_info}"
    return hashlib.sha256("\0".join((text, machine_key, versions)).encode()).hexdigest()

"""Object code on disk, by the hash of all that it depends on.

Several processes may share a folder: files appear whole (written aside, then renamed), carry a
checksum, and one that is damaged counts as absent. A folder that cannot be written is no error.
"""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class ObjectCache:
    """Compiled code in a folder; None keeps nothing."""

    folder: Path | None

    def get(self, key: str) -> bytes | None:
        """The object code of a key, or None if it is absent or damaged."""
        if self.folder is None:
            return None
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        checksum, code = content[:_DIGEST], content[_DIGEST:]
        return code if hashlib.sha256(code).digest() == checksum else None

    def put(self, key: str, code: bytes) -> None:
        """Keep object code. Does nothing where the folder cannot be written."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, hashlib.sha256(code).digest() + code)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / "cpu" / f"{key}.o"

    def _write(self, path: Path, content: bytes) -> None:
        descriptor, aside = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(aside, path)
        except OSError:
            os.unlink(aside)
            raise


def object_key(text: str, machine_key: str) -> str:
    """The key of an LLVM text's object code for a machine and the installed LLVM."""
    versions = f"{llvmlite.__version__} {llvm.llvm_version_info}"
    return hashlib.sha256("\0".join((text, machine_key, versions)).encode()).hexdigest()

"""Object code on disk, by the hash of everything that it depends on."""

# llvmlite has no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import os
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from targets.kept import KeptFiles


class ObjectCache(KeptFiles):
    """Compiled code in a folder; a folder of None keeps nothing."""

    def __init__(self, folder: Path | None):
        super().__init__(None if folder is None else os.path.join(folder, "cpu"), ".o")


def object_key(text: str, machine_key: str) -> str:
    """The key of an LLVM text's object code for a machine and the installed LLVM."""
    return hashlib.sha256("\0".join((text, machine_key, llvm_version())).encode()).hexdigest()


def llvm_text() -> str:
    """`22.1.0 (llvmlite 0.50.0)`, for people."""
    return f"{'.'.join(map(str, llvm.llvm_version_info))} (llvmlite {llvmlite.__version__})"


def llvm_version() -> str:
    """The versions of llvmlite and LLVM."""
    return f"{llvmlite.__version__} {llvm.llvm_version_info}"

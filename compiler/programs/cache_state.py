"""Checks for `doctor`, by trying, whether compiled code can be cached."""

from __future__ import annotations

import os
from contextlib import suppress

from compiler.options import cache_limit, cache_root
from targets.files import folder_fault, write_whole

_PARTS = ("programs", "cpu")
"""The subfolders that hold executable code."""


def cache_state() -> str:
    """One line with the location and size of the cache, or why there is none."""
    root = cache_root("default")
    if root is None:
        return "compiled code is not kept: there is no home folder; $STRATA_CACHE names another"
    for part in _PARTS:
        why = _fault(os.path.join(root, part))
        if why:
            return f"compiled code is not kept in {root}: {why}; $STRATA_CACHE names another folder"
    if not cache_limit():
        return f"compiled kernels are kept in {root}, models are not: $STRATA_CACHE_SIZE is 0"
    used, free = _size(root), _free(root)
    return f"compiled code is kept in {root} ({used >> 20} MB; {free >> 20} MB are free there)"


def _fault(folder: str) -> str:
    """Why nothing can be stored in a folder, or an empty string."""
    why = folder_fault(folder)
    if why:
        return why
    probe = os.path.join(folder, f"doctor-{os.getpid()}.part")
    try:
        write_whole(probe, [bytes(4096)])
        os.unlink(probe)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _size(folder: str) -> int:
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found += os.lstat(os.path.join(place, name)).st_size
    return found


def _free(folder: str) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize

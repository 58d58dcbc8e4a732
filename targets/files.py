"""Cache files: written atomically, in a folder that only this user can write to, up to a size.

The contents of such a folder are executed, so a folder is used only if no other user can have
written to it. If others can, or if this process cannot write there, nothing is kept. One warning
says so; results are the same.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from functools import cache

FOREIGN_WRITES = stat.S_IWGRP | stat.S_IWOTH
TOUCH_AFTER = 3600.0
"""Seconds for which a file's recorded time of last use may be out of date."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags for reading that do not block if the path is a pipe."""
_LEFT_OVER = ".part"
_ABANDONED = 3600.0
"""Seconds after which an unfinished file is removed."""


def private_folder(path: str) -> bool:
    """Create a folder if it does not exist. Returns whether only this user can write to it."""
    return not folder_fault(path)


def folder_fault(path: str) -> str:
    """Create a folder if it does not exist. Returns why it cannot be a cache; empty if it can."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except (FileExistsError, NotADirectoryError):
        return "there is a file where a folder must be"
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "" if is_private(found, stat.S_ISDIR) else "other users can write to it"


@cache
def warn_unkept(folder: str, why: str) -> None:
    """Warn, once per process, that compiled code is not kept."""
    import logging

    logging.getLogger("strata").warning(
        "strata: compiled code is not kept in %s: %s; models still run, but are compiled again at "
        "each start (--cache DIR or $STRATA_CACHE names another folder, --cache off none)",
        folder, why)


def is_private(
    found: os.stat_result, is_kind: Callable[[int], bool] = stat.S_ISREG
) -> bool:
    """Whether this user owns it, no other user can write to it, and it is of the kind (a file)."""
    return (is_kind(found.st_mode) and not found.st_mode & FOREIGN_WRITES
            and found.st_uid == os.geteuid())


def open_private(path: str) -> int | None:
    """A private file of this user, opened for reading; None for any other, and for links."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    if is_private(os.fstat(descriptor)):
        return descriptor
    os.close(descriptor)
    return None


def private_fault(path: str) -> str:
    """Why a file is not private to this user; empty if it is."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISREG(found.st_mode):
        return "it is not a file"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "" if is_private(found) else "other users can write to it"


def read_private(path: str) -> bytes | None:
    """The contents of a private file; None if there is none, or if it cannot be read."""
    descriptor = open_private(path)
    if descriptor is None:
        return None
    try:
        with open(descriptor, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def write_whole(path: str, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file aside and rename it, so that no reader sees half of it. Raises OSError."""
    import tempfile

    descriptor, aside = tempfile.mkstemp(dir=os.path.dirname(path), suffix=_LEFT_OVER)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def mark_used(path: str) -> None:
    """Record in its time of access that a file is used now, at most once an hour."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        now = time.time()
        if now - found.st_atime > TOUCH_AFTER:
            os.utime(path, ns=(int(now * 1e9), found.st_mtime_ns))


def trim(folder: str, limit: int, note: str = "") -> None:
    """Remove the least recently used files of a folder until at most `limit` bytes are left, and
    all unfinished ones. `note`: the suffix of small companion files, removed with their file.
    """
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process may trim at the same time
                about = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(about.st_mode) or (note and entry.name.endswith(note)):
                    continue
                if not entry.name.endswith(_LEFT_OVER):
                    found.append((about.st_atime, about.st_size, entry.path))
                elif time.time() - about.st_mtime > _ABANDONED:
                    os.unlink(entry.path)
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        for name in {path, path + note}:
            with contextlib.suppress(OSError):
                os.unlink(name)
        total -= size

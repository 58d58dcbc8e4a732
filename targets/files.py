"""Files of a cache: in a folder that only this user may write to, written whole, up to a size.

What lies in such a folder is executed, so a folder is used only if nobody else can have put it
there. Where that is not so, or where nothing can be written, nothing is kept, and a warning says so
once; results are the same.
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
"""Seconds for which a file that is used again keeps its time of last use."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""For reading, without waiting for the other end of a pipe that stands in a file's place."""
_LEFT_OVER = ".part"
_ABANDONED = 3600.0
"""Seconds after which a file that nobody has finished is removed."""


def private_folder(path: str) -> bool:
    """Make a folder, if there is none, and tell whether only this user can write to it."""
    return not folder_fault(path)


def folder_fault(path: str) -> str:
    """Make a folder, if there is none. Why it cannot be used as a cache; empty where it can."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except (FileExistsError, NotADirectoryError):
        return "a file stands where a folder must be"
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(found.st_mode):
        return "it is no folder"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "" if is_private(found, stat.S_ISDIR) else "other users can write to it"


@cache
def warn_unkept(folder: str, why: str) -> None:
    """Tell, once in a process, that compiled code is not kept."""
    import logging

    logging.getLogger("strata").warning(
        "strata: compiled code is not kept in %s: %s; it works all the same, but is compiled at "
        "each start (--cache DIR or $STRATA_CACHE names another folder, --cache off none)",
        folder, why)


def is_private(
    found: os.stat_result, is_kind: Callable[[int], bool] = stat.S_ISREG
) -> bool:
    """Whether it is a regular file, or of another kind, this user's, that nobody else can write."""
    return (is_kind(found.st_mode) and not found.st_mode & FOREIGN_WRITES
            and found.st_uid == os.geteuid())


def open_private(path: str) -> int | None:
    """A file of this user's, opened for reading; None for any other, and for links."""
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    if is_private(os.fstat(descriptor)):
        return descriptor
    os.close(descriptor)
    return None


def read_private(path: str) -> bytes | None:
    """The contents of a file of this user's; None if there is none, or it cannot be read."""
    descriptor = open_private(path)
    if descriptor is None:
        return None
    try:
        with open(descriptor, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return None


def write_whole(path: str, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file aside and rename it, so that nobody ever meets half of it. Raises OSError."""
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
    """Note that a file is used now, as its time of access; at most once an hour."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        now = time.time()
        if now - found.st_atime > TOUCH_AFTER:
            os.utime(path, ns=(int(now * 1e9), found.st_mtime_ns))


def trim(folder: str, limit: int, note: str = "") -> None:
    """Remove the files of a folder that were used longest ago, until the rest is within `limit`
    bytes; and what was never finished. `note`: the ending of a small file that belongs to another.
    """
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process trims, too
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

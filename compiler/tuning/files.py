"""Which files of winners a compilation uses, and their part of the cache key.

`auto`: the file in $STRATA_TUNED, or else the one that ships with the target, if any, followed by
the one in the cache, which `tune` writes. `off`: none. Anything else is a file. This module does
not open databases, since it runs at each start.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compiler.options import AUTO, OFF, TUNED_VARIABLE, cache_root

if TYPE_CHECKING:
    from compiler.options import CompileOptions

NAME = "tuned.sqlite"


def default_file(cache: str) -> str | None:
    """The file in the cache; None if there is no cache."""
    root = cache_root(cache)
    return None if root is None else os.path.join(root, NAME)


def shipped_file(target: str) -> str:
    """The path of the file that ships with a target, if there is one."""
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.join(ours, "targets", target, NAME)


def named_file(tuned: str) -> str:
    """The file named by an option or the environment, or `off` or `auto`."""
    if tuned != AUTO:
        return tuned
    return os.environ.get(TUNED_VARIABLE) or AUTO


def tuned_files(options: CompileOptions) -> list[str]:
    """The existing files; a later one takes precedence.

    An explicitly named file counts as existing.
    """
    chosen = named_file(options.tuned)
    if chosen == OFF:
        return []
    if chosen != AUTO:
        return [os.path.abspath(chosen)]
    found = [shipped_file(options.target), default_file(options.cache)]
    return [path for path in found if path is not None and os.path.isfile(path)]


def tuned_text(options: CompileOptions) -> str:
    """A text that changes with the files: paths, sizes and times, including write-ahead logs."""
    return " ".join(map(_state, tuned_files(options)))


def _state(path: str) -> str:
    parts = [path]
    for name in (path, f"{path}-wal"):
        try:
            about = os.stat(name)
        except OSError:
            continue
        if about.st_size:
            parts.append(f"{about.st_size}.{about.st_mtime_ns}")
    return " ".join(parts)

"""The dependencies of a compiled model besides the model: options, machine, and software.

They are collected at each start, before anything is loaded, and therefore only from file names,
sizes and times. If two texts are equal, compilation gives the same result.
"""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import TYPE_CHECKING

from compiler.tuning.files import tuned_text

if TYPE_CHECKING:
    from compiler.options import CompileOptions

_OURS = ("compiler", "dialects", "passes", "targets")
_IMMATERIAL = frozenset(("threads", "cache", "debug", "dump_weights", "constants"))
"""Options on which cached programs do not depend, or not through their text."""
_DISTRIBUTIONS = (".dist-info", ".egg-info")


def options_text(options: CompileOptions) -> str | None:
    """The options that determine the result of compilation.

    None if an option requests more than the program, or involves files with unknown contents.
    """
    plain = options.passes == "default" and not options.debug and options.specialize is None
    if not plain or any((options.plugins, options.schedule, options.weights, options.start,
                         options.dump_dir)):
        return None
    given = {f.name: getattr(options, f.name) for f in fields(options)}
    shown = {name: dict(sorted(value.items())) if name in ("shapes", "dims", "outcomes") else value
             for name, value in given.items() if name not in _IMMATERIAL}
    return f"{shown} {_constants_text(options)} {tuned_text(options)}"


def _constants_text(options: CompileOptions) -> str:
    """The contents of inputs that are constants."""
    if not options.constants:
        return ""
    from dialects.strata.weights import content_key

    return str({name: content_key(array) for name, array in sorted(options.constants.items())})


def software_text() -> str:
    """Strata's own files, Python, and the names and versions of all installed packages."""
    return "\n".join([sys.version, *_own_files(), *_distributions()])


def _own_files() -> list[str]:
    """The path, size and time of each of Strata's Python files."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folders, found = [os.path.join(root, package) for package in _OURS], list[str]()
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    about = entry.stat()
                    found.append(f"{entry.path} {about.st_size} {about.st_mtime_ns}")
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return sorted(found)


def _distributions() -> list[str]:
    """The packages that are installed on Python's path."""
    found: list[str] = []
    for folder in dict.fromkeys(sys.path):
        try:
            found += [n for n in os.listdir(folder or ".") if n.endswith(_DISTRIBUTIONS)]
        except OSError:  # missing, or an archive
            continue
    return sorted(found)

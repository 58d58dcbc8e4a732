"""Packages of ours, and of others that we need, which a file of the user's hides.

Python looks in the folder of the script, or the working directory, first: a `targets.py` there is
what `import targets` finds, for us as well.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

from compiler.diagnostics import Problem, StrataError

OURS = ("dialects", "passes", "targets")
THEIRS = ("xdsl", "numpy", "onnx", "llvmlite", "ml_dtypes", "rich", "google.protobuf", "triton",
          "torch")


def check_packages(names: Sequence[str] = OURS) -> None:
    """Raise StrataError where one of the packages is hidden by a file that is none of its own."""
    problems = [Problem(f"{file} hides the package '{name}'",
                        hint="rename it, or start from another folder")
                for name in names if (file := _hiding(name))]
    if problems:
        raise StrataError("a file of yours has the name of a package that Strata needs", problems)


def hidden_package(error: Exception) -> StrataError | None:
    """What an exception comes from where a file hides a package, ours or another; else None."""
    if not isinstance(error, ImportError | AttributeError):
        return None
    try:
        check_packages((*OURS, *THEIRS))
    except StrataError as found:
        return found
    return None


def _hiding(name: str) -> str:
    """The file that is found in place of a package; empty where the package is, or nothing is."""
    found = _file_of(name)
    if found is None:
        return ""
    if name in OURS:
        return "" if _folder(found) == os.path.join(_root(), name) else found
    first = os.path.realpath(sys.path[0] or os.getcwd())
    inside = os.path.dirname(os.path.realpath(found))
    if os.path.basename(found) == "__init__.py":
        inside = os.path.dirname(inside)
    return found if inside == first != _root() else ""


def _file_of(name: str) -> str | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # no package, or one that was made by hand
        spec = None
    return None if spec is None else spec.origin


def _folder(file: str) -> str:
    """The folder of a package's `__init__.py`; of another file, the file itself."""
    real = os.path.realpath(file)
    return os.path.dirname(real) if os.path.basename(real) == "__init__.py" else real


def _root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

"""Detects user files that shadow Strata's packages, or others that it needs.

Python first searches the folder of the script, or the working directory: `import targets` finds a
`targets.py` there, also inside Strata.
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
    """Raise StrataError if a foreign file shadows one of the packages."""
    problems = [Problem(f"{file} hides the package '{name}'",
                        hint="rename it, or start from another folder")
                for name in names if (file := _hiding(name))]
    if problems:
        raise StrataError("a file of yours has the name of a package that Strata needs", problems)


def hidden_package(error: Exception) -> StrataError | None:
    """The error for a file that shadows a package and so caused an exception; otherwise None."""
    if not isinstance(error, ImportError | AttributeError):
        return None
    try:
        check_packages((*OURS, *THEIRS))
    except StrataError as found:
        return found
    return None


def _hiding(name: str) -> str:
    """The file that is found instead of a package; empty if the package or nothing is found."""
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
    except (ImportError, ValueError):  # no package, or one created by hand
        spec = None
    return None if spec is None else spec.origin


def _folder(file: str) -> str:
    """The folder of a package's `__init__.py`; of another file, the file itself."""
    real = os.path.realpath(file)
    return os.path.dirname(real) if os.path.basename(real) == "__init__.py" else real


def _root() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

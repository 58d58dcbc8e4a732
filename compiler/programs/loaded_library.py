"""Loads shared libraries that the command `compile` wrote (`library.py`), without a compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from compiler.io.signature import Signature
from compiler.options import CompileOptions
from compiler.programs.entry import DAMAGE
from compiler.programs.kept import stored_code
from compiler.programs.saved import Program, refused, system_name
from compiler.version import __version__
from targets.files import private_fault
from targets.interface import TargetError
from targets.library_file import API, ELF, MARK, NoLibrary, form_of_others, read_library

_AGAIN = "compile the model here"


def is_library(path: str) -> bool:
    """Whether a file has the form of what the command `compile` writes."""
    start = _start(path)
    return start.startswith(ELF) or form_of_others(start) is not None


def _start(path: str) -> bytes:
    """The first bytes of a file. A pipe is no file: opening it would wait."""
    if not os.path.isfile(path):
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(18)
    except OSError:
        return b""


def load_library(path: str, threads: int | None) -> Program:
    """Load a shared library that `write_library` wrote.

    Raises StrataError for a file that is damaged, no library of Strata's or not private, and for
    one that does not fit this system.
    """
    real = os.path.realpath(path)
    if other := form_of_others(_start(real)):
        raise refused(path, other, "compile -o model.so writes a library that can be loaded")
    if why := private_fault(real):
        raise refused(path, why, "loading it runs machine code, which others may have changed; "
                                 "copy it from where you trust it" if "user" in why else "")
    try:
        with open(real, "rb") as file:
            facts = read_library(file.fileno())
        return _program(path, real, facts, threads)
    except (NoLibrary, TargetError) as error:
        raise refused(path, str(error), _AGAIN) from error
    except DAMAGE as error:
        raise refused(path, f"its description is not what was written: {error}", _AGAIN) from error


def _program(path: str, real: str, facts: Mapping[str, Any], threads: int | None) -> Program:
    if facts[MARK] != API:
        raise refused(path, f"it has version {facts[MARK]} of the interface, and this Strata "
                            f"({__version__}) has version {API}", _AGAIN)
    code = stored_code(str(facts["target"]))
    if code is None:
        raise refused(path, f"there is no target '{facts['target']}' that runs it", _AGAIN)
    if facts["system"] != system_name():
        raise refused(path, f"it was compiled for {facts['system']}, and this is "
                            f"{system_name()}", _AGAIN)
    if lacking := code.lacking([str(need) for need in facts["needs"]]):
        raise refused(path, "it uses instructions that this processor lacks: "
                            f"{', '.join(lacking)}", "--features avx2 compiles for most processors")
    loaded = code.load_library(real, facts, threads)
    return Program(Signature.read(facts["signature"]), dict(facts["structures"]), loaded,
                   CompileOptions(target=str(facts["target"]), threads=threads))

"""Saves compiled models in files of the user's choice, and loads them without a compiler.

    saved = exe.save("model.strata")       machine code, constants, and what they need
    exe = compiler.load("model.strata")    milliseconds; neither xDSL, LLVM nor the model is needed

The file has the form of an entry of the cache (`entry.py`): JSON and blobs of bytes with checksums,
nothing pickled. Whereas the cache compares all circumstances and compiles again, a saved program
may be moved. It therefore states what it depends on: the version of Strata, the calling convention
of native code, the system, and the instruction sets that the code may use.

Checksums find damage, not intent. What is loaded is machine code, and calling it is as dangerous as
starting a program. The file must belong to this user, and no other user may be able to write to it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from compiler.diagnostics import Problem, StrataError
from compiler.io.signature import Signature
from compiler.options import CompileOptions
from compiler.programs.entry import Damaged, Entry, read_entry, write_entry
from compiler.programs.kept import DAMAGE, stored_code
from compiler.version import __version__
from targets.files import private_fault
from targets.interface import TargetError

if TYPE_CHECKING:
    from targets.interface import Executable
    from targets.stored_code import StoredCode

_KEY = "a saved program"
"""What replaces a cache entry's key."""
_AGAIN = "compile the model here, and save that"


class Program(NamedTuple):
    """A compiled model, as `save` takes it and `load` returns it."""

    signature: Signature
    structures: Mapping[str, str]
    loaded: Executable
    options: CompileOptions


# ---------------------------------------------------------------------- saving
def save_program(program: Program, path: str) -> None:
    """Write a program to a file that only this user can write to; replaces it at once or not at
    all.

    Raises StrataError for a target whose programs cannot be saved, and for a disk that cannot be
    written.
    """
    code = stored_code(program.options.target)
    parts = None if code is None else code.parts(program.loaded)
    features = program.options.features
    needs = [] if code is None else code.needs(features)
    if code is None or parts is None or not needs:
        raise StrataError("this program cannot be saved", [Problem(_why_not(program))])
    facts = {"strata": __version__, "convention": code.convention(), "system": _system(),
             "target": program.options.target, "features": features,
             "needs": needs, "signature": program.signature.facts(),
             "structures": dict(program.structures), "code": parts[0]}
    try:
        write_entry(os.path.realpath(path), _KEY, facts, parts[1], notes=False)
    except OSError as error:
        raise StrataError(f"cannot write {path}: {error.strerror or error}") from error


def _why_not(program: Program) -> str:
    if program.options.specialize is not None:
        return "it is specialized for sizes while it runs; compile it without `specialize`"
    if program.options.target != "cpu":
        return f"programs of the target '{program.options.target}' cannot be written to a file"
    return (f"machine code for {_system()} cannot be written to a file, or its processor features "
            "are not known")


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"


# ---------------------------------------------------------------------- loading
def load_program(path: str, threads: int | None) -> Program:
    """Read a program that `save_program` wrote.

    Raises StrataError for a file that is missing, damaged, no saved program or not private, and
    for one that does not fit this Strata or this machine.
    """
    entry = _read(path)
    try:
        return _program(path, entry, threads)
    except TargetError as error:
        raise _refused(path, str(error), _AGAIN) from error
    except DAMAGE as error:
        raise _refused(path, f"its contents are not what was written: {error}", _AGAIN) from error


def _read(path: str) -> Entry:
    real = os.path.realpath(path)
    if why := private_fault(real):
        hint = ("calling it would run machine code, which others may have changed; copy it from "
                "where you trust it" if "user" in why else "")
        raise _refused(path, why, hint)
    try:
        return read_entry(real, _KEY, notes=False)
    except Damaged as error:
        raise _refused(path, str(error), "Executable.save writes such files; a model is read by "
                                         "compiler.compile") from error


def _program(path: str, entry: Entry, threads: int | None) -> Program:
    facts = entry.facts
    target, features = str(facts["target"]), facts["features"]
    if not (features is None or isinstance(features, str)):
        raise TypeError(f"features are {features!r}")
    code = stored_code(target)
    if code is None:
        raise _refused(path, f"there is no target '{target}' that runs it", _AGAIN)
    if problems := list(_misfits(facts, code)):
        raise StrataError(f"cannot load {path}", problems)
    options = CompileOptions(target=target, threads=threads, features=features)
    return Program(Signature.read(facts["signature"]), dict(facts["structures"]),
                   code.load(facts["code"], entry.blobs, threads), options)


def _misfits(facts: Mapping[str, Any], code: StoredCode) -> Iterator[Problem]:
    """What keeps the program from running here."""
    if facts["strata"] != __version__:
        yield Problem(f"it was saved by Strata {facts['strata']}, and this is {__version__}",
                      hint=_AGAIN)
    elif facts["convention"] != code.convention():
        yield Problem(f"it was saved by another build of Strata {__version__}", hint=_AGAIN)
    if facts["system"] != _system():
        yield Problem(f"it was compiled for {facts['system']}, and this is {_system()}",
                      hint=_AGAIN)
    elif lacking := code.lacking(_texts(facts["needs"])):
        yield Problem(f"it uses instructions that this processor lacks: {', '.join(lacking)}",
                      hint="features='avx2' compiles for most processors")


def _texts(values: Sequence[Any]) -> list[str]:
    return [str(value) for value in values]


def _refused(path: str, why: str, hint: str) -> StrataError:
    return StrataError(f"cannot load {path}", [Problem(why, hint=hint)])

"""Saves compiled models in files of the user's choice, and loads them without a compiler.

    saved = exe.save("model.strata")       machine code, constants, and what they need
    exe = compiler.load("model.strata")    milliseconds; neither xDSL, LLVM nor the model is needed

The file has the form of an entry of the cache (`entry.py`): JSON and blobs of bytes with checksums,
nothing pickled. Whereas the cache compares all circumstances and compiles again, a saved program
may be moved. It therefore states what it depends on: the version of Strata, the calling convention
of native code, the system, and the instruction sets that the code may use.

A model may have code of its own for sizes that the general program does not fit (`variants.py`).
What was compiled before it was saved is in the file, with one copy of constants that several of
these programs have.

Checksums find damage, not intent. What is loaded is machine code, and calling it is as dangerous as
starting a program. The file must belong to this user, and no other user may be able to write to it.
"""

from __future__ import annotations

import os
import platform
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.io.signature import Signature
from compiler.options import CompileOptions, cache_root
from compiler.programs.entry import DAMAGE, Damaged, Entry, read_entry, write_entry
from compiler.programs.kept import stored_code
from compiler.version import __version__
from targets.files import private_fault
from targets.interface import TargetError
from targets.stored_code import Loading

if TYPE_CHECKING:
    from compiler.variants import Needed
    from dialects.strata.types import Array
    from targets.interface import Executable
    from targets.stored_code import StoredCode

_KEY = "a saved program"
"""What replaces a cache entry's key."""
_NO_MODEL = ("the program comes from a file without its model, with code for the sizes that it was "
             "called with before it was saved")
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
    parts = None if code is None else code.parts(_general(program))
    features = program.options.features
    needs = [] if code is None else code.needs(features)
    if code is None or parts is None or not needs:
        raise StrataError("this program cannot be saved", [Problem(_why_not(program))])
    pool = Pool()
    pool.places(parts[1])
    others = None if program.loaded is program.loaded.general else [
        needed for n in _needed(program.loaded) if (needed := _other(code, n, pool)) is not None]
    facts = {"strata": __version__, "convention": code.convention(), "system": system_name(),
             "target": program.options.target, "features": features,
             "needs": needs, "signature": program.signature.facts(),
             "structures": dict(program.structures), "code": parts[0],
             "blobs": len(parts[1]), "others": others}
    try:
        write_entry(os.path.realpath(path), _KEY, facts, pool.blobs, notes=False)
    except OSError as error:
        raise StrataError(f"cannot write {path}: {error.strerror or error}") from error


def _general(program: Program) -> Executable:
    """What is saved first; a program that is specialized while it runs is refused."""
    return program.loaded if program.options.specialize is not None else program.loaded.general


def _needed(loaded: Executable) -> list[Needed]:
    from compiler.variants import Variants

    return loaded.needed if isinstance(loaded, Variants) else []


def _other(code: StoredCode, needed: Needed, pool: Pool) -> dict[str, Any] | None:
    """The facts about a program for certain sizes; None for one that cannot be kept."""
    parts = None if needed.program is None else code.parts(needed.program)
    return None if parts is None else {
        "decisions": needed.decisions.facts(), "reason": needed.reason, "code": parts[0],
        "blobs": pool.places(parts[1])}


class Pool:
    """Blobs of several programs, equal ones once."""

    def __init__(self) -> None:
        self.blobs: list[Array] = []
        self._by_sum: dict[tuple[int, int], list[int]] = {}

    def places(self, blobs: Sequence[Array]) -> list[int]:
        """Where the blobs are, after adding those that are new. The first program's keep their
        order.
        """
        first = not self.blobs
        return [self._place(np.ascontiguousarray(b).reshape(-1).view(np.uint8), first)
                for b in blobs]

    def _place(self, blob: Array, is_new: bool) -> int:
        known = self._by_sum.setdefault((blob.nbytes, zlib.crc32(blob.data)), [])
        for place in () if is_new else known:
            if np.array_equal(self.blobs[place], blob):
                return place
        self.blobs.append(blob)
        known.append(len(self.blobs) - 1)
        return known[-1]


def _why_not(program: Program) -> str:
    if program.options.specialize is not None:
        return "it is specialized for sizes while it runs; compile it without `specialize`"
    if program.options.interpret:
        return "it runs in an interpreter, which needs its kernels' sources and the compiler"
    if stored_code(program.options.target) is None:
        return f"programs of the target '{program.options.target}' cannot be written to a file"
    return (f"machine code for {system_name()} cannot be written to a file, or its processor "
            "features are not known")


def system_name() -> str:
    """The system for which code is compiled here."""
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
        raise refused(path, str(error), _AGAIN) from error
    except DAMAGE as error:
        raise refused(path, f"its contents are not what was written: {error}", _AGAIN) from error


def _read(path: str) -> Entry:
    real = os.path.realpath(path)
    if why := private_fault(real):
        hint = ("calling it would run machine code, which others may have changed; copy it from "
                "where you trust it" if "user" in why else "")
        raise refused(path, why, hint)
    try:
        return read_entry(real, _KEY, notes=False)
    except Damaged as error:
        raise refused(path, str(error), "Executable.save writes such files; a model is read by "
                                         "compiler.compile") from error


def _program(path: str, entry: Entry, threads: int | None) -> Program:
    facts = entry.facts
    target, features = str(facts["target"]), facts["features"]
    if not (features is None or isinstance(features, str)):
        raise TypeError(f"features are {features!r}")
    code = stored_code(target)
    if code is None:
        raise refused(path, f"there is no target '{target}' that runs it", _AGAIN)
    if problems := list(_misfits(facts, code)):
        raise StrataError(f"cannot load {path}", problems)
    options = CompileOptions(target=target, threads=threads, features=features)
    loaded = code.load(facts["code"], entry.blobs[:facts["blobs"]], _loading(options))
    program = Program(Signature.read(facts["signature"]), dict(facts["structures"]), loaded,
                      options)
    if facts["others"] is None:
        return program
    return program._replace(loaded=_with_others(path, program, entry, code))


def _with_others(path: str, program: Program, entry: Entry, code: StoredCode) -> Executable:
    """The program with those for other sizes."""
    from compiler.recompilation import Decisions, Recompiler
    from compiler.variants import Needed, Variants

    def other(facts: Mapping[str, Any]) -> Needed:
        blobs: list[Array] = [entry.blobs[place] for place in facts["blobs"]]
        return Needed(Decisions.read(facts["decisions"]), str(facts["reason"]),
                      program=code.load(facts["code"], blobs, _loading(program.options)))

    source = Recompiler(path, program.options, program.signature, program.structures, _never,
                        refused=_NO_MODEL)
    return Variants(program.loaded, source, list(map(other, entry.facts["others"])))


def _loading(options: CompileOptions) -> Loading:
    return Loading(options.threads, cache_root(options.cache))


def _never(*arguments: object) -> NoReturn:
    raise AssertionError("a program without its model is not compiled again")


def _misfits(facts: Mapping[str, Any], code: StoredCode) -> Iterator[Problem]:
    """What keeps the program from running here."""
    if facts["strata"] != __version__:
        yield Problem(f"it was saved by Strata {facts['strata']}, and this is {__version__}",
                      hint=_AGAIN)
    elif facts["convention"] != code.convention():
        yield Problem(f"it was saved by another build of Strata {__version__}", hint=_AGAIN)
    if facts["system"] != system_name():
        yield Problem(f"it was compiled for {facts['system']}, and this is {system_name()}",
                      hint=_AGAIN)
    elif lacking := code.lacking(_texts(facts["needs"])):
        why, hint = code.refusal(lacking)
        yield Problem(why, hint=hint)


def _texts(values: Sequence[Any]) -> list[str]:
    return [str(value) for value in values]


def refused(path: str, why: str, hint: str) -> StrataError:
    """The error for a file that is not loaded."""
    return StrataError(f"cannot load {path}", [Problem(why, hint=hint)])

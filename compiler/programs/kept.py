"""The cache of models in files: a later process loads them without passes, LLVM or xDSL.

    programs/entries/<key>    a compiled model (`compiler/programs/entries.py`)
    programs/records/<name>   for a path and options: the files that the model was read from, and
                              the key of what was compiled from them
    programs/contents/<hash>  for the contents of a model's file: the files that it refers to

The key is a hash of the contents of the model's files and of all circumstances. Hashing hundreds
of megabytes would dominate every start. As in ccache, a record therefore stores the inode, size
and modification times with which the contents were hashed; while these are the same, the contents
are taken to be unchanged. A file that was changed within the last seconds is hashed again, because
another change might have the same times. A model at a path without a record is hashed, and found
by its contents.

An entry that is damaged, belongs to another user, or has other circumstances counts as missing.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from compiler.options import cache_limit, cache_root
from compiler.programs.circumstances import options_text, software_text
from compiler.programs.entries import Entries, Found
from compiler.programs.entry import DAMAGE
from targets.files import (
    folder_fault,
    read_private,
    trim,
    warn_unkept,
    write_whole,
)
from targets.stored_code import Loading

if TYPE_CHECKING:
    from compiler.instrument import Instrument
    from compiler.options import CompileOptions
    from compiler.parameters import Parameters
    from compiler.programs.graphs import GraphSlot
    from targets.interface import Executable
    from targets.stored_code import StoredCode

_CODE = "stored"
"""The module of a target that stores its executables and loads them again, if it has one."""
_RESTLESS = 2.0
"""Seconds within which a file may change again without a change of its times."""
_RECORDS_LIMIT = 64 << 20
_PIECE = 1 << 22


class ModelFile(NamedTuple):
    """A file from which a model was read.

    `times`: its inode, size and times, or None while they are not reliable.
    """

    path: str
    times: list[int] | None
    contents: str

    @staticmethod
    def of(path: str) -> ModelFile:
        """The current state of a file, hashed. Raises OSError."""
        found = os.stat(path)
        contents = _hash_file(path)
        again = os.stat(path)
        young = time.time() - max(found.st_mtime, found.st_ctime) < _RESTLESS
        return ModelFile(path, None if young or _times(found) != _times(again) else _times(found),
                         contents)

    def now(self) -> ModelFile:
        """The current state of the file, hashed again only if it seems to have changed."""
        if self.times is not None and _times(os.stat(self.path)) == self.times:
            return self
        return ModelFile.of(self.path)


class Slot:
    """The cache slot of one model compiled with some options."""

    def __init__(
        self, folder: str, model: str, chosen: str, code: StoredCode, machine: str,
        loading: Loading,
    ):
        """`model`: the absolute path. `chosen`: the options as text. `machine`: the machine on
        which code depends. `loading`: how it runs.
        """
        self.folder, self.model = folder, model
        self.name = f"{zlib.crc32(os.fsencode(model)):08x}{zlib.crc32(chosen.encode()):08x}"
        self.circumstances = [chosen, machine, software_text()]
        self.entries = Entries(self._path("entries"), code, loading, cache_limit())
        self.file: ModelFile | None = None
        """The model's file, if it was hashed."""
        self.paths: list[str] = []
        """All files of the model, its own first, once it was found."""
        self.times: list[int] = []
        """The inode, size and times of the model's file before it was read."""

    # ------------------------------------------------------------------ finding
    def find(self) -> Found | None:
        """The cached program; None if there is none."""
        try:
            self.times = _times(os.stat(self.model))
            key = self._recorded() or self._by_contents()
            return None if key is None else self.entries.load(key)
        except DAMAGE:
            return None

    def _recorded(self) -> str | None:
        """The key in a record, if the model's files still have the same contents."""
        record = self._read("records", self.name)
        if record is None or (record["model"], record["circumstances"]) != (
                self.model, self.circumstances):
            return None
        known = [ModelFile(*about) for about in record["files"]]
        files = [file.now() for file in known]
        self.file, self.paths = files[0], [f.path for f in files]
        if [f.contents for f in files] != [f.contents for f in known]:
            return None
        if files != known:
            self._record(files, record["key"])
        return record["key"]

    def _by_contents(self) -> str | None:
        """The key, if a model with the same contents was compiled before, at any path."""
        if not os.path.isdir(self._path("contents")):
            return None
        self.file = self.file or ModelFile.of(self.model)
        others = self._read("contents", self.file.contents)
        if others is None:
            return None
        folder = os.path.dirname(self.model)
        files = [self.file, *(ModelFile.of(os.path.join(folder, name)) for name in others)]
        self.paths = [f.path for f in files]
        key = self._key(files)
        self._record(files, key)
        return key

    # ------------------------------------------------------------------ keeping
    def keep(
        self, paths: Sequence[str], model: Mapping[str, Any], executable: Executable,
        parameters: Parameters | None,
    ) -> None:
        """Store an executable if possible. A disk that cannot be written is reported once.

        `paths`: all files from which the model was read, its own first. `model`: facts about it.
        """
        if not paths or parameters is not None:
            return
        for kind in ("records", "contents"):
            if why := folder_fault(self._path(kind)):
                return warn_unkept(self._path(kind), why)
        with contextlib.suppress(OSError):  # a file of the model is gone
            first = ModelFile.of(self.model) if self.file is None else self.file.now()
            if _times(os.stat(self.model)) != self.times:  # it changed meanwhile
                return
            files = [first, *map(ModelFile.of, paths[1:])]
            if self.entries.write(self._key(files), model, executable):
                self._note(files)

    def _note(self, files: Sequence[ModelFile]) -> None:
        """Write down where the files lie whose program is kept."""
        self._write_json("contents", files[0].contents, self._beside(files))
        self._record(files, self._key(files))
        for kind in ("records", "contents"):
            trim(self._path(kind), _RECORDS_LIMIT)

    def _record(self, files: Sequence[ModelFile], key: str) -> None:
        self._write_json("records", self.name, {
            "model": self.model, "circumstances": self.circumstances, "key": key,
            "files": [[f.path, f.times, f.contents] for f in files]})

    # ------------------------------------------------------------------ names
    def _key(self, files: Sequence[ModelFile]) -> str:
        """The key of the program compiled from these files, independent of their location."""
        import hashlib

        contents = [f.contents for f in files]
        parts = [*self.circumstances, *contents, *self._beside(files)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _beside(self, files: Sequence[ModelFile]) -> list[str]:
        """The model's other files, as the model refers to them."""
        return [os.path.relpath(f.path, os.path.dirname(self.model)) for f in files[1:]]

    def _path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def _read(self, kind: str, name: str) -> Any:
        text = read_private(self._path(kind, name))
        return None if text is None else json.loads(text)

    def _write_json(self, kind: str, name: str, content: object) -> None:
        with contextlib.suppress(OSError):
            write_whole(self._path(kind, name), [json.dumps(content).encode()])


def slot_of(
    model: object, options: CompileOptions, instruments: Sequence[Instrument] = ()
) -> Slot | GraphSlot | None:
    """The cache slot of a model; None if it cannot be cached."""
    root, chosen = cache_root(options.cache), options_text(options)
    if root is None or chosen is None or any(i.wants_passes for i in instruments):
        return None
    identity = getattr(getattr(model, "data", None), "identity", "")  # that of a graph in memory
    if not cache_limit() or not (identity or (isinstance(model, str) and os.path.isfile(model))):
        return None
    code = stored_code(options.target)
    machine = None if code is None else code.identity()
    folder = os.path.join(root, "programs")
    if code is None or machine is None:
        return None
    if why := folder_fault(folder):
        return warn_unkept(folder, why)
    loading = Loading(options.threads, root)
    if identity:
        from compiler.programs.graphs import GraphSlot

        data: Any = getattr(model, "data", None)
        return GraphSlot(folder, data, [chosen, machine, software_text()], code, loading)
    return Slot(folder, os.path.abspath(str(model)), chosen, code, machine, loading)


def stored_code(target: str) -> StoredCode | None:
    """The module of a built-in target that stores its executables; None for all others."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    own = os.path.join(root, "targets")
    if not target.isidentifier() or not os.path.isfile(os.path.join(own, target, f"{_CODE}.py")):
        return None
    return cast("StoredCode", importlib.import_module(f"targets.{target}.{_CODE}"))


def _times(found: os.stat_result) -> list[int]:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _hash_file(path: str) -> str:
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()

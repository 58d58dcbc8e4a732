"""Reads `.pt2` files written by `torch.export.save`, without executing anything in them.

The file is a zip archive: the graph as JSON, weights as raw bytes. PyTorch's own reader unpickles
the example inputs, and whatever the file marks as pickled. This module reads the archive itself:
weights are mapped into memory, pickled ones are loaded with PyTorch's restricted unpickler, which
only creates tensors, and example inputs are not read. The graph is checked before PyTorch creates
a program from it.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.torch.files.checks import check_program
from compiler.frontend.torch.files.script import refused_archive
from compiler.frontend.torch.guards import restore_guards
from compiler.frontend.torch.library import quiet, torch_module
from compiler.io.array_files import FILE_ERRORS
from dialects.strata.mapped import READ_WHOLE
from dialects.strata.types import Array

_LOCAL_HEADER = 30
"""The number of bytes of a zip entry's header before its name. Two lengths end it."""
_BAD_FILE = (*FILE_ERRORS, KeyError, TypeError, AttributeError, RecursionError)


def read_archive(path: Path) -> Any:
    """The ExportedProgram of a file. Raises StrataError."""
    if not path.is_file():
        raise StrataError(f"there is no file {path}")
    try:
        is_small = path.stat().st_size <= READ_WHOLE
        whole = _whole(path) if is_small else np.memmap(path, np.uint8, "c")
    except (OSError, ValueError) as error:
        raise StrataError(f"cannot read {path}", [Problem(str(error))]) from None
    return _read(str(path), whole)


def _whole(path: Path) -> Array:
    return np.frombuffer(bytearray(path.read_bytes()), np.uint8)


def read_archive_bytes(name: str, data: bytes) -> Any:
    """The ExportedProgram of a file's contents. Raises StrataError."""
    return _read(name, np.frombuffer(bytearray(data), np.uint8))


def _read(name: str, whole: Array) -> Any:
    try:
        archive = Archive.open(name, whole)
        given = json.loads(archive.bytes(archive.model_file()))
        program = check_program(given, name)
        weights, constants = archive.tensors("weights"), archive.tensors("constants")
    except _BAD_FILE as error:
        raise StrataError(f"cannot read {name}", [Problem(
            f"{type(error).__name__}: {error}", hint="it must be a file that torch.export.save "
            "wrote; write it again with this version of PyTorch")]) from None
    guards = given.get("guards_code")
    return _deserialize(name, program, weights, constants,
                        cast("list[str]", guards) if isinstance(guards, list) else [])


def _deserialize(
    name: str, program: dict[str, Any], weights: Mapping[str, Any], constants: Mapping[str, Any],
    guards: Sequence[Any],
) -> Any:
    torch, serialize = torch_module(), torch_module("torch._export.serde.serialize")
    try:
        with quiet():
            typed = serialize._dict_to_dataclass(serialize.ExportedProgram, program)
            read = serialize.ExportedProgramDeserializer({}).deserialize(
                typed, dict(weights), dict(constants), None)
            restore_guards(read, guards)
            return read
    except Exception as error:  # whatever PyTorch raises for a bad file, or one of another version
        raise StrataError(f"PyTorch {torch.__version__} cannot read {name}", [Problem(
            f"{type(error).__name__}: {error}", hint="write it again with this version of "
            "PyTorch")]) from None


@dataclass
class Archive:
    """The entries of an archive. `root`: the folder in the archive that contains them all."""

    name: str
    whole: Array
    entries: dict[str, zipfile.ZipInfo]
    root: str

    @staticmethod
    def open(name: str, whole: Array) -> Archive:
        """Open an archive. Raises BadZipFile, or StrataError if torch.export.save has not written
        it.
        """
        with _file_of(whole) as stream, zipfile.ZipFile(stream) as file:
            entries = {i.filename: i for i in file.infolist()}
        root = next((n.removesuffix("archive_format") for n in entries
                     if n.endswith("archive_format")), None)
        if root is None:
            raise refused_archive(name, entries)
        return Archive(name, whole, entries, root)

    def model_file(self) -> str:
        """The entry of the only program. Raises StrataError if there is not exactly one."""
        found = [n for n in self.entries if n.startswith(f"{self.root}models/")]
        if len(found) != 1:
            raise StrataError(f"{self.name} holds {len(found)} programs; there must be one")
        return found[0].removeprefix(self.root)

    def data(self, entry: str) -> Array:
        """The bytes of an entry, which are stored without compression. Raises BadZipFile."""
        info = self.entries[self.root + entry]
        if info.compress_type != zipfile.ZIP_STORED:
            raise zipfile.BadZipFile(f"{entry} is compressed")
        ends = self.whole[info.header_offset + _LOCAL_HEADER - 4:][:4].view("<u2")
        start = info.header_offset + _LOCAL_HEADER + int(ends[0]) + int(ends[1])
        if start + info.file_size > self.whole.size:
            raise zipfile.BadZipFile(f"{entry} ends outside of the file")
        return self.whole[start:start + info.file_size]

    def bytes(self, entry: str) -> bytes:
        return self.data(entry).tobytes()

    def tensors(self, kind: str) -> dict[str, Any]:
        """The `weights` or `constants`, by the names that the program gives them."""
        model = Path(self.model_file()).stem
        folder, config = f"data/{kind}/", f"data/{kind}/{model}_{kind}_config.json"
        if self.root + config not in self.entries:
            return {}
        listed = json.loads(self.bytes(config))["config"]
        return {str(name): self._tensor(str(name), folder, cast(dict[str, Any], meta))
                for name, meta in listed.items()}

    def _tensor(self, name: str, folder: str, meta: Mapping[str, Any]) -> Any:
        torch = torch_module()
        path, shape = str(meta["path_name"]), meta.get("tensor_meta")
        if not path.startswith(("weight_", "tensor_")):
            raise StrataError(f"{self.name} is not a program that can be read safely", [Problem(
                f"'{name}' is a pickled object, and unpickling may run code")])
        if meta.get("use_pickle") or shape is None:
            tensor = self._unpickled(name, self.bytes(folder + path))
        else:
            tensor = _strided(self.data(folder + path), shape)
        return torch.nn.Parameter(tensor, False) if meta.get("is_param") else tensor

    def _unpickled(self, name: str, data: bytes) -> Any:
        """A tensor that the restricted unpickler creates. Raises StrataError for other objects."""
        torch = torch_module()
        try:
            found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, *_BAD_FILE) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StrataError(f"{self.name} is not a program that can be read safely", [Problem(
                f"weight '{name}' is pickled, and is not a plain tensor: {first}",
                hint="save the model with plain tensors as its weights")]) from None
        if not isinstance(found, torch.Tensor):
            raise StrataError(f"{self.name}: weight '{name}' is not a tensor")
        return found


def _file_of(whole: Array) -> IO[bytes]:
    """The same bytes as a file; a mapped file is opened again instead of being copied."""
    if isinstance(whole, np.memmap):
        return open(cast(Any, whole).filename, "rb")
    return io.BytesIO(whole.tobytes())


def _strided(data: Array, meta: Mapping[str, Any]) -> Any:
    """A tensor in an entry's bytes. Raises ValueError if it reaches outside of them."""
    torch = torch_module()
    serialize = torch_module("torch._export.serde.serialize")
    dtype = serialize.deserialize_scalar_type(int(meta["dtype"]))
    sizes, strides = ([int(v["as_int"]) for v in meta[key]] for key in ("sizes", "strides"))
    offset = int(meta["storage_offset"]["as_int"])
    if not data.size:
        return torch.zeros(sizes, dtype=dtype)
    if min((*sizes, *strides, offset), default=0) < 0 or data.size % dtype.itemsize:
        raise ValueError("a weight has sizes that do not fit its bytes")
    aligned = np.require(data, requirements="A") if data.ctypes.data % dtype.itemsize else data
    flat = torch.from_numpy(aligned).view(dtype)
    try:
        return torch.as_strided(flat, sizes, strides, offset)
    except RuntimeError as error:
        raise ValueError(f"a weight reaches outside of its bytes: {error}") from None

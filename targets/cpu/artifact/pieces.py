"""Writes a model as a library: its header, its C source, its constants, and what is linked of them.

    model.h, model_main.c    beside model.so, model.a or model.o
    folder                   all of these, the sources and objects, and a Makefile

Only the pieces themselves decide every byte: files have relative names while they are made, and
neither times nor names of folders are in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from targets.cpu.artifact.example import example_text
from targets.cpu.artifact.header import header_text
from targets.cpu.artifact.link import Tools, weights_assembly
from targets.cpu.artifact.ports import Ports
from targets.cpu.artifact.tables import WEIGHTS_HEAD, WEIGHTS_MARK, Constants, source_text
from targets.cpu.runtime.plan import RunPlan
from targets.interface import TargetError
from targets.library_file import API, MARK, sums_of, trailer
from targets.shipping import ARCHIVE, FOLDER, OBJECT, SHARED, Shipment

if TYPE_CHECKING:
    from dialects.strata.types import Array

INTERFACE = ("about", "bind", "call", "cancel", "create", "destroy", "error_text", "input",
             "input_count", "message", "output", "output_count", "run", "run_at", "run_bound",
             "set_signals", "set_threads", "shapes", "size", "size_count", "size_name", "version")
"""The functions of every library, after its name."""
_ALIGNMENT = 64
_MOST_INSIDE = 1 << 30
"""The most bytes of constants in a library: code reaches them by 32-bit distances."""


@dataclass(frozen=True)
class Parts:
    """A compiled model: objects of its code, and its constants in the order of the table."""

    plan: RunPlan
    objects: Sequence[bytes]
    constants: Sequence[Array]
    needs: Sequence[str]
    is_x86: bool
    facts: Mapping[str, Any]


def write_library(parts: Parts, shipment: Shipment) -> None:
    """Write a library. Raises TargetError for missing tools, and OSError for a full disk."""
    name, ports = shipment.name, Ports.of(parts.plan)
    with tempfile.TemporaryDirectory(prefix="strata-") as folder:
        tools = Tools(folder)
        constants = _write_constants(tools, parts.constants, shipment)
        about = _about(parts, shipment, tools, constants)
        weights = os.path.basename(shipment.weights) if shipment.weights else None
        tools.write(f"{name}.h", header_text(name, shipment.version, ports, weights))
        tools.write(f"{name}.c", source_text(name, shipment.version, json.dumps(about), ports,
                                             constants, parts.needs, parts.is_x86))
        tools.write("main.c", example_text(name, ports, weights))
        linked = _objects(tools, name, parts.objects, weights is None)
        _deliver(tools, linked, shipment, about)


def _objects(tools: Tools, name: str, objects: Sequence[bytes], inside: bool) -> list[str]:
    """The object of all code, and that of the constants if they are part of the library."""
    distinct = list(dict.fromkeys(objects))
    kernels = [f"kernel{k}.o" for k, _ in enumerate(distinct)]
    for file, code in zip(kernels, distinct, strict=True):
        tools.write(file, code)
    tools.join(kernels, "kernels.o", None)
    tools.compile(f"{name}.c", "runtime.o")
    tools.join(["kernels.o", "runtime.o"], f"{name}_code.o",
               [f"{name}_{function}" for function in INTERFACE])
    if not inside:
        return [f"{name}_code.o"]
    tools.write(f"{name}_constants.S", weights_assembly(f"{name}_constants",
                                                        f"{name}_constants.bin"))
    tools.compile(f"{name}_constants.S", f"{name}_constants.o")
    return [f"{name}_code.o", f"{name}_constants.o"]


# ---------------------------------------------------------------------- constants
def _write_constants(tools: Tools, arrays: Sequence[Array], shipment: Shipment) -> Constants:
    """Put the constants one after another, equal ones once, into a file."""
    flat = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
    start = WEIGHTS_HEAD if shipment.weights else 0
    offsets, kept, end = _places(flat, start)
    if shipment.weights is None:
        if end > _MOST_INSIDE:
            raise TargetError(f"the constants have {end} bytes, and at most {_MOST_INSIDE} fit "
                              "into a library; write them to a file of their own, with --weights")
        with open(tools.path(f"{shipment.name}_constants.bin"), "wb") as file:
            for piece in _pieces(kept, 0):
                file.write(piece)
        return Constants(offsets, None)
    digest = hashlib.sha256()
    for piece in _pieces(kept, start):
        digest.update(piece)
    head = WEIGHTS_MARK + end.to_bytes(8, "little") + digest.digest()
    with open(tools.path("weights"), "wb") as file:
        file.write(head + bytes(WEIGHTS_HEAD - len(head)))
        for piece in _pieces(kept, start):
            file.write(piece)
    return Constants(offsets, (end, digest.digest()))


def _places(
    flat: Sequence[Array], start: int
) -> tuple[list[int], list[tuple[int, Array]], int]:
    """Where each constant is, those that are kept with their places, and the end."""
    known: dict[bytes, int] = {}
    offsets: list[int] = []
    kept: list[tuple[int, Array]] = []
    end = start
    for array in flat:
        key = hashlib.sha256(array.data).digest()
        if key not in known:
            known[key] = end
            kept.append((end, array))
            end = -(-(end + array.size) // _ALIGNMENT) * _ALIGNMENT
        offsets.append(known[key])
    return offsets, kept, end


def _pieces(kept: Sequence[tuple[int, Array]], start: int) -> Iterator[bytes | memoryview]:
    """The contents of a file of constants from `start` on, with zeros between them."""
    for _, array in kept:
        yield array.data
        yield bytes(-array.size % _ALIGNMENT)


def _about(
    parts: Parts, shipment: Shipment, tools: Tools, constants: Constants
) -> dict[str, Any]:
    """What a library says of itself."""
    weights = None
    if constants.file is not None and shipment.weights is not None:
        size, identity = constants.file
        with open(tools.path("weights"), "rb") as file:
            sums = sums_of(file.fileno(), size)
        weights = {"file": os.path.basename(shipment.weights), "bytes": size,
                   "sha256": identity.hex(), "sums": sums}
    return {MARK: API, "name": shipment.name, "strata": shipment.version,
            "needs": list(parts.needs), "weights": weights, "constants": {
                "count": len(parts.constants), "bytes": sum(a.nbytes for a in parts.constants)},
            "c_compiler": tools.version(), **parts.facts, **shipment.facts}


# ---------------------------------------------------------------------- files
def _deliver(
    tools: Tools, linked: Sequence[str], shipment: Shipment, about: Mapping[str, Any]
) -> None:
    """Link, and put all files into their places."""
    name, folder = shipment.name, os.path.dirname(shipment.path)
    if shipment.form == FOLDER:
        folder = shipment.path
        os.makedirs(folder, exist_ok=True)
        made = {f"{name}{form}": form for form in (ARCHIVE, SHARED)}
        files = {file: os.path.join(folder, file)
                 for file in (*made, *_folder_files(tools, name))}
    else:
        made = {f"library{shipment.form}": shipment.form}
        files = {f"library{shipment.form}": shipment.path,
                 f"{name}.h": os.path.join(folder, f"{name}.h"),
                 "main.c": os.path.join(folder, f"{name}_main.c")}
    for file, form in made.items():
        _link(tools, linked, form, file, os.path.basename(files[file]), about)
    for file, path in files.items():
        _place(tools.path(file), path)
    if shipment.weights is not None:
        _place(tools.path("weights"), shipment.weights)


def _folder_files(tools: Tools, name: str) -> list[str]:
    """The pieces of which others can make the library again."""
    inside = os.path.exists(tools.path(f"{name}_constants.bin"))
    tools.write("Makefile", _makefile(name, inside))
    files = [f"{name}.h", f"{name}.c", "main.c", "kernels.o", "visible", "Makefile"]
    return [*files, f"{name}_constants.S", f"{name}_constants.bin"] if inside else files


def _makefile(name: str, inside: bool) -> str:
    constants = f" {name}_constants.o" if inside else ""
    return "\n".join([
        "# Makes the libraries again, for instance with another compiler or with sanitizers.",
        "CFLAGS ?= -O2", f"OBJECTS = {name}_code.o{constants}", "",
        f"main: main.c {name}.a", f"\t$(CC) -std=c11 -Wall $(CFLAGS) -o $@ main.c {name}.a "
        "-lm -lpthread", f"{name}_code.o: {name}.c {name}.h kernels.o",
        f"\t$(CC) -c -fPIC -std=gnu11 $(CFLAGS) -o runtime.o {name}.c",
        "\tld -r -o $@ kernels.o runtime.o", "\tobjcopy --keep-global-symbols=visible $@",
        *([f"{name}_constants.o: {name}_constants.S {name}_constants.bin",
           f"\t$(CC) -c -fPIC -o $@ {name}_constants.S"] if inside else []),
        f"{name}.a: $(OBJECTS)", "\tar rcsD $@ $(OBJECTS)", f"{name}.so: $(OBJECTS)",
        "\t$(CC) -shared -Wl,-z,noexecstack -o $@ $(OBJECTS) -lm -lpthread", ""])


def _link(
    tools: Tools, linked: Sequence[str], form: str, made: str, soname: str,
    about: Mapping[str, Any],
) -> None:
    if form == ARCHIVE:
        tools.archive(linked, made)
    elif form == OBJECT:
        tools.join(linked, made, None)
    else:
        tools.share(linked, made, soname)
        with open(tools.path(made), "r+b") as file:
            tail = trailer(file, about)
            file.seek(0, os.SEEK_END)
            file.write(tail)


def _place(made: str, path: str) -> None:
    """Put a file into its place, at once or not at all."""
    part = f"{path}.part"
    try:
        shutil.copyfile(made, part)
        os.chmod(part, os.stat(made).st_mode & 0o777)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)

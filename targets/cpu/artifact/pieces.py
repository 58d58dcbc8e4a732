"""Writes a model as a library: its header, its C source, its constants, and what is linked of them.

    model.h, model_main.c    beside model.so, model.a or model.o
    model_numpy.py           beside model.so
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
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dialects.records import dataclass
from targets.cpu.architectures import Platform
from targets.cpu.artifact.cross import (
    SUFFIXES,
    CrossTools,
    constants_assembly,
    cross_makefile,
)
from targets.cpu.artifact.demo import javascript_text, page_text
from targets.cpu.artifact.dispatch import dispatch_text, makefile_text, variant_names
from targets.cpu.artifact.example import example_text
from targets.cpu.artifact.header import header_text
from targets.cpu.artifact.link import Tools
from targets.cpu.artifact.others import OPEN, Other
from targets.cpu.artifact.ports import Ports
from targets.cpu.artifact.python_text import python_text
from targets.cpu.artifact.tables import (
    WEIGHTS_HEAD,
    Constants,
    Source,
    source_text,
)
from targets.cpu.driver.frame import ENTRY
from targets.cpu.runtime.plan import RunPlan
from targets.interface import TargetError
from targets.library_file import API, MARK, WEIGHTS_MARK, sums_of, trailer
from targets.shipping import ARCHIVE, FOLDER, FOREIGN, OBJECT, SHARED, Cargo, Shipment

if TYPE_CHECKING:
    from dialects.strata.types import Array

INTERFACE = ("about", "bind", "call", "cancel", "create", "destroy", "error_text", "input",
             "input_count", "message", "output", "output_count", "run", "run_at", "run_bound",
             "set_signals", "set_threads", "shapes", "size", "size_count", "size_name", "version")
"""The functions of every library, after its name."""
ALIGNMENT = 64
WRITTEN = 64 << 20
"""Bytes that are written at once. Linux keeps in large pages what is written at once, and maps such
a page with one fault; processors then find constants with fewer entries in their page tables."""
_MOST_INSIDE = 1 << 30
"""The most bytes of constants in a library: code reaches them by 32-bit distances."""


@dataclass(frozen=True)
class Abroad:
    """What code for another machine has besides: where it runs, and how its object is made.

    `object`: of all code, in which functions have other names and no others are seen.
    """

    platform: Platform
    object: Callable[[Mapping[str, str]], bytes]


@dataclass(frozen=True)
class Parts(Cargo):
    """A compiled model: objects of its code, and its constants in the order of the table."""

    plan: RunPlan
    objects: Sequence[bytes]
    constants: Sequence[Array]
    needs: Sequence[str]
    architecture: str
    facts: Mapping[str, Any]
    abroad: Abroad | None = None
    sized: Sequence[tuple[Mapping[str, int], Parts]] = ()
    """The same model for sizes that are fixed."""

    def beside(self, others: Sequence[tuple[Mapping[str, int], Cargo]]) -> Parts:
        sized = [(sizes, cargo) for sizes, cargo in others if isinstance(cargo, Parts)]
        return replace(self, sized=sorted(sized, key=lambda one: -len(one[0])))

    def write(self, shipment: Shipment, others: Sequence[Cargo] = ()) -> None:
        variants = [self, *(o for o in others if isinstance(o, Parts))]
        with tempfile.TemporaryDirectory(prefix="strata-") as folder:
            tools = self._tools(folder, shipment)
            _Writer(tools, shipment, sorted(variants, key=lambda v: len(v.needs))).write()

    def _tools(self, folder: str, shipment: Shipment) -> Tools:
        """The programs that make the library. Raises TargetError if they cannot make this form."""
        if self.abroad is None:
            if shipment.form in FOREIGN:
                raise TargetError(f"no library of this system is named {shipment.form}; those of "
                                  "others are made with --triple")
            self._check_page(shipment)
            return Tools(folder)
        tools, platform = CrossTools(folder, self.abroad.platform), self.abroad.platform
        own = SUFFIXES[platform.system.name]
        if shipment.form not in (own, ARCHIVE, FOLDER):
            raise TargetError(f"no library for {platform.name} is named {shipment.form or 'so'}; "
                              f"write one that ends in {own} or {ARCHIVE}, or a folder")
        if shipment.form != FOLDER:
            tools.require()
        self._check_page(shipment)
        if shipment.weights and platform.system.format in ("coff", "wasm"):
            raise TargetError(f"libraries for {platform.name} have their constants inside; they "
                              "do not map files (--weights)")
        return tools

    def _check_page(self, shipment: Shipment) -> None:
        if shipment.labels is not None and shipment.form != ".wasm":
            raise TargetError("a page for browsers runs WebAssembly: write a file that ends in "
                              ".wasm, with --triple wasm32")


class _Program(NamedTuple):
    """A program of a variant: what its functions start with, and those that it asks first."""

    name: str
    variant: int
    parts: Parts
    others: Sequence[Other]
    is_other: bool


class _Writer:
    """Writes the variants of one model, the one that needs the least first."""

    def __init__(self, tools: Tools, shipment: Shipment, variants: Sequence[Parts]):
        self.tools, self.shipment, self.variants = tools, shipment, variants
        self.name, self.ports = shipment.name, Ports.of(variants[0].plan)
        self.names = variant_names(self.name, len(variants))

    def write(self) -> None:
        tools, version = self.tools, self.shipment.version
        programs = self._programs()
        constants = write_constants(tools, [p.parts.constants for p in programs], self.shipment)
        about = _about(self.variants, self.shipment, tools, constants[0])
        weights = os.path.basename(self.shipment.weights) if self.shipment.weights else None
        for name, parts in (*((p.name, p.parts) for p in programs), (self.name, self.variants[0])):
            tools.write(f"{name}.h", header_text(name, version, Ports.of(parts.plan), weights))
        linked = [file for k, (program, held) in enumerate(zip(programs, constants, strict=True))
                  for file in self._program(program, about if k == 0 else {}, held)]
        if len(self.variants) > 1:
            tools.write(f"{self.name}.c", dispatch_text(self.name, self.names, self.ports))
            linked.append(self._compiled(f"{self.name}.c", "dispatch.o"))
        tools.write("main.c", example_text(self.name, self.ports, weights))
        library = os.path.basename(self.shipment.path) if self.shipment.form else f"{self.name}.so"
        tools.write(f"{self.name}_numpy.py", python_text(
            self.name, version, library, self.ports, weights))
        if not isinstance(tools, CrossTools):
            tools.join(linked, f"{self.name}_code.o", visible(self.name))
            linked = [f"{self.name}_code.o"]
        inside = [] if self.shipment.weights else [self._constants_object()]
        _deliver(tools, [*linked, *inside], self.shipment, about, [p.name for p in programs])

    def _programs(self) -> list[_Program]:
        """The programs of all variants, each before those that it asks first."""
        found: list[_Program] = []
        for k, (name, parts) in enumerate(zip(self.names, self.variants, strict=True)):
            others = [Other(f"{name}_s{n}", sizes, Ports.of(other.plan))
                      for n, (sizes, other) in enumerate(parts.sized)]
            found.append(_Program(name, k, parts, others, False))
            found += [_Program(other.name, k, own, (), True)
                      for other, (_, own) in zip(others, parts.sized, strict=True)]
        return found

    def _program(
        self, program: _Program, about: Mapping[str, Any], constants: Constants
    ) -> list[str]:
        """The objects of a program, of which only its functions are visible."""
        tools, name, parts = self.tools, program.name, program.parts
        tools.write(f"{name}.c", source_text(Source(
            name, program.variant, self.shipment.version, json.dumps(about), Ports.of(parts.plan),
            constants, f"{self.name}_constants", parts.needs, parts.architecture,
            name if parts.abroad else "", program.others, program.is_other)))
        if parts.abroad is not None:
            tools.write(f"{name}_kernels.o", parts.abroad.object(_own_names(name)))
            hidden = ("-fvisibility=hidden",) if name != self.name else ()
            return [f"{name}_kernels.o", self._compiled(f"{name}.c", f"{name}.o", *hidden)]
        distinct = list(dict.fromkeys(parts.objects))
        kernels = [f"kernel{n}.o" for n, _ in enumerate(distinct)]
        for file, code in zip(kernels, distinct, strict=True):
            tools.write(file, code)
        tools.join(kernels, f"{name}_kernels.o", None)
        tools.compile(f"{name}.c", "runtime.o")
        shown = [*visible(name), f"{name}_{OPEN}"]
        tools.write(f"{name}_visible", "".join(f"{s}\n" for s in shown))
        tools.join([f"{name}_kernels.o", "runtime.o"], f"{name}_variant.o", shown)
        return [f"{name}_variant.o"]

    def _compiled(self, source: str, made: str, *flags: str) -> str:
        """An object of C; without a compiler for the machine, others make it of the folder."""
        if not isinstance(self.tools, CrossTools) or self.tools.is_there:
            self.tools.compile(source, made, *flags)
        return made

    def _constants_object(self) -> str:
        """The object of the constants that are part of the library."""
        symbol, tools = f"{self.name}_constants", self.tools
        format_ = tools.platform.system.format if isinstance(tools, CrossTools) else "elf"
        tools.write(f"{symbol}.S", constants_assembly(symbol, f"{symbol}.bin", format_))
        return self._compiled(f"{symbol}.S", f"{symbol}.o")


def _own_names(name: str) -> dict[str, str]:
    """What the code of a variant for another machine calls its entry."""
    return {ENTRY: f"{name}_entry"}


def visible(name: str) -> list[str]:
    return [f"{name}_{function}" for function in INTERFACE]


# ---------------------------------------------------------------------- constants
def write_constants(
    tools: Tools, groups: Sequence[Sequence[Array]], shipment: Shipment,
    alignment: int = ALIGNMENT,
) -> list[Constants]:
    """Put the constants of all variants one after another, equal ones once, into a file."""
    flat = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for group in groups for a in group]
    start = max(WEIGHTS_HEAD, alignment) if shipment.weights else 0
    offsets, kept, end = _places(flat, start, alignment)
    identity = None
    if shipment.weights is None:
        if end > _MOST_INSIDE:
            raise TargetError(f"the constants have {end} bytes, and at most {_MOST_INSIDE} fit "
                              "into a library; write them to a file of their own, with --weights")
        sum_ = _write_file(tools.path(f"{shipment.name}_constants.bin"), b"", kept, alignment)
    else:
        digest = hashlib.sha256()
        for piece in _pieces(kept, alignment):
            digest.update(piece)
        head = WEIGHTS_MARK + end.to_bytes(8, "little") + (identity := digest.digest())
        sum_ = _write_file(
            tools.path("weights"), head + bytes(start - len(head)), kept, alignment)
    given = iter(offsets)
    return [Constants([next(given) for _ in group], end, identity, sum_) for group in groups]


def _write_file(
    path: str, head: bytes, kept: Sequence[tuple[int, Array]], alignment: int
) -> int:
    """Write a file of constants. Returns its checksum."""
    total = 0
    with open(path, "wb") as file:
        for piece in (head, *_pieces(kept, alignment)):
            file.write(piece)
            total = zlib.crc32(piece, total)
    return total


def _places(
    flat: Sequence[Array], start: int, alignment: int
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
            end = -(-(end + array.size) // alignment) * alignment
        offsets.append(known[key])
    return offsets, kept, end


def _pieces(kept: Sequence[tuple[int, Array]], alignment: int) -> Iterator[bytes | memoryview]:
    """The contents of a file of constants, with zeros between them."""
    for _, array in kept:
        yield array.data
        yield bytes(-array.size % alignment)


def _about(
    variants: Sequence[Parts], shipment: Shipment, tools: Tools, constants: Constants
) -> dict[str, Any]:
    """What a library says of itself."""
    first, weights = variants[0], None
    if constants.identity is not None and shipment.weights is not None:
        with open(tools.path("weights"), "rb") as file:
            sums = sums_of(file.fileno(), constants.size)
        weights = {"file": os.path.basename(shipment.weights), "bytes": constants.size,
                   "sha256": constants.identity.hex(), "sums": sums}
    return {MARK: API, "name": shipment.name, "strata": shipment.version,
            "needs": list(first.needs), "weights": weights, "constants": {
                "count": len(first.constants), "bytes": constants.size},
            "c_compiler": tools.version(), **first.facts,
            "variants": [v.facts["features"] for v in variants],
            "sizes": [dict(sizes) for sizes, _ in first.sized], **shipment.facts}


# ---------------------------------------------------------------------- files
def _deliver(
    tools: Tools, linked: Sequence[str], shipment: Shipment, about: Mapping[str, Any],
    variants: Sequence[str],
) -> None:
    """Link, and put all files into their places."""
    name, folder = shipment.name, os.path.dirname(shipment.path)
    if shipment.form == FOLDER:
        folder = shipment.path
        os.makedirs(folder, exist_ok=True)
        made = {f"{name}{form}": form for form in _forms(tools)}
        files = {file: os.path.join(folder, file)
                 for file in (*made, *_folder_files(tools, name, variants))}
    else:
        made = {f"library{shipment.form}": shipment.form}
        files = {f"library{shipment.form}": shipment.path,
                 f"{name}.h": os.path.join(folder, f"{name}.h"),
                 "main.c": os.path.join(folder, f"{name}_main.c")}
        if shipment.form == ".wasm":
            tools.write(f"{name}.mjs", javascript_text(name))
            files[f"{name}.mjs"] = os.path.join(folder, f"{name}.mjs")
        if shipment.form == SHARED:
            files[f"{name}_numpy.py"] = os.path.join(folder, f"{name}_numpy.py")
    for file, form in made.items():
        _link(tools, linked, form, file, os.path.basename(files[file]), about)
    if shipment.labels is not None:
        with open(tools.path("library.wasm"), "rb") as code:
            tools.write(f"{name}.html", page_text(name, code.read(), shipment.labels))
        files[f"{name}.html"] = os.path.join(folder, f"{name}.html")
    for file, path in files.items():
        place_file(tools.path(file), path)
    if shipment.weights is not None:
        place_file(tools.path("weights"), shipment.weights)


def _forms(tools: Tools) -> list[str]:
    """The libraries that are made into a folder."""
    if not isinstance(tools, CrossTools):
        return [ARCHIVE, SHARED]
    return [ARCHIVE, SUFFIXES[tools.platform.system.name]] if tools.is_there else []


def _folder_files(tools: Tools, name: str, variants: Sequence[str]) -> list[str]:
    """The pieces of which others can make the library again."""
    inside = os.path.exists(tools.path(f"{name}_constants.bin"))
    if isinstance(tools, CrossTools):
        tools.write("Makefile", cross_makefile(name, variants, tools.platform, inside))
        return ["main.c", "Makefile", *_sources(name, variants, inside)]
    tools.write("visible", "".join(f"{s}\n" for s in visible(name)))
    tools.write("Makefile", makefile_text(name, variants, inside))
    return ["main.c", f"{name}_numpy.py", "visible", "Makefile", *_sources(name, variants, inside),
            *(f"{variant}_visible" for variant in variants)]


def _sources(name: str, variants: Sequence[str], inside: bool) -> list[str]:
    own = [f"{name}.h", f"{name}.c"] if name not in variants else []
    constants = [f"{name}_constants.S", f"{name}_constants.bin"] if inside else []
    return [*own, *(f"{v}{end}" for v in variants for end in (".h", ".c", "_kernels.o")),
            *constants]


def _link(
    tools: Tools, linked: Sequence[str], form: str, made: str, soname: str,
    about: Mapping[str, Any],
) -> None:
    if form == ARCHIVE:
        tools.archive(linked, made)
    elif form == OBJECT:
        tools.join(linked, made, None)
    else:
        tools.share(linked, made, soname, visible(str(about["name"])))
        if form != SHARED:  # formats that end where they say
            return
        with open(tools.path(made), "r+b") as file:
            tail = trailer(file, about)
            file.seek(0, os.SEEK_END)
            file.write(tail)


def place_file(made: str, path: str) -> None:
    """Put a file into its place, at once or not at all."""
    part = f"{path}.part"
    try:
        with open(made, "rb") as source, open(part, "wb") as target:
            shutil.copyfileobj(source, target, WRITTEN)
        os.chmod(part, os.stat(made).st_mode & 0o777)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)

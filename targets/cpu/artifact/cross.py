"""Libraries for other machines: a cross compiler, and what differs between formats of objects.

The distribution's cross compiler is used if there is one (aarch64-linux-gnu-gcc), else that of the
Python package `ziglang`, or `zig`. The code of kernels is one object, made by LLVM; only its entry
is seen from outside. Without any compiler a folder can be written, which has all pieces and a
Makefile.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from targets.cpu.architectures import Platform
from targets.cpu.artifact.link import COMPILE, LIBRARIES, SHARED_FLAGS, Tools, weights_assembly
from targets.interface import TargetError

SUFFIXES: Mapping[str, str] = {
    "linux": ".so", "linux-musl": ".so", "macos": ".dylib", "windows": ".dll", "wasi": ".wasm"}
"""How the names of shared libraries end on each system."""
_ZIG: Mapping[str, str] = {"linux": "linux-gnu", "linux-musl": "linux-musl", "macos": "macos",
                           "windows": "windows-gnu", "wasi": "wasi"}
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "macho": ("    .section __TEXT,__const", "    .globl _{0}", "    .private_extern _{0}",
              "    .p2align 6", "_{0}:", '    .incbin "{1}"', "    .byte 0"),
    "coff": ('    .section .rdata,"dr"', "    .globl {0}", "    .p2align 6", "{0}:",
             '    .incbin "{1}"', "    .byte 0"),
    "wasm": ('    .section .rodata.{0},"",@', "    .hidden {0}", "    .globl {0}",
             "    .type {0},@object", "    .p2align 6", "{0}:", '    .incbin "{1}"', "    .int8 0",
             "    .size {0}, . - {0}")}
"""A section of constants in each format but ELF, with the places of its symbol and its file."""


class CrossTools(Tools):
    """A C compiler and an archiver for another machine; neither, if there is none here."""

    def __init__(self, folder: str, platform: Platform):
        self.folder, self.platform = folder, platform
        gnu = f"{platform.architecture.name}-linux-gnu-"
        found = zig_command()
        self.cc, self.ar = [], []
        if platform.system.name == "linux" and shutil.which(f"{gnu}gcc"):
            self.cc, self.ar = [f"{gnu}gcc"], [f"{gnu}ar"]
        elif found:
            self.cc = [*found, "cc", "-target", self._zig_target()]
            self.ar = [*found, "ar"]

    def _zig_target(self) -> str:
        return f"{self.platform.architecture.name}-{_ZIG[self.platform.system.name]}"

    @property
    def is_there(self) -> bool:
        """Whether there is a compiler."""
        return bool(self.cc)

    def version(self) -> str:
        return super().version() if self.cc else "none"

    def require(self) -> None:
        """Raises TargetError if there is no compiler."""
        if not self.cc:
            raise TargetError(
                f"there is no C compiler for {self.platform.name} here; install the Python package "
                "ziglang or the distribution's cross compiler, or write a folder (-o model), which "
                "needs none")

    def compile(self, source: str, made: str, *flags: str) -> None:
        plain = self.platform.system.format in ("coff", "wasm")
        given = [flag for flag in COMPILE if not (plain and flag == "-fPIC")]
        self._run([*self.cc, *given, *flags, source, "-o", made])

    def archive(self, objects: Sequence[str], made: str) -> None:
        self._run([*self.ar, "rcsD", made, *objects])

    def share(
        self, objects: Sequence[str], made: str, soname: str, visible: Sequence[str] = ()
    ) -> None:
        match self.platform.system.format:
            case "elf":
                flags = [*SHARED_FLAGS, f"-Wl,-soname,{soname}"]
                libraries = LIBRARIES
            case "macho":
                flags, libraries = ["-shared", f"-Wl,-install_name,@rpath/{soname}"], ()
            case "coff":
                flags, libraries = ["-shared"], ()
            case _:
                names = (*visible, "malloc", "free")
                flags = ["-mexec-model=reactor", *(f"-Wl,--export={n}" for n in names)]
                libraries = ()
        self._run([*self.cc, "-O2", "-s", *flags, "-o", made, *objects, *libraries])


def zig_command() -> list[str]:
    """The words that start Zig: a program, or the package `ziglang`; none if there is neither."""
    program = os.environ.get("ZIG") or shutil.which("zig")
    if program:
        return [program]
    return [sys.executable, "-m", "ziglang"] if importlib.util.find_spec("ziglang") else []


def constants_assembly(symbol: str, file: str, format_: str) -> str:
    """A section of constants, in the assembly of a format of objects."""
    if format_ == "elf":
        return weights_assembly(symbol, file)
    return "\n".join([*(line.format(symbol, file) for line in _SECTIONS[format_]), ""])


def cross_makefile(name: str, variants: Sequence[str], platform: Platform, inside: bool) -> str:
    """A Makefile that makes an archive of a folder's pieces."""
    plain = platform.system.format in ("coff", "wasm")
    objects = [o for v in variants for o in (f"{v}_kernels.o", f"{v}.o")]
    objects += [f"{name}.o"] * (name not in variants) + [f"{name}_constants.o"] * inside
    lines = [f"# Makes an archive for {platform.triple}. CC and AR are programs for that system,",
             "# such as those of its cross compiler, or: make CC='zig cc -target "
             f"{platform.architecture.name}-{_ZIG[platform.system.name]}' AR='zig ar'",
             "CFLAGS ?= -O2", "", f"{name}.a: {' '.join(objects)}", "\t$(AR) rcs $@ $^",
             "%.o: %.c", f"\t$(CC) -c {'' if plain else '-fPIC '}-std=gnu11 $(CFLAGS) -o $@ $<"]
    lines += [f"{name}_constants.o: {name}_constants.S {name}_constants.bin",
              "\t$(CC) -c -o $@ $<"] if inside else []
    return "\n".join([*lines, ""])

"""Objects, archives and shared libraries, made by the system's C compiler, linker and archiver.

LLVM makes the code of kernels. What runs around it is C (`tables.py`), because whoever links a
model needs the system's linker anyway, which comes with a C compiler; because it can be read; and
because it can be compiled again, for another C library or with sanitizers. All code becomes one
object, of which only the interface is visible, so that models do not see each other's symbols.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from targets.interface import TargetError

CC_VARIABLE = "CC"
COMPILE = ("-c", "-O2", "-fPIC", "-std=gnu11", "-Wall", "-fno-ident", "-g0")
LIBRARIES = ("-lm", "-lpthread")
SHARED_FLAGS = ("-shared", "-Wl,-z,noexecstack", "-Wl,-z,defs", "-Wl,-z,relro",
                "-Wl,--build-id=none", "-Wl,--hash-style=gnu", "-Wl,-O1", "-Wl,--as-needed",
                "-Wl,-Bsymbolic")


class Tools:
    """The programs that link. Raises TargetError for those that are missing."""

    def __init__(self, folder: str):
        """`folder`: where intermediate files are, by relative names only."""
        self.folder = folder
        self.cc = _found(shlex.split(os.environ.get(CC_VARIABLE) or "cc"))
        self.ld, self.objcopy, self.ar = ([*_found([n])] for n in ("ld", "objcopy", "ar"))

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def write(self, name: str, content: str | bytes) -> None:
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        with open(self.path(name), "wb") as file:
            file.write(data)

    def version(self) -> str:
        """The C compiler and its version."""
        return self._run([*self.cc, "--version"]).splitlines()[0]

    def compile(self, source: str, made: str, *flags: str) -> None:
        """Compile C or assembly."""
        self._run([*self.cc, *COMPILE, *flags, source, "-o", made])

    def join(self, objects: Sequence[str], made: str, visible: Sequence[str] | None) -> None:
        """One object of several. `visible`: the symbols that others see; None: unchanged."""
        self._run([*self.ld, "-r", "-z", "noexecstack", "-o", made, *objects])
        if visible is not None:
            self.write("visible", "".join(f"{name}\n" for name in visible))
            self._run([*self.objcopy, "--keep-global-symbols=visible", made])

    def archive(self, objects: Sequence[str], made: str) -> None:
        """A static library, without times and owners of files."""
        self._run([*self.ar, "rcsD", made, *objects])

    def share(
        self, objects: Sequence[str], made: str, soname: str, visible: Sequence[str] = ()
    ) -> None:
        """A shared library, for which nothing may be missing but the C library. `visible`: what it
        must show, where libraries do not show all that their objects do."""
        self._run([*self.cc, *SHARED_FLAGS, f"-Wl,-soname,{soname}", "-o", made, *objects,
                   *LIBRARIES])

    def _run(self, command: Sequence[str]) -> str:
        try:
            done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                                  errors="replace", check=False,
                                  env={**os.environ, "LC_ALL": "C"})
        except OSError as error:
            raise TargetError(f"cannot start {command[0]}: {error.strerror or error}") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise TargetError(f"{os.path.basename(command[0])} failed with status "
                              f"{done.returncode}: {' '.join(lines[:3])}")
        return done.stdout


def _found(command: Sequence[str]) -> list[str]:
    path = shutil.which(command[0]) if command else None
    if path is None:
        raise TargetError(f"there is no program {' '.join(command)!r}; a library needs the "
                          "system's C compiler and linker, such as the packages gcc and binutils")
    return [path, *command[1:]]


def weights_assembly(symbol: str, file: str) -> str:
    """A section of constants: the contents of a file, visible inside one library only."""
    return "\n".join([
        f"    .section .rodata.{symbol},\"a\",%progbits", f"    .globl {symbol}",
        f"    .hidden {symbol}", f"    .type {symbol}, %object", "    .balign 64", f"{symbol}:",
        f"    .incbin \"{file}\"", "    .byte 0", f"    .size {symbol}, . - {symbol}",
        "    .section .note.GNU-stack,\"\",%progbits", ""])

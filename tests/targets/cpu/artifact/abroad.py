"""Models for other machines: compiled here, and run in an emulator or in Node."""

from __future__ import annotations

import io
import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dialects.strata.array_type import dtype_named
from dialects.strata.types import Array
from targets.cpu.artifact.c_text import DTYPES
from targets.cpu.artifact.cross import zig_command
from tests import processes

HERE = Path(__file__).parent
BYTES = {number: size for number, _, size in DTYPES.values()}


class Abroad(NamedTuple):
    """A machine: its triple, its features, and the words that start its programs here."""

    triple: str
    features: str
    runner: tuple[str, ...]

    @property
    def name(self) -> str:
        """Triple, features, and what the emulator is told."""
        return " ".join((f"{self.triple}-{self.features}", *self.runner[2:]))

    @property
    def is_there(self) -> bool:
        """Whether this machine can compile and run programs of that one."""
        return bool(zig_command()) and shutil.which(self.runner[0]) is not None

    @property
    def is_wasm(self) -> bool:
        return self.triple.startswith("wasm")


def emulator(architecture: str, *arguments: str) -> tuple[str, ...]:
    """QEMU for programs, under the name that it has here."""
    names = (f"qemu-{architecture}-static", f"qemu-{architecture}")
    return (next(filter(shutil.which, names), names[0]), *arguments)


MACHINES = [
    Abroad("aarch64-linux-musl", "baseline", emulator("aarch64")),
    Abroad("aarch64-linux-musl", "dotprod", emulator("aarch64", "-cpu", "max")),
    Abroad("aarch64-linux-musl", "i8mm", emulator("aarch64", "-cpu", "max")),
    Abroad("aarch64-linux-musl", "sve256", emulator("aarch64", "-cpu", "max,sve256=on")),
    Abroad("riscv64-linux-musl", "baseline", emulator("riscv64")),
    Abroad("riscv64-linux-musl", "v", emulator("riscv64", "-cpu", "rv64,v=true,vlen=128")),
    Abroad("wasm32", "simd128", ("node",)),
    Abroad("wasm32", "baseline", ("node",)),
]
LONGER = [
    *(Abroad("aarch64-linux-musl", "sve256", emulator("aarch64", "-cpu", f"max,sve{bits}=on"))
      for bits in (512, 2048)),
    *(Abroad("riscv64-linux-musl", "v", emulator("riscv64", "-cpu", f"rv64,v=true,vlen={bits}"))
      for bits in (256, 1024))]
"""Machines whose vectors are longer than those for which the code was made."""
each_machine = pytest.mark.parametrize(
    "machine", [pytest.param(m, id=f"{m.triple}-{m.features}", marks=pytest.mark.skipif(
        not m.is_there, reason=f"there is no Zig or no {m.runner[0]}")) for m in MACHINES])


class EmulatorFault(Exception):
    """QEMU failed an assertion of its own."""


def run_abroad(
    machine: Abroad, folder: Path, name: str, inputs: Sequence[Array], limit: float = 300
) -> list[Array]:
    """The outputs of a library in a folder: name.a and name.h, or name.wasm and name.mjs.

    `limit`: the seconds after which it is stopped. Skips the test if QEMU fails.
    """
    try:
        return outputs_of(machine, program_of(machine, folder, name), inputs, limit)
    except EmulatorFault as fault:
        pytest.skip(str(fault))


def outputs_of(
    machine: Abroad, program: Sequence[str], inputs: Sequence[Array], limit: float = 300
) -> list[Array]:
    """The outputs of a program. Raises EmulatorFault, and AssertionError if it fails itself."""
    done = processes.run([*machine.runner, *program], input=pack(inputs), capture_output=True,
                         limit=limit)
    text = done.stderr.decode(errors="replace")
    if "translate.c" in text and "Assertion" in text:
        raise EmulatorFault(f"QEMU failed an assertion of its own: {text.splitlines()[-1]}")
    assert done.returncode == 0, text
    return unpack(done.stdout)


def program_of(machine: Abroad, folder: Path, name: str) -> list[str]:
    """The words that start a library on a machine, after those of its emulator."""
    if machine.is_wasm:
        return [str(HERE / "feed.mjs"), str(folder / f"{name}.mjs"), str(folder / f"{name}.wasm")]
    return [str(_linked(machine, folder, name))]


def _linked(machine: Abroad, folder: Path, name: str) -> Path:
    write_headers(folder, name)
    program = folder / f"{name}_program"
    done = processes.run(
        [*zig_command(), "cc", "-target", machine.triple, "-static", "-O1",
         f"-I{folder}", '-DHEADER="own.h"', f"-DCALL(f)={name}_##f", str(HERE / "feed.c"),
         str(folder / f"{name}.a"), "-o", str(program), "-lm"],
        capture_output=True, text=True, limit=600, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return program


def write_headers(folder: Path, name: str) -> None:
    """The header that `feed.c` includes: a model's own, and the bytes of each dtype."""
    sizes = ", ".join(str(BYTES.get(k, 1)) for k in range(max(BYTES) + 1))
    (folder / "own.h").write_text(
        f'#include "{name}.h"\nstatic const int BYTES[] = {{{sizes}}};\n')


def name_of(element: str) -> str:
    """NumPy's name of an element type."""
    special = {"bf16": "bfloat16", "i1": "bool", "index": ""}
    if element in special:
        return special[element]
    if "E" in element:  # f8E4M3FN is float8_e4m3fn
        return f"float{element[1]}_{element[2:].lower()}"
    kind = {"f": "float", "i": "int", "u": "uint"}[element[0]]
    return kind + element.removeprefix("ui").removeprefix("i").removeprefix("f")


def pack(arrays: Sequence[Array]) -> bytes:
    """Arrays as `feed.c` reads them."""
    file = io.BytesIO()
    for array in arrays:
        element = next(e for e in DTYPES if name_of(e) == array.dtype.name)
        file.write(struct.pack("<ii", DTYPES[element][0], array.ndim))
        file.write(struct.pack(f"<{array.ndim + 1}q", *array.shape, array.nbytes))
        file.write(np.ascontiguousarray(array).tobytes())
    return file.getvalue()


def unpack(content: bytes) -> list[Array]:
    """Arrays that `feed.c` has written."""
    elements = {number: element for element, (number, _, _) in DTYPES.items()
                if element != "index"}
    found: list[Array] = []
    at = 0
    while at < len(content):
        dtype, rank = struct.unpack_from("<ii", content, at)
        *shape, size = struct.unpack_from(f"<{rank + 1}q", content, at + 8)
        at += 16 + 8 * rank
        data = np.frombuffer(content[at: at + size], np.uint8)
        found.append(data.view(dtype_named(name_of(elements[dtype]))).reshape(shape))
        at += size
    return found

"""Instructions that only the processors of one architecture have: a room for each.

Each is a `Builder` (`emit/build.py`) that answers for its processors, by their features. What it
does not answer is done with what LLVM has for every processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from targets.cpu.emit.build import Builder
from targets.cpu.instructions.aarch64 import Aarch64
from targets.cpu.instructions.riscv64 import Riscv64
from targets.cpu.instructions.wasm32 import Wasm32
from targets.cpu.instructions.x86_64 import X86
from targets.cpu.llvm.writer import Writer
from targets.cpu.machine import Machine

_BUILDERS: Mapping[str, type[Builder]] = MappingProxyType({
    "x86_64": X86, "aarch64": Aarch64, "riscv64": Riscv64, "wasm32": Wasm32})


def builder_for(writer: Writer, machine: Machine) -> Builder:
    """A builder with the instructions of a machine."""
    return _BUILDERS.get(machine.architecture, Builder)(writer, machine)

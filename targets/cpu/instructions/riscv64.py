"""RISC-V: all that kernels need, LLVM has for every processor."""

from __future__ import annotations

from targets.cpu.emit.build import Builder


class Riscv64(Builder):
    """RV64GC, with vectors (V) or without."""

    @property
    def converts_f16(self) -> bool:
        return False  # before Zfhmin, LLVM would call functions of GCC's library

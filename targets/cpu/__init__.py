"""The CPU target; see `target.py`, and `emit/` for how kernels become LLVM text."""

from targets.cpu.target import CpuTarget

TARGET = CpuTarget("cpu", ("llvm", "asm"), "native code for this machine's processor, by LLVM")

__all__ = ["TARGET"]

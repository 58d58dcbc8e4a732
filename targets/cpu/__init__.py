"""The CPU target; see `target.py`, and `emit/` for how kernels become LLVM IR.

This folder also has the modules that run compiled models, which need no LLVM. The target object is
therefore created only on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from targets.cpu.target import CpuTarget

    TARGET: CpuTarget

__all__ = ["TARGET"]


def __getattr__(name: str) -> Any:
    if name != "TARGET":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from targets.cpu.target import CpuTarget

    globals()["TARGET"] = CpuTarget(
        "cpu", ("llvm", "asm"), "native code for this machine's processor, by LLVM")
    return globals()["TARGET"]

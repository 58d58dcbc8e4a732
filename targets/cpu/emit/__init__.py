"""From block kernels to LLVM IR with explicit vectors."""

from targets.cpu.emit.kernel import KernelText, emit_kernel, emit_kernel_text

__all__ = ["KernelText", "emit_kernel", "emit_kernel_text"]

"""Block kernels as Triton-language source: one file per group of operations."""

from targets.cuda.build.source import KernelSource, module_text
from targets.cuda.emit.context import EmitOptions
from targets.cuda.emit.kernel import emit_kernel
from targets.cuda.errors import EmitError

__all__ = ["EmitError", "EmitOptions", "KernelSource", "emit_kernel", "module_text"]

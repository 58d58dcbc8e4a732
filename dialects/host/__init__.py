"""The `host` dialect: buffers, constants and launches; the program around the kernels."""

from dialects.host.func import FuncOp, ReturnOp, host_function, host_functions
from dialects.host.ops import (
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    Launches,
    LaunchOp,
    OtherOp,
    ViewOp,
)

__all__ = [
    "AllocOp", "ConstantOp", "CopyOp", "FreeOp", "FuncOp", "LaunchOp",
    "Launches", "OtherOp",
    "ReturnOp", "ViewOp", "host_function", "host_functions",
]

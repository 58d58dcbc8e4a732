"""The `host` dialect: buffers, constants and launches; the program around the kernels."""

from dialects.host.func import FuncOp, ReturnOp, host_function, host_functions
from dialects.host.ops import (
    HOST_OPS,
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    Host,
    Launches,
    LaunchOp,
    OtherOp,
    ViewOp,
)

__all__ = [
    "HOST_OPS", "AllocOp", "ConstantOp", "CopyOp", "FreeOp", "FuncOp", "Host", "LaunchOp",
    "Launches", "OtherOp",
    "ReturnOp", "ViewOp", "host_function", "host_functions",
]

"""The `host` dialect: the program around the kernels, with buffers, constants and launches."""

from dialects.host.collective import CollectiveOp
from dialects.host.foreign import ForeignLaunchOp
from dialects.host.func import FuncOp, ReturnOp, host_function, host_functions
from dialects.host.ops import (
    AllocOp,
    ConstantOp,
    CopyOp,
    FreeOp,
    Launches,
    LaunchOp,
    OtherOp,
    PartOp,
    ViewOp,
    contents_of,
)

__all__ = [
    "AllocOp", "CollectiveOp", "ConstantOp", "CopyOp", "ForeignLaunchOp", "FreeOp", "FuncOp",
    "LaunchOp", "Launches", "OtherOp", "PartOp", "ReturnOp", "ViewOp", "contents_of",
    "host_function", "host_functions",
]

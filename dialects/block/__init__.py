"""The `block` dialect: one program of a kernel, on tiles. Both targets read it."""

from dialects.block.ops import (
    BLOCK_OPS,
    COMBINERS,
    BlockDialect,
    ConvertOp,
    DotOp,
    ForOp,
    FullOp,
    IndexOp,
    KernelOp,
    LoadOp,
    MapOp,
    ReduceOp,
    ScratchOp,
    StoreOp,
    ValidOp,
    YieldOp,
    element_type,
)

Block = BlockDialect

__all__ = [
    "BLOCK_OPS", "COMBINERS", "Block", "ConvertOp", "DotOp", "ForOp", "FullOp", "IndexOp",
    "KernelOp", "LoadOp", "MapOp", "ReduceOp", "ScratchOp", "StoreOp", "ValidOp", "YieldOp",
    "element_type",
]

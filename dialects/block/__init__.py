"""The operations of the `block` level: one program of a kernel, on tiles.

Indices are written as expressions (see `dialects.symbolic.expr`) over
- `%name`: an index value (a program id, a loop counter) or a tile of indices,
- size symbols (`batch`), which the kernel receives as integers,
- `t0`, `t1` ...: the position along dim 0, 1 ... of the tile that the operation loads or stores.

    %x = block.load %X[%r, %c + t0] check [1] pad 0.0 : tile<[64]xf32>

reads element (%r, %c + t0) for t0 in 0..63; dim 1 is checked against the buffer's size, and lanes
outside read 0.0. Since checks apply to buffer dims, they also cover the padding of convolutions.
"""

from dialects.block.dot_op import DotOp
from dialects.block.kernel_ops import ForOp, KernelOp, YieldOp
from dialects.block.memory_ops import BarrierOp, LoadOp, PrefetchOp, ScratchOp, StoreOp
from dialects.block.rank_op import AllReduceOp
from dialects.block.scan_op import ScanOp
from dialects.block.tile_ops import (
    COMBINERS,
    ConvertOp,
    FullOp,
    IndexOp,
    MapOp,
    ReduceOp,
    ValidOp,
    element_type,
)

__all__ = [
    "COMBINERS",
    "AllReduceOp",
    "BarrierOp",
    "ConvertOp",
    "DotOp",
    "ForOp",
    "FullOp",
    "IndexOp",
    "KernelOp",
    "LoadOp",
    "MapOp",
    "PrefetchOp",
    "ReduceOp",
    "ScanOp",
    "ScratchOp",
    "StoreOp",
    "ValidOp",
    "YieldOp",
    "element_type",
]

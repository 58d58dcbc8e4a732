"""`block.all_reduce` in Triton: programs send their tiles to the other ranks, and sum what arrives.

The functions are in `rank_functions.py`.
"""

from __future__ import annotations

from math import prod

from dialects.block import AllReduceOp, KernelOp
from dialects.block.programs import tile_type
from targets.cuda.emit.context import Context
from targets.cuda.emit.values import Value, check_tile, dtype_text, in_parentheses, widen
from targets.cuda.errors import EmitError


def exchanges_tiles(kernel: KernelOp) -> bool:
    """Whether programs of the kernel exchange tiles with other ranks."""
    return any(isinstance(op, AllReduceOp) for op in kernel.walk())


def emit_all_reduce(op: AllReduceOp, context: Context) -> None:
    """Raises EmitError in code that runs without a device."""
    if not context.options.has_instructions:
        raise EmitError("block.all_reduce exchanges tiles between devices: leave it to the library "
                        "with --without exchange")
    tile = tile_type(op.value)
    check_tile(tile.shape, "block.all_reduce")
    size = stride = prod(tile.shape)
    places = list[str]()
    for dim, extent in enumerate(tile.shape):
        stride //= extent
        places.append(f"{context.position(dim, tile.shape).text} * {stride}")
    element, value = dtype_text(tile.element), context.values[op.value]
    x = f"{in_parentheses(widen(value, tile.shape))}.to({element}).to(tl.float32)"
    context.helpers.add(("sum_of_ranks", ""))
    count = op.group.data.size
    text = (f"sum_of_ranks({x}, {' + '.join(places)}, {context.ranks}, {count}, {size})"
            f".to({element})")
    context.bind(op.result, Value(text, tile.shape), "sum")

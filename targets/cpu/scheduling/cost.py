"""A rough estimate of a kernel's work: register operations per program.

The driver runs a launch on one thread if the work of all its programs is less than waking the other
threads and waiting for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from xdsl.ir import Operation

from dialects import block as bl
from dialects.strata.types import TileType, byte_width
from dialects.walking import listed
from targets.cpu.emit.values import tile_chunks, unrolled_dims
from targets.cpu.machine import MatrixUnit

PARALLEL_PAYS = 10_000
"""Register operations of a launch from which several threads pay: a few microseconds."""

_UNKNOWN_TRIPS = 32
"""The assumed number of iterations of a loop whose bounds depend on sizes."""


def program_cost(kernel: bl.KernelOp, lanes: int) -> int:
    """Register operations of one program of a kernel."""
    return max(1, _cost(kernel.body.block.ops, lanes))


def _cost(ops: Iterable[Operation], lanes: int) -> int:
    return sum(_op_cost(op, lanes) for op in ops)


def _op_cost(op: Operation, lanes: int) -> int:
    match op:
        case bl.ForOp():
            span = (op.upper.data - op.lower.data).constant
            step = op.step.data.constant or 1
            trips = _UNKNOWN_TRIPS if span is None else max(0, -(-span // step))
            return trips * (1 + _cost(op.body.block.ops, lanes))
        case bl.MapOp():
            return _registers(op.result_type, lanes) * len(listed(op.body.block))
        case bl.DotOp():
            assert isinstance(op.a.type, TileType) and isinstance(op.result.type, TileType)
            whole = op.a.type.matrix or op.a.type.group is not None
            depth = 1 if whole else op.a.type.shape[-1]
            return _registers(op.result.type, lanes) * depth
        case bl.StoreOp():
            assert isinstance(op.value.type, TileType)
            return _registers(op.value.type, lanes)
        case bl.ReduceOp():
            assert isinstance(op.value.type, TileType)
            return 4 + _registers(op.value.type, lanes)
        case _:
            return sum(_registers(r.type, lanes) for r in op.results
                       if isinstance(r.type, TileType))


def _registers(type_: TileType, lanes: int) -> int:
    if type_.matrix:  # an instruction takes as long as its rows
        return -(-prod(type_.shape) * byte_width(type_.element) // MatrixUnit.row_bytes)
    unrolled = prod(type_.shape[d] for d in unrolled_dims(type_))
    return unrolled * len(tile_chunks(type_, lanes))

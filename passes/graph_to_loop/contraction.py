"""Sums of products: matrix multiplication, and helpers that it shares with convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from dialects.graph.base import Build
from dialects.graph.contraction import MatmulOp
from dialects.graph.inference import same_size
from dialects.strata.types import TensorType, tensor, wide_element
from dialects.symbolic.expr import Expr, Size
from passes.graph_to_loop.nests import (
    Domain,
    Read,
    broadcast_index,
    converted,
    make_nest,
    type_of,
)
from passes.graph_to_loop.rules import lowers
from passes.rewriting import Rewriter


def contract(
    at: Build, domain: Domain, x: Read, y: Read, result: TensorType,
    index: Sequence[Size] | None = None,
) -> SSAValue:
    """Sum the products of two reads over the reduce axes, of which there may be none.

    Products use the element type of the result; for f16 and bf16, the sum is an f32 tensor.
    """
    element = wide_element(result.element)
    combiner = "add" if any(a.reduce for a in domain.axes) else "none"
    return make_nest(at, domain, [x, y], tensor(element, result.shape),
                     lambda body, read: read[0].to(element) * read[1].to(element),
                     index=index, combiner=combiner)


@lowers(MatmulOp)
def matmul(op: MatmulOp, at: Rewriter) -> SSAValue:
    a, b, result = type_of(op.a), type_of(op.b), type_of(op.result)
    domain = Domain()
    point = domain.parallel(*result.shape)
    batch = result.rank - (a.rank > 1) - (b.rank > 1)
    row, column = _row_and_column(point[batch:], a.rank > 1)
    [k] = domain.reduce(same_size(a.shape[-1], b.shape[0 if b.rank == 1 else -2], "C4"))
    shared = (result.shape[:batch], point[:batch])
    left = broadcast_index(tensor(a.element, a.shape[:-2]), *shared)
    right = broadcast_index(tensor(b.element, b.shape[:-2]), *shared)
    total = contract(at, domain, Read(op.a, [*left, *row, k]), Read(op.b, [*right, k, *column]),
                     result)
    return converted(at, total, result.element)


def _row_and_column(rest: list[Expr], has_row: bool) -> tuple[list[Expr], list[Expr]]:
    """Split the axes after the batch axes; an operand with one dim has no such axis."""
    return (rest[:1], rest[1:]) if has_row else ([], rest)

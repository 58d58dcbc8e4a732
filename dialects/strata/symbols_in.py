"""Finds the sizes that a region uses in its types and expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, Region, SSAValue

from dialects.strata.types import ExprAttr, Shaped, SizesAttr
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol

_SIZES = (Kind.SIZE, Kind.COMPUTED)


def unnamed_sizes(
    region: Region, named: Sequence[Symbol], exprs: Sequence[Expr] = ()
) -> list[Symbol]:
    """The sorted sizes used in a kernel's body or in `exprs` that are not among `named`."""
    found = {symbol for expr in (*exprs, *_exprs_in(region)) for symbol in expr.symbols
             if symbol.kind in _SIZES}
    return sorted(found - {*named})


def _exprs_in(region: Region) -> Iterator[Expr]:
    for block in region.blocks:
        yield from _sizes_of(block.args)
        for op in block.ops:
            yield from _exprs_of(op)


def _exprs_of(op: Operation) -> Iterator[Expr]:
    yield from _sizes_of(op.results)
    for attribute in op.properties.values():
        yield from exprs_of_attribute(attribute)
    for region in op.regions:
        yield from _exprs_in(region)


def _sizes_of(values: Sequence[SSAValue]) -> Iterator[Expr]:
    for value in values:
        if isinstance(value.type, Shaped):
            yield from value.type.shape


def exprs_of_attribute(attribute: Attribute) -> Iterator[Expr]:
    """The expressions in one of Strata's attributes, including those in nested lists."""
    if isinstance(attribute, ExprAttr):
        yield attribute.data
    elif isinstance(attribute, SizesAttr):
        yield from attribute.data
    elif isinstance(attribute, ArrayAttr):
        for element in cast("ArrayAttr[Attribute]", attribute):
            yield from exprs_of_attribute(element)

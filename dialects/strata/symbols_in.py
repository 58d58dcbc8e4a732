"""Finds the sizes that a region uses in its types and expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Region, SSAValue

from dialects.strata.types import BufferType, ExprAttr, Shaped, SizesAttr, TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Kind, Symbol

_SIZES = (Kind.SIZE, Kind.COMPUTED)
_WITH_EXPRS = frozenset({ExprAttr, SizesAttr, ArrayAttr})
_SHAPED = frozenset({TensorType, BufferType})
"""Classes without subclasses: `isinstance` takes ten times as long for what is none of them."""


def unnamed_sizes(
    region: Region, named: Sequence[Symbol], exprs: Sequence[Expr] = ()
) -> list[Symbol]:
    """The sorted sizes used in a kernel's body or in `exprs` that are not among `named`."""
    found = {symbol for expr in (*exprs, *_exprs_in(region)) for symbol in expr.symbols
             if symbol.kind in _SIZES}
    return sorted(found - {*named})


def _exprs_in(region: Region) -> set[Expr]:
    """The expressions in a region's types and properties."""
    blocks, found = [*region.blocks], set[Expr]()
    while blocks:
        block = blocks.pop()
        _add_sizes(block.args, found)
        op = block.first_op
        while op is not None:
            _add_sizes(op.results, found)
            for attribute in op.properties.values():
                if type(attribute) in _WITH_EXPRS:
                    found.update(exprs_of_attribute(attribute))
            for inner in op.regions:
                blocks += inner.blocks
            op = op.next_op
    return found


def _add_sizes(values: Sequence[SSAValue], found: set[Expr]) -> None:
    for value in values:
        type_ = value.type
        if type(type_) in _SHAPED:
            found.update(cast(Shaped, type_).shape)


def exprs_of_attribute(attribute: Attribute) -> Iterator[Expr]:
    """The expressions in one of Strata's attributes, including those in nested lists."""
    if type(attribute) is ExprAttr:
        yield attribute.data
    elif type(attribute) is SizesAttr:
        yield from attribute.data
    elif isinstance(attribute, ArrayAttr):
        for element in cast("ArrayAttr[Attribute]", attribute):
            yield from exprs_of_attribute(element)

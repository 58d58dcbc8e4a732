"""Which sizes of a kernel make its memory accesses wider where they are multiples of 16.

An access is as wide as the rows of a buffer are aligned, which Triton derives from what divides
their strides. In `16*width` that is 16 for any width, and in `(width + 1) floordiv 2` it is 1, also
where 16 divides the width: code that knows more of such sizes is the same code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import gcd, prod

from dialects.strata.array_type import ArrayType
from dialects.symbolic.expr import Atom, Call, Expr
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol

KNOWN = 16
"""What variants know to divide sizes. No access is of more elements."""


def aligning_sizes(buffers: Iterable[ArrayType]) -> frozenset[Symbol]:
    """The sizes of which one more multiple of 16 aligns the rows of a buffer better."""
    return frozenset(size for stride in dict.fromkeys(_strides(buffers))
                     for size in stride.symbols if _aligns(size, stride))


def _strides(buffers: Iterable[ArrayType]) -> Iterator[Expr]:
    """The strides of all dims, in elements."""
    for buffer in buffers:
        yield from (product(buffer.shape[k:]) for k in range(1, buffer.rank))


def _aligns(size: Symbol, stride: Expr) -> bool:
    """Whether 16 elements, or fewer, divide the stride because 16 divides the size; the others may
    be multiples of 16 in either case."""
    others = stride.symbols - {size}
    return any(_aligned(stride, {size, *known}) > _aligned(stride, known)
               for known in (frozenset[Symbol](), others))


def _aligned(stride: Expr, sixteens: Collection[Symbol]) -> int:
    return gcd(power_of_two(stride, sixteens), KNOWN)


def power_of_two(expr: Expr, sixteens: Collection[Symbol]) -> int:
    """A power of two that divides an expression if 16 divides the sizes `sixteens`; 0 for 0."""
    return gcd(*((factor & -factor) * prod(_power(atom, sixteens) for atom in monomial)
                 for monomial, factor in expr.terms))


def _power(atom: Atom, sixteens: Collection[Symbol]) -> int:
    if not isinstance(atom, Call):
        return KNOWN if atom in sixteens else 1
    left, right = (power_of_two(arg, sixteens) for arg in atom.args)
    if atom.op != "floordiv":  # of both x and y, gcd(x, y) divides x mod y, max(x, y), min(x, y)
        return gcd(left, right)
    # (2**a * x) floordiv 2**b == 2**(a - b) * x
    return max(left // right, 1) if atom.args[1].constant == right else 1

"""Sums of the digits of a number, which are the number again.

    64*(x floordiv 64) + (x mod 64)                          ->  x
    64*((x floordiv 64) mod 8) + (x mod 64)                  ->  x mod 512
    56*(x floordiv 14) + 2*(x mod 14)                        ->  2*x + 28*(x floordiv 14)

The address of an element has this form where an axis runs through several dims of a tensor, which
lie one after another in memory. The last line, which windows that move by two lead to, saves one of
two divisions.
"""

from __future__ import annotations

from dialects.symbolic.expr import Call, Expr, Monomial
from dialects.symbolic.remembered import remembered


@remembered
def recomposed(expr: Expr) -> Expr:
    """The expression with digits of the same number joined, as far as they are neighbours."""
    for monomial, factor in expr.terms:
        match monomial:
            case (Call("mod", (number, base)),) if (base.constant or 0) > 0:
                low = Expr.of(factor) * (number % base)
                for other, count in expr.terms:
                    joined = _joined(number, base, other, count, factor)
                    if joined is not None:
                        rest = expr - low - Expr(((other, count),))
                        return recomposed(rest + joined * factor)
            case _:
                pass
    return expr


def _joined(
    number: Expr, base: Expr, other: Monomial, count: int, factor: int
) -> Expr | None:
    """`number mod base` and the digit beside it, `count/factor` times as much worth, as one."""
    size, high = base.constant or 0, number // base
    if Expr(((other, 1),)) == high and count % factor == 0 and abs(factor) > 1:
        return number + high * (count // factor - size)
    if count != factor * size:
        return None
    match other:
        case (Call("floordiv", _),) if Expr(((other, 1),)) == high:
            return number
        case (Call("mod", (left, right)),) if (right.constant or 0) > 0:
            above = left - high
            return (above * base + number) % (base * right) if len(above.terms) < len(
                left.terms) else None
        case _:
            return None

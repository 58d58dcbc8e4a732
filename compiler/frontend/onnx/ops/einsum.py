"""Einsum, as transposes and reductions of operands, and products of two operands at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from string import ascii_letters

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.stretching import joint
from compiler.frontend.values import Value
from dialects.graph.inference import certainly_differ
from dialects.symbolic.expr import Expr
from dialects.symbolic.size_products import product

Term = tuple[Value, str]
"""A tensor, and the letters of its dims, which are distinct."""


@onnx_op("Einsum")
def einsum(n: Node, *xs: Value) -> Value:
    inputs, output = _letters(n.text("equation"), [x.rank for x in xs])
    terms = [_diagonal(n, x, names) for x, names in zip(xs, inputs, strict=True)]
    for k in range(len(terms)):  # sum over the letters that only this operand has
        others = set(output).union(*(names for j, (_, names) in enumerate(terms) if j != k))
        terms[k] = _summed(terms[k], [c for c in terms[k][1] if c not in others])
    while len(terms) > 1:
        (x, y), rest = terms[:2], terms[2:]
        kept = set(output).union(*(names for _, names in rest))
        terms = [_product(n, x, y, kept), *rest]
    value, names = _summed(terms[0], [c for c in terms[0][1] if c not in output])
    if sorted(names) != sorted(output):
        raise Fault(f"the result of its equation '{n.text('equation')}' has a letter that no input "
                    "has, or has one twice")
    return value.transpose([names.index(c) for c in output])


def _letters(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand's dims, and of the result's. Dims of `...` get unused letters."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks) or not re.fullmatch(r"[A-Za-z,.]*", left + right):
        raise Fault(f"its equation '{equation}' does not fit {len(ranks)} inputs")
    hidden = [rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks, strict=True)]
    if any(h < 0 or (h and "..." not in part) for part, h in zip(parts, hidden, strict=True)):
        raise Fault(f"its equation '{equation}' does not fit dims {list(ranks)}")
    free = "".join(c for c in ascii_letters if c not in text)[:max(hidden, default=0)]
    inputs = [part.replace("...", free[len(free) - h:])
              for part, h in zip(parts, hidden, strict=True)]
    if arrow:
        return inputs, right.replace("...", free)
    letters = "".join(parts).replace(".", "")
    return inputs, free + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))


def _diagonal(n: Node, x: Value, names: str) -> Term:
    """Keep the diagonal of dims with the same letter: zeros elsewhere, then a sum over one dim."""
    for c in sorted(set(names)):
        while names.count(c) > 1:
            first, second = names.index(c), names.index(c, names.index(c) + 1)
            sizes = x.shape[first], x.shape[second]
            if certainly_differ(*sizes):
                raise Fault(f"dims {first} and {second} of an input have the same letter '{c}', "
                            f"but the sizes {sizes[0]} and {sizes[1]}")
            n.build.assume(sizes[0], "==", sizes[1])
            on = f.equal(n.positions(x, first), n.positions(x, second))
            x = f.where(on, x, 0)
            x = f.reduce_sum(x, axes=[second])
            names = names[:second] + names[second + 1:]
    return x, names


def _summed(term: Term, gone: Sequence[str]) -> Term:
    x, names = term
    if not gone:
        return term
    axes = sorted(names.index(c) for c in gone)
    return (f.reduce_sum(x, axes=axes), "".join(c for c in names if c not in gone))


def _product(n: Node, x: Term, y: Term, kept: set[str]) -> Term:
    """The product, summed over the letters that both have and nothing else needs.

    It is a matrix product if there are such letters.
    """
    both = [c for c in x[1] if c in y[1]]
    batch, inner = [c for c in both if c in kept], [c for c in both if c not in kept]
    if not inner:
        return _spread(x, y)
    rows, columns = ([c for c in t[1] if c not in both] for t in (x, y))
    sizes = _sizes(n, [x, y])
    left = _matrix(x, [batch, rows, inner], sizes)
    right = _matrix(y, [batch, inner, columns], sizes)
    order = [*batch, *rows, *columns]
    return (left @ right).reshape([sizes[c] for c in order]), "".join(order)


def _matrix(
    term: Term, groups: Sequence[Sequence[str]], sizes: dict[str, Expr]
) -> Value:
    """The tensor with its dims in the order of the groups.

    The dims of each group are joined to one, except those of the first group.
    """
    x, names = term
    order = [c for group in groups for c in group]
    moved = x.transpose([names.index(c) for c in order]).broadcast([sizes[c] for c in order])
    batch, *others = groups
    return moved.reshape([*(sizes[c] for c in batch),
                          *(product(sizes[c] for c in group) for group in others)])


def _spread(x: Term, y: Term) -> Term:
    """The elementwise product of two tensors, broadcast to the letters of both."""
    order = x[1] + "".join(c for c in y[1] if c not in x[1])
    parts: list[Value] = []
    for value, names in (x, y):
        present = [c for c in order if c in names]
        moved = value.transpose([names.index(c) for c in present])
        sizes = iter(moved.shape)
        parts.append(moved.reshape([next(sizes) if c in names else 1 for c in order]))
    return f.product(parts), order


def _sizes(n: Node, terms: Sequence[Term]) -> dict[str, Expr]:
    """The size of each letter. A size of 1 is broadcast to the other size."""
    found: dict[str, list[Expr]] = {}
    for value, names in terms:
        for c, size in zip(names, value.shape, strict=True):
            found.setdefault(c, []).append(size)
    return {c: reduce(lambda a, b: joint(n.build, a, b).size, sizes)
            for c, sizes in found.items()}

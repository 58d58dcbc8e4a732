"""Shared by the importers of onnxruntime's own operators, domain com.microsoft.

The signatures of the operators are in `compiler/frontend/onnx/contrib_signatures.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.onnx.node import Node
from compiler.frontend.onnx.ops import onnx_op
from compiler.frontend.values import Value
from dialects.symbolic.expr import Expr, Size

DOMAIN = "com.microsoft"
SOME = range(1, 100)
"""Ranks of an input that needs at least one dim."""

Ranks = int | Collection[int] | None
"""The numbers of dims that an input may have; None: any number."""


def contrib_op(*op_types: str, ranks: tuple[Ranks, ...] = ()) -> Callable[[Any], Any]:
    """Mark a function as the importer of operators of onnxruntime's domain.

    `ranks`: the allowed ranks of the first inputs. Further inputs may have any rank.
    """
    mark = onnx_op(*op_types, domain=DOMAIN)
    return lambda function: mark(with_ranks(function, ranks))


def with_ranks(function: Any, ranks: tuple[Ranks, ...]) -> Any:
    """The function, which raises Fault if an input does not have the required rank."""
    @wraps(function)
    def checked(n: Node, *inputs: Value | None) -> Any:
        for k, (x, wanted) in enumerate(zip(inputs, ranks, strict=False)):
            allowed = (wanted,) if isinstance(wanted, int) else wanted
            if x is not None and allowed is not None and x.rank not in allowed:
                text = "some" if allowed is SOME else " or ".join(map(str, allowed))
                raise Fault(f"its input {k}, {x.type.short}, must have {text} dims")
        return function(n, *inputs)
    return checked


def total(*terms: Value | None) -> Value:
    """The sum of those terms that are given; the first one must be."""
    return f.total(v for v in terms if v is not None)


def refuse(n: Node, *flags: str) -> None:
    """Raise Fault when one of these attributes is set to something other than 0."""
    for flag in flags:
        if n.integer(flag):
            raise Fault(f"{flag} = {n.integer(flag)} is not supported",
                        "export the model without it")


def refuse_inputs(**inputs: Value | None) -> None:
    """Raise Fault when one of these inputs is given."""
    for name, value in inputs.items():
        if value is not None:
            raise Fault(f"its input {name} is not supported", "export the model without it")


def fixed(n: Node, size: Size, what: str) -> int:
    """A size as a plain integer. Raises Fault when it depends on an input's sizes."""
    return n.known_ints(n.of_sizes([size]), what)[0]


def share(n: Node, size: Size, count: Size, parts: str) -> Expr:
    """The size of each of `count` equal parts of a hidden size.

    Raises Fault if they do not divide it. Sizes that are not constant are checked at run time.
    """
    size, count = Expr.of(size), Expr.of(count)
    if count.constant == 0 or (
            size.constant is not None and count.constant and size.constant % count.constant):
        raise Fault(f"{count} {parts} do not divide the hidden size {size}")
    part = size // count
    n.build.assume(size, "==", part * count)
    return part


def positive(n: Node, name: str, default: int = 0) -> int:
    """An integer attribute that must be at least 1."""
    value = n.integer(name, default)
    if value < 1:
        raise Fault(f"{name} is {value}; it must be positive")
    return value

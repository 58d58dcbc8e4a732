"""Numbers that a program computes in Python, and that are no sizes.

    x * (6.28 / x.shape[1])     ->  truediv 6.28, sym_float(m)  ->  an f64 tensor of no dims
    x * (k - 1)                 ->  sub k, 1                    ->  an i64 tensor of no dims

If all sizes in a float are constant, it is a Python float. Otherwise it is computed at run time in
f64, as in Python. In type promotion it counts as a plain number: f16[n] times it is f16[n].
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from compiler.frontend import formulas as f
from compiler.frontend.faults import Fault
from compiler.frontend.torch.core.conditions import Condition, equal
from compiler.frontend.torch.node import Node
from compiler.frontend.values import Value
from dialects.graph.base import GraphOp
from dialects.graph.elementwise import AddOp, DivOp, MaxOp, MinOp, ModOp, MulOp, PowOp, SubOp
from dialects.graph.unary import AbsOp, NegOp, SqrtOp
from dialects.strata import types as t
from dialects.symbolic.expr import Expr


@dataclass(eq=False)
class Real(Value):
    """An f64 number that is known only at run time."""


@dataclass(eq=False)
class Whole(Value):
    """An i64 number that is known only at run time, and that is no size."""


@dataclass(frozen=True)
class _Function:
    """A function of Python: on floats, and as an operation or a formula; none returns its operand.
    """

    on_floats: Callable[..., Any]
    op: type[GraphOp] | None = None
    formula: Callable[..., Value] | None = None

    def on_values(self, n: Node, values: Sequence[Value]) -> Value:
        if self.formula is not None:
            return self.formula(*values)
        return values[0] if self.op is None else n(self.op, *values)


_python: Any = operator

_FUNCTIONS: dict[str, _Function] = {
    "sym_float": _Function(float), "truediv": _Function(_python.truediv, DivOp),
    "mul": _Function(_python.mul, MulOp), "add": _Function(_python.add, AddOp),
    "sub": _Function(_python.sub, SubOp), "neg": _Function(_python.neg, NegOp),
    "mod": _Function(_python.mod, ModOp), "pow": _Function(_python.pow, PowOp),
    "floordiv": _Function(_python.floordiv, formula=f.floored_quotient),
    "abs": _Function(abs, AbsOp), "_sym_sqrt": _Function(math.sqrt, SqrtOp),
    "sym_max": _Function(max, MaxOp), "sym_min": _Function(min, MinOp),
}


def is_real(op: str, meta: Any) -> bool:
    """Whether a node computes a float from sizes. `meta`: the example value of its result."""
    return type(meta).__name__ in ("SymFloat", "float") and op in _FUNCTIONS


def real_of(n: Node, arguments: Sequence[Any]) -> Real | float:
    """The number that a node computes from sizes, floats and other such numbers. Raises Fault."""
    function = _FUNCTIONS[n.op]
    known = [_known(a) for a in arguments]
    if None not in known:
        try:
            return float(function.on_floats(*known))
        except (ArithmeticError, ValueError) as error:
            raise Fault(f"it cannot be computed for these sizes: {error}") from None
    values = [n.scalar(a, t.f64) if not isinstance(a, Value) else a.cast(t.f64) for a in arguments]
    return Real(**vars(function.on_values(n, values)))


def whole_of(n: Node, arguments: Sequence[Any]) -> Whole:
    """The number that a node computes from such integers, sizes and constants."""
    values = [a if isinstance(a, Value) else n.scalar(a, t.i64) for a in arguments]
    return Whole(**vars(_FUNCTIONS[n.op].on_values(n, values)))


def _unequal(left: Value, right: Value) -> Value:
    return ~equal(left, right)


TRUTHS: dict[str, Callable[..., Value]] = {
    "lt": _python.lt, "le": _python.le, "gt": _python.gt, "ge": _python.ge,
    "eq": equal, "ne": _unequal,
    "and_": _python.and_, "or_": _python.or_, "sym_not": _python.inv}
"""What compares such integers, and connects what that says."""


def truth_of(n: Node, arguments: Sequence[Any]) -> Value:
    """The truth value of a comparison, as i1[]. Raises Fault."""
    found = [a.value(n.build) if isinstance(a, Condition) else a for a in arguments]
    values = [a if isinstance(a, Value) else n.scalar(a, t.i64) for a in found]
    return TRUTHS[n.op](*values)


def _known(value: Any) -> float | int | None:
    """The number, if it is known at compile time, otherwise None."""
    if isinstance(value, Value):
        return None
    return value.constant if isinstance(value, Expr) else value


def check_reals(function: Callable[..., Any], given: Sequence[Any]) -> None:
    """Raise Fault if the importer needs a constant where a number is known only at run time."""
    wanted = parameters_of(function)
    for k, value in enumerate(given[:len(wanted)]):
        name, takes_tensors = wanted[k]
        parts = cast("list[Any]", value) if isinstance(value, list) else [value]
        if not takes_tensors and any(isinstance(part, Real) for part in parts):
            raise Fault(f"its {name} is computed from sizes that are open, but must be constant",
                        "fix the sizes, for instance with --dim")


@cache
def parameters_of(function: Callable[..., Any]) -> list[tuple[str, bool]]:
    """The names of an importer's parameters, and whether each may be a tensor."""
    found = list(inspect.signature(function).parameters.values())[1:]
    return [(p.name, "Operand" in str(p.annotation) or "Value" in str(p.annotation))
            for p in found if p.kind is not p.VAR_POSITIONAL]

"""PyTorch's symbolic integers as size expressions.

    s0*s1, (s0 - 1)//2 + 1          FX nodes and shapes hold such SymPy expressions
    batch*width, ...                the same over the program's size names

A symbol has the name of its `torch.export.Dim`, or else PyTorch's name, such as `s0`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add, mul
from typing import Any

from compiler.frontend.faults import Fault
from dialects.symbolic.expr import Expr, maximum, minimum


@dataclass
class Sizes:
    """Translates sizes to expressions.

    `names`: SymPy symbol -> the user's name. `fixed`: name -> the size that replaces it. `given`:
    the SymPy symbols that are sizes of inputs.
    """

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    given: Collection[str] = ()

    def __call__(self, size: Any) -> Expr:
        """The expression for an int or a SymInt.

        Raises Fault for one that depends on data, or that is not an integer.
        """
        if isinstance(size, int):
            return Expr.of(size)
        return self.expression(size.node.expr)

    def shape(self, sizes: Sequence[Any]) -> list[Expr]:
        return [self(s) for s in sizes]

    def bind(self, name: str, size: Expr) -> None:
        """Let a SymPy symbol be a size that a run reads."""
        self.fixed = {**self.fixed, self.names.get(name, name): size}

    def bind_unbacked(self, size: Any, found: Expr) -> None:
        """Let a size that depends on data be this one, if nothing else is known of it."""
        expr = getattr(getattr(size, "node", None), "expr", None)
        if expr is not None and expr.is_Symbol and is_unbacked(expr) and (
                str(expr) not in self.fixed):
            self.bind(str(expr), found)

    def symbol(self, name: str) -> Expr:
        """The size that a SymPy symbol stands for: a size by its name, or what replaces it."""
        called = self.names.get(name, name)
        if called in self.fixed:
            return self.fixed[called]
        return Expr.size(called)

    def expression(self, expr: Any) -> Expr:
        """The expression for a SymPy expression. Raises Fault if size expressions cannot represent
        it.
        """
        kind = type(expr).__name__
        if expr.is_Integer:
            return Expr.of(int(expr))
        if expr.is_Symbol:
            if is_unbacked(expr) and not {str(expr)} & {*self.given, *self.fixed}:
                raise Fault(f"it depends on the size {expr}, which depends on the data",
                            "sizes must follow from the shapes of the inputs")
            return self.symbol(str(expr))
        if kind == "Pow" and expr.exp.is_Integer and expr.exp >= 0:
            return reduce(mul, [self.expression(expr.base)] * int(expr.exp), Expr.of(1))
        if kind in ("TruncToInt", "FloorToInt", "CeilToInt"):
            return self._rounded(kind, expr.args[0])
        if kind == "Abs":
            inner = self.expression(expr.args[0])
            return maximum(inner, -inner)
        if kind not in _CALLS:
            raise Fault(f"the size {expr} contains {kind}, which is not supported in sizes")
        return reduce(_CALLS[kind], map(self.expression, expr.args))

    def _rounded(self, kind: str, quotient: Any) -> Expr:
        """A rounded quotient of sizes. It is not negative, so that truncation rounds down."""
        if type(quotient).__name__ == "IntTrueDiv":
            left, right = map(self.expression, quotient.args)
        else:
            left, right = self._fraction(quotient)
        return left.ceildiv(right) if kind == "CeilToInt" else left // right

    def _fraction(self, number: Any) -> tuple[Expr, Expr]:
        """(a, b) with number = a / b: 0.75*x + 0.5 as (3*x + 2, 4).

        The factors are short, so that floats compute the number exactly. Raises Fault for others.
        """
        kind = type(number).__name__
        if kind == "ToFloat":
            return self.expression(number.args[0]), Expr.of(1)
        if number.is_Float or number.is_Integer:
            over, under = float(number).as_integer_ratio()
            if max(abs(over), under) <= _SHORT:
                return Expr.of(over), Expr.of(under)
        if kind == "Mul" and len(number.args) == 2:
            (a, b), (c, d) = map(self._fraction, number.args)
            return a * c, b * d
        if kind == "Add" and len(number.args) == 2:
            (a, b), (c, d) = map(self._fraction, number.args)
            return a * d + c * b, b * d
        raise Fault(f"the size {number} is rounded from a fraction",
                    "fix the sizes in it, for instance with --dim")


_SHORT = 1 << 12
"""The limit of factors. Their products with sizes up to 2**40 are exact in a float."""

_CALLS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "Add": add, "Mul": mul, "Max": maximum, "Min": minimum,
    "FloorDiv": lambda a, b: a // b, "CleanDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b, "PythonMod": lambda a, b: a % b,
}


def is_unbacked(symbol: Any) -> bool:
    """Whether a SymPy symbol is a size that depends on data, such as u0."""
    return str(symbol).startswith(("u", "zuf"))


def dim_names(shape_env: Any) -> dict[str, str]:
    """SymPy symbol -> the name of the `torch.export.Dim`, for those that have one."""
    called = getattr(shape_env, "source_name_to_debug_name", {})
    places = getattr(shape_env, "source_to_var", {})
    found = {str(places[source]): str(name) for source, name in called.items() if source in places}
    return {symbol: name for symbol, name in found.items() if name.isidentifier()}

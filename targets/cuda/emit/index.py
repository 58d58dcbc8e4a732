"""Index expressions as integer arithmetic on scalars and tiles.

    128*m + t0  in a tile of 128x64      128*m + r128[:, None]

Our division rounds down, and Triton's `//` and `%` truncate. They are the same if the operand's
range shows that it is not negative; otherwise a longer form is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dialects.symbolic.expr import Call, Expr, Monomial
from dialects.symbolic.ranges import is_nonnegative
from dialects.symbolic.symbol import Symbol
from targets.cuda.emit.values import Value, broadcast, in_parentheses
from targets.expressions import Expressions

Names = Mapping[Symbol, Value]
"""The value of each symbol of an expression: sizes, `t0` ..., `%0` ...."""

_ZERO, _ONE = Expr.of(0), Expr.of(1)

_FAR = 1 << 24
"""Places of a tile that lie so far apart are told apart with 64 bits: 32 bits would not hold their
distance beside the place of the tile in its buffer. Only slices with large steps have such."""


def index_value(expr: Expr, names: Names) -> Value:
    """The expression as a value. Scalar terms come first, so that tiles are added only once."""
    return _Printer(names).value(expr)


class _Printer(Expressions[Value]):
    """Index expressions as Python text with bounds."""

    def __init__(self, names: Names):
        self.names = names

    def symbol(self, symbol: Symbol) -> Value:
        return self.names[symbol]

    def value(self, expr: Expr) -> Value:
        terms = [self._term(m, c) for m, c in expr.terms]
        if not terms:
            return Value("0", (), _ZERO, _ZERO)
        if sum(map(_reach, terms)) >= _FAR:
            terms = [self._term(m, c, is_wide=True) for m, c in expr.terms]
        terms.sort(key=lambda term: (bool(term[1].shape), term[0] < 0))
        text = ""
        for factor, value in terms:
            sign = "-" if factor < 0 else "+"
            first = value.text if factor > 0 else f"-{value.text}"
            text = f"{text} {sign} {value.text}" if text else first
        low, high = _sum_bounds(terms)
        return Value(text, broadcast([v.shape for _, v in terms]), low, high)

    def _term(
        self, monomial: Monomial, factor: int, is_wide: bool = False
    ) -> tuple[int, Value]:
        """A term as its sign and the rest; `-((-n) floordiv 64)` becomes plus `(n + 63) // 64`.

        `is_wide`: tiles are multiplied with 64 bits.
        """
        sign = 1 if factor > 0 else -1
        atoms: list[Value] = []
        for atom in monomial:
            ceiling = None if isinstance(atom, Symbol) else self._ceiling(atom)
            sign = sign if ceiling is None else -sign
            atoms.append(ceiling or self.atom(atom))
        return sign, _product(atoms, abs(factor), is_wide)

    def _ceiling(self, call: Call) -> Value | None:
        """-(a floordiv b) for a numerator a <= 0: the quotient of -a by b, rounded up."""
        if call.op != "floordiv":
            return None
        left, right = (self.value(a) for a in call.args)
        if left.high is None or not is_nonnegative(-left.high):
            return None
        low, high = _division_bounds("floordiv", left, right)
        numerator = self.value(-call.args[0] + call.args[1] - 1)
        text = _division("floordiv", numerator.atom, right.atom, plain=True)
        return Value(text, numerator.shape, _minus(high), _minus(low))

    def extremum(self, call: Call, left: Value, right: Value) -> Value:
        function = "tl.maximum" if call.op == "max" else "tl.minimum"
        low, high = _extremum_bounds(call.op, left, right)
        shape = broadcast([left.shape, right.shape])
        return Value(f"{function}({left.text}, {right.text})", shape, low, high)

    def division(self, call: Call, left: Value, right: Value) -> Value:
        low, high = _division_bounds(call.op, left, right)
        plain = left.low is not None and is_nonnegative(left.low)
        text = _division(call.op, left.atom, right.atom, plain)
        return Value(text, broadcast([left.shape, right.shape]), low, high)


def _sum_bounds(terms: list[tuple[int, Value]]) -> tuple[Expr | None, Expr | None]:
    """Bounds of a signed sum of values."""
    low: Expr | None = _ZERO
    high: Expr | None = _ZERO
    for factor, value in terms:
        least, most = (value.low, value.high) if factor > 0 else (_minus(value.high),
                                                                  _minus(value.low))
        low = None if low is None or least is None else low + least
        high = None if high is None or most is None else high + most
    return low, high


def _minus(expr: Expr | None) -> Expr | None:
    return None if expr is None else -expr


def _reach(term: tuple[int, Value]) -> int:
    """How far the last place of a tile is from the first one, by this term, if that is known."""
    _, value = term
    return (value.high.constant or 0) if value.shape and value.high is not None else 0


def _product(atoms: list[Value], factor: int, is_wide: bool = False) -> Value:
    """`factor * atom * atom ...` for a factor >= 0; has bounds if all atoms are >= 0."""
    atoms.sort(key=lambda v: bool(v.shape))
    texts = [a.atom for a in atoms]
    if factor != 1 or not texts:
        texts.insert(0, _number(factor, is_wide and any(a.shape for a in atoms)))
    if len(texts) == 1 and atoms:
        return replace(atoms[0], text=texts[0])
    low: Expr | None = Expr.of(factor)
    high: Expr | None = Expr.of(factor)
    for atom in atoms:
        usable = atom.low is not None and is_nonnegative(atom.low)
        low = low * atom.low if usable and low is not None and atom.low is not None else None
        high = high * atom.high if usable and high is not None and atom.high is not None else None
    if len(atoms) == 1 and low is None:
        low = None if atoms[0].low is None else atoms[0].low * factor
        high = None if atoms[0].high is None else atoms[0].high * factor
    return Value("*".join(texts), broadcast([a.shape for a in atoms]), low, high)


def _number(value: int, is_wide: bool = False) -> str:
    """A number as text. Beside a tile of i32, Triton would take a large number for an i32, too."""
    return f"tl.full([], {value}, tl.int64)" if is_wide or value >= 1 << 31 else str(value)


def _division(op: str, a: str, b: str, plain: bool) -> str:
    """a / b rounded down, or its remainder, for a positive b."""
    if plain:
        return f"({a} // {b})" if op == "floordiv" else f"({a} % {b})"
    remainder = f"(({a} % {b} + {b}) % {b})"
    return remainder if op == "mod" else f"(({a} - {remainder}) // {b})"


def _division_bounds(op: str, left: Value, right: Value) -> tuple[Expr | None, Expr | None]:
    """Bounds of a quotient or a remainder with a positive divisor."""
    if op == "mod":
        return _ZERO, None if right.high is None else right.high - 1
    same = right.low is not None and right.low == right.high
    if not same or right.low is None:
        return (_ZERO if left.low is not None and is_nonnegative(left.low) else None), None
    low = None if left.low is None else left.low // right.low
    high = None if left.high is None else left.high // right.low
    return low, high


def _extremum_bounds(op: str, left: Value, right: Value) -> tuple[Expr | None, Expr | None]:
    """Bounds of max(left, right) or min(left, right), if one side determines them."""
    lows, highs = (left.low, right.low), (left.high, right.high)
    if op == "max":
        low = next((x for x in lows if x is not None and is_nonnegative(x)), None)
        return low, _decided(highs, larger=True)
    return _decided(lows, larger=False), next((x for x in highs if x is not None), None)


def _decided(pair: tuple[Expr | None, Expr | None], larger: bool) -> Expr | None:
    """The larger (smaller) of two expressions, if that is certain; else None."""
    a, b = pair
    if a is None or b is None:
        return None
    if is_nonnegative(b - a):
        return b if larger else a
    if is_nonnegative(a - b):
        return a if larger else b
    return None


def inside_conditions(value: Value, size: Value) -> list[str]:
    """The comparisons that `0 <= value < size` still needs, given the known ranges."""
    conditions: list[str] = []
    if value.low is None or not is_nonnegative(value.low):
        conditions.append(f"({value.text} >= 0)")
    if not _is_below(value, size):
        conditions.append(f"({value.text} < {size.text})")
    return conditions


def _is_below(value: Value, size: Value) -> bool:
    if value.high is None or size.low is None:
        return False
    return is_nonnegative(size.low - 1 - value.high)


def size_value(expr: Expr, names: Names) -> Value:
    """A size as a value; its bounds are the size itself."""
    value = index_value(expr, names)
    return Value(value.text, (), expr, expr)


def scaled(value: Value, stride: Value) -> str:
    """`value * stride`."""
    if stride.text == "1":
        return value.text
    return f"{value.atom}*{in_parentheses(stride.text)}"

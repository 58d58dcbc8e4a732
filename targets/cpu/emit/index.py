"""Index expressions: sizes, loop counters and positions as 64-bit integer arithmetic.

The symbols of an expression given to `Indices` are LLVM names (`%k4`, `%size.batch`) and places in
a tile. Each sum is split by the depth of the loops in which its symbols are defined, and each part
is computed in its own scope.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod

from xdsl.ir import SSAValue

from dialects.strata import types as t
from dialects.symbolic.expr import Atom, Call, Expr, Monomial, Size
from dialects.symbolic.size_products import product, short_product
from dialects.symbolic.symbol import Kind, Symbol
from targets.cpu.emit.values import Reg, lane_literal, llvm_type, splat_literal
from targets.cpu.llvm.operands import Literal, Number, is_literal, register
from targets.cpu.llvm.writer import Writer
from targets.expressions import Integers

_ZERO, _ONE = Number.of(0), Number.of(1)
_NEUTRAL = {"add": splat_literal("i64", _ZERO), "mul": splat_literal("i64", _ONE)}
"""The constant vectors that change nothing."""
_ORDERS = {"max": "sgt", "min": "slt"}
"""The comparison after which the left side is taken."""


class Indices:
    """Evaluates index expressions, and knows which of them cannot be negative."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self.values: dict[SSAValue, Expr] = {}
        self.lower: dict[Symbol, Expr] = {}
        self.upper: dict[Symbol, Expr] = {}
        self.steps: dict[Symbol, int] = {}
        """The numbers of which symbols are known to be multiples, if not 1."""
        self._least: dict[Expr, int | None] = {}
        self._scalars = _Scalars(self)

    def product(self, sizes: Sequence[Expr]) -> Expr:
        """The product of sizes. If that would have many terms, each sum is first given a name."""
        short = short_product(sizes)
        return product(map(self._named, sizes)) if short is None else short

    def _named(self, size: Expr) -> Expr:
        return size if len(size.terms) < 2 else self.symbol(self.scalar(size), 0)

    def bind(self, value: SSAValue, expr: Expr) -> None:
        """Let an index value of the IR stand for an expression over LLVM names."""
        self.values[value] = expr

    def bind_number(self, value: SSAValue, name: str) -> None:
        """Let an index value that is computed stand for its register, of which nothing is known."""
        self.bind(value, Expr.of(name.value) if isinstance(name, Number) else (
            Expr.symbol(register(name))))

    def symbol(
        self, name: str, lower: Size, upper: Size | None = None, step: int = 1
    ) -> Expr:
        """A new symbol: an LLVM name whose value is at least `lower` and at most `upper`.

        `step`: a number of which it is a multiple.
        """
        symbol = register(name)
        self.lower[symbol] = Expr.of(lower)
        self.steps[symbol] = step
        if upper is not None:
            self.upper[symbol] = Expr.of(upper)
        return Expr.symbol(symbol)

    def resolve(
        self, expr: Expr, indices: Sequence[SSAValue], sizes: Mapping[Symbol, Expr]
    ) -> Expr:
        """An operation's expression over LLVM names; operands that are tiles stay `%0`, `%1`."""
        found: dict[Symbol, Size] = {}
        for symbol in expr.symbols:
            if symbol.kind is not Kind.OPERAND:
                value = sizes.get(symbol)
            else:
                value = self.values.get(indices[symbol.number])
            if value is not None:
                found[symbol] = value
        return expr.substitute(found)

    # ------------------------------------------------------------------ facts
    def is_nonnegative(self, expr: Expr) -> bool:
        """Whether expr >= 0 is certain, from the bounds of its symbols."""
        terms = expr.without_constant  # copies of an unrolled loop differ in their constants
        if terms not in self._least:
            self._least[terms] = self._least_of(terms)
        least = self._least[terms]
        return least is not None and least + expr.offset >= 0

    def _least_of(self, expr: Expr) -> int | None:
        """A number that the expression never falls below; None if none is found.

        It is what remains when every symbol is written as a bound and a natural number, and all
        other terms are natural numbers.
        """
        for _ in range(8):
            bounds = {s: self._bound(s, expr) for s in expr.symbols if s in self.lower}
            if not bounds:
                break
            expr = expr.substitute(bounds)
        natural = all(c >= 0 and all(map(self._is_natural, m))
                      for m, c in expr.without_constant.terms)
        return expr.offset if natural else None

    def multiple(self, expr: Expr) -> int:
        """A number of which expr is certainly a multiple; 0 if expr is 0."""
        return gcd(*(c * prod(self.steps.get(a, 1) for a in m if isinstance(a, Symbol))
                     for m, c in expr.terms))

    def _bound(self, symbol: Symbol, expr: Expr) -> Expr:
        """The symbol as a bound plus or minus a natural number, whichever makes expr least."""
        slack = Expr.symbol(Symbol.counter(f"@{symbol}"))
        falls = any(c < 0 for m, c in expr.terms if symbol in m)
        if falls and symbol in self.upper:
            return self.upper[symbol] - slack
        return self.lower[symbol] + slack

    def _is_natural(self, atom: Atom) -> bool:
        if isinstance(atom, Symbol):
            return atom.kind in (Kind.COUNTER, Kind.PLACE)
        left, right = atom.args
        if atom.op == "mod":
            return self.is_nonnegative(right - 1)
        if atom.op == "floordiv":
            return self.is_nonnegative(left) and self.is_nonnegative(right - 1)
        known = [self.is_nonnegative(left), self.is_nonnegative(right)]
        return any(known) if atom.op == "max" else all(known)

    # ------------------------------------------------------------------ scalars
    def depth(self, expr: Expr) -> int:
        return max((self.writer.depths.get(s.text, 0) for s in expr.symbols), default=0)

    def scalar(self, expr: Expr) -> str:
        """The value of an expression, as an i64 name or literal."""
        if expr.constant is not None:
            return Number.of(expr.constant)
        known = self.writer.computed
        if expr not in known:
            total = _ZERO
            for _, part in self.parts(expr):
                total = self._add(total, self._sum(part))
            known[expr] = self._add(total, Number.of(expr.offset))
        return known[expr]

    def parts(self, expr: Expr) -> list[tuple[int, Expr]]:
        """The terms grouped by the depth of their scope, outermost first, without the constant."""
        groups: dict[int, list[tuple[Monomial, int]]] = {}
        for monomial, factor in expr.terms:
            if monomial:
                term = Expr(((monomial, factor),))
                groups.setdefault(self.depth(term), []).append((monomial, factor))
        return [(depth, Expr(tuple(groups[depth]))) for depth in sorted(groups)]

    def _sum(self, expr: Expr) -> str:
        total = _ZERO
        for monomial, factor in expr.terms:
            product: str = Number.of(factor)
            for atom in sorted(monomial, key=self._atom_depth):
                product = self.multiply(product, self._scalars.atom(atom))
            total = self._add(total, product)
        return total

    def _atom_depth(self, atom: Atom) -> int:
        return self.depth(Expr((((atom,), 1),)))

    def binary(self, operation: str, a: str, b: str) -> str:
        return self.writer.hoist(f"{operation} i64 {a}, {b}", a, b)

    def _add(self, a: str, b: str) -> str:
        if a == _ZERO or b == _ZERO:
            return b if a == _ZERO else a
        return self.binary("add", a, b)

    def multiply(self, a: str, b: str) -> str:
        if a == _ONE or b == _ONE:
            return b if a == _ONE else a
        return self.binary("mul", b, a) if is_literal(a) else self.binary("mul", a, b)

    # ------------------------------------------------------------------ vectors
    def vector(self, expr: Expr, vectors: Mapping[Symbol, Reg], width: int) -> str:
        """The value in each lane, as `<width x i64>`; `vectors`: the symbols that differ."""
        return _Lanes(self, vectors, width).value(expr)

    def splat(self, value: str, width: int) -> str:
        return splat(self.writer, Reg.of(value, t.index), width).name

    def splat_i32(self, value: str, width: int) -> str:
        return splat(self.writer, Reg.of(value, t.i32), width).name


class _Scalars(Integers[str]):
    """Index expressions that are the same in all lanes, as i64."""

    def __init__(self, indices: Indices):
        self.indices = indices

    def value(self, expr: Expr) -> str:
        return self.indices.scalar(expr)

    def symbol(self, symbol: Symbol) -> str:
        return symbol.text

    def number(self, number: int) -> str:
        return Number.of(number)

    def is_nonnegative(self, expr: Expr) -> bool:
        return self.indices.is_nonnegative(expr)

    def binary(self, operation: str, left: str, right: str) -> str:
        return self.indices.binary(operation, left, right)

    def extremum(self, call: Call, left: str, right: str) -> str:
        test = self.binary(f"icmp {_ORDERS[call.op]}", left, right)
        return self.indices.writer.hoist(
            f"select i1 {test}, i64 {left}, i64 {right}", test, left, right)


class _Lanes(Integers[str]):
    """Index expressions that differ between lanes, as vectors of i64."""

    def __init__(self, indices: Indices, vectors: Mapping[Symbol, Reg], width: int):
        self.indices, self.vectors, self.width = indices, vectors, width
        self.hoist = indices.writer.hoist

    def value(self, expr: Expr) -> str:
        inside = [term for term in expr.terms if Expr((term,)).symbols & self.vectors.keys()]
        rest = expr - Expr(tuple(inside))
        total = self._splat(self.indices.scalar(rest))
        for monomial, factor in inside:
            product = self.number(factor)
            for atom in monomial:
                product = self.binary("mul", product, self.atom(atom))
            total = self.binary("add", total, product)
        return total

    def symbol(self, symbol: Symbol) -> str:
        found = self.vectors.get(symbol)
        return self._splat(symbol.text) if found is None else found.name

    def number(self, number: int) -> str:
        return self._splat(Number.of(number))

    def _splat(self, value: str) -> str:
        return self.indices.splat(value, self.width)

    def is_nonnegative(self, expr: Expr) -> bool:
        return False  # nothing is known of what is gathered

    def binary(self, operation: str, left: str, right: str) -> str:
        neutral = _NEUTRAL.get(operation)
        if neutral is not None and neutral in (left, right):
            return right if left == neutral else left
        return self.hoist(f"{operation} <{self.width} x i64> {left}, {right}", left, right)

    def extremum(self, call: Call, left: str, right: str) -> str:
        width = self.width
        test = self.binary(f"icmp {_ORDERS[call.op]}", left, right)
        return self.hoist(f"select <{width} x i1> {test}, <{width} x i64> {left}, "
                          f"<{width} x i64> {right}", test, left, right)


def iota(width: int, offset: int = 0, step: int = 1, type_: str = "i64") -> Literal:
    """The constant vector offset, offset + step, ..."""
    return lane_literal([offset + step * k for k in range(width)], type_)


def splat(writer: Writer, value: Reg, width: int) -> Reg:
    """A scalar in all lanes; a value that already has lanes is unchanged."""
    if value.width == width:
        return value
    key = splat, value.name, value.type, width
    known = writer.computed.get(key)
    if known is None:
        known = writer.computed[key] = _splat(writer, value, width)
    return Reg(known, value.element, width, llvm_type(value.element, width))


def _splat(writer: Writer, value: Reg, width: int) -> str:
    """The name or literal of a scalar in all lanes."""
    scalar = llvm_type(value.element)
    if is_literal(value.name):
        return splat_literal(scalar, value.name)
    vector = llvm_type(value.element, width)
    first = writer.hoist(
        f"insertelement {vector} poison, {scalar} {value.name}, i64 0", value.name)
    zeros = f"<{width} x i32> zeroinitializer"
    return writer.hoist(f"shufflevector {vector} {first}, {vector} poison, {zeros}", first)

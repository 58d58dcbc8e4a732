"""The sizes of a model's inputs, and what it assumes of them, as C (see `checks.c`).

`bind_sizes` of `dialects/strata/binding.py` decides while it runs which dim determines which size.
Which one it is depends on the model only, so here it is decided beforehand, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dialects.strata.array_type import ArrayType
from dialects.strata.assumptions import Assumption
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cpu.artifact.c_text import CExpressions, SharedExpressions, number, quoted

_MOST_CLAIM = 400
"""The characters of an assumption in a message."""
_Dim = tuple[Expr, int, int]
"""The expected size of a dim, the number of its input, and that of the dim."""


def input_symbols(types: Sequence[ArrayType]) -> list[Symbol]:
    """The symbols of the inputs' sizes, in order of appearance."""
    return list(dict.fromkeys(s for type_ in types for size in type_.shape
                              for s in sorted(size.symbols)))


def binding_text(types: Sequence[ArrayType], symbols: Sequence[Symbol]) -> list[str]:
    """The function that computes all sizes from the inputs' shapes, and checks each dim."""
    dims = [(expected, k, d) for k, type_ in enumerate(types)
            for d, expected in enumerate(type_.shape)]
    steps = list(_steps(dims))
    places = [f"    {{{k}, {d}, {int(expected.constant is None)}, {quoted(str(expected))}, "
              f"{quoted(str(symbol or ''))}}},"
              for (expected, k, d), symbol in steps]
    number_of = {s: k for k, s in enumerate(symbols)}
    c = CExpressions({s: f"n[{k}]" for s, k in number_of.items()})
    lines = ["static int bind_sizes(STATE *s, const strata_tensor *in, int64_t *n) {",
             "    int status = 0;", "    (void)s, (void)in, (void)n;"]
    for at, ((expected, k, d), symbol) in enumerate(steps):
        size = f"in[{k}].shape[{d}]"
        if symbol is None:
            call = f"expect(s, &places[{at}], {size}, {c.value(expected)})"
        else:
            split = expected.linear([symbol])
            assert split is not None
            call = (f"solve(s, &places[{at}], {size}, {c.value(split[0][symbol])}, "
                    f"{c.value(split[1])}, &n[{number_of[symbol]}])")
        lines.append(f"    if (status == 0) status = {call};")
    return ["static const place places[] = {", *places, "    {0, 0, 0, 0, 0},", "};", "",
            *lines, "    return status;", "}"]


def _steps(dims: Sequence[_Dim]) -> Iterator[tuple[_Dim, Symbol | None]]:
    """The dims in the order in which they are looked at, with the symbol that each determines.

    Raises ValueError if the dims do not determine a size.
    """
    known: set[Symbol] = set()
    waiting = sorted(dims, key=lambda dim: dim[0].as_symbol is None)
    while waiting:
        later: list[_Dim] = []
        for dim in waiting:
            unbound = dim[0].symbols - known
            if unbound and _determined(dim[0], unbound) is None:
                later.append(dim)
                continue
            symbol = _determined(dim[0], unbound) if unbound else None
            known |= unbound
            yield dim, symbol
        if len(later) == len(waiting):
            names = ", ".join(sorted(map(str, later[0][0].symbols - known)))
            raise ValueError(f"the shapes of the inputs do not determine the sizes {names}")
        waiting = later


def _determined(expected: Expr, unbound: frozenset[Symbol]) -> Symbol | None:
    """The only unknown symbol of a dim that is linear in it."""
    if len(unbound) != 1:
        return None
    [symbol] = unbound
    split = expected.linear([symbol])
    return symbol if split is not None and symbol in split[0] else None


# ---------------------------------------------------------------------- assumptions
class Assumptions:
    """Assumptions as C: those of the inputs' sizes, and those that the code itself checks."""

    def __init__(self, symbols: Sequence[Symbol]):
        self.places = {s: k for k, s in enumerate(symbols)}
        self._functions: list[str] = []
        self.most = 1

    def taken(self) -> list[str]:
        """The functions and tables that the rows since the last call refer to."""
        found, self._functions = self._functions, []
        return found

    def row(self, name: str, assumption: Assumption) -> str:
        """The initializer of an assumption, whose functions are called after `name`."""
        names = sorted(assumption.symbols)
        self.most = max(self.most, len(names))
        values = {s: f"v[{k}]" for k, s in enumerate(names)}
        excluded = _excluded(assumption)
        self._functions += _sides(name, assumption, values)
        others = assumption.choice.others if assumption.choice else ()
        if others:
            c = SharedExpressions(values)
            tests = " || ".join(_test(c, o.left, o.relation, o.right) for o in others)
            self._functions += [f"static int {name}_other(const int64_t *v) {{", *c.lines,
                               f"    return {tests};", "}", ""]
        texts = ", ".join([*(quoted(str(s)) for s in names), "0"])
        places = ", ".join([*(str(self.places.get(s, -1)) for s in names), "0"])
        self._functions += [f"static const char *const {name}_names[] = {{{texts}}};",
                           f"static const int32_t {name}_places[] = {{{places}}};", ""]
        claim = f"{names[0]} != {excluded}" if excluded is not None else (
            _short(f"{assumption.left} {assumption.relation} {assumption.right}"))
        flags = (excluded is not None, assumption.is_limit, assumption.relation == "==")
        return (f"{{{name}_sides, {f'{name}_other' if others else '0'}, {quoted(assumption.node)}, "
                f"{quoted(claim)}, {', '.join(str(int(f)) for f in flags)}, {len(names)}, "
                f"{name}_names, {name}_places}}")


def _short(claim: str) -> str:
    """A claim as a message shows it: messages have a limit, and what follows claims says more."""
    return claim if len(claim) <= _MOST_CLAIM else f"{claim[:_MOST_CLAIM]} ..."


def _sides(name: str, assumption: Assumption, values: Mapping[Symbol, str]) -> list[str]:
    c = SharedExpressions(values)
    left, right = c.value(assumption.left), c.value(assumption.right)
    return [f"static void {name}_sides(const int64_t *v, int64_t *left, int64_t *right) {{",
            "    (void)v;", *c.lines, f"    *left = {left};", f"    *right = {right};", "}", ""]


def _test(c: CExpressions, left: Expr, relation: str, right: Expr) -> str:
    return f"({c.value(left)} {relation} {c.value(right)})"


def _excluded(assumption: Assumption) -> int | None:
    """The k of `1 <= (n - k)*(n - k)`, which encodes n != k."""
    if assumption.left.constant != 1 or len(assumption.right.symbols) != 1:
        return None
    [symbol] = assumption.right.symbols
    split = Expr.symbol(symbol)
    twice = next((-f for m, f in assumption.right.terms if m == (symbol,)), 0)
    found, rest = divmod(twice, 2)
    return found if not rest and assumption.right == (split - found) * (split - found) else None


def shapes_text(
    shapes: Sequence[Sequence[Expr]], late: Sequence[bool], symbols: Mapping[Symbol, str]
) -> list[str]:
    """The function that computes the shape of an output before the run."""
    lines = ["static void output_shape(int32_t k, const int64_t *n, int64_t *shape) {",
             "    (void)n, (void)shape;", "    switch (k) {"]
    for k, shape in enumerate(shapes):
        if late[k]:
            continue
        c = SharedExpressions(symbols, "        ")
        sizes = [f"        shape[{d}] = {c.value(size)};" for d, size in enumerate(shape)]
        lines += [f"    case {k}: {{", *c.lines, *sizes, "        break;", "    }"]
    return [*lines, "    default:", "        break;", "    }", "}"]


def fixed_shape(shape: Sequence[Expr]) -> str:
    """The initializer of a shape; sizes that are no numbers are -1."""
    return ", ".join(number(-1 if s.constant is None else s.constant) for s in shape) or "0"

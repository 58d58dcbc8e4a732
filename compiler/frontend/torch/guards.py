"""The guards of an exported program: conditions on sizes from the branches that were traced.

    if x.shape[0] > x.shape[1]: ...     ->  strata.assume m + 1 <= n
    x[: int(0.5 * x.shape[0])], as 3    ->  strata.assume n floordiv 2 == 3

PyTorch records such conditions as guards and checks them at each call of the program, and so does
Strata. If size expressions cannot represent a guard, its sizes are fixed to those of the example
inputs, for which it is true.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compiler.frontend.faults import Fault, Faults
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.sizes import Sizes
from dialects.symbolic.expr import Expr

_MAX_TEXT = 4096


class Relation(NamedTuple):
    """`left <= right` or `left == right`, and the text of the guard that implies it."""

    left: Expr
    relation: str
    right: Expr
    guard: str


def relations(guards: Sequence[Any], graph: Any, sizes: Sizes) -> list[Relation]:
    """The relations between sizes that the guards of a program imply, without duplicates."""
    found = [r for guard in guards for r in _relations(guard, graph, sizes)]
    return list({r[:3]: r for r in found}.values())


def check_guards(found: Sequence[Relation], faults: Faults) -> list[Relation]:
    """The relations that must be checked at run time. A fault is noted for each violated one."""
    undecided: list[Relation] = []
    for left, relation, right, guard in found:
        a, b = left.constant, right.constant
        if a is None or b is None:
            undecided.append(Relation(left, relation, right, guard))
        elif a != b and not (relation == "<=" and a < b):
            faults.add(f"the sizes violate a condition that the model was exported with: {guard}",
                       hint="give other sizes, or export the model with sizes like these")
    return undecided


def guards_of(graph: Any) -> list[Any]:
    """The guards in the ShapeEnv that a program's inputs share, in the sizes that remain.

    Sizes that turned out to be equal after a guard was recorded have one name in the graph. This
    must be called before the program is decomposed. Decomposition adds guards of PyTorch's own
    decompositions, which the importers do not rely on, and which PyTorch does not check either.
    """
    for size in _input_sizes(graph):
        if not isinstance(size, int):
            shape_env = size.node.shape_env
            return [shape_env.replace(g.expr) for g in shape_env.guards]
    return []


def _input_sizes(graph: Any) -> Iterator[Any]:
    for node in graph.nodes:
        if node.op == "placeholder":
            yield from getattr(node.meta.get("val"), "shape", ())


def _relations(guard: Any, graph: Any, sizes: Sizes) -> list[Relation]:
    kind = type(guard).__name__
    if kind == "And":
        return [r for part in guard.args for r in _relations(part, graph, sizes)]
    if kind == "BooleanTrue":
        return []
    try:
        if kind in _RELATIONS:
            left, right = (sizes.expression(a) for a in guard.args)
            return [Relation(*_RELATIONS[kind](left, right), str(guard))]
    except Fault:
        pass
    return _as_exported(guard, graph, sizes)


_RELATIONS: dict[str, Callable[[Expr, Expr], tuple[Expr, str, Expr]]] = {
    "Equality": lambda a, b: (a, "==", b),
    "LessThan": lambda a, b: (a, "<=", b),
    "GreaterThan": lambda a, b: (b, "<=", a),
    "StrictLessThan": lambda a, b: (a + 1, "<=", b),
    "StrictGreaterThan": lambda a, b: (b + 1, "<=", a),
    # a != b == the square of their difference is at least 1
    "Unequality": lambda a, b: (Expr.of(1), "<=", (a - b) * (a - b)),
}


def _as_exported(guard: Any, graph: Any, sizes: Sizes) -> list[Relation]:
    """Relations that fix each size in a guard to that of the example inputs."""
    known = {str(s.node.expr): s.node.hint for s in _input_sizes(graph)
             if not isinstance(s, int) and s.node.expr.is_Symbol}
    return [Relation(sizes.symbol(str(s)), "==", Expr.of(int(known[str(s)])), str(guard))
            for s in sorted(guard.free_symbols, key=str) if known.get(str(s)) is not None]


# ---------------------------------------------------------------------- guards of files
def restore_guards(program: Any, texts: Sequence[Any]) -> None:
    """Add the guards of a `.pt2` file, which are Python expressions as text, to the ShapeEnv.

    No text is executed. For a text that cannot be read, every size is fixed to the example's.
    """
    sizes = {str(s.node.expr): s for s in _input_sizes(program.graph) if not isinstance(s, int)}
    if not sizes:
        return
    shape_env = next(iter(sizes.values())).node.shape_env
    guard_type = torch_module("torch.fx.experimental.symbolic_shapes").ShapeGuard
    for text in texts:
        try:
            found = _Reader(_sources(program)).read(str(text))
        except (KeyError, ValueError, SyntaxError, TypeError, RecursionError, AttributeError):
            found = _all_fixed(sizes.values())
        shape_env.guards.append(guard_type(found, None, False))


def _all_fixed(sizes: Any) -> Any:
    sympy = torch_module("sympy")
    return sympy.And(*(sympy.Eq(s.node.expr, int(s.node.hint)) for s in sizes
                       if s.node.expr.is_Symbol and s.node.hint is not None))


def _sources(program: Any) -> dict[str, Any]:
    """Input name -> its sizes. Names are in lower case, without underscores and punctuation."""
    return {re.sub(r"\W|_", "", n.name).lower(): n.meta["val"].shape
            for n in program.graph.nodes
            if n.op == "placeholder" and hasattr(n.meta.get("val"), "shape")}


class _Reader:
    """Reads a guard such as `2*L['d']['a'][0].size()[0] == 7`. Raises ValueError or KeyError."""

    def __init__(self, sources: Mapping[str, Any]) -> None:
        self._sources = sources
        self._sympy = torch_module("sympy")
        self._functions = torch_module("torch.utils._sympy.functions")

    def read(self, text: str) -> Any:
        if len(text) > _MAX_TEXT:
            raise ValueError(text[:80])
        return self._of(ast.parse(text, mode="eval").body)

    def _of(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return self._sympy.sympify(node.value)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            relation = getattr(self._sympy, _COMPARISONS[type(node.ops[0])])
            return relation(self._of(node.left), self._of(node.comparators[0]))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._of(node.operand)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call):
            return getattr(self._functions, _FUNCTIONS[ast.unparse(node.func)])(
                *map(self._of, node.args))
        return self._size(node)

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self._of(node.left), self._of(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        return getattr(self._functions, _DIVISIONS[type(node.op)])(left, right)

    def _size(self, node: ast.expr) -> Any:
        """`L[...].size()[k]`."""
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
            raise ValueError(ast.unparse(node))
        called = node.value
        if not (isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute)
                and called.func.attr == "size" and not called.args):
            raise ValueError(ast.unparse(node))
        source = ast.unparse(called.func.value).removeprefix("L")
        size = self._sources[re.sub(r"\W|_", "", source).lower()][int(str(node.slice.value))]
        return self._sympy.Integer(size) if isinstance(size, int) else size.node.expr


_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "Eq", ast.NotEq: "Ne", ast.Lt: "Lt", ast.LtE: "Le", ast.Gt: "Gt", ast.GtE: "Ge"}
_DIVISIONS: dict[type[ast.operator], str] = {
    ast.FloorDiv: "FloorDiv", ast.Mod: "PythonMod", ast.Div: "IntTrueDiv"}
_FUNCTIONS = {"math.trunc": "TruncToInt", "math.floor": "FloorToInt", "math.ceil": "CeilToInt",
              "torch.sym_float": "ToFloat", "torch.sym_max": "Max", "torch.sym_min": "Min",
              "max": "Max", "min": "Min"}

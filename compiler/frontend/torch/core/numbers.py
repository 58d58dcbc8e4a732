"""Numbers that a program computes in Python: sizes, other integers, and floats.

    %k: an integer of the call
    aten.mul.Tensor(%x, %k - 1)     ->  sub k, 1, an i64 tensor of no dims
    aten.slice.Tensor(%x, 0, %k)    ->  the size k

An integer is a size if a shape, an index or a condition depends on it. Then it must not be
negative. All others may have any value of 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from compiler.frontend.builder import Builder
from compiler.frontend.faults import Fault
from compiler.frontend.torch.arguments import Arguments
from compiler.frontend.torch.captured_graph import is_integer
from compiler.frontend.torch.core.conditions import Condition, condition_on
from compiler.frontend.torch.core.decompose import NO_EFFECT
from compiler.frontend.torch.node import Node
from compiler.frontend.torch.provenance import path_of
from compiler.frontend.torch.reals import (
    TRUTHS,
    Real,
    Whole,
    is_real,
    parameters_of,
    real_of,
    truth_of,
    whole_of,
)
from compiler.frontend.torch.sizes import Sizes
from compiler.frontend.values import Value
from dialects.strata import types as t
from dialects.symbolic.expr import Expr

READS_NUMBER = ("aten._local_scalar_dense.default", "prims.item.default")
"""What `tensor.item()` is."""


@dataclass(frozen=True)
class Numbers:
    """Makes the numbers of a graph. `wholes`: the nodes that are integers, but no sizes."""

    build: Builder
    sizes: Sizes
    wholes: Collection[Any]

    def argument(self, node: Any, value: Value) -> Whole | None:
        """An integer of the call; None for a size, which its symbol names."""
        return Whole(**vars(value)) if node in self.wholes else None

    def inner_argument(self, node: Any, value: Value, wholes: Collection[Any]) -> Whole | None:
        """An integer that a loop carries or that a branch gets; None for a size, which its symbol
        names."""
        if node in wholes:
            return Whole(**vars(value.reshape([]).cast(t.i64)))
        bound = self.build.bind(value.reshape([]), node.name)
        assert bound is not None
        self.sizes.bind(str(node.meta["val"].node.expr), bound.reshape(-1)[0])
        return None

    def read(self, node: Any, value: Value) -> Any:
        """An element of a tensor as a number of Python. Raises Fault for a truth value, with which
        Python would decide."""
        meta = node.meta.get("val")
        if node in self.wholes:
            return Whole(**vars(value.reshape([]).cast(t.i64)))
        if type(meta).__name__ == "SymFloat":
            return Real(**vars(value.reshape([]).cast(t.f64)))
        bound = self.build.bind(value.reshape([]), "number") if type(
            meta).__name__ == "SymInt" else None
        if bound is None:
            raise Fault(f"it makes a Python number of {value.type.short}, which only a run knows")
        self.sizes.bind_unbacked(meta, Expr.of(bound.reshape(-1)[0]))
        return self.sizes(meta)

    def integer(self, node: Any, arguments: Arguments) -> Any:
        """An integer that Python computes: a size, unless it follows from integers that are none.
        """
        if operator_name(node) == "getitem":
            found = arguments.value(node.args[0])[node.args[1]]
            return self.read(node, found) if isinstance(found, Value) else found
        if not _has(node, arguments, Whole):
            return self.sizes(node.meta["val"])
        return whole_of(*self._computation(node, arguments))

    def condition(self, node: Any, arguments: Arguments) -> Condition | Value | None:
        """A truth value that Python computes: of sizes, or of integers that are none."""
        if not _has(node, arguments, Value):
            return condition_on(node.meta.get("val"), self.sizes)
        return truth_of(*self._computation(node, arguments))

    def real(self, node: Any, arguments: Arguments) -> Real | float:
        """A float that Python computes. Raises Fault."""
        return real_of(*self._computation(node, arguments))

    def _computation(self, node: Any, arguments: Arguments) -> tuple[Node, list[Any]]:
        self.build.node = path_of(node)
        seen = Node(self.build.node, self.build, operator_name(node), (), frozenset())
        return seen, [arguments.value(a) for a in node.args]


def _has(node: Any, arguments: Arguments, kind: type[Value]) -> bool:
    return any(isinstance(arguments.values.get(n.name), kind) for n in node.all_input_nodes)


def operator_name(node: Any) -> str:
    """`aten.add.Tensor`, or the name of a Python function or higher-order operator."""
    target = node.target
    return str(target) if hasattr(target, "_schema") else getattr(target, "__name__", str(target))


# ---------------------------------------------------------------------- integers that are no sizes
_WHOLE = ("add", "sub", "mul", "neg", "abs", "mod", "sym_max", "sym_min")
"""What is computed of such integers. They are divided only by constants."""
_TAKES_TRUTH = (*TRUTHS, "cond", "while_loop", "output", *NO_EFFECT)
"""What takes a truth value that is computed of them."""
_FILLS = {"aten.full.default": 1, "aten.scalar_tensor.default": 0}
"""Operators that fill tensors -> the place of the number among their arguments."""
_DECIDES = ("aten.pow.Tensor_Scalar",)
"""Operators of elements whose numbers decide what is computed."""


def wholes_of(graph: Any, importers: Mapping[str, Callable[..., Any]]) -> Collection[Any]:
    """The integers among arguments and elements that are read, of which nothing but elements is
    computed.
    """
    sources = [n for n in graph.nodes if is_integer(n) or (
        operator_name(n) in (*READS_NUMBER, "getitem") and (
            type(n.meta.get("val")).__name__ == "SymInt"))]
    if not sources:
        return ()
    shaped = {symbol for node in graph.nodes for symbol in _symbols_of_shapes(node)}
    symbols = {node: node.meta["val"].node.expr for node in sources}
    used = set[Any]().union(*(e.free_symbols for e in symbols.values() if not e.is_Symbol))
    used |= {expr for node, expr in symbols.items()
             if expr.is_Symbol and not _yields_elements(node, importers)}
    return {node for node, expr in symbols.items()
            if expr.is_Symbol and expr not in shaped and expr not in used}


def _symbols_of_shapes(node: Any) -> Iterator[Any]:
    value = node.meta.get("val")
    for tensor in cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else [value]:
        if hasattr(tensor, "dtype") and str(tensor.layout) == "torch.strided":
            for size in (*tensor.shape, *tensor.stride()):
                yield from () if isinstance(size, int) else size.node.expr.free_symbols


def _yields_elements(source: Any, importers: Mapping[str, Callable[..., Any]]) -> bool:
    """Whether all that is computed of an integer are elements of tensors."""
    found, left = {source}, [source]
    while left:
        node = left.pop()
        for user in node.users:
            name, meta = operator_name(user), user.meta.get("val")
            if type(meta).__name__ == "SymInt" and _is_whole(name, user.args):
                left += {user} - found
                found.add(user)
            elif type(meta).__name__ == "SymBool" and name in TRUTHS:
                if not all(operator_name(u) in _TAKES_TRUTH for u in user.users):
                    return False
            elif not (is_real(name, meta) or _takes_element(user, node, importers.get(name)) or (
                    user.op == "output" or (name == "while_loop" and user.args[2:]))):
                return False
    return True


def _is_whole(name: str, args: Sequence[Any]) -> bool:
    return name in _WHOLE and (name != "mod" or (isinstance(args[1], int) and args[1] > 0))


def _takes_element(user: Any, number: Any, importer: Callable[..., Any] | None) -> bool:
    """Whether an operator takes a number wherever it takes elements of tensors, and only there."""
    schema = getattr(user.target, "_schema", None)
    if importer is None or schema is None or str(user.target) in _DECIDES:
        return False
    if any(getattr(getattr(v.meta.get("val"), "dtype", None), "is_complex", False)
           for v in (user, *user.all_input_nodes)):
        return False
    named = [argument.name for argument in schema.arguments]
    places = {k for k, a in enumerate(user.args) if a is number}
    places |= {named.index(name) for name, a in user.kwargs.items() if a is number}
    if (place := _FILLS.get(str(user.target))) is not None:
        return places == {place}
    wanted, kinds = parameters_of(importer), [tag.name for tag in user.target.tags]
    return "pointwise" in kinds and bool(places) and all(
        k < len(wanted) and wanted[k][1] for k in places)

"""Random numbers of a graph, which PyTorch draws before its compiled code runs.

Compiled code takes them as arguments, so they are those of eager mode: `torch.manual_seed` repeats
them, and they come from the same generator in the same order:

    %r = aten.randn_like(%x)             drawn: %r = randn_like(empty(shape of %x))
    %y = aten.add(%x, %r)                inner: (%x, %r) -> aten.add(%x, %r)

Only shapes of operands matter to these operators, and shapes are known before the graph runs.
Operators whose distribution depends on computed tensors stay in the graph. Checkpoints keep the
state of the generator from which their recomputation draws again.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from compiler.frontend.faults import Fault
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.sizes import Sizes
from compiler.torch.dropouts import expand_dropouts, kept_by_dropout
from compiler.torch.results import Bindings, Known
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

OF_SHAPE = frozenset(("prims.normal.default", "prims.uniform.default", *(
    f"aten.{name}" for name in (
        "bernoulli.p", "rand.default", "rand_like.default", "randint.default", "randint.low",
        "randint_like.default", "randint_like.low_dtype", "randn.default", "randn_like.default",
        "randperm.default", "normal_functional.default", "uniform.default", "exponential.default",
        "geometric.default", "log_normal.default", "cauchy.default"))))
"""Operators that draw, and to which only the shapes of tensors matter."""
IN_PLACE = {"aten.bernoulli.p": "bernoulli_", "aten.normal_functional.default": "normal_",
            "aten.uniform.default": "uniform_", "aten.exponential.default": "exponential_",
            "aten.geometric.default": "geometric_", "aten.log_normal.default": "log_normal_",
            "aten.cauchy.default": "cauchy_"}
"""Functional forms of methods that fill a tensor, which draw in the order of its memory."""
SAVES_STATE, TAKES_STATE = "run_and_save_rng_state", "run_with_rng_state"
"""Operators that draw by another one, and return the generator's state before, or take it."""
Maker = Callable[[Sequence[Any], Known], Any]
"""Makes a value from the arguments of a call and the sizes known in it."""


@dataclass(frozen=True)
class Draws:
    """A graph without random operators, and what draws its last arguments.

    `inner`: takes the arguments of the graph, and then what is drawn. `draw`: makes that from the
    arguments.
    """

    inner: Any
    draw: Callable[[Sequence[Any]], list[Any]]


def split_draws(graph: Any) -> Draws | None:
    """Separate the random numbers of a graph; None if it draws none that can be separated."""
    expand_dropouts(graph)
    inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
    numbers = [(k, n.meta["val"].node.expr) for k, n in enumerate(inputs)
               if type(n.meta.get("val")).__name__ == "SymInt"]
    bindings = Bindings(numbers, [], [])
    makers: list[tuple[Maker, list[int | None]]] = []
    for node in filter(_draws, list(graph.graph.nodes)):
        try:
            maker = _maker(node, inputs, {symbol for _, symbol in bindings.symbols})
        except Fault:
            continue
        makers.append((maker, _take(graph, node)))
    if not makers:
        return None
    graph.graph.eliminate_dead_code(_is_kept)
    graph.recompile()
    return Draws(graph, lambda arguments: _drawn(
        makers, arguments, bindings(arguments, frozenset())))


def _is_kept(node: Any) -> bool:
    """Whether a node stays although nothing uses it."""
    return node.op in ("placeholder", "output")


def _drawn(
    makers: Sequence[tuple[Maker, list[int | None]]], arguments: Sequence[Any], known: Known
) -> list[Any]:
    found: list[Any] = []
    for maker, items in makers:
        made = maker(arguments, known)
        found += [made if k is None else made[k] for k in items]
    return found


def _draws(node: Any) -> bool:
    if node.op != "call_function":
        return False
    return node.target is kept_by_dropout or str(node.target) in OF_SHAPE or (
        _name(node) in (SAVES_STATE, TAKES_STATE))


def _name(node: Any) -> str:
    return getattr(node.target, "__name__", "")


def _take(graph: Any, node: Any) -> list[int | None]:
    """Make the results of a node arguments of the graph.

    Returns the number of each among the results; None for the only one.
    """
    items = list(node.users) if _name(node) == SAVES_STATE else [node]
    for item in items:
        last = [n for n in graph.graph.nodes if n.op == "placeholder"][-1:]
        with graph.graph.inserting_after(*last) if last else graph.graph.inserting_before():
            made = graph.graph.placeholder(f"drawn_{item.name}")
        made.meta["val"] = _like(item)
        item.replace_all_uses_with(made)
    numbers = [None if item is node else item.args[1] for item in items]
    for item in dict.fromkeys([*items, node]):
        graph.graph.erase_node(item)
    return numbers


def _like(node: Any) -> Any:
    """What a node is when it is traced, of which the partitioner does not tell for all that it
    made."""
    if "val" in node.meta:
        return node.meta["val"]
    _, operator, *args = node.args
    return operator(*(a.meta["val"] if hasattr(a, "meta") else a for a in args), **node.kwargs)


# ---------------------------------------------------------------------- one operator
def _maker(node: Any, inputs: Sequence[Any], known: Collection[Symbol]) -> Maker:
    """What computes a node from arguments and known sizes. Raises Fault if it needs others."""
    state = inputs if _name(node) == TAKES_STATE else ()
    makers = [_argument(a, state if k == 0 else (), known) for k, a in enumerate(node.args)]
    named = {k: _argument(v, (), known) for k, v in node.kwargs.items()}
    function = _filled(node.target)
    return lambda given, sizes: function(
        *[m(given, sizes) for m in makers], **{k: m(given, sizes) for k, m in named.items()})


def _filled(target: Any) -> Any:
    """A value; for an operator that fills a new tensor, the method that fills its operand.

    The method draws in the order of the operand's memory, as eager mode does.
    """
    name = IN_PLACE.get(str(target))
    return target if name is None else getattr(torch_module().Tensor, name)


def _argument(value: Any, places: Sequence[Any], known: Collection[Symbol]) -> Maker:
    """What makes an argument: one of a call, if it is in `places`. Of others only the shape is
    right."""
    if isinstance(value, (list, tuple)):
        items = [_argument(v, places, known) for v in cast("Sequence[Any]", value)]
        return lambda given, sizes: [item(given, sizes) for item in items]
    if not hasattr(value, "meta"):
        plain = _filled(value)
        return lambda given, sizes: plain
    meta = value.meta["val"]
    if value in places:
        number = places.index(value)
        return lambda given, sizes: given[number]
    if hasattr(meta, "dtype"):
        return _empty(meta, known)
    size = _size(meta, known)
    return lambda given, sizes: size.evaluate(sizes)


def _empty(tensor: Any, known: Collection[Symbol]) -> Maker:
    """A new tensor that lies in memory as this one."""
    torch = torch_module()
    shape, strides = ([_size(s, known) for s in found]
                      for found in (tensor.shape, tensor.stride()))
    return lambda given, sizes: torch.empty_strided(
        [s.evaluate(sizes) for s in shape], [s.evaluate(sizes) for s in strides],
        dtype=tensor.dtype, device=tensor.device)


def _size(size: Any, known: Collection[Symbol]) -> Expr:
    """An integer as an expression of known sizes. Raises Fault for others."""
    if type(size).__name__ not in ("int", "SymInt"):
        raise Fault(f"it draws by {type(size).__name__}, which is not known before")
    found = Sizes(given={str(symbol) for symbol in known})(size)
    if not found.symbols <= set(known):
        raise Fault("its shape is not known before")
    return found

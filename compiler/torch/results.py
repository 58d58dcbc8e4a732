"""What a graph returns, made of the arrays that its compiled code returns.

Tensors get the strides that they have in the graph, also where these depend on sizes that only a
call knows. Sizes among the results are computed from the arguments.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.faults import Fault
from compiler.frontend.torch.contents import real_view
from compiler.frontend.torch.library import torch_module
from compiler.frontend.torch.sizes import Sizes, is_unbacked
from compiler.io.arrays import to_torch
from dialects.strata.binding import EvaluationError, Shape, bind_sizes
from dialects.symbolic.expr import Expr, Size
from dialects.symbolic.symbol import Symbol

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from targets.interface import Lend

NUMBERS: Mapping[str, type] = {"SymInt": int, "SymFloat": float, "SymBool": bool}
"""PyTorch's numbers that follow from sizes, and what they are in Python."""
Known = Mapping[Symbol, int]
Maker = Callable[
    [Sequence[tuple[int, ...]], "Sequence[Lend]"], Callable[[Sequence[Any]], Iterable[Any]]]
"""For the shapes of results, and what lends memory to large ones, what makes new tensors in a call
with these inputs."""


@dataclass
class Bindings:
    """Finds the values of a graph's symbols.

    `numbers`: the arguments that are integers, with their symbols. `tensors`: the arguments that
    are tensors, and `types` their types.
    """

    numbers: Sequence[tuple[int, Any]]
    tensors: Sequence[int]
    types: Sequence[Shape]

    def __call__(self, arguments: Sequence[Any], needed: frozenset[Symbol]) -> Known:
        """The values of at least the needed symbols."""
        known = {symbol: int(arguments[k]) for k, symbol in self.symbols}
        if needed <= known.keys():
            return known
        return bind_sizes(self.types, [_shaped(arguments[k]) for k in self.tensors], known=known)

    def check(self, examples: Sequence[Any]) -> None:
        """Raise StrataError if shapes like those of the examples do not determine all symbols."""
        try:
            bind_sizes(self.types, self._examples([_sizes(v) for v in examples]))
        except EvaluationError as error:
            raise StrataError("sizes are not known where they are needed", [
                Problem(str(error))]) from error

    def _examples(self, hints: Sequence[Sequence[int | None]]) -> list[Array]:
        """Arrays with the sizes of traced tensors. Where nothing is known of a size, it follows
        from symbols that are 2 unless a traced size tells."""
        dims = [pair for type_, sizes in zip(self.types, hints, strict=True)
                for pair in zip(type_.shape, sizes, strict=True)]
        values = {s: 2 for e, _ in dims for s in e.symbols} | {
            s: hint for e, hint in dims if hint is not None and (s := e.as_symbol) is not None}
        return [np.broadcast_to(np.int8(0), [
            e.evaluate(values) if hint is None else hint
            for e, hint in zip(type_.shape, sizes, strict=True)])
            for type_, sizes in zip(self.types, hints, strict=True)]

    @cached_property
    def symbols(self) -> list[tuple[int, Symbol]]:
        """The arguments that are symbols, also of sizes that Dynamo was told to know nothing of."""
        return [(k, _symbol(expr)) for k, expr in self.numbers if expr.is_Symbol]

    @property
    def known(self) -> set[str]:
        """The names of all symbols whose values arguments tell."""
        sizes = {s for type_ in self.types for e in type_.shape for s in e.symbols}
        return {str(s) for s in sizes.union(s for _, s in self.symbols)}


def _shaped(value: Any) -> Any:
    """A tensor as compiled code takes it; an integer as an array."""
    return np.array(value) if isinstance(value, int) else real_view(value)


def is_complex(value: Any) -> bool:
    """Whether a value is a tensor of complex numbers."""
    return hasattr(value, "dtype") and value.dtype.is_complex


def _sizes(value: Any) -> list[int | None]:
    """The sizes that a fake tensor had when it was traced; None where none is known."""
    return [s if isinstance(s, int) else s.node.hint for s in getattr(value, "shape", ())] + (
        [2] * is_complex(value))


@dataclass
class Results:
    """Makes the results of a graph. `outputs`: its results when it was traced: fake tensors, sizes
    or constants. `tensors`: the numbers of those that the compiled code computes (`computed`).
    """

    outputs: Sequence[Any]
    tensors: Sequence[int]
    bindings: Bindings

    def __post_init__(self) -> None:
        """Raises StrataError for strides that cannot be computed."""
        self.measured = _measured([self.outputs[k] for k in self.tensors])
        known = {*self.measured, *self.bindings.known}
        try:
            self.strides = [_strides(self.outputs[k], known) for k in self.tensors]
        except Fault as fault:
            raise StrataError("a result has strides that cannot be computed", [
                Problem(fault.what, hint=fault.hint)]) from fault
        computed = set(self.tensors)
        self.others = {k: _other(v, known) for k, v in enumerate(self.outputs)
                       if k not in computed}

    @property
    def are_plain(self) -> bool:
        """Whether they are what the compiled code returns, unchanged."""
        return not self.others and all(s is None for s in self.strides) and not any(
            map(is_complex, self.outputs)) and all(
            isinstance(s, int) for v in self.outputs for s in getattr(v, "shape", ("",)))

    @cached_property
    def maker(self) -> Maker | None:
        """What makes new tensors for results of these shapes; None unless all that are computed are
        tensors on the CPU whose elements lie side by side, and the others are constants."""
        computed = [self.outputs[k] for k in self.tensors]
        if any(self.strides) or not all(map(is_plain, computed)) or any(
                _is_number(self.outputs[k]) for k in self.others):
            return None
        new, types = _empty_strided(), [v.dtype for v in computed]

        def maker(shapes: Sequence[tuple[int, ...]], lent: Sequence[Lend]
                  ) -> Callable[[Sequence[Any]], Iterable[Any]]:
            strides = [*map(_side_by_side, shapes)]
            if not any(lent):
                return lambda inputs: map(new, shapes, strides, types)
            made = [*zip(lent, shapes, strides, types, strict=True)]
            return lambda inputs: [
                new(*given) if lend is None else to_torch(lend(inputs), "cpu")
                for lend, *given in made]

        return maker

    @cached_property
    def among_constants(self) -> Callable[[list[Any]], list[Any]] | None:
        """All results, from those that `maker` makes; None if there are no others."""
        if not self.others:
            return None
        every = [None if k not in self.others else self.others[k]({})
                 for k in range(len(self.outputs))]

        def placed(made: list[Any]) -> list[Any]:
            found = every.copy()
            for k, value in zip(self.tensors, made, strict=True):
                found[k] = value
            return found

        return placed

    def __call__(self, made: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        known: Known = self.bindings(arguments, self.needed) if self.needed else {}
        if self.measured:
            known = {**known, **{_symbol(name): int(made[k].shape[dim])
                                 for name, (k, dim) in self.measured.items()}}
        results = [None] * len(self.outputs)
        for k, other in self.others.items():
            results[k] = other(known)
        for k, value, strides in zip(self.tensors, made, self.strides, strict=True):
            results[k] = _as_tensor(value, self.outputs[k], strides, known)
        return results

    @cached_property
    def needed(self) -> frozenset[Symbol]:
        """The symbols on which strides and sizes among the results depend."""
        sizes = [_symbol(s) for v in map(self.outputs.__getitem__, self.others) if _is_number(v)
                 for s in v.node.expr.free_symbols]
        strides = [s for found in self.strides for s in found or () if isinstance(s, Expr)]
        return frozenset(sizes).union(*[s.symbols for s in strides]) - set(
            map(_symbol, self.measured))


def computed(outputs: Sequence[Any], given: Collection[str]) -> list[int]:
    """The numbers of the results that compiled code computes: tensors, and Python's numbers that
    depend on data and are no sizes of these tensors. `given`: the symbols that arguments tell."""
    tensors = {k: v for k, v in enumerate(outputs) if hasattr(v, "dtype")}
    known = {*given, *_measured(list(tensors.values()))}
    return [k for k, v in enumerate(outputs) if k in tensors or (_is_number(v) and any(
        is_unbacked(s) and str(s) not in known for s in v.node.expr.free_symbols))]


def is_plain(tensor: Any) -> bool:
    """Whether a value is a tensor on the CPU whose memory holds nothing but its elements, which are
    real."""
    return hasattr(tensor, "device") and tensor.device.type == "cpu" and (
        str(tensor.layout) == "torch.strided") and not (
        tensor.is_conj() or tensor.is_neg() or is_complex(tensor))


def _side_by_side(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie side by side, in order."""
    strides = accumulate(map(partial(max, 1), reversed(shape[1:])), mul, initial=1)
    return tuple(strides)[::-1] if shape else ()


def _empty_strided() -> Callable[[Sequence[int], Sequence[int], Any], Any]:
    """PyTorch's fastest function for a new tensor on the CPU."""
    torch = torch_module()
    return getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None) or (
        lambda shape, strides, type_: torch.empty_strided(shape, strides, dtype=type_))


def _measured(tensors: Sequence[Any]) -> dict[str, tuple[int, int]]:
    """The sizes that depend on data -> the number and dim of a result that has this size."""
    found: dict[str, tuple[int, int]] = {}
    for k, tensor in enumerate(tensors):
        for dim, size in enumerate(getattr(tensor, "shape", ())):
            expr = getattr(getattr(size, "node", None), "expr", None)
            if expr is not None and expr.is_Symbol and is_unbacked(expr):
                found.setdefault(str(expr), (k, dim))
    return found


def _strides(tensor: Any, known: Collection[str]) -> list[Size] | None:
    """The strides of a result; None for those of new memory, and for a number. Raises Fault."""
    if _is_number(tensor):
        return None
    sizes = Sizes(given=known)
    found, size = sizes.shape(tensor.stride()), Expr.of(1)
    plain: list[Expr] = []
    for s in reversed(sizes.shape(tensor.shape)):
        plain.append(size)
        size = size * (1 if s.constant == 0 else s)
    if found == plain[::-1]:
        return None
    return [s if s.constant is None else s.constant for s in found]


def _is_number(value: Any) -> bool:
    """Whether a result is a number that follows from sizes."""
    return type(value).__name__ in NUMBERS


def _other(value: Any, known: Collection[str]) -> Callable[[Known], Any]:
    """A result that is not a tensor: a number of sizes, a constant, or nothing."""
    kind = NUMBERS.get(type(value).__name__)
    if kind is None:
        made = None if hasattr(value, "dtype") else value
        return lambda sizes: made
    number = value.node.expr
    try:
        return Sizes(given=known)(value).evaluate
    except Fault:
        return lambda sizes: kind(number.subs({
            s: sizes[_symbol(s)] for s in number.free_symbols}))


def _symbol(symbol: Any) -> Symbol:
    found = Sizes().symbol(str(symbol)).as_symbol
    assert found is not None
    return found


def _as_tensor(value: Any, like: Any, strides: Sequence[Size] | None, known: Known) -> Any:
    """An array of compiled code as a tensor with these strides, or as a number of Python."""
    if _is_number(like):
        return NUMBERS[type(like).__name__](value.item())
    torch = torch_module()
    tensor = value if isinstance(value, torch.Tensor) else to_torch(value, like.device)
    tensor = _complex(tensor, like.dtype) if is_complex(like) else tensor
    if strides is not None:
        return _laid_out(tensor, tuple([
            s if isinstance(s, int) else s.evaluate(known) for s in strides]))
    if tensor.numel():
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _complex(parts: Any, dtype: Any) -> Any:
    """Real and imaginary parts [..., 2] as complex numbers in the same memory, but no view of them.
    """
    shown = torch_module().view_as_complex(parts)
    return parts.new_empty(0, dtype=dtype).set_(
        parts.untyped_storage(), shown.storage_offset(), shown.shape, shown.stride())


def _laid_out(tensor: Any, strides: tuple[int, ...]) -> Any:
    """A tensor, or a copy of it, with these strides."""
    if tensor.stride() == strides:
        return tensor
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    if not tensor.numel() or all(size == 1 or mine == wanted for size, mine, wanted in pairs):
        return tensor.as_strided_(tensor.shape, strides)
    made = torch_module().empty_strided(tensor.shape, strides, dtype=tensor.dtype,
                                        device=tensor.device)
    return made.copy_(tensor)

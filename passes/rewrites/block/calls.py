"""Check that called functions receive and return the shapes that both sides declare.

    host.func @main(%x: f32[n, m])                 strata.assume m == 4
      %y = strata.if %c then @f else @g (%x)       %y = strata.if %c then @f else @g (%x)
             buffers f32[n, 4]               -->          defines(_given0) buffers f32[_given0, 4]
    host.func @f(%x: f32[rows, 4])                 strata.assume _given0 == n
      -> f32[k, 4]

Only sizes cross a call, not shapes. A function assumes that each buffer is shaped as its argument
declares, and its caller assumes that each result is shaped as its own type declares. So the dims of
arguments that bind no size must equal the dims of what is passed. For a loop they must also equal
the dims of what one call returns to the next. A dim of a result that cannot be proven gets a size
of its own, which the call reports and which is compared with what the caller declares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from dialects.host import FreeOp, FuncOp, ViewOp
from dialects.host.calls import bound_sizes, varying_sizes
from dialects.strata.control import ControlOp, LoopOp
from dialects.strata.sizes import AssumeOp, defined_sizes
from dialects.strata.types import BufferType, SizesAttr, SymbolsAttr, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.base import PassError


class Claim(NamedTuple):
    """left <= right or left == right, at the operation `at`."""

    left: Expr
    relation: str
    right: Expr
    at: Operation


class Call(NamedTuple):
    """A function as one operation calls it."""

    op: ControlOp
    callee: FuncOp
    known: frozenset[Symbol]
    """The sizes that the caller has before the operation."""

    @property
    def given(self) -> list[BufferType]:
        """The types of the buffers that are passed to the function, in a loop the first time."""
        values = self.op.operands[len(self.op.operands) - len(self.callee.input_arguments):]
        return _types(values)

    @property
    def varying(self) -> dict[Symbol, tuple[int, int]]:
        """The sizes that differ from call to call, and the dims that determine them."""
        if not isinstance(self.op, LoopOp):
            return {}
        return varying_sizes(self.op, self.callee, self.known)

    @property
    def sizes(self) -> dict[Symbol, Expr]:
        """The sizes of the function in terms of its caller's, in a loop for the first call."""
        own = {s: Expr.symbol(s) for s in self.callee.size_names if s in self.known}
        if isinstance(self.op, LoopOp):
            own[self.op.step_symbol] = Expr.of(0)
        return {**own, **bound_sizes(self.callee, self.given)}

    @property
    def returned(self) -> list[BufferType]:
        """The types of the function's results, without the condition that continues a loop."""
        types = _types(self.callee.return_op.values)
        return types[len(types) - len(self.op.results):]

    def check(self) -> None:
        """Raises PassError if numbers of buffers, element types or ranks differ."""
        wanted = [(a.element, a.rank) for a in _types(self.callee.input_arguments)]
        results = [(r.element, r.rank) for r in self.returned]
        stacked = isinstance(self.op, LoopOp) and len(self.op.carried)
        own = [(r.element, r.rank - (stacked is not False and k >= stacked))
               for k, r in enumerate(_types(self.op.results))]
        if wanted != [(g.element, g.rank) for g in self.given] or results != own:
            raise PassError("block-prove-bounds", [(
                "", f"{self.op.name} calls @{self.callee.sym_name.data}, whose buffers differ in "
                    "number, element type or rank from those that it passes or expects")])


class Calls(NamedTuple):
    """All calls of a module."""

    by_op: Mapping[Operation, Sequence[Call]]
    by_callee: Mapping[Operation, Sequence[Call]]

    @staticmethod
    def of(functions: Sequence[FuncOp]) -> Calls:
        named = {f.sym_name.data: f for f in functions}
        by_op: dict[Operation, list[Call]] = {}
        by_callee: dict[Operation, list[Call]] = {}
        for function in functions:
            known = {*function.size_names}
            for op in function.body.block.ops:
                if isinstance(op, ControlOp):
                    calls = [Call(op, named[name], frozenset(known)) for name in op.callees]
                    by_op[op] = calls
                    for call in calls:
                        call.check()
                        by_callee.setdefault(call.callee, []).append(call)
                known |= {*defined_sizes(op)}
        return Calls(by_op, by_callee)

    def claims(self, op: Operation) -> Iterator[Claim]:
        """What must hold before an operation that calls, or that returns to a loop."""
        for call in self.by_op.get(op, ()):
            sizes = call.sizes
            for argument, given in zip(
                    _types(call.callee.input_arguments), call.given, strict=True):
                for theirs, ours in zip(argument.shape, given.shape, strict=True):
                    if (wanted := theirs.substitute(sizes)) != ours:
                        yield Claim(wanted, "==", ours, op)
        for call in self.by_callee.get(op.parent_op() or op, ()):
            if op is call.callee.return_op and isinstance(call.op, LoopOp):
                yield from _claims_of_return(call, call.op)

    def open_results(self, op: ControlOp, holds: Callable[[Claim], bool]) -> None:
        """Give a size of its own to each dim of a result that is not proven to be as declared."""
        places = _binding_places(op)
        for k, result in enumerate(op.results):
            shape, new = list(buffer_type(result).shape), dict[Symbol, Expr]()
            for d, size in enumerate(shape):
                if places.get(size.as_symbol) != (k, d) and not all(
                        _is_said(call, k, d, places, holds) for call in self.by_op[op]):
                    name = _new_size(op, new)
                    shape[d], new[name] = Expr.symbol(name), size
            if new:
                _open(op, result, shape, new)


def _open(op: ControlOp, result: SSAValue, shape: list[Expr], new: Mapping[Symbol, Expr]) -> None:
    """Let users, except `host.free`, use a view that follows assumptions on the new sizes."""
    before = buffer_type(result)
    op.properties["defines"] = SymbolsAttr((*defined_sizes(op), *new))
    given = Rewriter.replace_value_with_new_type(
        result, BufferType(before.element, SizesAttr.of(shape)))
    users = [use for use in given.uses if not isinstance(use.operation, FreeOp)]
    view = ViewOp.of(given, before)
    for use in users:
        use.operation.operands[use.index] = view.result
    assumptions = [AssumeOp.of(Expr.symbol(name), "==", size) for name, size in new.items()]
    assert op.parent is not None
    for added in (view, *reversed(assumptions)):
        set_location(added, op)
        op.parent.insert_op_after(added, op)


def _new_size(op: ControlOp, others: Collection[Symbol]) -> Symbol:
    """A name for a size that the enclosing function does not use."""
    function = op.parent_op()
    assert isinstance(function, FuncOp)
    taken = {*function.size_names, *others,
             *(s for o in function.body.block.ops for s in defined_sizes(o))}
    names = (Symbol.computed(f"given{number}") for number in count())
    return next(name for name in names if name not in taken)


def _claims_of_return(call: Call, op: LoopOp) -> Iterator[Claim]:
    """The results of one call of a loop's body must fit the arguments of the next."""
    arguments, returned = _types(call.callee.input_arguments), call.returned
    following = {s: returned[k].shape[d] for s, (k, d) in call.varying.items()}
    following[op.step_symbol] = Expr.symbol(op.step_symbol) + 1
    for k in range(len(op.carried)):
        for theirs, ours in zip(arguments[k].shape, returned[k].shape, strict=True):
            if (wanted := theirs.substitute(following)) != ours:
                yield Claim(wanted, "==", ours, call.callee.return_op)


# ---------------------------------------------------------------------- results
def _binding_places(op: ControlOp) -> dict[Symbol | None, tuple[int, int]]:
    """Which dim of which result gives a defined size its value; the last one with its name."""
    names = {*defined_sizes(op)}
    return {size.as_symbol: (k, d) for k, type_ in enumerate(_types(op.results))
            for d, size in enumerate(type_.shape) if size.as_symbol in names}


def _is_said(
    call: Call, k: int, d: int, places: Mapping[Symbol | None, tuple[int, int]],
    holds: Callable[[Claim], bool],
) -> bool:
    """Whether a dim of a result is certainly what the caller's type declares."""
    size = buffer_type(call.op.results[k]).shape[d]
    if isinstance(call.op, LoopOp):
        return _is_said_of_loop(call, call.op, k, d, size, holds)
    found = call.returned[k].shape[d]
    if (place := places.get(size.as_symbol)) is not None:
        return found == call.returned[place[0]].shape[place[1]]
    sizes = call.sizes
    return found.symbols <= sizes.keys() and holds(
        Claim(found.substitute(sizes), "==", size, call.op))


def _is_said_of_loop(
    call: Call, op: LoopOp, k: int, d: int, size: Expr, holds: Callable[[Claim], bool]
) -> bool:
    """Whether carried dims that do not vary, or the number of stacked calls, are as declared."""
    sizes = call.sizes
    same = {s: e for s, e in sizes.items() if s not in call.varying and s is not op.step_symbol}
    if k < len(op.carried):
        found = _types(call.callee.input_arguments)[k].shape[d]
    elif d:
        found = call.returned[k].shape[d - 1]
    else:
        return op.trip is not None and op.condition is None and holds(
            Claim(op.trip.data, "==", size, op)) and holds(Claim(Expr.of(0), "<=", size, op))
    return found.symbols <= same.keys() and holds(Claim(found.substitute(same), "==", size, op))


def _types(values: Sequence[SSAValue]) -> list[BufferType]:
    return [buffer_type(v) for v in values]

"""Functions under construction: what a body knows about the enclosing functions.

    %y = strata.if %c then @then else @else (%x)      the frame of @main, current again
    strata.func @then(%x: ...)                        a frame inside it, finished before

A value of an enclosing function becomes an argument of a body at its first use. A value with known
contents is recreated instead, so that constants stay constants. A body sees captured values
through its own views, because what it learns about them, such as the sizes that it binds, only
holds inside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from compiler.frontend.elements import Element
from compiler.frontend.values import Value
from dialects.records import dataclass
from dialects.strata.assumptions import Outcome
from dialects.strata.control import LoopOp
from dialects.strata.func import FuncOp
from dialects.strata.types import SymbolsAttr, TensorType
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_nonnegative
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import identifier
from passes.rewriting import erase_unused, used_sizes


class Mark(NamedTuple):
    """A snapshot: the names in use, the last function, the problems, and the number of draws."""

    sizes: frozenset[str]
    functions: frozenset[str]
    last: Operation | None
    faults: tuple[int, frozenset[str]]
    choices: Counter[str]
    draws: int


@dataclass
class Names:
    """The names of sizes and functions in use."""

    sizes: set[str] = field(default_factory=set[str])
    functions: set[str] = field(default_factory=lambda: {"main"})

    def size(self, hint: str) -> Symbol:
        """A new symbol for a number computed at run time."""
        return Symbol.computed(_distinct(identifier(hint), self.sizes))

    def function(self, hint: str) -> str:
        return _distinct(identifier(hint), self.functions)


def _distinct(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 2
    while name in taken:
        name, count = f"{wanted}_{count}", count + 1
    taken.add(name)
    return name


@dataclass(eq=False)
class Frame:
    """One function. `sizes`: the symbols that are bound in it, unknown to its caller.

    `step`: the symbol that a loop binds for it, below `trip` if that is known. `local`: the SSA
    values of constants and captured values in this function. `bound`: the sizes that the elements
    of tensors became here; `elements`: those that were taken out of their tensors; `slices`: the
    bounds of slices; `choices`: the outcomes that were chosen.
    """

    block: Block
    outer: Frame | None = None
    step: Symbol | None = None
    trip: Expr | None = None
    sizes: set[Symbol] = field(default_factory=set[Symbol])
    local: dict[Value, SSAValue] = field(default_factory=dict[Value, SSAValue])
    bound: dict[SSAValue, list[Expr]] = field(default_factory=dict[SSAValue, "list[Expr]"])
    elements: dict[Element, Value] = field(default_factory=dict[Element, Value])
    slices: dict[object, tuple[Expr, Expr]] = field(
        default_factory=dict[object, "tuple[Expr, Expr]"])
    choices: dict[tuple[Outcome, ...], str] = field(
        default_factory=dict["tuple[Outcome, ...]", str])
    captured: dict[Value, BlockArgument] = field(default_factory=dict[Value, BlockArgument])
    views: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def chosen(self, outcomes: tuple[Outcome, ...]) -> str | None:
        """What was chosen among outcomes, here or in an enclosing function; None if nothing was."""
        if outcomes in self.choices:
            return self.choices[outcomes]
        return None if self.outer is None else self.outer.chosen(outcomes)

    # ------------------------------------------------------------------ values
    def find(self, value: Value) -> SSAValue | None:
        """The local SSA value of a value, if there already is one."""
        here = value.ssa is not None and _block_of(value.ssa) is self.block
        return value.ssa if here else self.local.get(value)

    def owns(self, value: Value) -> bool:
        """Whether the value is local to this function."""
        if value.origin is not None:
            return self.views.get(value.origin) is value
        return value.ssa is not None and _block_of(value.ssa) is self.block

    def view(self, value: Value) -> Value:
        """This function's view of a value of an enclosing function."""
        if value not in self.views:
            self.views[value] = Value(value.build, value.type, contents=value.contents,
                                      label=value.label, node=value.node, origin=value)
        return self.views[value]

    def capture(self, value: Value) -> SSAValue:
        """The argument for a value captured from an enclosing function."""
        while value.origin is not None:
            value = value.origin
        if value not in self.captured:
            assert self.outer is not None and value.ssa is not None
            argument = self.block.insert_arg(value.type, len(self.block.args))
            argument.name_hint = value.ssa.name_hint
            self.captured[value] = argument
        return self.captured[value]

    def source(self, value: Value) -> SSAValue | None:
        """The SSA value of a value, possibly in an enclosing function."""
        while value.ssa is None and value.origin is not None:
            value = value.origin
        return value.ssa

    def outer_value(self, argument: BlockArgument) -> SSAValue | None:
        """The outer value of a captured argument of this function, or of an enclosing one."""
        for value, own in self.captured.items():
            if own is argument:
                return value.ssa
        return None if self.outer is None else self.outer.outer_value(argument)

    def argument(self, type_: TensorType) -> BlockArgument:
        """A new argument after the existing ones."""
        return self.block.insert_arg(type_, len(self.block.args))

    def at_most(self, low: Expr, high: Expr) -> bool:
        """Whether low <= high in every iteration of the loops around this."""
        ends: list[Expr] = [high - low]
        frame: Frame | None = self
        while frame is not None:
            step, trip = frame.step, frame.trip
            if step is not None and trip is not None and step in ends[0].symbols:
                if ends[0].linear([step]) is None:
                    return False
                ends = [end.substitute({step: last}) for end in ends
                        for last in (Expr.of(0), trip - 1)]
            frame = frame.outer
        return all(is_nonnegative(end, frozenset[Symbol]()) for end in ends)

    def hides(self, size: Expr) -> bool:
        """Whether the caller does not know the size."""
        return bool(size.symbols & {*self.sizes, self.step})

    @property
    def limits(self) -> dict[Symbol, Expr]:
        """The upper bounds of the iteration numbers of all enclosing loops."""
        around = {} if self.outer is None else self.outer.limits
        if self.trip is None or self.step is None:
            return around
        return {**around, self.step: self.trip}

    @property
    def loops(self) -> int:
        """The number of enclosing loops."""
        return (self.step is not None) + (0 if self.outer is None else self.outer.loops)

    # ------------------------------------------------------------------ the end
    @property
    def function(self) -> FuncOp:
        function = self.block.parent_op()
        assert isinstance(function, FuncOp)
        return function

    @property
    def name(self) -> str:
        return self.function.sym_name.data

    def drop_unused(self) -> list[Value]:
        """Erase dead operations and captures, and return the values that are still captured.

        The function's results must have a use: `close` is called, or about to be.
        """
        erase_unused(self.block)
        for value, argument in [*self.captured.items()]:
            if argument.first_use is None:
                self.block.erase_arg(argument)
                del self.captured[value]
        return list(self.captured)

    def close(self, results: Sequence[SSAValue]) -> list[Value]:
        """Finish the function with these results; return its captures in the order of arguments."""
        self.function.finish([f"r{k}" for k in range(len(results))], results)
        return self.drop_unused()

    def arrange(self, values: Sequence[Value]) -> None:
        """Arrange the captured arguments in this order, and declare the remaining sizes."""
        for value in values:
            argument = self.block.insert_arg(value.type, len(self.block.args))
            if (old := self.captured.get(value)) is not None:
                argument.name_hint = old.name_hint
                old.replace_all_uses_with(argument)
                self.block.erase_arg(old)
            self.captured[value] = argument
        self.function.properties["inputs"] = ArrayAttr([
            StringAttr(a.name_hint or f"a{k}") for k, a in enumerate(self.block.args)])
        self._declare_sizes()

    def _declare_sizes(self) -> None:
        """Declare the sizes that the function receives from its caller."""
        types = [a.type for a in self.block.args if isinstance(a.type, TensorType)]
        used = {s for type_ in types for size in type_.shape for s in size.symbols}
        for op in self.block.ops:
            used |= used_sizes(op) - ({op.step_symbol} if isinstance(op, LoopOp) else set[Symbol]())
        bound = {size.as_symbol for type_ in types for size in type_.shape}
        needed = sorted(used - bound - self.sizes)
        if needed:
            self.function.properties["sizes"] = SymbolsAttr(tuple(needed))


def _block_of(value: SSAValue) -> Block | None:
    owner = value.owner
    return owner if isinstance(owner, Block) else owner.parent

"""The one way to change IR: rules driven by a worklist, and removal of unused operations.

A rule looks at one operation and returns the values to use instead of its results, or None:

    def double_negation(op: NegOp, at: Rewriter) -> SSAValue | None:
        # -(-x) == x
        inner = op.x.owner
        return inner.x if isinstance(inner, NegOp) else None

    rewrite(func, {NegOp: [double_negation]}, context)

New operations are created through `at` (a `Build`: `at(AddOp, a, b)`, or `at.insert(op)`). They are
inserted before the matched one and inherit its location. Each rewrite is an event for the listeners
of the context (`events.py`), the first of which keeps provenance: rules need not care.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import Pure

from dialects.graph.base import Build, GraphOp
from dialects.graph.shape import ReshapeOp
from dialects.loop import AxesAttr
from dialects.strata.callees import callee_of
from dialects.strata.control import ControlOp, function_of
from dialects.strata.func import FuncOp
from dialects.strata.sizes import AssumeOp, defined_sizes
from dialects.strata.types import BufferType, ExprAttr, SizesAttr, TensorType
from dialects.symbolic.symbol import Kind, Symbol
from dialects.text.syntax import set_location
from dialects.walking import walked
from passes.base import StrataContext
from passes.events import UNUSED, Rewrite, keep_locations, left_unused

Replacement: TypeAlias = "SSAValue | Sequence[SSAValue] | None"
Rule: TypeAlias = "Callable[[Any, Rewriter], Replacement]"
Rules: TypeAlias = "Mapping[type[Operation], Sequence[Rule]]"


class Rewriter(Build):
    """Inserts operations before the matched one, with its location; the driver visits them, too."""

    def __init__(self, anchor: Operation, context: StrataContext, added: list[Operation]):
        super().__init__(anchor)
        self.context = context
        self._added = added

    def insert(self, op: Operation) -> Operation:
        super().insert(op)
        set_location(op, self.anchor)
        self._added.append(op)
        return op


def rewrite(root: Operation, rules: Rules, context: StrataContext) -> bool:
    """Apply rules to all operations inside `root` until none applies; returns whether any did.

    Rules of an operation's class are tried in order, then those of its base classes. Pure
    operations that lose their last use are erased.
    """
    return _Driver(root, rules, context).run()


class _Driver:
    """A worklist of operations, initially in program order."""

    def __init__(self, root: Operation, rules: Rules, context: StrataContext):
        self.rules, self.context = rules, context
        self.by_class: dict[type[Operation], list[Rule]] = {}
        self.stack = walked(root)[1:]
        self.stack.reverse()
        self.queued = set(map(id, self.stack))
        self.changed = False

    def run(self) -> bool:
        while self.stack:
            op = self.stack.pop()
            if id(op) in self.queued:
                self.queued.discard(id(op))
                self.visit(op)
        return self.changed

    def visit(self, op: Operation) -> None:
        allowance = self.context.allowance
        if allowance.is_spent:
            return
        if is_unused(op):
            allowance.take(op, UNUSED)
            emit(self.context, Rewrite(UNUSED, [op]))
            self.erase(op)
            return
        for rule in self.rules_of(type(op)):
            added: list[Operation] = []
            if allowance.watched:
                allowance.attempt(op, _name_of(rule))
            values = rule(op, Rewriter(op, self.context, added))
            self.push(reversed(added))
            if values is not None:
                allowance.take(op, _name_of(rule))
                given = [values] if isinstance(values, SSAValue) else values
                self.replace(op, [self.fitted(op, k, v, added) for k, v in enumerate(given)])
                emit(self.context, Rewrite(_name_of(rule), left_unused(op), given, _alive(added)))
                self.erase(op)
                return

    def fitted(
        self, op: Operation, number: int, value: SSAValue, others: list[Operation]
    ) -> SSAValue:
        """The value in the type of the result that it replaces.

        A rule may return a tensor whose sizes are equal only because the program assumes so: f32[n]
        for f32[5]. It is then reshaped, so that all readers still see the old type.
        """
        wanted, found = op.results[number].type, value.type
        if not isinstance(op, GraphOp) or wanted == found:
            return value
        assert isinstance(wanted, TensorType) and isinstance(found, TensorType)
        added: list[Operation] = []
        shape = list(wanted.shape)
        result = Rewriter(op, self.context, added)(ReshapeOp, value, shape=shape)
        self.push(added)
        others += added
        return result

    def rules_of(self, class_: type[Operation]) -> list[Rule]:
        if class_ not in self.by_class:
            self.by_class[class_] = [r for c in class_.__mro__ for r in self.rules.get(c, ())]
        return self.by_class[class_]

    def replace(self, op: Operation, values: Sequence[SSAValue]) -> None:
        for old, new in zip(op.results, values, strict=True):
            self.push(use.operation for use in old.uses)
            old.replace_all_uses_with(new)

    def erase(self, op: Operation) -> None:
        """Erase an operation and visit the operations of its operands, which may be unused now."""
        self.changed = True
        for inner in walked(op):
            self.queued.discard(id(inner))
        owners = [v.owner for v in op.operands]
        erase(op)
        self.push(o for o in owners if isinstance(o, Operation))

    def push(self, ops: Iterable[Operation]) -> None:
        for op in ops:
            if id(op) not in self.queued:
                self.queued.add(id(op))
                self.stack.append(op)


# ---------------------------------------------------------------------- helpers without rules
def functions(module: ModuleOp) -> list[FuncOp]:
    """The functions over tensors in a module."""
    return [op for op in module.body.block.ops if isinstance(op, FuncOp)]


def used_sizes(op: Operation) -> set[Symbol]:
    """The sizes that an operation uses in types, attributes and regions, and for what it calls."""
    found: set[Symbol] = set()
    if isinstance(op, ControlOp):
        found |= {s for name in op.callees for s in function_of(op, name).caller_sizes}
    for inner in walked(op):
        for attribute in (*inner.properties.values(), *(r.type for r in inner.results)):
            found |= _symbols_in(attribute)
    return {s for s in found if s.kind in (Kind.SIZE, Kind.COMPUTED)}


def _symbols_in(attribute: Attribute) -> set[Symbol]:
    match attribute:
        case ExprAttr():
            return {*attribute.data.symbols}
        case SizesAttr():
            return {s for e in attribute.data for s in e.symbols}
        case TensorType() | BufferType():
            return {s for e in attribute.shape for s in e.symbols}
        case AxesAttr():
            return {s for a in attribute.data for s in a.extent.symbols}
        case ArrayAttr():
            return {s for a in attribute.data for s in _symbols_in(a)}
        case _:
            return set()


class SizeDefinitions(NamedTuple):
    """Which operations of a block define sizes; users of a size must stay after its definition."""

    by_name: Mapping[Symbol, Operation]

    @staticmethod
    def of(block: Block) -> SizeDefinitions:
        return SizeDefinitions({name: op for op in block.ops for name in defined_sizes(op)})

    def used_by(self, op: Operation) -> list[Operation]:
        """The operations, other than itself, that define sizes of this one."""
        if not self.by_name:
            return []
        names = sorted(used_sizes(op) & self.by_name.keys())
        return [d for d in dict.fromkeys(self.by_name[n] for n in names) if d is not op]


def emit(context: StrataContext | None, event: Rewrite) -> None:
    """Tell the listeners of a context of a rewrite; without a context, keep locations."""
    for listener in context.listeners if context is not None else (keep_locations,):
        listener(event)


def _name_of(rule: Rule) -> str:
    return getattr(rule, "__name__", type(rule).__name__)


def _alive(ops: Sequence[Operation]) -> list[Operation]:
    """The operations that are still in a block."""
    return [op for op in ops if op.parent is not None]


def replace(
    op: Operation, values: Sequence[SSAValue], context: StrataContext | None = None, rule: str = ""
) -> None:
    """Use `values` instead of the results, one for each, and erase the operation.

    What computes them stands for the nodes of the operation from now on, and for those of
    operations that lose their last user with it. Nothing happens if the context allows no more
    rewrites.
    """
    if context is not None and not context.allowance.take(op, rule):
        return
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    makers = dict.fromkeys(v.owner for v in values if isinstance(v.owner, Operation))
    emit(context, Rewrite(rule, left_unused(op), values, list(makers)))
    erase(op)


def erase(op: Operation) -> None:
    """Remove an operation without uses from its block."""
    block = op.parent
    assert block is not None
    block.erase_op(op)


def is_unused(op: Operation) -> bool:
    """Whether an operation has results, all unused, and no other effect."""
    if not op.results or any(r.first_use is not None for r in op.results):
        return False
    return op.has_trait(Pure) and not defined_sizes(op) and not makes_choices(op)


def makes_choices(op: Operation) -> bool:
    """Whether functions that an operation calls have a choice between ways to compile a node.

    The types and shapes around the operation follow from it, even if its results have no use, so
    that a run must still notice that its sizes break the choice.
    """
    if not isinstance(op, ControlOp):
        return False
    callees = (callee_of(op, name) for name in op.callees)  # None: discarded by the importer
    bodies = [callee.body.block for callee in callees if isinstance(callee, FuncOp)]
    return any((isinstance(inner, AssumeOp) and inner.choice is not None) or makes_choices(inner)
               for body in bodies for inner in body.ops)


def erase_unused(block: Block, context: StrataContext | None = None) -> int:
    """Erase unused pure operations of a block, and operations that only they used; their number."""
    count = 0
    op = block.last_op
    while op is not None:
        before = op.prev_op
        if is_unused(op) and (context is None or context.allowance.take(op, UNUSED)):
            emit(context, Rewrite(UNUSED, [op]))
            erase(op)
            count += 1
        op = before
    return count

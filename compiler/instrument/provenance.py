"""Provenance: which operations come from which of the model's nodes, and what became of the others.

`Origins` follows a compilation: it counts the operations of each level that name a node, and knows
at the end which kernels compute a node, or why none does. Scalar operations and terminators inside
a nest, a map or a kernel belong to it; `without_node` does not count them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.traits import IsTerminator, SymbolOpInterface

from compiler.frontend.origins import ModelNode
from compiler.instrument import Instrument
from dialects import host
from dialects.block import KernelOp
from dialects.loop import CallOp as LoopCall
from dialects.loop import KernelOp as LoopKernel
from dialects.strata.control import CallOp, ControlOp
from dialects.strata.requirements import RequireOp
from dialects.strata.sizes import AssumeOp, SizeOp
from dialects.text.syntax import location_name, location_names
from passes.rewrites.calls import called

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

NOT_READ = "nothing that is left reads its result"


def without_node(module: Operation) -> Counter[str]:
    """The tensor operations, nests and launches of a module that name no model node."""
    return Counter(
        op.name for op in module.walk()
        if op.parent_op() is not None and not location_name(op)
        and op.name.split(".")[0] not in ("arith", "math")
        and not op.has_trait(IsTerminator) and not op.has_trait(SymbolOpInterface))


class Origins(Instrument):
    """The nodes of a model and what comes from them.

    `levels`: for each level, how many operations name a node, and how many there are. Functions
    and kernels are not counted. `operations`: for each level, the kinds of operations by node.
    """

    def __init__(self) -> None:
        self.nodes: list[ModelNode] = []
        self.levels: dict[str, tuple[int, int]] = {}
        self.operations: dict[str, dict[str, Counter[str]]] = {}
        self.kernels: dict[str, list[str]] = {}
        """The kernels by the name of a node."""
        self.first_call: dict[str, str] = {}
        """What stands in the first call of a shared function for a node of a later one; operations
        of the function are named after it."""
        self._imported: set[str] = set()
        self._host: dict[str, str] = {}
        self._gone: dict[str, str] = {}
        self._inner: dict[str, list[str]] = {}
        """The names of the final module that start with a name and a slash, by that name."""

    # ------------------------------------------------------------------ the compilation
    def start(self, state: State) -> None:
        self._count(state)
        self._imported = {*self.operations[state.level]}
        known = {n.name: n for n in state.nodes}
        self.nodes = list(known.values()) if state.nodes else [
            ModelNode(name, "") for name in self.operations[state.level]]

    def before(self, step: Step, state: State) -> None:
        for calls in called(state.module).values():
            for call in calls[1:]:
                self.first_call.update(
                    (own, first) for first, own in call.names_of(calls[0]).items())
        if step.level != state.level:
            self._count(state)

    def finish(self, state: State) -> None:
        self._count(state)
        self._gone = state.context.provenance.gone
        for name, kernel in _launched(state.module):
            self.kernels.setdefault(name, []).append(kernel)
        for op in state.module.walk():
            for name in location_names(op):
                self._host.setdefault(name, _role(op))
        for name in self._host:
            for end in (k for k, c in enumerate(name) if c == "/"):
                self._inner.setdefault(name[:end], []).append(name)

    def _count(self, state: State) -> None:
        by_node: dict[str, Counter[str]] = {}
        located, total, shared = 0, 0, called(state.module)
        for part in state.module.body.block.ops:
            alike = _alike(shared.get(getattr(getattr(part, "sym_name", None), "data", ""), ()))
            for op in part.walk():
                if op.has_trait(SymbolOpInterface):
                    continue
                names = location_names(op)
                total, located = total + 1, located + bool(names)
                for name in dict.fromkeys(own for n in names for own in alike.get(n, (n,))):
                    by_node.setdefault(name, Counter())[op.name] += 1
        self.levels[state.level], self.operations[state.level] = (located, total), by_node

    # ------------------------------------------------------------------ questions
    def inside(self, node: ModelNode) -> list[str]:
        """The names in locations that belong to a node: its own, and those of nodes inside it."""
        return self.names_of(node.name)

    def names_of(self, name: str) -> list[str]:
        """As `inside`, by the name of the node."""
        return [name, *self._inner.get(name, ())]

    def kernels_of(self, node: ModelNode) -> list[str]:
        """The kernels that compute a node, or a part of it, in the order of their launches."""
        return list(dict.fromkeys(
            kernel for name in self.inside(node) for kernel in self.kernels.get(name, ())))

    def why(self, node: ModelNode) -> str:
        """Why no kernel computes a node; empty if one does, or if nobody knows."""
        if self.kernels_of(node):
            return ""
        role = next((r for name in self.inside(node) if (r := self._host.get(name))), "")
        return role or self._gone.get(node.name) or node.gone or (
            "" if node.name in self._imported else NOT_READ)


def _alike(calls: Sequence[CallOp]) -> dict[str, list[str]]:
    """The nodes of all calls of a function, by the name that they have in it."""
    found: dict[str, list[str]] = {}
    for call in calls:
        for first, own in call.names_of(calls[0]).items():
            found.setdefault(first, []).append(own)
    return found


def _launched(module: ModuleOp) -> Iterator[tuple[str, str]]:
    """Each node of a launch, and of the operations of its kernel, with the kernel's name."""
    inner = {op.sym_name.data: _names_inside(op) for op in module.body.block.ops
             if isinstance(op, KernelOp | LoopKernel)}
    found: dict[tuple[str, str], None] = {}
    for op in module.walk():
        if isinstance(op, host.LaunchOp | LoopCall):
            kernel = op.kernel.data
            names = (*location_names(op), *inner.get(kernel, ()))
            found |= dict.fromkeys((name, kernel) for name in names)
    yield from found


def _names_inside(kernel: Operation) -> Sequence[str]:
    return list(dict.fromkeys(name for op in kernel.walk() for name in location_names(op)))


def _role(op: Operation) -> str:
    """What an operation outside of kernels does for its node."""
    match op:
        case host.ConstantOp():
            label = getattr(getattr(op.value, "label", None), "data", "")
            return f"folded into the constant '{label}'" if label else "folded into a constant"
        case host.ViewOp():
            return "a view of a buffer, which costs nothing"
        case host.AllocOp() | host.FreeOp():
            return "memory of a buffer"
        case host.CopyOp():
            return "a copy on the host"
        case host.CollectiveOp():
            return "data exchanged with other ranks"
        case host.ForeignLaunchOp():
            return f"a launch of the user's kernel {op.kernel.data}"
        case host.ReturnOp():
            return "returned as it is"
        case SizeOp():
            return "its elements are read as sizes on the host"
        case RequireOp() | AssumeOp():
            return "a check on the host"
        case ControlOp():
            return "control flow on the host"
        case _:
            return f"{op.name} on the host"

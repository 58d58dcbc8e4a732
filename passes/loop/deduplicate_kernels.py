"""loop-deduplicate-kernels: kernels that differ only in names become one.

    %a = loop.call @k0(%x) sizes(b, 2*b)              %a = loop.call @k0(%x) sizes(b, 2*b)
    %b = loop.call @k1(%y) sizes(n, m)                %b = loop.call @k0(%y) sizes(m, n)
    loop.kernel @k0(%p: f32[s, t]) sizes(s, t)  -->   loop.kernel @k0(%p: f32[s, t]) sizes(s, t)
    loop.kernel @k1(%q: f32[u, v]) sizes(v, u)

Names are those of the kernel, its values, axes and size symbols, which are numbered as they appear.
The first kernel stays. Schedules count: kernels with different ones stay apart. Works on the loop
level and on the host level (`host.launch`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from dialects.expr import Expr
from dialects.func import FuncOp
from dialects.host import FuncOp as HostFuncOp
from dialects.host import LaunchOp
from dialects.loop import AxesAttr, Axis, CallOp, KernelOp
from dialects.schedule import Schedule, ScheduleAttr
from dialects.types import BufferType, ExprAttr, SizesAttr, TensorType
from passes.base import StrataContext, StrataPass
from passes.rewriting import erase


@dataclass(frozen=True)
class LoopDeduplicateKernels(StrataPass):
    """Merge kernels that differ only in names."""

    name = "loop-deduplicate-kernels"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        first: dict[Hashable, Canonical] = {}
        merged: dict[str, tuple[Canonical, Canonical]] = {}
        for op in list(module.body.block.ops):
            if not isinstance(op, KernelOp):
                continue
            this = Canonical.of(op)
            kept = first.setdefault(this.key, this)
            if kept is not this:
                merged[op.sym_name.data] = (this, kept)
                erase(op)
        for call in _calls(module):
            if call.kernel.data in merged:
                _redirect(call, *merged[call.kernel.data])


def _calls(module: ModuleOp) -> list[CallOp | LaunchOp]:
    return [op for func in module.body.block.ops if isinstance(func, FuncOp | HostFuncOp)
            for op in func.body.block.ops if isinstance(op, CallOp | LaunchOp)]


def _redirect(call: CallOp | LaunchOp, old: Canonical, new: Canonical) -> None:
    """Call the kept kernel: its size parameters are the same sizes in another order."""
    values = dict(zip(old.parameters, call.sizes.data, strict=True))
    call.properties["kernel"] = new.kernel.sym_name
    call.properties["sizes"] = SizesAttr(tuple(values[p] for p in new.parameters))


@dataclass
class Canonical:
    """A kernel with all its names numbered in the order in which they appear.

    `parameters` are the canonical names of its size parameters, in their order. Kernels of equal
    keys compute the same, given sizes by these names.
    """

    kernel: KernelOp
    names: dict[str, Expr] = field(default_factory=dict[str, Expr])
    values: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    key: Hashable = None

    @staticmethod
    def of(kernel: KernelOp) -> Canonical:
        result = Canonical(kernel)
        block = kernel.body.block
        arguments = result._values(block.args)
        body = tuple(map(result._op, block.ops))
        schedule = result._attribute(kernel.schedule) if kernel.schedule else None
        result.key = arguments, body, schedule, frozenset(result.parameters)
        return result

    @property
    def parameters(self) -> list[str]:
        return [str(self._name(name)) for name in self.kernel.size_names]

    # ------------------------------------------------------------------ keys of what is in it
    def _op(self, op: Operation) -> Hashable:
        """An operation as a tuple; numbers the values it defines."""
        operands = tuple(self.values[v] for v in op.operands)
        properties = tuple((k, self._attribute(v)) for k, v in sorted(op.properties.items()))
        results = self._values(op.results)
        regions = tuple(
            (self._values(block.args), tuple(map(self._op, block.ops)))
            for region in op.regions for block in region.blocks)
        return op.name, operands, properties, results, regions

    def _values(self, values: Sequence[SSAValue]) -> Hashable:
        for value in values:
            self.values[value] = len(self.values)
        return tuple(self._attribute(v.type) for v in values)

    def _attribute(self, attribute: Attribute) -> Hashable:
        """An attribute with its symbols renamed, as text: 0.0 and -0.0 differ in it."""
        match attribute:
            case TensorType() | BufferType():
                return str(attribute.element), self._exprs(attribute.shape)
            case SizesAttr():
                return self._exprs(attribute.data)
            case ExprAttr():
                return self._exprs([attribute.data])
            case AxesAttr():
                return tuple(map(self._axis, attribute.data))
            case ArrayAttr():
                return tuple(map(self._attribute, attribute.data))
            case ScheduleAttr():
                return self._schedule(attribute.data)
            case _:
                return str(attribute)

    def _exprs(self, exprs: Sequence[Expr]) -> Hashable:
        return tuple(str(e.substitute({n: self._name(n) for n in sorted(e.symbols)}))
                     for e in exprs)

    def _axis(self, axis: Axis) -> Hashable:
        return str(self._name(axis.name)), self._exprs([axis.extent]), axis.reduce

    def _schedule(self, schedule: Schedule) -> Hashable:
        levels = tuple(replace(x, axis=str(self._name(x.axis))) for x in schedule.levels)
        return str(Schedule(levels, schedule.options))

    def _name(self, name: str) -> Expr:
        """The canonical symbol; `in0`, `in1` ... say which input of a nest, and stay."""
        if name.startswith("in") and name[2:].isdigit():
            return Expr.symbol(name)
        return self.names.setdefault(name, Expr.symbol(f"${len(self.names)}"))

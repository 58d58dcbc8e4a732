"""Collects what a compilation did: an instrument, and what it knows at the end.

`Explanation.json` has the keys `nodes`, `kernels` and `pairs`, besides `model`, `target`, `sizes`
(values of open sizes, for which bytes and FLOPs are given), `memory`, `host` and `levels`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from compiler.explaining.memory import plan_json
from compiler.explaining.work import KernelWork, buffer_bytes, happens, with_joined, work_of
from compiler.frontend.origins import ModelNode
from compiler.instrument.provenance import Origins
from compiler.io.signature import signature_of
from dialects import host
from dialects.block import KernelOp, StoreOp
from dialects.host import host_functions
from dialects.strata.control import ControlOp
from dialects.strata.sizes import SizeOp
from dialects.strata.types import buffer_type
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from passes.analyses.loop.grouping import WAITS
from passes.base import Remark
from passes.events import UNUSED, Rewrite
from passes.reasons import Kind, Reason, legality, price, rule

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

_JOINS = ("loop-join-rows", "loop-join-online", "loop-join-recomputed")
CONSTANT = "Constant"
"""The operator of nodes that only hold a constant, which come last in lists."""
JOINED = "parts of one kernel, which loop-outline groups or a loop-join pass chains"
"""Why nodes are fused of which no rule says more."""
PARTS = rule("each writes its part of one tensor")
_TUNED = "has a tuned schedule, "


@dataclass
class Kernel:
    """A kernel of the final program. `nodes`: names; figures are sums over all launches."""

    name: str
    nodes: list[str]
    schedule: str
    origin: str
    launches: int = 0
    bytes: int = 0
    flops: int = 0

    @property
    def json(self) -> dict[str, Any]:
        return {"name": self.name, "nodes": self.nodes, "bytes": self.bytes, "flops": self.flops,
                "schedule": self.schedule, "origin": self.origin, "launches": self.launches}


@dataclass(frozen=True)
class Pair:
    """Two kernels of which one reads the other's result, or two nodes in one kernel."""

    first: str
    second: str
    fused: bool
    reason: str
    kind: Kind | None = None
    """What kind of a reason keeps them apart (`passes/reasons.py`); None if they are fused."""

    @property
    def json(self) -> dict[str, Any]:
        return {"from": self.first, "to": self.second, "fused": self.fused, "reason": self.reason,
                "kind": self.kind}

    @property
    def told(self) -> str:
        """The reason, and of two kernels its kind."""
        return self.reason if self.fused else f"{self.kind}: {self.reason}"


@dataclass
class Explanation(Origins):
    """An instrument that knows at the end what became of a model."""

    target: str = ""
    scheduled: bool = False
    """Whether `--schedule` gave schedules."""
    model: str = ""
    found: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    pairs: list[Pair] = field(default_factory=list[Pair])
    memory: dict[str, Any] = field(default_factory=dict[str, Any])
    host: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    sizes: dict[Symbol, int] = field(default_factory=dict[Symbol, int])
    remarks: Sequence[Remark] = ()
    work: dict[str, KernelWork] = field(default_factory=dict[str, KernelWork])
    edges: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Nodes of which the second reads the first, after the import."""
    readers: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """The nodes that read a node."""
    rules: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """The rule that merged two nodes, or as what the second joined the kernel of the first."""
    step: str = ""
    functions: Sequence[host.FuncOp] = ()
    """The functions of the final program."""
    calls: dict[str, list[set[str]]] = field(default_factory=dict[str, list[set[str]]])
    """The nodes of each launch of a kernel."""
    launched: Sequence[Sequence[str]] = ()
    """The kernels that each function launched, before launches were joined."""

    def __post_init__(self) -> None:
        super().__init__()

    # ------------------------------------------------------------------ the compilation
    def start(self, state: State) -> None:
        super().start(state)
        self.model = state.name
        self.edges = list(dict.fromkeys(_edges(state.module)))
        for first, second in self.edges:
            self.readers.setdefault(first, {})[second] = None
        state.context.observers = (*state.context.observers, self.rewritten)

    def before(self, step: Step, state: State) -> None:
        super().before(step, state)
        self.step = step.name
        if step.name == "loop-to-block":
            self.work = work_of(state.module)
        if step.name == "block-join-launches":
            self.launched = [_launched(f) for f in host_functions(state.module)]

    def rewritten(self, event: Rewrite) -> None:
        """Keep which rule merged the nodes of a rewrite."""
        if event.rule != UNUSED and event.new and len(event.old) > 1:
            names = dict.fromkeys(n for op in event.old for n in location_names(op))
            for first in names:
                for second in self.readers.get(first, {}).keys() & names.keys():
                    self.rules.setdefault((first, second), f"{event.rule} in {self.step}")

    def finish(self, state: State) -> None:
        super().finish(state)
        self.remarks = state.context.remarks
        functions = self.functions = host_functions(state.module)
        for before, function in zip(self.launched, functions, strict=False):
            self.work = with_joined(self.work, before, [
                op for op in function.walk() if isinstance(op, host.LaunchOp)])
        self.sizes = {**_example_sizes(state.module, functions), **self.sizes}
        kernels = {op.sym_name.data: op for op in state.module.body.block.ops
                   if isinstance(op, KernelOp)}
        self.found = {name: self._kernel(op) for name, op in kernels.items()}
        self.calls = {}
        for function in functions:
            self._launches(function)
        constants = sum(buffer_bytes(op.result, self.sizes) for f in functions for op in f.walk()
                        if isinstance(op, host.ConstantOp))
        self.memory = plan_json(functions, self.sizes, constants)
        self.host = [(f"{op.name}: {_told(op)}", list(location_names(op))) for f in functions
                     for op in f.walk() if isinstance(
                         op, ControlOp | host.CopyOp | host.CollectiveOp | host.ForeignLaunchOp
                         | SizeOp)]
        for (makers, readers), reason in state.context.together.items():
            self.rules |= {(a, b): self.rules.get((a, b), reason)
                           for a in makers for b in readers if a != b}
        self._add_pairs(functions, kernels, state.context.apart)

    def _kernel(self, op: KernelOp) -> Kernel:
        name = op.sym_name.data
        mine = [n for n in self.nodes if name in self.kernels.get(n.name, ())]
        nodes = [n.name for n in sorted(mine, key=lambda n: n.op == CONSTANT)]
        schedule = "" if op.schedule is None else str(op.schedule.data)
        return Kernel(name, nodes, schedule, self._origin(name))

    def _origin(self, kernel: str) -> str:
        tuned = next((r.text for r in self.remarks if r.text.startswith(f"@{kernel} {_TUNED}")), "")
        if tuned:
            return f"tuned: {tuned.partition(_TUNED)[2]}"
        return "--schedule, or the target's rules" if self.scheduled else "the target's rules"

    def work_of(self, launch: host.LaunchOp, sizes: Mapping[Symbol, int]) -> tuple[int, int]:
        """The bytes and FLOPs of a launch at these sizes."""
        work = self.work.get(launch.kernel.data)
        if work is None or not happens(launch, sizes):
            return 0, 0
        return work.bytes_of(launch, sizes), work.flops_of(launch, sizes)

    def is_narrow(self, launch: host.LaunchOp) -> bool:
        """Whether all products of a launch have factors narrower than f32."""
        work = self.work.get(launch.kernel.data)
        return work is not None and work.narrow

    def _launches(self, function: host.FuncOp) -> None:
        for op in function.walk():
            if isinstance(op, host.LaunchOp) and op.kernel.data in self.found:
                kernel = self.found[op.kernel.data]
                self.calls.setdefault(kernel.name, []).append({*location_names(op)})
                moved, flops = self.work_of(op, self.sizes)
                kernel.launches += happens(op, self.sizes)
                kernel.bytes += moved
                kernel.flops += flops

    # ------------------------------------------------------------------ pairs
    def _add_pairs(
        self, functions: Sequence[host.FuncOp], kernels: Mapping[str, KernelOp],
        apart: dict[tuple[tuple[str, ...], tuple[str, ...]], Reason],
    ) -> None:
        by_reader: dict[str, list[tuple[set[str], Reason]]] = {}
        for (first, second), reason in apart.items():
            for name in second:
                by_reader.setdefault(name, []).append(({*first}, reason))
        found = list(dict.fromkeys(p for f in functions for p in _adjacent(f, kernels)))
        readers: dict[str, list[str]] = {}
        for first, second, _ in found:
            readers.setdefault(first, []).append(second)
        for first, second, between in found:
            reason = between or self._reason(first, second, by_reader) or self._from_places(
                first, second, readers)
            self.pairs.append(Pair(first, second, False, reason.text, reason.kind))
        self.pairs += self._fused()

    def _reason(
        self, first: str, second: str, by_reader: dict[str, list[tuple[set[str], Reason]]]
    ) -> Reason | None:
        """Why two kernels are two: what the grouping of nests said, and what joins said, of which
        the last decided; None if neither said anything."""
        if first not in self.found or second not in self.found:
            return rule("a pass after the grouping of nests made one of them")
        makers = {n for n, ks in self.kernels.items() if first in ks}
        readers = [n for n, ks in self.kernels.items() if second in ks]
        reasons = [reason for name in readers for names, reason in by_reader.get(name, ())
                   if names & makers]
        joins = [Reason(r.kind, r.text) for r in self.remarks
                 if r.kind and r.pass_name in _JOINS and r.node in readers]
        found = list(dict.fromkeys([*reasons, *joins]))
        if found:
            return Reason(found[-1].kind, "; ".join(reason.text for reason in found))
        if "_pack" in first:
            return price("it puts an operand into the order that the kernel reads")
        return None

    def _from_places(
        self, first: str, second: str, readers: Mapping[str, Sequence[str]]
    ) -> Reason:
        """Why two kernels are two, from where they are launched."""
        a, b = self.found[first], self.found[second]
        if waits_between(first, second, readers):
            return WAITS
        layered = self.first_call.keys() | {*self.first_call.values()}
        if a.launches != b.launches or not layered.isdisjoint((*a.nodes, *b.nodes)):
            return rule("they are formed apart: equal layers are functions, which share kernels "
                        "(--without share)")
        if a is not b and {*a.nodes} & {*b.nodes}:
            return price("one computation, divided into kernels by a pass (loop-split-*, "
                         "loop-winograd)")
        return legality("neither reads what the other computes point by point")

    def _fused(self) -> Iterator[Pair]:
        """The nodes that read each other and are computed by one kernel."""
        known = {n.name for n in self.nodes if n.op != CONSTANT}
        for first, second in self.edges:
            shared = [k for k in self.kernels.get(second, ()) if k in self.kernels.get(first, ())
                      and not self.are_calls(k, first, second)]
            if shared and {first, second} <= known:
                rule = self._rule(first, second) or self._rule(
                    *(self.first_call.get(name, name) for name in (first, second)))
                yield Pair(first, second, True, f"{rule or JOINED}; both are "
                                                f"computed by {', '.join(shared)}")

    def are_calls(self, kernel: str, first: str, second: str) -> bool:
        """Whether two nodes of a kernel are computed by different launches of it, never by one:
        equal kernels are one."""
        calls = self.calls.get(kernel, ())
        return not any({first, second} <= names for names in calls) and all(
            any(node in names for names in calls) for node in (first, second))

    def _rule(self, first: str, second: str) -> str:
        return self.rules.get((first, second)) or self.rules.get((second, first), "")

    # ------------------------------------------------------------------ the result
    @property
    def json(self) -> dict[str, Any]:
        return {
            "model": self.model, "target": self.target,
            "sizes": {str(s): v for s, v in self.sizes.items()},
            "nodes": [self.node_json(n) for n in self.nodes],
            "kernels": [k.json for k in self.found.values()],
            "pairs": [p.json for p in self.pairs], "memory": self.memory,
            "host": [{"what": what, "nodes": nodes} for what, nodes in self.host],
            "levels": {level: {"operations": total, "with_node": located}
                       for level, (located, total) in self.levels.items()}}

    def node_json(self, node: ModelNode) -> dict[str, Any]:
        kernels = self.kernels_of(node)
        return {"name": node.name, "op": node.op, "kernels": kernels,
                "gone": None if kernels else self.why(node), "scope": node.scope,
                "source": node.source}


def waits_between(first: str, second: str, readers: Mapping[str, Sequence[str]]) -> bool:
    """Whether a third kernel reads what the first one computes, and the second one needs it."""
    known, waiting = {first, second}, [k for k in readers.get(first, ()) if k != second]
    while waiting:
        kernel = waiting.pop()
        if kernel in known:
            continue
        known.add(kernel)
        after = readers.get(kernel, ())
        if second in after:
            return True
        waiting += after
    return False


def _launched(function: host.FuncOp) -> list[str]:
    return [op.kernel.data for op in function.walk() if isinstance(op, host.LaunchOp)]


def _example_sizes(module: ModuleOp, functions: Sequence[host.FuncOp]) -> dict[Symbol, int]:
    """A value for each open size: that of random inputs, or 1 for a size that only a run knows."""
    inputs = signature_of(module)
    known = {s: inputs.example(s) for s in inputs.symbols()}
    return {s: known.get(s, 1) for f in functions for s in f.size_names}


def _edges(module: Operation) -> Iterator[tuple[str, str]]:
    for op in module.walk():
        for value in op.operands:
            if isinstance(value.owner, Operation):
                yield from ((a, b) for a in location_names(value.owner)
                            for b in location_names(op) if a != b)


def _source(value: SSAValue) -> SSAValue:
    while isinstance(value.owner, host.ViewOp):
        value = value.owner.source
    return value


def _adjacent(
    function: host.FuncOp, kernels: Mapping[str, KernelOp]
) -> Iterator[tuple[str, str, Reason | None]]:
    """Kernels of which the second reads a buffer that the first wrote, or writes another part of
    it, and what lies between."""
    writers: dict[SSAValue, tuple[str, Reason | None]] = {}
    for op in function.body.block.ops:
        if isinstance(op, host.CopyOp):
            source = writers.get(_source(op.source))
            writers[_source(op.target)] = (
                source[0] if source else "", legality("a copy lies between them"))
        if isinstance(op, host.CollectiveOp):
            source = writers.get(_source(op.source))
            writers[_source(op.target)] = (
                source[0] if source else "",
                legality("an exchange with other ranks lies between them"))
        if isinstance(op, host.ForeignLaunchOp):
            writers |= {_source(b): ("", None) for b in op.targets}
        if not isinstance(op, host.LaunchOp):
            continue
        read = {*map(_source, _used(op, kernels, reading=True))}
        for buffer in map(_source, op.buffers):
            first, between = writers.get(buffer, ("", None))
            if first:
                yield first, op.kernel.data, between if buffer in read else PARTS
        writers |= {_source(b): (op.kernel.data, None) for b in _used(op, kernels, reading=False)}


def _used(
    launch: host.LaunchOp, kernels: Mapping[str, KernelOp], *, reading: bool
) -> list[SSAValue]:
    """The buffers that a launch reads, or those that it stores into."""
    kernel = kernels.get(launch.kernel.data)
    if kernel is None:
        return [*launch.buffers] if reading else []
    return [given for own, given in zip(kernel.buffers, launch.buffers, strict=True)
            if any(isinstance(use.operation, StoreOp) is not reading for use in own.uses)]


def _told(op: Operation) -> str:
    match op:
        case host.CopyOp():
            return "copies a buffer"
        case host.CollectiveOp():
            return f"{op.collective} of {buffer_type(op.source).short}"
        case host.ForeignLaunchOp():
            return f"launches the user's kernel {op.kernel.data}"
        case SizeOp():
            return "reads sizes from a tensor"
        case _:
            return f"calls {', '.join(f'@{n}' for n in getattr(op, 'callees', ()))}"

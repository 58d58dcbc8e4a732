"""Collects what a compilation did: an instrument, and what it knows at the end.

`Explanation.json` has the keys `nodes`, `kernels` and `pairs`, besides `model`, `target`, `sizes`
(values of open sizes, for which bytes and FLOPs are given), `memory`, `host` and `levels`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from compiler.explaining.edges import edges_of
from compiler.explaining.enclosed import work_of_enclosed
from compiler.explaining.memory import plan_json
from compiler.explaining.pairs import DIVIDED, Links, Pair, links_of
from compiler.explaining.work import (
    KernelWork,
    Launched,
    buffer_bytes,
    happens,
    launched,
    with_joined,
    work_of,
)
from compiler.frontend.origins import ModelNode
from compiler.instrument.provenance import Origins
from compiler.io.signature import signature_of
from dialects import host
from dialects.block import KernelOp
from dialects.host import host_functions
from dialects.loop import KernelOp as LoopKernel
from dialects.loop import NestOp
from dialects.strata.control import ControlOp
from dialects.strata.sizes import SizeOp
from dialects.strata.types import buffer_type
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_names
from passes.base import Remark
from passes.events import UNUSED, Rewrite

if TYPE_CHECKING:
    from compiler.pipeline.state import State
    from compiler.pipeline.steps import Step

_JOINING = ("block-chain-launches", "block-join-launches")
"""Passes after which launches are fewer, of kernels under other names."""
_ENCLOSING = "block-enclose-loops"
"""The pass after which functions are fewer, since kernels have taken them in."""
CONSTANT = "Constant"
"""The operator of nodes that only hold a constant, which come last in lists."""
JOINED = "parts of one kernel"
"""Why nodes are fused of which no rule says more."""
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


@dataclass
class Explanation(Origins):
    """An instrument that knows at the end what became of a model."""

    target: str = ""
    scheduled: bool = False
    """Whether `--schedule` gave schedules."""
    model: str = ""
    found: dict[str, Kernel] = field(default_factory=dict[str, Kernel])
    pairs: list[Pair] = field(default_factory=list[Pair])
    links: Links = field(default_factory=Links)
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
    made_by: dict[str, str] = field(default_factory=dict[str, str])
    """The pass that made a kernel of this name."""
    divided: dict[str, str] = field(default_factory=dict[str, str])
    """The pass that made several nests or kernels of a node."""
    pieces: Counter[str] = field(default_factory=Counter[str])
    """The nests and kernels of each node before a pass that may divide them."""
    functions: Sequence[host.FuncOp] = ()
    """The functions of the final program."""
    calls: dict[str, list[set[str]]] = field(default_factory=dict[str, list[set[str]]])
    """The nodes of each launch of a kernel."""
    launched: Sequence[Launched] = ()
    """What each function launched before launches became fewer."""

    def __post_init__(self) -> None:
        super().__init__()

    # ------------------------------------------------------------------ the compilation
    def start(self, state: State) -> None:
        super().start(state)
        self.model = state.name
        self.edges = edges_of(state.module)
        for first, second in self.edges:
            self.readers.setdefault(first, {})[second] = None
        state.context.observers = (*state.context.observers, self.rewritten)

    def before(self, step: Step, state: State) -> None:
        super().before(step, state)
        self.step = step.name
        if step.name in DIVIDED:
            self.pieces = _pieces(state.module)
        if step.name == "loop-to-block":
            self.work = work_of(state.module)
        if step.name in _JOINING:
            self.launched = [launched(f) for f in host_functions(state.module)]

    def after(self, step: Step, state: State, seconds: float, changed: bool) -> None:
        super().after(step, state, seconds, changed)
        if changed:
            for op in state.module.body.block.ops:
                if isinstance(op, KernelOp | LoopKernel):
                    self.made_by.setdefault(op.sym_name.data, step.name)
        if changed and step.name in DIVIDED:
            self.divided |= dict.fromkeys((_pieces(state.module) - self.pieces).keys(), step.name)
        if step.name == _ENCLOSING:
            self.work = {**self.work, **work_of_enclosed(state.module)}
        if step.name in _JOINING:
            for before, function in zip(self.launched, host_functions(state.module), strict=True):
                self.work = with_joined(self.work, before, function)

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
        self.links = Links([x for f in functions for x in links_of(f, kernels)],
                           state.context.apart, kernels, {
                               k.name: k.launches for k in self.found.values()}, self.first_call,
                           self.made_by, self.divided)
        self.pairs += [*self.links.pairs(), *self._fused()]

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
    def _fused(self) -> Iterator[Pair]:
        """The nodes that read each other and are computed by one kernel."""
        known = {n.name for n in self.nodes if n.op != CONSTANT}
        for first, second in self.edges:
            shared = [k for k in self.kernels.get(second, ()) if k in self.kernels.get(first, ())
                      and not self.are_calls(k, first, second)]
            if shared and {first, second} <= known:
                rule = self._rule(first, second) or self._rule(
                    *(self.first_call.get(name, name) for name in (first, second)))
                rule = rule or f"{JOINED}, which {self.made_by.get(shared[0], 'no pass')} formed"
                yield Pair(first, second, True, f"{rule}; both are computed by "
                                                f"{', '.join(shared)}")

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


def _example_sizes(module: ModuleOp, functions: Sequence[host.FuncOp]) -> dict[Symbol, int]:
    """A value for each open size: that of random inputs, or 1 for a size that only a run knows."""
    inputs = signature_of(module)
    known = {s: inputs.example(s) for s in inputs.symbols()}
    return {s: known.get(s, 1) for f in functions for s in f.size_names}


def _pieces(module: Operation) -> Counter[str]:
    """How many nests, in functions or kernels, each node of the model has."""
    return Counter(name for op in module.walk() if isinstance(op, NestOp)
                   for name in {*location_names(op)})


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

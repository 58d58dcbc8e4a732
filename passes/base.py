"""What a pass is, and what it receives besides the IR.

    @dataclass(frozen=True)
    class GraphDce(StrataPass):
        '''Before -> after, and what it assumes.'''
        name = "graph-dce"

        def run(self, context, module):
            ...

The fields of the dataclass are the pass's options, so `graph-fold-constants{limit=1024}` in a
pipeline text sets one. A pass has no other state. It changes nothing but the module, the weight
store and the list of remarks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import ModuleType

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from dialects.ranks.mesh import Mesh
from dialects.records import dataclass
from dialects.strata.schedule_options import OptionContext
from dialects.strata.weights import WeightStore
from dialects.text.syntax import location_name, location_names
from passes.allowance import Allowance
from passes.contract import Choice, Facts, Rules
from passes.events import Listener, Provenance
from passes.reasons import Kind, Reason


@dataclass(frozen=True)
class Remark:
    """Why a pass did not do something, or what it achieved, for a node of the model."""

    pass_name: str
    node: str
    text: str
    kind: Kind | None = None
    """What kind of a reason it gives for two kernels (`passes/reasons.py`); else None."""

    def __str__(self) -> str:
        node = f" at {self.node}" if self.node else ""
        return f"{self.pass_name}{node}: {self.text}"


class PassError(Exception):
    """The module holds something that a pass cannot do: all such faults, with their nodes."""

    def __init__(self, pass_name: str, faults: Sequence[tuple[str, str]]):
        """`faults`: pairs of the model's node (empty if unknown) and what is wrong."""
        lines = [f"{text} (node {node!r})" if node else text for node, text in faults]
        super().__init__("\n".join([f"{pass_name}:", *lines] if len(lines) > 1
                                   else [f"{pass_name}: {lines[0]}"]))
        self.pass_name = pass_name
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Limits:
    """Limits on the resources that passes may use."""

    folding_bytes: int = 256 << 20
    """The total size of the results of constant folding, in bytes, beside those of integers."""


@dataclass
class StrataContext(OptionContext):
    """xDSL's context, plus what our passes need: weights, the target's facts and rules, remarks."""

    weights: WeightStore = field(default_factory=WeightStore)
    facts: Facts = field(default_factory=Facts)
    """What the target states about its machine; without a target, that nothing is known."""
    rules: Rules | None = None
    """What the target decides about kernels; None without a target."""
    exact: bool = False
    """Compute quantized models in floats, as they are defined, instead of in integers."""
    choices: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    """Schedules that were found by measuring, for this target and its options."""
    limits: Limits = field(default_factory=Limits)
    mesh: Mesh | None = None
    """The ranks among which the program is to be divided; None for one rank."""
    rank: int | None = None
    """The rank for which the program is made; None for a program that is the same on all."""
    plugins: tuple[ModuleType, ...] = ()
    """Modules of plugins, whose lowerings of graph operations are used like our own."""
    noted: dict[Remark, None] = field(default_factory=dict[Remark, None])
    """The remarks in the order in which they were made, without duplicates."""
    provenance: Provenance = field(default_factory=Provenance)
    """Which of the model's nodes lost operations, and why."""
    observers: tuple[Listener, ...] = ()
    """Who else is told of rewrites."""
    allowance: Allowance = field(default_factory=Allowance)
    """How many rewrites passes may make; any number but for `bisect`."""

    apart: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, Reason]] = field(
        default_factory=dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, Reason]])
    """Why two operations are not fused, by the nodes of the first and of the second, and then by
    what was not done with them: "" for the grouping of nests."""
    together: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = field(
        default_factory=dict[tuple[tuple[str, ...], tuple[str, ...]], str])
    """Why two operations share a kernel, in the same way."""

    def keep_apart(
        self, first: Operation, second: Operation, reason: Reason, what: str = ""
    ) -> None:
        """Record why two operations, one of which reads the other, stay in separate kernels."""
        names = location_names(first), location_names(second)
        self.apart.setdefault(names, {})[what] = reason

    def keep_together(self, first: Operation, second: Operation, reason: str) -> None:
        """Record why two operations, one of which reads the other, share a kernel."""
        self.together[location_names(first), location_names(second)] = reason

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Who is told of each rewrite."""
        return (self.provenance, *self.observers)

    @property
    def remarks(self) -> list[Remark]:
        return list(self.noted)

    @staticmethod
    def with_dialects(
        weights: WeightStore | None = None, facts: Facts | None = None,
        rules: Rules | None = None,
    ) -> StrataContext:
        """A context with all our dialects registered."""
        from dialects.registry import register_dialects

        context = StrataContext(
            weights=weights or WeightStore(), facts=facts or Facts(), rules=rules)
        register_dialects(context)
        return context

    def remark(self, pass_: StrataPass, op: Operation, text: str) -> None:
        """Record a remark; the same text about the same node is kept only once."""
        self.noted[Remark(pass_.name, location_name(op), text)] = None

    def refuse(self, pass_: StrataPass, op: Operation, what: str, reason: Reason) -> None:
        """Record why a pass does not do something that would join kernels."""
        self.noted[Remark(pass_.name, location_name(op), f"{what}: {reason.text}", reason.kind)] = (
            None)

    def refuse_chain(
        self, pass_: StrataPass, calls: Sequence[Operation], what: str, reason: Reason
    ) -> None:
        """Record why a pass does not join these calls, the last of which reads the others."""
        self.refuse(pass_, calls[-1], what, reason)
        for call in calls:
            for maker in {v.owner for v in call.operands}.intersection(calls):
                if isinstance(maker, Operation):
                    self.keep_apart(maker, call, reason._replace(by=pass_.name), what)

    def clone(self) -> StrataContext:
        """A separate context that shares weights, facts and rules."""
        return _extended(super().clone(), self)


def strata_context(context: Context) -> StrataContext:
    """The context itself; for xDSL's own tools, one with an empty weight store."""
    if isinstance(context, StrataContext):
        return context
    return _extended(context, StrataContext())


def _extended(context: Context, extra: StrataContext) -> StrataContext:
    result = StrataContext(weights=extra.weights, facts=extra.facts, rules=extra.rules,
                           exact=extra.exact, choices=extra.choices, limits=extra.limits,
                           mesh=extra.mesh, rank=extra.rank,
                           noted=dict(extra.noted), plugins=extra.plugins,
                           provenance=Provenance(dict(extra.provenance.gone)),
                           observers=extra.observers, allowance=extra.allowance,
                           apart={pair: dict(whats) for pair, whats in extra.apart.items()},
                           together=dict(extra.together),
                           schedule_options=extra.schedule_options)
    for field_name in Context.__dataclass_fields__:
        setattr(result, field_name, getattr(context, field_name))
    return result


@dataclass(frozen=True)
class StrataPass(ModulePass):
    """A Strata pass: an xDSL pass whose context is a `StrataContext`."""

    rounds = False
    """Whether the pass rounds on purpose, as the user allowed, so that results differ after it."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.run(strata_context(ctx), op)

    @abstractmethod
    def run(self, context: StrataContext, module: ModuleOp) -> None:
        """Rewrite the module in place."""

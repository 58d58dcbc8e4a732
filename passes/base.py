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
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from dialects.strata.schedule_options import OptionContext
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import location_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dialects.loop import KernelOp, NestOp
    from dialects.strata.schedule import Schedule
    from passes.analyses.loop.windows import Window
    from passes.contract import Caches, Choice, Packing


class TargetLike(Protocol):
    """What passes ask a target. Targets themselves belong to a higher layer."""

    @property
    def name(self) -> str: ...

    def claims(self, op_name: str) -> bool: ...

    def narrow_factors(self, options: Any) -> Attribute | None: ...
    def scaled_factors(self, options: Any) -> Attribute | None: ...
    def narrow_channels(self, options: Any) -> int: ...

    def joined_groups(
        self, inputs: int, outputs: int, count: int, element: Attribute, options: Any
    ) -> int: ...

    def byte_factors(self) -> tuple[Attribute, Attribute] | None: ...

    def shortens_constants(self) -> bool: ...
    def scans(self) -> bool: ...

    def programs(self, options: Any) -> int: ...
    def short_rows(self, options: Any) -> int: ...
    def product_parts(self, nest: NestOp, options: Any) -> tuple[Symbol, int] | None: ...

    def multiplies(self, element: Attribute, options: Any) -> bool: ...
    def widens(self, options: Any) -> Collection[Attribute]: ...

    def group_rows(self, rows: int | None, groups: int | None, options: Any) -> int: ...

    def gathers(self, options: Any) -> bool: ...

    def checks_indices(self, options: Any) -> bool: ...
    def checks_accesses(self, options: Any) -> bool: ...

    def panels(
        self, kernel: KernelOp, nest: NestOp, constants: Collection[int], options: Any
    ) -> Mapping[int, Packing] | None: ...

    def shorten(
        self, nest: NestOp, data: int, windows: Sequence[Window], options: Any
    ) -> Sequence[Window]: ...

    def row_memory(self, options: Any) -> int: ...
    def apart_memory(self, kernel: Any, options: Any) -> int: ...
    def joins_online(self, kernel: Any, options: Any) -> bool: ...

    def online_parts(self, kernel: Any, options: Any) -> int: ...

    def prefetches(self, options: Any) -> Caches | None: ...

    def prepare(self, kernel: KernelOp, options: Any) -> None: ...

    def decodes(self, element: Attribute, options: Any) -> bool: ...

    def encodes(self, element: Attribute, options: Any) -> bool: ...

    def schedule(self, kernel: KernelOp, options: Any) -> Schedule: ...


@dataclass(frozen=True)
class Remark:
    """Why a pass did not do something, or what it achieved, for a node of the model."""

    pass_name: str
    node: str
    text: str

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
    """The total size of the results of constant folding, in bytes."""


@dataclass
class StrataContext(OptionContext):
    """xDSL's context, plus what our passes need: weights, target, options, remarks."""

    weights: WeightStore = field(default_factory=WeightStore)
    target: TargetLike | None = None
    options: Any = None
    """The target's options, which passes only hand on to the target."""
    exact: bool = False
    """Compute quantized models in floats, as they are defined, instead of in integers."""
    choices: Mapping[str, Choice] = field(default_factory=dict[str, "Choice"])
    """Schedules that were found by measuring, for this target and its options."""
    limits: Limits = field(default_factory=Limits)
    plugins: tuple[ModuleType, ...] = ()
    """Modules of plugins, whose lowerings of graph operations are used like our own."""
    noted: dict[Remark, None] = field(default_factory=dict[Remark, None])
    """The remarks in the order in which they were made, without duplicates."""

    @property
    def remarks(self) -> list[Remark]:
        return list(self.noted)

    @staticmethod
    def with_dialects(
        weights: WeightStore | None = None, target: TargetLike | None = None,
        options: Any = None,
    ) -> StrataContext:
        """A context with all our dialects registered."""
        from dialects.registry import register_dialects

        context = StrataContext(
            weights=weights or WeightStore(), target=target, options=options)
        register_dialects(context)
        return context

    def remark(self, pass_: StrataPass, op: Operation, text: str) -> None:
        """Record a remark; the same text about the same node is kept only once."""
        self.noted[Remark(pass_.name, location_name(op), text)] = None

    def clone(self) -> StrataContext:
        """A separate context that shares weights, target and options."""
        return _extended(super().clone(), self)


def strata_context(context: Context) -> StrataContext:
    """The context itself; for xDSL's own tools, one with an empty weight store."""
    if isinstance(context, StrataContext):
        return context
    return _extended(context, StrataContext())


def _extended(context: Context, extra: StrataContext) -> StrataContext:
    result = StrataContext(weights=extra.weights, target=extra.target, options=extra.options,
                           exact=extra.exact, choices=extra.choices, limits=extra.limits,
                           noted=dict(extra.noted), plugins=extra.plugins,
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

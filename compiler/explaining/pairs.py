"""Pairs of kernels of which one reads what the other computes, and why they are two.

Equal kernels are one, so what is adjacent are launches: each computes nodes of its own. A link
joins two launches; a pair of kernels has the reasons of its links.

    contract_9 for n13, n15  ->  contract_59 for n23, n24     a link, on the edge n15 -> n24
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xdsl.ir import SSAValue

from dialects import host
from dialects.block import KernelOp, StoreOp
from dialects.text.syntax import location_names
from passes.analyses.loop.grouping import WAITS
from passes.host.plan_buffers import seen_memory
from passes.reasons import Kind, Reason, legality, price, rule

PARTS = rule("each writes its part of one tensor")._replace(by="host-bufferize")
LAYERS = "graph-call-layers, graph-share-layers"
ONE_NODE = rule("one node of the model, of which graph-to-loop makes several nests")._replace(
    by="graph-to-loop")
DIVIDED = {
    "loop-winograd": price("a convolution with fewer products is three computations: its input at "
                           "points, their products, and the sums of these"),
    "loop-split-reductions": price("a reduction to few values is two computations, of its parts by "
                                   "many programs and of their results"),
    "loop-split-products": price("a long sum of products for few results is two computations, of "
                                 "its parts by many programs and of their sum"),
    "loop-split-online": price("a long walk over keys for few rows is two computations, of its "
                               "parts by many programs and of their sums"),
}
"""The passes that make several nests or kernels of one, and what for."""
T = TypeVar("T")
Apart = Mapping[tuple[tuple[str, ...], tuple[str, ...]], Mapping[str, Reason]]
"""What passes said of two operations (`StrataContext.apart`)."""


@dataclass(frozen=True)
class Pair:
    """Two kernels of which one reads the other's result, or two nodes in one kernel."""

    first: str
    second: str
    fused: bool
    reason: str
    kind: Kind | None = None
    """What kind of a reason keeps them apart (`passes/reasons.py`); None if they are fused."""
    group: str = ""
    """The reason without the nodes that it speaks of, if it names any."""
    of: str = ""
    """These nodes."""
    by: str = ""
    """The pass that kept them apart, and those that did so before it; empty if none decided."""

    @property
    def json(self) -> dict[str, str | bool | None]:
        return {"from": self.first, "to": self.second, "fused": self.fused, "reason": self.reason,
                "kind": self.kind, "group": self.counted, "pass": self.by or None}

    @property
    def told(self) -> str:
        """The reason, and of two kernels its kind."""
        return self.reason if self.fused else f"{self.kind}: {self.reason}{self._by}"

    @property
    def _by(self) -> str:
        return f" [{self.by}]" if self.by else ""

    @property
    def counted(self) -> str:
        """What equal reasons have in common, to count them by."""
        return self.reason.partition(";")[0] if self.fused else (
            f"{self.kind}: {self.group or self.reason}{self._by}")

    @staticmethod
    def apart(first: str, second: str, reasons: Sequence[Reason]) -> Pair:
        """A pair that is not fused. The last reason decided."""
        told, counted = ("; ".join(dict.fromkeys(texts)) for texts in (
            [r.told for r in reasons], [r.text for r in reasons]))
        of = "; ".join(dict.fromkeys(r.of for r in reasons if r.of))
        by = ", ".join(dict.fromkeys(r.by for r in reasons if r.by))
        return Pair(first, second, False, told, reasons[-1].kind, counted, of, by)


@dataclass(frozen=True, eq=False)
class Launched:
    """A launch: its kernel, and the nodes that it computes."""

    kernel: str
    nodes: Sequence[str]


@dataclass(frozen=True)
class Link:
    """Two launches of which the second reads what the first wrote, and what lies between."""

    first: Launched
    second: Launched
    between: Reason | None


def links_of(function: host.FuncOp, kernels: Mapping[str, KernelOp]) -> Iterator[Link]:
    """Launches of which the second reads a buffer that the first wrote, or writes another part of
    it. Each is found once. Launches of which only one happens, by the sizes, are not linked, and
    whoever reads what they write is linked with each."""
    writers: dict[SSAValue, tuple[Sequence[Launched], Reason | None]] = {}
    choices: dict[tuple[SSAValue, ...], list[Launched]] = {}
    seen = set[Link]()
    for op in function.body.block.ops:
        if isinstance(op, host.CopyOp | host.CollectiveOp):
            source = writers.get(seen_memory(op.source), ((), None))[0]
            writers[seen_memory(op.target)] = source, _copied(op)
        if isinstance(op, host.ForeignLaunchOp):
            writers |= {seen_memory(b): ((), None) for b in op.targets}
        if not isinstance(op, host.LaunchOp):
            continue
        launched = Launched(op.kernel.data, location_names(op))
        same = [launched] if op.when is None else choices.setdefault(tuple(op.buffers), [])
        same += [launched] if op.when is not None else []
        read = {*map(seen_memory, _used(op, kernels, reading=True))}
        for buffer in map(seen_memory, op.buffers):
            makers, between = writers.get(buffer, ((), None))
            for first in makers if makers is not same else ():
                link = Link(first, launched, between if buffer in read else PARTS)
                if link not in seen:
                    seen.add(link)
                    yield link
        writers |= {seen_memory(b): (same, None) for b in _used(op, kernels, reading=False)}


def _copied(op: host.CopyOp | host.CollectiveOp) -> Reason:
    what = "a copy" if isinstance(op, host.CopyOp) else "an exchange with other ranks"
    return legality(f"{what} lies between them").about(location_names(op))


def _used(
    launch: host.LaunchOp, kernels: Mapping[str, KernelOp], *, reading: bool
) -> list[SSAValue]:
    """The buffers that a launch reads, or those that it stores into."""
    kernel = kernels.get(launch.kernel.data)
    if kernel is None:
        return [*launch.buffers] if reading else []
    return [given for own, given in zip(kernel.buffers, launch.buffers, strict=True)
            if any(isinstance(use.operation, StoreOp) is not reading for use in own.uses)]


# ---------------------------------------------------------------------- reasons
@dataclass(frozen=True, eq=False)
class _Said:
    """What a pass said of two operations, by their nodes. `order`: joins decide after the grouping
    of nests."""

    makers: frozenset[str]
    readers: frozenset[str]
    order: tuple[bool, int]
    reason: Reason


@dataclass
class Links:
    """All links of a program, and what is said of each.

    `first_call`: what stands in the first call of a shared function for a node of a later one.
    `launches`: how often each kernel is launched. `made_by`: the pass that made each kernel.
    `divided`: the pass of DIVIDED that made several nests or kernels of a node.
    """

    links: Sequence[Link] = ()
    apart: Apart = field(default_factory=dict[tuple[tuple[str, ...], tuple[str, ...]],
                                              Mapping[str, Reason]])
    known: Mapping[str, KernelOp] = field(default_factory=dict[str, KernelOp])
    launches: Mapping[str, int] = field(default_factory=dict[str, int])
    first_call: Mapping[str, str] = field(default_factory=dict[str, str])
    made_by: Mapping[str, str] = field(default_factory=dict[str, str])
    divided: Mapping[str, str] = field(default_factory=dict[str, str])
    by_reader: dict[str, list[_Said]] = field(default_factory=dict[str, "list[_Said]"])
    readers: dict[Launched, list[Launched]] = field(
        default_factory=dict[Launched, list[Launched]])
    by_ends: dict[tuple[str, str], list[Link]] = field(
        default_factory=dict[tuple[str, str], list[Link]])
    """The links between two kernels."""

    def __post_init__(self) -> None:
        for number, ((makers, readers), said) in enumerate(self.apart.items()):
            for what, reason in said.items():
                told = reason._replace(text=f"{what}: {reason.text}") if what else reason
                found = _Said(frozenset(makers), frozenset(readers), (what != "", number), told)
                for name in readers:
                    self.by_reader.setdefault(name, []).append(found)
        for link in self.links:
            self.readers.setdefault(link.first, []).append(link.second)
            self.by_ends.setdefault((link.first.kernel, link.second.kernel), []).append(link)

    def pairs(self) -> Iterator[Pair]:
        """The pairs of kernels, one for each reason that two of them have."""
        yield from dict.fromkeys(Pair.apart(link.first.kernel, link.second.kernel, self.why(link))
                                 for link in self.links)

    def on_edge(
        self, first: Sequence[str], makers: Sequence[str], second: Sequence[str],
        readers: Sequence[str],
    ) -> Iterator[Pair]:
        """The pairs of kernels on an edge, with what is said of it. `first`, `second`: the names of
        a node and of one that reads it; `makers`, `readers`: their kernels."""
        for link in (x for a in makers for b in readers for x in self.by_ends.get((a, b), ())):
            if not {*first}.isdisjoint(link.first.nodes) and not {*second}.isdisjoint(
                    link.second.nodes):
                own = [] if link.between else self._said(link, first, second)
                yield Pair.apart(link.first.kernel, link.second.kernel, own or self.why(link))

    def why(self, link: Link) -> list[Reason]:
        """Why two launches are two: what lies between, or what passes said, the last of which
        decided; or else what their places tell."""
        if link.between is not None:
            return [link.between]
        if not {link.first.kernel, link.second.kernel} <= self.known.keys():
            return [rule("the passes end before kernels work on tiles, and tell no more")]
        said = self._said(link, link.first.nodes, link.second.nodes)
        shared = {*link.first.nodes} & {*link.second.nodes} & self.divided.keys()
        divided = dict.fromkeys(self.divided[name] for name in sorted(shared))
        return [*(DIVIDED[p]._replace(by=p) for p in divided), *said] or [self._from_places(link)]

    def _said(self, link: Link, makers: Sequence[str], readers: Sequence[str]) -> list[Reason]:
        """What passes said of these nodes of a link, or of those that stand for them in a first
        call; what they said of its launches alone, if they did."""
        found, later = self._about(makers, readers), self.first_call.keys()
        firsts, seconds = link.first.nodes, link.second.nodes
        if not found and not later.isdisjoint(makers) and not later.isdisjoint(readers):
            makers, readers, firsts, seconds = (
                [self.first_call.get(n, n) for n in names]
                for names in (makers, readers, firsts, seconds))
            found = self._about(makers, readers)
        own = [s for s in found if s.makers.issubset(firsts) and s.readers.issubset(seconds)]
        return list(dict.fromkeys(s.reason for s in sorted(own or found, key=lambda s: s.order)))

    def _about(self, makers: Sequence[str], readers: Sequence[str]) -> list[_Said]:
        return list(dict.fromkeys(said for name in readers for said in self.by_reader.get(name, ())
                                  if not said.makers.isdisjoint(makers)))

    def _from_places(self, link: Link) -> Reason:
        """Why two launches are two, from where they are."""
        first, second = link.first, link.second
        if "_pack" in first.kernel:
            return self._made(price("it puts an operand into the order that the kernel reads"),
                              first)
        if (third := waits_between(first, second, self.readers)) is not None:
            return WAITS.about(third.nodes)._replace(by="loop-outline")
        layered = self.first_call.keys() | {*self.first_call.values()}
        if self.launches.get(first.kernel) != self.launches.get(second.kernel) or (
                not layered.isdisjoint([*first.nodes, *second.nodes])):
            return rule("they are formed apart: equal layers are functions, which share kernels "
                        "(--without share)")._replace(by=LAYERS)
        if first.kernel != second.kernel and {*first.nodes} & {*second.nodes}:
            return ONE_NODE
        return self._made(legality("neither reads what the other computes point by point"), second)

    def _made(self, reason: Reason, launched: Launched) -> Reason:
        """The reason, with the pass that made a kernel."""
        return reason._replace(by=self.made_by.get(launched.kernel, ""))


def waits_between(first: T, second: T, readers: Mapping[T, Sequence[T]]) -> T | None:
    """A third launch that reads what the first one computes, and that the second one needs."""
    known = {first, second}
    waiting = [k for k in readers.get(first, ()) if k != second]
    while waiting:
        launched = waiting.pop()
        if launched in known:
            continue
        known.add(launched)
        after = readers.get(launched, ())
        if second in after:
            return launched
        waiting += after
    return None

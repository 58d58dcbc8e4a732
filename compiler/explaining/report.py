"""An explanation as text, grouped and counted; or that of one node or one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from compiler.diagnostics import Problem, StrataError
from compiler.explaining.collect import Explanation, Kernel
from compiler.explaining.neighbours import pairs_around
from compiler.explaining.pairs import Pair
from compiler.explaining.scopes import matching, modules_in, operations_of
from compiler.frontend.origins import ModelNode
from compiler.suggestions import hint_for

SHOWN = 4
"""How many members of a group are shown by name."""
MOST_PAIRS = 40
"""How many neighbours of a node are shown: a constant may have hundreds."""
_DIVIDING = ("graph-annotate-shards", "graph-partition")
"""The passes that say what is divided among ranks, and what that is predicted to gain."""


def whole(found: Explanation) -> list[str]:
    """The model: kernels, pairs that are not fused, nodes without kernels, host, memory."""
    lines = [_head(found), *_note(found), "", "kernels"]
    lines += [line for kernel in found.found.values() for line in _kernel(kernel)]
    apart = [p for p in found.pairs if not p.fused]
    lines += _groups("not fused", ((p.counted, _ends(p)) for p in apart))
    lines += _groups("fused", ((p.counted, _ends(p)) for p in found.pairs if p.fused))
    lines += _without_kernel(found, found.nodes)
    lines += _groups("on the host", ((what, ", ".join(nodes)) for what, nodes in found.host))
    lines += _groups("among ranks", ((r.text, r.node) for r in found.remarks
                                     if r.pass_name in _DIVIDING))
    return [*lines, *_memory(found)]


def nodes_named(found: Explanation, name: str) -> list[ModelNode]:
    """The node with a name, or the nodes of a module. Raises StrataError with the nearest names."""
    known = {n.name: n for n in found.nodes}
    if name in known:
        return [known[name]]
    modules = modules_in(found.nodes)
    meant = matching(name, [*modules])
    if len(meant) > 1:
        names = [".".join(path) for path in meant]
        raise StrataError(f"{found.model} has {len(meant)} modules '{name}'", [
            Problem(f"they are {_some(names)}", hint="write more of the name")])
    known_names = [*known, *(".".join(path) for path in modules)]
    return modules[meant[0]] if meant else _missing(found, "node or module", name, known_names)


def node(found: Explanation, name: str) -> list[str]:
    """What became of a node, or of a module's nodes. Raises StrataError with the nearest names."""
    wanted = nodes_named(found, name)
    if [n.name for n in wanted] != [name]:
        return _module(found, name, wanted)
    [one] = wanted
    kernels = found.kernels_of(one)
    lines = [f"{one.name}: {one.op or 'a node'}", *([f"  in {one.scope}"] if one.scope else []),
             *([f"  from {one.source}"] if one.source else [])]
    lines += [f"  {level}: {operations}" for level, operations in operations_of(found, wanted)]
    if not kernels:
        return [*lines, f"  no kernel computes it: {found.why(one)}"]
    for kernel in kernels:
        lines += _kernel(found.found[kernel]) if kernel in found.found else [f"  {kernel}"]
    pairs = _pairs([*pairs_around(found, one.name)])
    more = len(pairs) - MOST_PAIRS
    return [*lines, *pairs[:MOST_PAIRS], *([f"  and {more} more pairs"] if more > 0 else [])]


def _module(found: Explanation, name: str, nodes: Sequence[ModelNode]) -> list[str]:
    """What became of a module: its operations, kernels, and the reasons between these."""
    own = {n.name for n in nodes}
    kernels = {k: found.found[k] for n in nodes for k in found.kernels_of(n) if k in found.found}
    lines = [f"{name}: a module of {len(nodes)} nodes, in {len(kernels)} kernels"]
    lines += [f"  {level}: {operations}" for level, operations in operations_of(found, nodes)]
    for kernel in kernels.values():
        mine = [n for n in kernel.nodes if n in own]
        _, *figures = _kernel(kernel)
        lines += [f"  {kernel.name}: {len(mine)} of its {len(kernel.nodes)} nodes: {_some(mine)}",
                  *figures]
    lines += _groups("not fused", ((p.counted, _ends(p)) for p in found.pairs
                                   if not p.fused and {p.first, p.second} <= kernels.keys()))
    lines += _groups("fused", ((p.counted, _ends(p)) for p in found.pairs
                               if p.fused and {p.first, p.second} & own))
    return [*lines, *_without_kernel(found, nodes)]


def kernel(found: Explanation, name: str) -> list[str]:
    """What a kernel is. Raises StrataError with the nearest names."""
    wanted = _find(found, "kernel", name, found.found)
    ends = {wanted.name, *wanted.nodes}
    return [*_kernel(wanted, all_nodes=True), *_pairs([
        p for p in found.pairs if (p.first in ends and p.second in ends) or (
            not p.fused and wanted.name in (p.first, p.second))])]


T = TypeVar("T")


def _find(found: Explanation, kind: str, name: str, known: Mapping[str, T]) -> T:
    return known[name] if name in known else _missing(found, kind, name, known)


def _missing(found: Explanation, kind: str, name: str, known: Iterable[str]) -> NoReturn:
    raise StrataError(f"{found.model} has no {kind} '{name}'", [
        Problem(f"no such {kind}", hint=hint_for(name, known))])


def _without_kernel(found: Explanation, nodes: Iterable[ModelNode]) -> list[str]:
    return _groups("nodes without a kernel", (
        (_kind(found.why(n)) or "unknown", n.name) for n in nodes if not found.kernels_of(n)))


def _head(found: Explanation) -> str:
    kernels = found.found.values()
    return (f"{found.model} for {found.target}: {len(found.nodes)} nodes, {len(kernels)} kernels, "
            f"{sum(k.launches for k in kernels)} launches, "
            f"{figure(sum(k.bytes for k in kernels))}B moved, "
            f"{figure(sum(k.flops for k in kernels))}FLOP")


def _note(found: Explanation) -> list[str]:
    sizes = ", ".join(f"{s}={v}" for s, v in found.sizes.items())
    return [f"figures are for {sizes}; fix sizes with --dim"] if sizes else []


def figure(number: float) -> str:
    """A number with a prefix: `1.5 M`."""
    for prefix in ("", "k", "M", "G"):
        if abs(number) < 1000:
            return f"{number:.4g} {prefix}"
        number /= 1000
    return f"{number:.4g} T"


def _kernel(kernel: Kernel, all_nodes: bool = False) -> list[str]:
    names = kernel.nodes if all_nodes else [*kernel.nodes[:SHOWN]]
    more = len(kernel.nodes) - len(names)
    nodes = ", ".join(names) + (f" and {more} more" if more else "")
    times = "" if kernel.launches == 1 else f", {kernel.launches} launches"
    return [f"  {kernel.name}: {nodes or 'no node'}",
            f"      {figure(kernel.bytes)}B, {figure(kernel.flops)}FLOP{times}",
            f"      schedule by {kernel.origin}: {kernel.schedule}"]


_KINDS = {
    "known when compiling": "known when compiling",
    "alias of": "alias of another node (--node tells which)",
    "folded into": "folded into constants of other nodes (--node tells which)",
}
"""What reasons begin with that name nodes, and what is said of all of them."""


def _kind(reason: str) -> str:
    """A reason without what differs from node to node, to group by."""
    return next((told for start, told in _KINDS.items() if reason.startswith(start)), reason)


def _groups(title: str, rows: Iterable[tuple[str, str]]) -> list[str]:
    """One line per reason, the most frequent first, with some of the members."""
    groups: dict[str, list[str]] = {}
    for reason, member in rows:
        groups.setdefault(reason, []).append(member)
    lines = [f"  {len(members)} x {reason}: {_some(members)}".removesuffix(": ")
             for reason, members in sorted(groups.items(), key=lambda item: -len(item[1]))]
    return ["", title, *lines] if lines else []


def _some(members: list[str]) -> str:
    shown = ", ".join(m for m in members[:SHOWN] if m)
    return shown + (f" and {len(members) - SHOWN} more" if len(members) > SHOWN else "")


def _ends(pair: Pair) -> str:
    """The two kernels or nodes, and what else the reason of this pair speaks of."""
    return f"{pair.first} -> {pair.second}" + (f" ({pair.of})" if pair.of else "")


def _pairs(pairs: list[Pair]) -> list[str]:
    return [f"  {p.first} -> {p.second}: {'fused' if p.fused else 'not fused'}: {p.told}"
            for p in pairs]


def _memory(found: Explanation) -> list[str]:
    memory = found.memory
    lines = ["", "memory", f"  arena {figure(memory['arena'])}B for buffers of "
             f"{figure(memory['all_buffers'])}B in all; constants {figure(memory['constants'])}B"]
    return [*lines, *_peak(memory["peak"], len(memory["timeline"]))]


def _peak(peak: Mapping[str, Any], steps: int) -> list[str]:
    """Where most bytes are live, and the largest buffers there."""
    if not peak or not peak["live"]:
        return []
    return [f"  peak of {figure(peak['live'])}B at step {peak['step'] + 1} of {steps}, "
            f"{peak['launch']}: {_some(peak['nodes'])}",
            *(f"    {figure(b['bytes'])}B {_place(b['offset'])}, steps {b['first'] + 1} to "
              f"{b['last'] + 1}: {_some(b['nodes'])}" for b in peak["buffers"][:SHOWN]),
            *([f"    and {len(peak['buffers']) - SHOWN} more"]
              if len(peak["buffers"]) > SHOWN else [])]


def _place(offset: int | None) -> str:
    return "of its own" if offset is None else f"at {offset}"

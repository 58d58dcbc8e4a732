"""The nodes around a node: what they share with it, or why they are computed apart from it.

Kernels say why they are two, since kernels are what is fused. A node asks about nodes:

    node_add_4 -> node_layer_norm_1: not fused: legality: ...    what is said of their kernels

Nodes without a kernel, such as views, lie between neighbours, and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler.explaining.collect import CONSTANT, Explanation
from compiler.explaining.pairs import Pair


def pairs_around(found: Explanation, name: str) -> Iterator[Pair]:
    """A pair for each neighbour of a node: those that it reads, then those that read it."""
    writers: dict[str, dict[str, None]] = {}
    for first, second in found.edges:
        writers.setdefault(second, {})[first] = None
    fused = {(p.first, p.second): p for p in found.pairs if p.fused}
    kernels = {n.name: found.kernels_of(n) for n in found.nodes if n.op != CONSTANT}
    ends = [*((other, name) for other in _nearest(name, writers, kernels)),
            *((name, other) for other in _nearest(name, found.readers, kernels))]
    for first, second in ends:
        makers, readers = kernels.get(first, ()), kernels.get(second, ())
        shared = [k for k in makers if k in readers and not found.are_calls(k, first, second)]
        if (first, second) in fused:
            yield fused[first, second]
        elif shared:
            yield Pair(first, second, True, f"only views lie between them; both are computed by "
                                            f"{', '.join(shared)}")
        else:
            pairs = found.links.on_edge(found.names_of(first), makers,
                                        found.names_of(second), readers)
            yield from dict.fromkeys(Pair(first, second, False, f"{p.reason} ({p.first} -> "
                                          f"{p.second})", p.kind, by=p.by) for p in pairs)


def _nearest(
    name: str, next_of: Mapping[str, Mapping[str, None]], kernels: Mapping[str, Sequence[str]]
) -> list[str]:
    """The nodes with a kernel that are reached from a node through nodes without one."""
    reached, waiting, seen = dict[str, None](), [*next_of.get(name, ())], {name}
    while waiting:
        other = waiting.pop(0)
        if other in seen:
            continue
        seen.add(other)
        if kernels.get(other):
            reached[other] = None
        else:
            waiting += next_of.get(other, ())
    return [*reached]

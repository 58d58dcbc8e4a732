"""Two products of the same rows whose results are read together, as a gate and what it gates.

    %g = nest (i, j, reduce k) ins(%x[i, k], %v[k, j])
    %h = nest (i, j, reduce k) ins(%x[i, k], %w[k, j])
    %y = nest (i, j) ins(%g[i, j], %h[i, j])
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.groups import Group, wide
from passes.analyses.loop.kinds import is_contraction
from passes.rewrites.loop.nests import reads_of

_STEPS = 3
"""How many elementwise nests may lie between a product and what reads both."""


def is_second(group: Group, nest: NestOp, names: dict[Symbol, Symbol], rows: int) -> bool:
    """Whether a contraction is the second one of a pair whose first is the group's only one."""
    found = [n for n in group.renamed if is_contraction(n)]
    if len(found) != 1 or not (is_contraction(nest) and _is_product(nest)) or (
            not _is_product(found[0])):
        return False
    [first] = found
    renamed = {names.get(a.name) for a in nest.parallel_axes if a.extent.constant != 1}
    summed = {names.get(a.name) for a in nest.reduce_axes}
    if renamed != wide(first.parallel_axes) or summed != {a.name for a in first.reduce_axes}:
        return False
    return _rows(group, nest, first) <= rows and _meet(group, nest)


def pair_of(kernel: KernelOp) -> list[NestOp]:
    """The two products of a kernel that computes a pair; empty for any other kernel."""
    found = [n for n in kernel.nests if is_contraction(n)]
    alike = len(found) == 2 and {*found[0].axes} == {*found[1].axes}
    return found if alike and {*found[0].inputs} & {*found[1].inputs} else []


def _is_product(nest: NestOp) -> bool:
    plain = len(nest.inputs) == 2 and len(nest.results) == 1 and not nest.into
    return plain and len(nest.reduce_axes) == 1 and all(
        p is None for p in nest.pad_values) and all(
        a.extent.constant is not None for a in nest.axes)


def _rows(group: Group, nest: NestOp, first: NestOp) -> int:
    """The rows of what both products read; more than any limit if they share nothing."""
    shared = [r for r in reads_of(first) if r.value in nest.inputs]
    if len(shared) != 1:
        return 1 << 62
    axes = {s for e in shared[0].map for s in e.symbols}
    own = [a.extent for a in first.parallel_axes if a.name in axes]
    return product(own).constant or 1


def _meet(group: Group, nest: NestOp) -> bool:
    """Whether an elementwise nest reads what the nest leads to and what the group computes."""
    values: set[SSAValue] = {*nest.results}
    for _ in range(_STEPS):
        readers = [use.operation for v in values for use in v.uses]
        found = [r for r in readers if isinstance(r, NestOp) and r.is_elementwise]
        if any(group.produced(v) is not None for r in found for v in r.inputs):
            return True
        values = {v for r in found for v in r.results}
    return False

"""Why a nest does not join a group that it would fit."""

from __future__ import annotations

from collections.abc import Collection

from dialects.loop import NestOp
from dialects.symbolic.expr import Expr
from dialects.symbolic.ranges import is_at_most
from dialects.symbolic.size_products import product
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.coded import computes_factor
from passes.analyses.loop.groups import Group, wide
from passes.analyses.loop.kinds import is_contraction, is_sort
from passes.analyses.loop.pairs import is_second
from passes.base import Facts
from passes.reasons import Reason, legality, price, rule
from passes.rewrites.loop.nests import (
    body_size,
    gathered_inputs,
)

_UNMATCHED = Symbol.counter("@unmatched")
"""A stand-in for an axis that matches no axis of a group."""

MIN_ROWS = 4
"""With fewer rows than this, a kernel would have too little to do in parallel."""

MAX_ALONE = 1 << 14
"""The most elements that a single program computes besides its reductions: in a reduction without
rows, in a row whose reductions walk another axis, or in a row with an axis of its own where there
are too few rows to keep the machine busy."""

ADJACENT = 64
"""How many rows that are adjacent in memory one program computes."""

MAX_REDUCED = 64
"""The most results per row to which the last states of recurrences are reduced as they arrive."""

MAX_OPERATIONS = 256
"""More operations than this in one kernel would compile slowly and gain nothing."""


def refusal(
    group: Group, nest: NestOp, names: dict[Symbol, Symbol], facts: Facts
) -> Reason | None:
    """Why a nest whose axes match must not join, or None."""
    if facts.sorts_alone and any(map(is_sort, [nest, *group.renamed])):
        return rule("a nest that sorts is a kernel of its own")
    if is_contraction(nest):
        joins = (facts.paired_rows and is_second(group, nest, names, facts.paired_rows)) or (
            computes_factor(group, nest, names, facts))
        return None if joins else rule(
            "a contraction starts a kernel: each of its tiles would compute its factors again")
    if any(n.is_scatter for n in group.renamed) or (
            nest.is_scatter and not _says_only_where(group, nest)):
        return rule("a scatter is a kernel of its own")
    if nest.unordered is not None:
        return None  # whose group says only where it adds
    if nest.reduce_axes and any(n.is_scan for n in [nest, *group.renamed]) and group.rows() is not (
            None):
        return rule("a scan and another reduction need kernels of their own")
    if group.operations + body_size(nest) > MAX_OPERATIONS:
        return price(f"the kernel would be too large: more than {MAX_OPERATIONS} operations")
    parallel = {names.get(a.name, _UNMATCHED) for a in nest.parallel_axes if a.extent.constant != 1}
    if group.has_contraction:
        main = next(n for n in group.renamed if is_contraction(n))
        same = not nest.reduce_axes and parallel == wide(main.parallel_axes)
        return None if same else legality(
            "an epilogue must work on the elements of its contraction")
    rows = group.rows()
    if nest.is_recurrence:
        return rule("a recurrence starts a kernel")
    if nest.reduce_axes and any(n.is_recurrence for n in group.renamed):
        return _refusal_of_states(group, nest, names)
    if nest.reduce_axes:
        rows = parallel if rows is None else rows
        if parallel != rows:
            return legality("it reduces over other axes")
        few_suffice = _are_at_most(facts.short_rows, group)
        if not (rows or few_suffice) or any(rows - wide(n.axes) for n in group.renamed):
            return legality("no rows in common")
        return None if few_suffice or _enough(rows, group) else price(
            f"too few rows: fewer than {MIN_ROWS}")
    if rows is not None:
        count = product(a.extent for a in nest.parallel_axes)
        if not rows and not is_at_most(count, Expr.of(MAX_ALONE)):
            return price("a single program would compute all of it: more than "
                         f"{MAX_ALONE} elements")
        own = _own_elements(nest, names).constant or 0
        if own > MAX_ALONE:
            return price(f"its rows are longer than {MAX_ALONE}, and no reduction of it runs along "
                         "them")
        together = ADJACENT if _lies_across(nest, names) else 1
        if own > 1 and _few_would_compute_it(rows, group, count, facts.programs, together):
            return price(f"few programs would compute all of it: fewer than {facts.programs}")
        return None if rows <= parallel else legality(
            "it does not keep the rows of the reduction")
    alike = parallel == wide(group.renamed[0].axes) or _says_only_where_to_read(group, nest)
    return None if alike else legality("it works on other axes")


def _refusal_of_states(
    group: Group, nest: NestOp, names: dict[Symbol, Symbol]
) -> Reason | None:
    """Why a reduction must not join recurrences, whose last states it reduces, or None."""
    states = {a.name for n in group.renamed if n.is_recurrence for a in n.parallel_axes}
    others = {a.name for n in group.renamed if n.reduce_axes and not n.is_recurrence
              for a in n.reduce_axes}
    summed = {names.get(a.name, _UNMATCHED) for a in nest.reduce_axes}
    if not summed <= states or others not in (set(), summed):
        return legality("it reduces over other axes")
    points = {a.name for n in group.renamed if n.is_recurrence for a in n.reduce_axes}
    if any(names.get(a.name) in points for a in nest.parallel_axes):
        return legality("its results lie along the steps of the recurrence")
    if not is_at_most(_own_elements(nest, names), Expr.of(MAX_REDUCED)):
        return price(f"each recurrence would wait for many sums: more than {MAX_REDUCED}")
    return None


def _says_only_where(group: Group, nest: NestOp) -> bool:
    """Whether a group only computes positions for a scatter whose updates never collide."""
    in_order = nest.reduce_axes and not nest.unordered
    return not in_order and _computes_only(group, nest, gathered_inputs(nest.output_maps[0]))


def _says_only_where_to_read(group: Group, nest: NestOp) -> bool:
    """Whether a group only computes, for each row, places from which nobody but the nest reads."""
    return _computes_only(group, nest, gathered_inputs([e for m in nest.input_maps for e in m]))


def _computes_only(group: Group, nest: NestOp, inputs: Collection[int]) -> bool:
    """Whether a group of elementwise nests computes these inputs of a nest, and nothing else that
    is read outside of it."""
    made = {r for n in group.nests for r in n.results}
    readers = {(use.operation, use.index) for r in made for use in r.uses}
    return all(n.is_elementwise for n in group.nests) and all(
        op in group.nests or op in group.renamed or (op is nest and k in inputs)
        for op, k in readers) and any(op is nest for op, _ in readers)


def _own_elements(nest: NestOp, names: dict[Symbol, Symbol]) -> Expr:
    """The number of elements that a nest has per point of the axes that it shares."""
    return product(a.extent for a in nest.parallel_axes if a.name not in names)


def _enough(rows: set[Symbol], group: Group) -> bool:
    count = product(group.extents[r] for r in sorted(rows)).constant
    return count is None or count >= MIN_ROWS


def _lies_across(nest: NestOp, names: dict[Symbol, Symbol]) -> bool:
    """Whether rows, and not what a nest has of its own in each, run along its inputs' memory."""
    own = {a.name for a in nest.parallel_axes if a.name not in names}
    read = [m for m in nest.input_maps if any(e.symbols & own for e in m)]
    return bool(read) and not any(m[-1].symbols & own for m in read)


def _few_would_compute_it(
    rows: set[Symbol], group: Group, elements: Expr, programs: int, together: int
) -> bool:
    """Whether rows are too few to keep the machine busy, and each has many elements. A program
    computes so many rows `together`."""
    count, total = product(group.extents[r] for r in rows).constant, elements.constant
    if not count or total is None:
        return False
    count = -(-count // together)
    return count < programs and total > count * MAX_ALONE


def _are_at_most(most: int, group: Group) -> bool:
    """Whether a group walks at most `most` points."""
    return is_at_most(product(group.extents.values()), Expr.of(most))

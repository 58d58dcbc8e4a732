"""Whether a program's names and blocks fit together, before anything is imported.

    no value %x is known here      used before its definition, outside of its region, or misspelled
    %x is defined twice            in one region
    the region has no return       and so has no results

Types are compared while operations are imported, which then know what they compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from compiler.frontend.faults import LEVEL, Faults
from compiler.frontend.stablehlo.operations import Function, Op, Region

RETURNS = ("return", "func.return", "stablehlo.return")


def check(functions: Iterable[Function], faults: Faults) -> None:
    """Raises StrataError with everything that does not fit, and where."""
    for function in functions:
        last = function.body.operations[-1:]
        if not last or last[0].name not in RETURNS:
            faults.add(f"the function {function.name} does not end with a return",
                       last[0].where if last else function.name, LEVEL)
        elif function.types is not None and len(last[0].operands) != len(function.types):
            faults.add(f"the function {function.name} returns {len(last[0].operands)} values, and "
                       f"declares {len(function.types)}", last[0].where, LEVEL)
        for op, what in _faults(function.body, frozenset()):
            faults.add(f"{op.name}: {what}", op.where, LEVEL)
    faults.raise_any()


def _faults(region: Region, outer: frozenset[str]) -> Iterator[tuple[Op, str]]:
    own = [name for name, _ in region.arguments]
    known = {*outer, *own}
    named = Counter(own)
    for op in region.operations:
        for name in dict.fromkeys(op.operands):
            if name not in known and f"{name}#0" not in known:
                yield op, f"no value {name} is known here"
        for inner in op.regions:
            yield from _faults(inner, frozenset(known))
        named.update(op.results)
        for name in op.results:
            if named[name] == 2:
                yield op, f"{name} is defined twice"
        known.update(op.results)

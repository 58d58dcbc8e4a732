"""Which nests of a kernel share one loop over an axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.ir import SSAValue

from dialects.loop import NestOp
from dialects.symbolic.symbol import Symbol
from passes.loop_to_block.computation import Computation


class SharedLoops:
    """`private`: values that the program keeps in memory of its own."""

    def __init__(self, tiles: Computation, private: Collection[SSAValue]):
        self._tiles, self._private = tiles, private

    def runs(self, axis: Symbol, nests: Sequence[NestOp]) -> list[tuple[bool, list[NestOp]]]:
        """Maximal runs of nests that can share one loop over the axis."""
        runs: list[tuple[bool, list[NestOp]]] = []
        for k, nest in enumerate(nests):
            uses = self._walks(nest, axis)
            if runs and runs[-1][0] == uses and not (
                    uses and self._needs_finished(nest, axis, runs[-1][1])):
                runs[-1][1].append(nest)
            elif not uses and self._goes_before(nest, axis, runs, nests[k + 1:]):
                runs.insert(len(runs) - 1, (uses, [nest]))
            else:
                runs.append((uses, [nest]))
        return runs

    def _walks(self, nest: NestOp, axis: Symbol) -> bool:
        """Whether a loop over the axis computes the nest: not if its sums are finished already."""
        return axis in {a.name for a in nest.axes} and not (
            nest.results[0] in self._tiles.sums and axis in reduces_over(nest))

    def _goes_before(
        self, nest: NestOp, axis: Symbol, runs: Sequence[tuple[bool, list[NestOp]]],
        later: Sequence[NestOp],
    ) -> bool:
        """Whether a nest without the axis goes before the last run, so as not to split it.

        The run and a later nest must share a loop, because the later nest reads tiles of sums in
        it. The nest can go before the run, because it reads nothing that the run computes.
        """
        if not runs or not runs[-1][0]:
            return False
        run = set(runs[-1][1])
        sums = {n for n in run if n.reduce_axes and n.results[0] not in self._private}
        return not _producers(nest) & run and any(
            self._walks(n, axis) and _producers(n) & sums
            and not self._needs_finished(n, axis, runs[-1][1]) for n in later)

    def _needs_finished(self, nest: NestOp, axis: Symbol, run: Sequence[NestOp]) -> bool:
        """Whether a nest depends on a reduction over the axis that the run computes."""
        todo, seen = list(nest.inputs), set[SSAValue]()
        while todo:
            value = todo.pop()
            producer = value.owner
            if value in seen or not isinstance(producer, NestOp):
                continue
            seen.add(value)
            ready = producer.is_scan or (
                nest in self._tiles.online and self._tiles.online[nest].maximum is value)
            if producer in run and axis in reduces_over(producer) and not ready:
                return True
            todo += producer.inputs
        return False


def reduces_over(nest: NestOp) -> set[Symbol]:
    """The axes over which a nest has an accumulator."""
    return serial_axes(nest) if nest.is_reduction else set()


def serial_axes(nest: NestOp) -> set[Symbol]:
    """The axes over which a nest reduces or scatters."""
    return {a.name for a in nest.reduce_axes}


def _producers(nest: NestOp) -> set[NestOp]:
    """The nests that a nest reads, directly or through others."""
    found = set[NestOp]()
    todo = list(nest.inputs)
    while todo:
        producer = todo.pop().owner
        if isinstance(producer, NestOp) and producer not in found:
            found.add(producer)
            todo += producer.inputs
    return found

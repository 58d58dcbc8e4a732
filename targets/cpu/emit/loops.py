"""Loops: bottom-tested, one phi per carried register, after a test if they may be empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from dialects.symbolic.expr import Expr
from targets.cpu.emit.index import Indices
from targets.cpu.emit.values import Tile, llvm_type
from targets.cpu.llvm.writer import Writer


class Loops:
    """Emits loops into a writer; each body is a scope of its own."""

    def __init__(self, writer: Writer, indices: Indices):
        self.writer = writer
        self.indices = indices

    def emit(
        self, start: Expr, end: Expr, step: int, last: Expr, tiles: list[Tile],
        body: Callable[[Expr, list[Tile]], list[Tile]],
    ) -> list[Tile]:
        """`counter = start; do body while ((counter += step) < end)`, after a test if needed.

        `last`: the largest value that the counter can have.
        """
        w = self.writer
        first, stop, before = self.indices.scalar(start), self.indices.scalar(end), w.label
        label, done = w.fresh("body"), w.fresh("done")
        w.push(label)
        counter = w.define("k", w.depth)
        phis = [_with_regs(tile, [w.define("c", w.depth) for _ in tile.regs]) for tile in tiles]
        multiple = gcd(step, self.indices.multiple(start))
        finals = body(self.indices.symbol(counter, start, last, multiple), phis)
        following = w.assign(f"add i64 {counter}, {step}")
        again = w.assign(f"icmp slt i64 {following}, {stop}")
        latch, inner = w.label, w.pop()
        guarded = not self.indices.is_nonnegative(end - start - 1)
        if guarded:
            test = w.assign(f"icmp slt i64 {first}, {stop}")
            w.emit(f"br i1 {test}, label %{label}, label %{done}")
        else:
            w.emit(f"br label %{label}")
        w.start_block(label)
        w.emit(f"{counter} = phi i64 [{first}, %{before}], [{following}, %{latch}]")
        for name, type_, initial, final in _columns(phis, tiles, finals):
            w.emit(f"{name} = phi {type_} [{initial}, %{before}], [{final}, %{latch}]")
        w.scopes[-1].lines += inner.lines
        w.emit(f"br i1 {again}, label %{label}, label %{done}")
        w.start_block(done)
        return self._results(tiles, finals, before if guarded else None, latch)

    def _results(
        self, initial: list[Tile], final: list[Tile], before: str | None, latch: str
    ) -> list[Tile]:
        """The loop's results: those of the last iteration, or the initial ones without any."""
        results: list[Tile] = []
        for first, last in zip(initial, final, strict=True):
            names: list[str] = []
            for _, type_, a, b in _columns([last], [first], [last]):
                skipped = "" if before is None else f"[{a}, %{before}], "
                names.append(self.writer.assign(f"phi {type_} {skipped}[{b}, %{latch}]"))
            results.append(_with_regs(first, names))
        return results


def _with_regs(tile: Tile, names: list[str]) -> Tile:
    return Tile(tile.type, tuple(names), tile.chunks, tile.blocks)


def _columns(
    names: Sequence[Tile], initial: Sequence[Tile], final: Sequence[Tile]
) -> list[tuple[str, str, str, str]]:
    """For each register of carried tiles: its name, type, initial value and final value."""
    rows: list[tuple[str, str, str, str]] = []
    for tile, a, b in zip(names, initial, final, strict=True):
        for k, name in enumerate(tile.regs):
            width = tile.chunks[k % len(tile.chunks)].width
            type_ = llvm_type(tile.type.element, width)
            rows.append((name, type_, a.regs[k], b.regs[k]))
    return rows

"""Nests that are computed for themselves: results of the kernel, reductions and accumulators."""

from __future__ import annotations

from dataclasses import replace

from dialects.block import FullOp
from dialects.loop import NestOp
from dialects.strata.schedule import Level
from dialects.strata.types import TensorType
from passes.loop_to_block.compute import lies_in_matrices
from passes.loop_to_block.dots import add_dot
from passes.loop_to_block.matrices import keep_sums, sum_here
from passes.loop_to_block.online import follow, row_maximum, start
from passes.loop_to_block.repair import repair
from passes.loop_to_block.scans import add_scan, first_state
from passes.loop_to_block.scatters import add_scatter
from passes.loop_to_block.state import Tile, tiled
from passes.loop_to_block.tiles import Tiles


class Computation(Tiles):
    """Adds the computation of nests at the point that the levels of a schedule have reached."""

    def compute(self, nest: NestOp) -> None:
        """Compute one tile of a nest at the current point."""
        if nest.is_scatter:
            add_scatter(self, nest)
        elif not nest.reduce_axes:
            self.tiles_of(nest)
            for result in nest.results:
                tile = self.find(result)
                assert tile is not None
                self.publish(nest, result, tile)
        elif nest in self.open:
            self.accumulate(nest)
        elif nest.results[0] in self.sums:
            self.publish(nest, nest.results[0], sum_here(self, nest.results[0]))
        else:
            self.reduce_at_once(nest)

    def open_accumulators(self, nest: NestOp, depth: int, level: Level) -> None:
        """Start a reduction with a tile of identities over the nest's parallel and tiled axes."""
        self.source = nest
        if nest.is_recurrence:
            self.open[nest] = first_state(self, nest)
            return
        sizes = dict(self.states)
        for later in self.schedule.levels[depth:]:
            if later.axis in {a.name for a in nest.reduce_axes}:
                sizes[later.axis] = replace(sizes[later.axis], tile=later.tile)
        if self.uses_dot(nest):
            sizes = {a: replace(s, tile=1) if a in {x.name for x in nest.reduce_axes} else s
                     for a, s in sizes.items()}
        folded = self.folded(nest)
        dims = tiled((a.name for a in nest.axes if a.name not in folded), sizes, self.order)
        result = nest.results[0].type
        assert isinstance(result, TensorType)
        type_ = self.layout_of(nest).tile_type(result.element, dims, sizes)
        neutral = start(self, nest, type_.element)
        self.open[nest] = Tile(self.add(FullOp.of(neutral, type_)).results[0], tuple(dims))

    def accumulate(self, nest: NestOp) -> None:
        """Combine one tile into the open accumulator."""
        before = self.open[nest]
        if nest.is_scan:
            add_scan(self, nest)
            return
        if nest.is_recurrence:
            self.open[nest] = self.combined(nest, list(before.axes), None)
            return
        if self.uses_dot(nest):
            add_dot(self, nest)
        else:
            self._accumulate(nest, before)
        follow(self, nest, before, self.open[nest])

    def _accumulate(self, nest: NestOp, tile: Tile) -> None:
        dims = tiled((a.name for a in nest.axes), self.states, self.order)
        if not set(dims) > set(tile.axes):
            self.open[nest] = self.combined(nest, list(tile.axes), tile)
            return
        part = row_maximum(self, nest, tile.axes) or self.reduce_dims(
            nest, self.combined(nest, dims, None), tile.axes)
        self.open[nest] = self.added(nest, part, tile)

    def reduce_at_once(self, nest: NestOp) -> None:
        """Compute a reduction whose axes all lie in one tile."""
        if nest.is_scan:
            add_scan(self, nest)
            return
        dims = tiled((a.name for a in nest.axes), self.states, self.order)
        if self.uses_dot(nest):
            self.open_accumulators(nest, len(self.schedule.levels), self.schedule.levels[-1])
            add_dot(self, nest)
            self.finish(nest)
            return
        self.publish(nest, nest.results[0],
                     self.reduce_dims(nest, self.combined(nest, dims, None)))

    def finish(self, nest: NestOp) -> None:
        """Reduce the remaining dims of reduce axes, and publish the result."""
        repair(self, nest)
        self.source = nest
        tile = self.open.pop(nest)
        if nest.is_scan:  # every step has published its part
            return
        if lies_in_matrices(nest, self.schedule):
            keep_sums(self, nest.results[0], tile)
            return
        total = self.reduce_dims(nest, tile)
        if total.axes != tile.axes:
            follow(self, nest, tile, total)
        self.publish(nest, nest.results[0], total)

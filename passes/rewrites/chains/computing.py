"""Chains whose kernel computes some of its inputs instead of loading them: usually masks.

What is computed is found first (`find_computed`). The nests that compute it come first in the
joined kernel: triangles and counts that constants hold, and then nests of calls (`masks`).
"""

from __future__ import annotations

from dataclasses import field

from xdsl.ir import Block, SSAValue

from dialects.loop import CallOp, KernelOp
from dialects.records import dataclass
from dialects.strata.weights import WeightStore
from passes.rewrites.chains.chain import Chain
from passes.rewrites.loop.computed import (
    Count,
    count_nest,
    count_of,
    is_cheap,
    is_computed,
    may_be_inlined,
)
from passes.rewrites.loop.triangles import Triangle, triangle_nest, triangle_of
from passes.rewriting import erase


@dataclass
class ComputingChain(Chain):
    """A chain, and what its kernel computes itself."""

    triangles: dict[SSAValue, Triangle] = field(default_factory=dict[SSAValue, Triangle])
    counts: dict[SSAValue, Count] = field(default_factory=dict[SSAValue, Count])
    """Constants that are computed instead of loaded."""
    masks: list[CallOp] = field(default_factory=list[CallOp])
    """Calls whose results are recomputed at their readers, in the order of the function."""
    read: set[CallOp] = field(default_factory=set[CallOp])
    """Calls that could not be recomputed, so that their results are loaded."""

    def find_computed(self, weights: WeightStore) -> None:
        """Find what is computed instead of loaded, before the kernel is built."""
        for call in self.calls:
            self._find(call, weights)
        self.masks.sort(key=lambda c: self.program.places[c])

    def _find(self, reader: CallOp, weights: WeightStore) -> None:
        for value in reader.inputs:
            if value.owner in self.parts() or not self._may_be_inlined(value):
                continue
            if (triangle := triangle_of(value, weights)) is not None:
                self.triangles[value] = triangle
            elif (count := count_of(value, weights)) is not None:
                self.counts[value] = count
            elif isinstance(call := value.owner, CallOp) and call not in self.read and (
                    self.may_be_mask(call)):
                self._find_mask(call, weights)

    def may_be_mask(self, call: CallOp) -> bool:
        return (self.program.may_join(call) and is_cheap(self.kernel_of(call))
                and self.program.may_share([*self.calls, call])
                and all(map(self._may_be_inlined, call.results)))

    def _may_be_inlined(self, value: SSAValue) -> bool:
        """Whether every reader in the chain may compute a value itself."""
        readers = [(self.kernel_of(c), k) for c in self.calls
                   for k, v in enumerate(c.inputs) if v is value]
        return all(may_be_inlined(kernel, kernel.body.block.args[k])
                   for kernel, k in readers)

    def _find_mask(self, call: CallOp, weights: WeightStore) -> None:
        """Recompute a mask, if what it is computed from is recomputed too or is loaded anyway."""
        before = dict(self.triangles), dict(self.counts), list(self.masks)
        self._find(call, weights)
        made = {*self.triangles, *self.counts, *(r for c in self.masks for r in c.results),
                *(v for c in self.calls for v in c.inputs)}
        if is_computed(call, made):
            self.names |= {(call, axis): self.fresh() for axis in self.kernel_of(call).axes}
            self.masks.append(call)
        else:
            self.triangles, self.counts, self.masks = before
            self.read.add(call)

    def parts(self) -> list[CallOp]:
        return [*self.masks, *self.calls]

    def inputs(self) -> list[SSAValue]:
        return [v for v in super().inputs() if v not in self.triangles and v not in self.counts]

    def constants(self, block: Block) -> dict[SSAValue, SSAValue]:
        nests = {v: triangle_nest(v, x, (self.fresh(), self.fresh()))
                 for v, x in self.triangles.items()}
        nests |= {v: count_nest(v, x, self.fresh()) for v, x in self.counts.items()}
        block.add_ops(nests.values())
        return {v: nest.results[0] for v, nest in nests.items()}

    @property
    def computed(self) -> int:
        """The number of nests, the kernel's first ones, that compute inputs."""
        return len(self.triangles) + len(self.counts) + sum(
            len(self.kernel_of(c).nests) for c in self.masks)

    def replace(self, kernel: KernelOp) -> None:
        super().replace(kernel)
        for call in reversed(self.masks):
            if not any(r.uses for r in call.results):
                erase(self.kernel_of(call))
                erase(call)

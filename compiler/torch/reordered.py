"""Calls a graph on contiguous memory with tensors whose memory has other orders.

`compiler/frontend/torch/memory_order.py` makes such graphs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from compiler.frontend.torch.memory.memory_order import Order
from compiler.io.structures import inverse


class Compiled(Protocol):
    """A compiled graph that may write results to arguments."""

    def __call__(self, *arguments: Any) -> Any: ...

    def write_to(self, arguments: Sequence[int]) -> None: ...

    def with_weights(self, weights: Mapping[str, Any], changed: Collection[str]) -> Any: ...

    def with_donated(self, arguments: Collection[int]) -> Any: ...

    @property
    def overwritten(self) -> Sequence[int]: ...


@dataclass
class Reordered:
    """A compiled graph, called as the graph before it was put in order.

    `arguments`, `results`: number -> the order of its memory. `single`: whether it returns a value
    that is not in a tuple.
    """

    inner: Compiled
    arguments: Mapping[int, Order]
    results: Mapping[int, Order]
    single: bool

    def __post_init__(self) -> None:
        self.back = [(k, inverse(order)) for k, order in self.results.items()]

    def write_to(self, arguments: Sequence[int]) -> None:
        """As for parts. Arguments in another order are not written in place."""
        self.inner.write_to([-1 if k in self.arguments else k for k in arguments])

    def with_weights(
        self, weights: Mapping[str, Any], changed: Collection[str]
    ) -> Reordered | None:
        """As for parts."""
        inner = self.inner.with_weights(weights, changed)
        return inner and replace(self, inner=inner)

    def with_donated(self, arguments: Collection[int]) -> Reordered:
        """As for parts."""
        return replace(self, inner=self.inner.with_donated(arguments))

    @property
    def overwritten(self) -> Sequence[int]:
        """As for parts."""
        return self.inner.overwritten

    def __call__(self, *arguments: Any) -> Any:
        given = list(arguments)
        for number, order in self.arguments.items():
            given[number] = given[number].permute(order)
        made = self.inner(*given)
        results = [made] if self.single else list(made)
        for number, order in self.back:
            results[number] = _permuted(results[number], order)
        return results[0] if self.single else results


def _permuted(tensor: Any, order: Order) -> Any:
    """A result with permuted dims. It is no view, of which PyTorch refuses `detach_` and others.

    It shares the memory, which nothing else holds.
    """
    shape, strides = tensor.shape, tensor.stride()
    return tensor.new_empty(0).set_(
        tensor.untyped_storage(), tensor.storage_offset(),
        [shape[dim] for dim in order], [strides[dim] for dim in order])

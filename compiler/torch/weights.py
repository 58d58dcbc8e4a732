"""Weights of a graph, which its compiled code holds, and whether they have been written since.

PyTorch counts how often a tensor is written, and a weight that is given other memory has another
address. Neither shows a write through `.data`, through a NumPy view or by a fused optimizer. So a
few bytes of each weight on the CPU are compared as well, and optimizers tell of their steps.
Dynamo may take a module whose dicts are unchanged for unchanged (as it does by default before
PyTorch 2.13): what `.data = view` does to shapes and strides is then compared here.

What no call can notice is a write that PyTorch does not count and that changes none of these bytes.

The module can be imported without torch.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np

from compiler.frontend.torch.contents import Contents
from compiler.frontend.torch.library import torch_module
from compiler.torch.elements import is_dense

WHOLE = 512
"""The size in bytes up to which a weight is compared as a whole."""
PIECE, PIECES = 64, 4
"""The length in bytes of the pieces of a larger weight that are compared, and their number."""
ELEMENTS = 16
"""The number of elements that are compared of a weight with gaps between them."""


def is_weight(value: Any) -> bool:
    """Whether an argument of a graph is a parameter or buffer, as Dynamo marks them.

    Inference tensors are none, since PyTorch does not count how often they are written.
    """
    marked = hasattr(value, "_dynamo_static_input_type") or type(value).__name__ == "Parameter"
    return marked and not value.is_inference()


def is_of_kind(tensor: Any, node: Any) -> bool:
    """Whether a weight has the type and the shape that its placeholder was captured with."""
    known = node.meta.get("val")
    if known is None:
        return True
    pairs = zip(tensor.shape, known.shape, strict=False)
    return tensor.dtype == known.dtype and tensor.ndim == known.ndim and all(
        size == a for size, a in pairs if isinstance(a, int))


def may_change(tensor: Any) -> bool:
    """Whether compiled code takes other values of a weight. Integers decide what is compiled."""
    return tensor.is_floating_point()


def items_at(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function for the items at these places, without a frame of its own."""
    first = places[0] if places else 0
    if [*places] == [*range(first, first + len(places))]:
        return itemgetter(slice(first, first + len(places)))
    return itemgetter(*places)


Layouts = tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]
"""The shapes and the strides of tensors."""


@dataclass(eq=False)
class Weights:
    """Arguments that compiled code holds, by `numbers`.

    `versions`: how often each had been written. `places`: its address. `pieces`: parts of the
    memory of those on the CPU, and `contents` what they held. `layouts`: shapes and strides, where
    Dynamo does not guard them.
    """

    numbers: Sequence[int]
    tensors: Sequence[Any]
    versions: Sequence[int]
    places: Sequence[int]
    pieces: Sequence[Sequence[memoryview]]
    contents: Sequence[bytes]
    layouts: Layouts | None = None

    def __post_init__(self) -> None:
        self._flat, self._whole = list(chain.from_iterable(self.pieces)), b"".join(self.contents)
        self._chosen = items_at(self.numbers)

    @staticmethod
    def of(inputs: Sequence[Any], numbers: Sequence[int]) -> Weights:
        tensors = [inputs[k] for k in numbers]
        pieces = [_pieces(tensor) for tensor in tensors]
        return Weights(numbers, tensors, list(map(_version, tensors)),
                       list(map(_address(), tensors)), pieces, list(map(b"".join, pieces)),
                       None if _guards_layouts() else _layouts(tensors))

    def are_in(self, inputs: Sequence[Any]) -> bool:
        """Whether these arguments are the same tensors with unchanged contents."""
        if not self.numbers:
            return True
        given = self._chosen(inputs)
        return (all(map(is_, self.tensors, given))
                and list(map(_version, given)) == self.versions
                and list(map(_address(), given)) == self.places
                and (self.layouts is None or _layouts(given) == self.layouts)
                and b"".join(self._flat) == self._whole)

    def changed(self, inputs: Sequence[Any]) -> list[int]:
        """The numbers of arguments that are other tensors, or have been written."""
        shapes, strides = self.layouts or ((), ())
        return [k for n, k in enumerate(self.numbers) if self.tensors[n] is not inputs[k]
                or _version(inputs[k]) != self.versions[n]
                or inputs[k].data_ptr() != self.places[n]
                or (self.layouts is not None
                    and _layouts([inputs[k]]) != ([shapes[n]], [strides[n]]))
                or b"".join(self.pieces[n]) != self.contents[n]]

    def forget(self) -> None:
        """Take all that may change for changed."""
        Contents.uncounted += 1
        self.versions = [-1 if may_change(tensor) else version for tensor, version in zip(
            self.tensors, self.versions, strict=True)]

    def is_dead(self, holders: Counter[int]) -> bool:
        """Whether a weight is referred to by nothing but `holders`, the number of sets that have
        each tensor, by identity: no call can have it again."""
        return any([sys.getrefcount(tensor) - _OWN <= holders[id(tensor)]
                    for tensor in self.tensors])

    def watch(self, forget: Callable[[], Any]) -> None:
        """Call `forget` when an optimizer has changed a weight, as long as it exists."""
        hooks = torch_module("torch.optim.optimizer")
        known, told = set(map(id, self.tensors)), weakref.WeakMethod(forget)

        def step(optimizer: Any, *_: Any) -> None:
            found = told()
            if found is not None and any(
                    id(p) in known for group in optimizer.param_groups for p in group["params"]):
                found()

        handle = hooks.register_optimizer_step_post_hook(step)
        weakref.finalize(self, handle.remove)


_OWN = 2
"""References to a tensor while it is asked for its count: the argument, and the loop's variable."""
_version, _shape = attrgetter("_version"), attrgetter("shape")


def _guards_layouts() -> bool:
    """Whether Dynamo compares the shapes and strides of parameters at each call."""
    config = torch_module("torch._dynamo.config")
    return not getattr(config, "use_recursive_dict_tags_for_guards", False)


def _layouts(tensors: Sequence[Any]) -> Layouts:
    return list(map(_shape, tensors)), list(map(torch_module().Tensor.stride, tensors))


def _address() -> Callable[[Any], int]:
    return torch_module().Tensor.data_ptr


def _pieces(tensor: Any) -> list[memoryview]:
    """Parts of the memory of a weight on the CPU; of one with gaps single elements."""
    torch = torch_module()
    if tensor.device.type != "cpu" or not tensor.numel() or str(tensor.layout) != "torch.strided":
        return []
    tensor = tensor.detach()
    if tensor.is_conj():
        tensor = tensor.conj()  # the memory as it is
    if tensor.is_neg():
        tensor = tensor._neg_view()
    span = 1 + sum((size - 1) * stride for size, stride in zip(
        tensor.shape, tensor.stride(), strict=True))
    data = memoryview(tensor.as_strided((span,), (1,)).view(torch.uint8).numpy())
    if not is_dense(tensor):
        return [data[k:k + tensor.itemsize] for k in _places(tensor)]
    if len(data) <= WHOLE:
        return [data]
    last = len(data) - PIECE
    return [data[k:k + PIECE] for k in (last * n // (PIECES - 1) for n in range(PIECES))]


def _places(tensor: Any) -> list[int]:
    """Where some elements begin, from the first to the last, in bytes from the first."""
    count = min(ELEMENTS, tensor.numel())
    numbers = [(tensor.numel() - 1) * n // max(1, count - 1) for n in range(count)]
    indices = np.unravel_index(numbers, tuple(tensor.shape))
    offsets = sum(index * stride for index, stride in zip(indices, tensor.stride(), strict=True))
    return [int(k) * tensor.itemsize for k in np.atleast_1d(offsets)]

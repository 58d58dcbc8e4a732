"""Products on a GPU whose rows lie at odd distances in memory, as those of a vocabulary of 50,257.

    %y = mm(%x, permute(%w))     %x: bf16[8192, 768], %w: bf16[50257, 768]
    -->  %p = mm(%x, permute(pad(%w)))                bf16[8192, 50264]
         %y = slice(%p)                               bf16[8192, 50257]

A GPU moves tiles only if rows begin at multiples of 16 bytes, and reads element by element what
does not. Padding is a part of what computes an operand, and costs a copy where nothing does. Since
the graph is still one, the backward pass is given the padded result, and an operand is padded once
for all products that read it.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.frontend.torch.library import torch_module
from compiler.torch.joint.widening import Widening, keep_strides

ALIGNED = 16
"""Rows should begin at multiples of so many bytes."""
WIDE = 256
"""A product is worth a copy of an operand if none of its three sizes is smaller."""


def is_on_gpu(factor: Any) -> bool:
    """Whether a factor is one of narrow floats on a GPU."""
    return factor.is_cuda and factor.dtype.itemsize == 2 and factor.dtype.is_floating_point


def pad_products(joint: Any, gains: Callable[[Any], bool] = is_on_gpu) -> None:
    """Pad the large products of a joint graph whose first factor `gains` by it."""
    padding, aten = _Padding(joint.graph), torch_module().ops.aten
    for node in list(joint.graph.nodes):
        if node.op != "call_function" or node.target not in (aten.mm.default, aten.addmm.default):
            continue
        x, y = (v.meta["val"] for v in node.args[-2:])
        if gains(x) and _is_large(x, y):
            padding.apply(node)
    if padding.parts:
        joint.graph.eliminate_dead_code()
        keep_strides(joint.graph, padding.parts)
        joint.recompile()


class _Padding(Widening):
    """The products of a graph, and the operands that have been padded for them."""

    def apply(self, node: Any) -> None:
        """Replace a product by a padded one, if that makes it faster."""
        x, y = node.args[-2:]
        rows, inner, columns = _missing(x, y)
        if not (inner or rows or columns):
            return
        factors = [self._factor(x, -1, inner, rows), self._factor(y, -2, inner, columns)]
        added = node.args[:-2]
        if added and columns and _last_size(added[0]) > 1:
            added = (self.padded(added[0], -1, columns),)
        made = self.call(node, node.target, *added, *factors, **node.kwargs)
        for dim, more in enumerate((rows, columns)):
            if more:
                size = node.meta["val"].shape[dim]
                made = self.call(made, _aten().slice.Tensor, made, dim, 0, size)
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)
        self.parts[made] = node.meta["val"]

    def _factor(self, x: Any, summed: int, inner: int, outer: int) -> Any:
        """A factor with zeros behind its elements in the dim that is summed, and in the other."""
        if _is_transpose(x):
            base = self._factor(x.args[0], -3 - summed, inner, outer)
            return self.call(x, x.target, base, *x.args[1:], after=(base,))
        x = self.padded(x, summed, inner) if inner else x
        return self.padded(x, -3 - summed, outer) if outer else x


def _aten() -> Any:
    return torch_module().ops.aten


def _last_size(node: Any) -> Any:
    shape = node.meta["val"].shape
    return shape[-1] if len(shape) else 1


def _is_large(left: Any, right: Any) -> bool:
    """Whether a product is of known sizes, none of which is small."""
    sizes = [*left.shape, right.shape[1]]
    return all(isinstance(size, int) and size >= WIDE for size in sizes)


def _missing(x: Any, y: Any) -> tuple[int, int, int]:
    """How many elements the rows, the summed dim and the columns of a product lack."""
    left, right = x.meta["val"], y.meta["val"]
    step = ALIGNED // left.dtype.itemsize
    rows, inner, columns = (-size % step for size in (*left.shape, right.shape[1]))
    read = left.stride(0) != 1 or right.stride(0) == 1
    return rows if left.stride(0) == 1 else 0, inner if read else 0, columns


def _is_transpose(x: Any) -> bool:
    aten = _aten()
    if x.op != "call_function" or x.meta["val"].dim() != 2:
        return False
    return x.target == aten.t.default or (
        x.target == aten.permute.default and list(x.args[1]) == [1, 0]) or (
        x.target == aten.transpose.int and {d % 2 for d in x.args[1:]} == {0, 1})

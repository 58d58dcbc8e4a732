"""How the elements of a tensor, real or fake, lie in memory.

The module can be imported without torch.
"""

from __future__ import annotations

from typing import Any


def is_separate(tensor: Any) -> bool:
    """Whether each element of a tensor surely has memory of its own."""
    reach = 0
    for size, stride in _dims(tensor):
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def is_dense(tensor: Any) -> bool:
    """Whether the elements of a tensor lie side by side."""
    count = 1
    for size, stride in _dims(tensor):
        if stride != count:
            return False
        count *= size
    return True


def _dims(tensor: Any) -> list[tuple[int, int]]:
    """The sizes and strides of a tensor when it was traced, by strides, without sizes of one.

    Nothing for an empty tensor, and for one whose sizes depend on data, which is new memory.
    """
    if str(tensor.layout) != "torch.strided":
        return []
    numbers = [s if isinstance(s, int) else s.node.hint for s in (*tensor.shape, *tensor.stride())]
    if None in numbers or 0 in numbers[:tensor.dim()]:
        return []
    pairs = zip(numbers[:tensor.dim()], numbers[tensor.dim():], strict=True)
    return sorted([p for p in pairs if p[0] != 1], key=lambda p: p[1])

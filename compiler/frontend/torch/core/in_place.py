"""In-place operators on tensors without aliases, which are the same as their functional forms.

    %x = aten.batch_norm(...)                     %x = aten.batch_norm(...)
    %y = aten.add_.Tensor(%x, %r)           ==    %y = aten.add.Tensor(%x, %r)

Such operators are common in programs (`nn.ReLU(inplace=True)`, residual sums). Without this,
PyTorch would have to trace the program again, which takes longer than the rest of the import.
"""

from __future__ import annotations

from typing import Any

NEW = frozenset(f"aten.{name}" for name in (
    "add.Tensor", "addmm.default", "avg_pool2d.default", "batch_norm.default", "bmm.default",
    "cat.default", "clone.default", "conv1d.default", "conv2d.default", "conv3d.default",
    "conv_transpose1d.default", "conv_transpose2d.input", "div.Tensor", "gelu.default",
    "group_norm.default", "layer_norm.default", "linear.default", "matmul.default",
    "max_pool2d.default", "mm.default", "mul.Tensor", "relu.default", "sigmoid.default",
    "silu.default", "sub.Tensor", "tanh.default"))
"""Operators whose result never shares memory with an operand.

Other operators may return an operand, as `dropout` does, even if their schemas do not say so.
"""
LONGEST = 16
"""The longest chain of in-place operators; PyTorch retraces programs with longer ones."""


def without_mutation(node: Any, steps: int = LONGEST) -> str | None:
    """The functional form of an in-place operator; None if it has to stay, and for other operators.

    The operator must write into a new tensor that nothing else reads, and its operands must have
    equal types. `steps`: the number of in-place operators that may precede it in a chain.
    """
    space, _, rest = str(node.target).partition(".")
    name, _, overload = rest.partition(".")
    if space != "aten" or not name.endswith("_") or name.endswith("__") or not node.args:
        return None
    written = node.args[0]
    if not steps or not _is_new(written, steps - 1) or len(written.users) != 1:
        return None
    types = {getattr(n.meta.get("val"), "dtype", None) for n in (node, *node.all_input_nodes)}
    return f"aten.{name[:-1]}.{overload}" if len(types) == 1 else None


def _is_new(value: Any, steps: int) -> bool:
    """Whether a value is a new tensor, which shares no memory with others."""
    if getattr(value, "op", None) != "call_function":
        return False
    return str(value.target) in NEW or without_mutation(value, steps) is not None

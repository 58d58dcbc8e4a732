"""The importer of a PyTorch custom operator, `example::scaled_softsign(Tensor x, float scale)`.

An importer gets its node, then the operator's arguments, and builds graph operations. It imports
nothing of torch: the operator itself is registered by the program that uses it.
"""

from __future__ import annotations

from compiler.frontend.torch.node import Node
from compiler.frontend.torch.ops import aten_op
from compiler.frontend.values import Value


@aten_op("example.scaled_softsign.default")
def scaled_softsign(n: Node, x: Value, scale: float) -> Value:
    """scale * x / (1 + |x|), for each element."""
    return x / (1 + abs(x)) * scale

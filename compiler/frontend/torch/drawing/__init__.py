"""Operators that draw random numbers, in programs that are compiled as a whole.

`torch.compile` takes the numbers of PyTorch's own generator instead (compiler/torch/draws.py).
"""

from __future__ import annotations

from functools import cache

from compiler.frontend.torch.ops import OpImporter, marked


@cache
def drawing_importers() -> dict[str, OpImporter]:
    """Operator name -> its importer."""
    from compiler.frontend.torch.drawing import operators

    return marked(operators)

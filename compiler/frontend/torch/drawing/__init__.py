"""Operators that draw random numbers, in programs that are compiled as a whole.

`torch.compile` takes the numbers of PyTorch's own generator instead (compiler/torch/draws.py).
Programs that are kept on disk import this folder without xDSL, for its decompositions.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.frontend.torch.ops import OpImporter


@cache
def drawing_importers() -> dict[str, OpImporter]:
    """Operator name -> its importer."""
    from compiler.frontend.torch.drawing import operators, rejection
    from compiler.frontend.torch.ops import marked

    return {**marked(operators), **marked(rejection)}

"""Core ATen, with the operators that are imported as they are kept whole.

PyTorch's table tells how to make an operator of simpler ones. Whatever `ops/` has an importer for
is taken out of it, so that layer_norm, scaled_dot_product_attention and the like stay.
"""

from __future__ import annotations

from typing import Any

from compiler.frontend.torch.ops import importers


def decompose(program: Any) -> Any:
    """The program in inference form: decomposed, without mutations and views."""
    import torch

    table = torch.export.default_decompositions()
    for op in kept_whole(list(table)):
        del table[op]
    return program.run_decompositions(table)


def decompositions() -> dict[Any, Any]:
    """The same table for `aot_autograd`, which decomposes composite operators by itself."""
    from torch._decomp import core_aten_decompositions  # pyright: ignore

    table: Any = core_aten_decompositions()
    kept = set(kept_whole(list(table)))
    return {op: table[op] for op in list(table) if op not in kept}


def kept_whole(ops: list[Any]) -> list[Any]:
    """Those of the operators that are imported as they are."""
    known = importers()
    return [op for op in ops if str(op) in known]

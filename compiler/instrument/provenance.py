"""Checks provenance: that operations keep the name of the model node that they come from.

Scalar operations and terminators inside a nest, a map or a kernel belong to it and are not counted.
"""

from __future__ import annotations

from collections import Counter

from xdsl.ir import Operation
from xdsl.traits import IsTerminator, SymbolOpInterface

from dialects.text.syntax import location_name


def without_node(module: Operation) -> Counter[str]:
    """The tensor operations, nests and launches of a module that name no model node."""
    return Counter(
        op.name for op in module.walk()
        if op.parent_op() is not None and not location_name(op)
        and op.name.split(".")[0] not in ("arith", "math")
        and not op.has_trait(IsTerminator) and not op.has_trait(SymbolOpInterface))

"""Which operations come from one node of the model."""

from __future__ import annotations

from xdsl.ir import Operation

from dialects.text.syntax import location_name


def of_one_node(a: Operation, b: Operation) -> bool:
    """Whether both come from the same node; operations without a node have none in common."""
    return a.location == b.location and location_name(a) != ""

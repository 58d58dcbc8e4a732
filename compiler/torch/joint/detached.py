"""What autograd saves is detached, which the partitioner does not know as an operator that it may
compute again. It would save the results of all elementwise operators that are detached.

    %d = detach(%x), %y = mul(%d, %g)   -->   %y = mul(%x, %g)

The module can be imported without torch.
"""

from __future__ import annotations

from typing import Any

from compiler.frontend.torch.library import torch_module


def skip_detached(joint: Any) -> None:
    """Let readers inside a graph read what is detached instead."""
    detach = torch_module().ops.aten.detach.default
    for node in joint.graph.find_nodes(op="call_function", target=detach):
        node.replace_all_uses_with(node.args[0], _is_inside)
    joint.graph.eliminate_dead_code()
    joint.recompile()


def _is_inside(reader: Any) -> bool:
    return reader.op != "output"

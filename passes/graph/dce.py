"""graph-dce: erase operations whose results nobody uses.

    %a = graph.exp %x            -->
    strata.return %x                   strata.return %x

Weights that no constant names any more stay in the store: it is shared with other modules.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from passes.base import StrataContext, StrataPass
from passes.rewriting import erase_unused, functions


@dataclass(frozen=True)
class GraphDce(StrataPass):
    """Erase unused operations, in one walk from the end."""

    name = "graph-dce"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        for func in functions(module):
            erase_unused(func.body.block)

"""loop-to-block: turn every scheduled kernel into a program on tiles.

    loop.kernel @k(...) schedule<...> { nests }   ->   block.kernel @k(...) grid(...) { tiles }

The host function is unchanged; it launches kernels by name. In this folder:

    state.py     what is known about each axis at a point of the program: origin, tile, mask
    access.py    index expressions of a nest -> loads and stores of tiles
    compute.py   bodies of nests -> maps, reductions, dots
    tiles.py     the tiles at one point: what is loaded, computed and stored there
    dots.py      sums of products as `block.dot`
    online.py    online sums: rescaled whenever the maximum that they subtract grows
    matrices.py  sums of products in matrix registers, and the memory they are read from afterwards
    copies.py    the positions of a tile one by one, as copies of nests
    scatters.py  tiles of updates, merged into the elements that indices name
    seen.py      loops over scores between the first and the last that a mask leaves to a program
    private.py   private memory for values that nests read elsewhere than they are computed
    kernel.py    the levels of a schedule -> grid, loops, and the order of everything
    legality.py  the rules that a schedule must obey
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.text.syntax import location_name
from passes.base import PassError, StrataContext, StrataPass
from passes.loop_to_block.kernel import lower_kernel
from passes.loop_to_block.legality import faults
from passes.rewrites.loop.sums_apart import set_sums_apart


class LoopToBlock(StrataPass):
    """Lower kernels by their schedules."""

    name = "loop-to-block"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
        for op in kernels:
            set_sums_apart(op)
        _check(kernels)
        for op in kernels:
            if not context.allowance.take(op, self.name):
                continue
            module.body.block.insert_op_before(lower_kernel(op), op)
            op.detach()
            op.erase()


def _check(kernels: Sequence[KernelOp]) -> None:
    """Raises PassError with all faults of all schedules."""
    found: list[tuple[str, str]] = []
    for kernel in kernels:
        name = f"kernel @{kernel.sym_name.data}"
        schedule = kernel.schedule.data if kernel.schedule else None
        texts = ["it has none"] if schedule is None else [
            fault.text for fault in faults(kernel, schedule)]
        found += [(location_name(kernel), f"the schedule of {name}: {x}") for x in texts]
    if found:
        raise PassError(LoopToBlock.name, found)

"""Kernels of a program that users write themselves, in Triton: a pass in a file for `--plugin`.

    @triton.jit
    def doubled(x, y, n, BLOCK: tl.constexpr): ...

    Mine = handed_over("map_*", doubled, grid=lambda x, y: [x.shape[0].ceildiv(128)],
                       numbers=lambda x, y: [x.shape[0]], BLOCK=128)

`--plugin mine.py --passes default,hand-over-doubled` launches `doubled` in the place of each kernel
whose name begins with `map_`, on CUDA, inside the program's graph. `lower --to host` shows the
names and buffers of kernels. Other targets launch their own kernel.

A schedule can choose the kernels, too, by names or nests: `--plugin mine.py --schedule FILE`, with

    nests(map, ...)
        hand over to doubled
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from passes.base import StrataContext, StrataPass
from passes.rewrites.handing_over import (
    PLACE,
    PREFIX,
    Sizes,
    WrittenKernel,
    hand_over,
    scheduled_kernels,
)


def handed_over(
    pattern: str, kernel: Any, *, grid: Sizes, numbers: Sizes = lambda *_: (), num_warps: int = 4,
    num_stages: int = 3, **constants: Any,
) -> type[StrataPass]:
    """A pass, `hand-over-NAME`, that hands kernels of the program over to a `@triton.jit` function.

    `pattern`: their names, in which `*` matches any text. The function's parameters are the buffers
    that such a kernel reads, those that it writes, `numbers`, and `constants`. `grid` and `numbers`
    receive the types of the buffers, whose `shape` is a list of sizes, and return sizes. With the
    option `scheduled`, the kernels are those whose schedule names it, not the pattern. Raises
    StrataError for a function that refers to what cannot be written as a module.
    """
    from compiler.diagnostics import StrataError
    from compiler.frontend.faults import Fault
    from compiler.frontend.torch.core.foreign import literal, source_of

    try:
        texts = {name: literal(value) for name, value in constants.items()}
        source = source_of(kernel)
    except Fault as fault:
        raise StrataError(f"{kernel.__name__} cannot be part of a program: {fault.what}") from fault
    written = WrittenKernel(pattern, kernel.__name__, source, tuple(kernel.arg_names), grid,
                            numbers, texts, num_warps, num_stages)

    @dataclass(frozen=True)
    class HandOver(StrataPass):
        name = f"{PREFIX}{kernel.__name__.replace('_', '-')}"
        place = PLACE
        scheduled: bool = False

        def run(self, context: StrataContext, module: ModuleOp) -> None:
            chosen = scheduled_kernels(module, kernel.__name__) if self.scheduled else None
            hand_over(self, context, module, written, chosen)

    HandOver.__doc__ = f"Launch {kernel.__name__} in the place of kernels {pattern}."
    HandOver.__module__ = kernel.fn.__module__
    return HandOver

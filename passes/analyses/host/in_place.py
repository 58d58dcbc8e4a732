"""Whether a kernel may compute a result in the memory of an argument."""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp


def can_share(kernel: KernelOp, argument: int, result: int) -> bool:
    """Whether result number `result` may share the memory of argument number `argument`.

    It may if a single nest reads the argument, at exactly the element that it then writes, and
    nothing else in the kernel needs either of them:

        %y = nest (i0, i1) ins(%argument[i0, i1], ...) outs([i0, i1])

    A nest with reductions reads elements several times, and another reader could run after the
    write. The caller knows that both buffers have the same shape and bytes per element.
    """
    value, yielded = kernel.body.block.args[argument], kernel.yielded[result]
    nest = yielded.owner
    if not isinstance(nest, NestOp) or not nest.is_elementwise or not yielded.has_one_use():
        return False
    position = next(k for k, r in enumerate(nest.results) if r is yielded)
    written = nest.output_maps[position]
    return value.first_use is not None and all(
        use.operation is nest and nest.input_maps[use.index] == written
        and nest.pad_values[use.index] is None for use in value.uses)

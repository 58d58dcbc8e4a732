"""Split a reduction with several results into one per result, each with its own accumulator.

    %s, %m = loop.nest (..., reduce k) outs(add ..., max ...)
        -->  %s = loop.nest (..., reduce k) outs(add ...)
             %m = loop.nest (..., reduce k) outs(max ...)
"""

from __future__ import annotations

from dialects.loop import KernelOp, NestOp, YieldOp
from dialects.strata.types import TensorType
from dialects.text.syntax import set_location


def set_sums_apart(kernel: KernelOp) -> None:
    """Give each result of the kernel's reductions a nest of its own."""
    for nest in list(kernel.nests):
        if not nest.is_reduction or len(nest.results) == 1:
            continue
        for number, result in enumerate(nest.results):
            single = _alone(nest, number)
            kernel.body.block.insert_op_before(single, nest)
            result.replace_all_uses_with(single.results[0])
        nest.detach()
        nest.erase()


def _alone(nest: NestOp, number: int) -> NestOp:
    """The nest with only one of its results."""
    body = nest.body.clone()
    last = body.block.last_op
    assert last is not None
    value = last.operands[number]
    last.detach()
    last.erase()
    body.block.add_op(YieldOp.of(value))
    type_ = nest.results[number].type
    assert isinstance(type_, TensorType)
    single = NestOp.of(
        nest.axes, nest.inputs, nest.input_maps, [type_], [nest.output_maps[number]],
        combiners=[nest.combiner_names[number]], pads=nest.pad_values, body=body)
    set_location(single, nest)
    single.part = nest.part
    single.results[0].name_hint = nest.results[number].name_hint
    return single

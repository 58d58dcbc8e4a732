"""Results of kernels that are stored with their dims in another order, and copied.

    %y = call @k(%x) : f32[512, 256, 3, 3]
    ->  %t = call @k(%x) : f32[3, 3, 512, 256], %y = call @k_result(%t) : f32[512, 256, 3, 3]
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.loop import Axis, CallOp, KernelOp, NestOp, YieldOp
from dialects.strata.types import TensorType, shape_of, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import set_location
from passes.rewrites.loop.nests import carry


def reorder_result(
    module: ModuleOp, kernel: KernelOp, call: CallOp, order: Sequence[int]
) -> tuple[CallOp, KernelOp, CallOp]:
    """Store the result of a kernel's only nest with its dims in this order, slowest first. Returns
    what replaces the kernel's only call: its new call, the kernel that copies, and that one's call.
    """
    copier = _copier(kernel, order)
    module.body.block.insert_op_after(copier, kernel)
    product = CallOp.of(call.kernel.data, call.inputs, call.sizes.data,
                        [_permuted(call.results[0], order)])
    sizes = [size for name, size in zip(kernel.size_names, call.sizes.data, strict=True)
             if name in copier.size_names]
    copy = CallOp.of(copier.sym_name.data, product.results, sizes,
                     [_type(r) for r in call.results])
    block = call.parent_block()
    assert block is not None
    block.insert_ops_before([product, copy], call)
    for op in (product, copy):
        set_location(op, call)
    _store_in_order(kernel, order)
    copy.results[0].name_hint = call.results[0].name_hint
    call.results[0].replace_all_uses_with(copy.results[0])
    call.detach()
    call.erase()
    return product, copier, copy


def _type(value: SSAValue) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _permuted(value: SSAValue, order: Sequence[int]) -> TensorType:
    type_ = _type(value)
    return tensor(type_.element, [type_.shape[d] for d in order])


def _copier(kernel: KernelOp, order: Sequence[int]) -> KernelOp:
    """The kernel that copies a result in another order to the order that the kernel has so far."""
    result = kernel.yielded[0]
    shape = shape_of(result)
    used = {s for size in shape for s in size.symbols}
    copier = KernelOp.of(f"{kernel.sym_name.data}_result", [_permuted(result, order)],
                         [s for s in kernel.size_names if s in used])
    axes = [Axis(Symbol.axis(f"i{d}"), size) for d, size in enumerate(shape)]
    at = [Expr.symbol(a.name) for a in axes]
    nest = NestOp.of(axes, [copier.body.block.args[0]], [[at[d] for d in order]], [_type(result)],
                     [at], body=None)
    nest.body.block.add_op(YieldOp.of(nest.body.block.args[0]))
    copier.body.block.add_ops([nest, YieldOp.of(nest.results[0])])
    for op in (nest, copier):
        set_location(op, kernel)
    return copier


def _store_in_order(kernel: KernelOp, order: Sequence[int]) -> None:
    [nest] = kernel.nests
    new = carry(nest, NestOp.of(
        nest.axes, nest.inputs, nest.input_maps, [_permuted(nest.results[0], order)],
        [[nest.output_maps[0][d] for d in order]], combiners=nest.combiner_names,
        pads=nest.pad_values, body=nest.detach_region(0)))
    kernel.body.block.insert_op_before(new, nest)
    nest.results[0].replace_all_uses_with(new.results[0])
    nest.detach()
    nest.erase()

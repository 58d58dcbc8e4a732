"""What stands behind the sums of a product or a convolution, where libraries compute it, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import BlockArgument, SSAValue

from dialects.expr import Expr
from dialects.loop import KernelOp, NestOp

Used = tuple[SSAValue, Sequence[Expr]]
"""A value, and the places of it that a nest reads."""
RELU = "relu"


@dataclass(frozen=True)
class Epilogue:
    """relu(sums * scale + values), or without the relu, or the scale.

    `last`: the nest that stores it. `sums`: where that reads them; where the product stores them,
    if nothing is behind.
    """

    last: NestOp
    sums: Sequence[Expr]
    scale: Used | None = None
    added: Sequence[Used] = ()
    relu: bool = False


def epilogue_of(kernel: KernelOp) -> Epilogue | None:
    """What is behind the first nest of a kernel with one result; None for anything else.

    Intermediate results count as they are before they are rounded.
    """
    product, *behind = kernel.nests
    if len(behind) > 1 or len(product.results) != 1:
        return None
    found = _behind(behind[0], product) if behind else Epilogue(product, product.output_maps[0])
    return found if found is not None and list(kernel.yielded) == list(found.last.results) else None


def used_by(kernel: KernelOp, product: NestOp, epilogue: Epilogue) -> list[Sequence[Expr]] | None:
    """Where each of the kernel's arguments is read; None unless each is read at one place."""
    used = [*zip(product.inputs, product.input_maps, strict=True),
            *([] if epilogue.scale is None else [epilogue.scale]), *epilogue.added]
    maps = dict(used)
    arguments = list(kernel.body.block.args)
    return [maps[a] for a in arguments] if len(used) == len(arguments) and all(
        a in maps for a in arguments) else None


def _behind(nest: NestOp, product: NestOp) -> Epilogue | None:
    """What a nest makes of the sums; None for anything but scaling, adding and a ReLU."""
    if nest.is_reduction or len(nest.results) != 1 or any(p is not None for p in nest.pad_values):
        return None
    if list(nest.inputs).count(product.results[0]) != 1:
        return None
    place = list(nest.inputs).index(product.results[0])
    value, relu = _without_relu(_unrounded(nest.yielded[0]))
    terms = [_factors(t) for t in _terms(value)]
    [scaled, *others] = sorted(terms, key=lambda t: place not in t)
    scales = [k for k in scaled if k != place]
    if any(len(t) != 1 for t in others) or len(scales) > 1 or sorted(
            [*scaled, *(k for t in others for k in t)]) != [*range(len(nest.inputs))]:
        return None
    used = [(v, map_) for v, map_ in zip(nest.inputs, nest.input_maps, strict=True)]
    return Epilogue(nest, nest.input_maps[place], used[scales[0]] if scales else None,
                    [used[k] for t in others for k in t], relu)


def _without_relu(value: SSAValue) -> tuple[SSAValue, bool]:
    """x of max(x, 0), and whether it was that."""
    if not isinstance(value.owner, arith.MaximumfOp):
        return value, False
    others = [v for v in value.owner.operands if not _is_zero(v)]
    return (_unrounded(others[0]), True) if len(others) == 1 else (value, False)


def _is_zero(value: SSAValue) -> bool:
    constant = value.owner
    return (isinstance(constant, arith.ConstantOp) and isinstance(constant.value, FloatAttr)
            and constant.value.value.data == 0.0)


def _terms(value: SSAValue) -> Iterator[SSAValue]:
    """What is added up."""
    if isinstance(value.owner, arith.AddfOp):
        for operand in value.owner.operands:
            yield from _terms(_unrounded(operand))
    else:
        yield value


def _factors(value: SSAValue) -> list[int]:
    """The arguments that are multiplied, one or two; none for anything else."""
    factors = [_unrounded(v) for v in value.owner.operands] if isinstance(
        value.owner, arith.MulfOp) else [value]
    found = [v.index for v in factors if isinstance(v, BlockArgument)]
    return found if len(found) == len(factors) else []


def _unrounded(value: SSAValue) -> SSAValue:
    """What is behind conversions between floats."""
    while isinstance(value.owner, arith.TruncFOp | arith.ExtFOp):
        value = value.owner.operands[0]
    return value

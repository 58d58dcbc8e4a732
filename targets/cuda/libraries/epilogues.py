"""Epilogues of products and convolutions that libraries can compute, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import BlockArgument, SSAValue

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.expr import Expr

Used = tuple[SSAValue, Sequence[Expr]]
"""A value, and the index map with which a nest reads it."""
Computed = tuple[NestOp, SSAValue]
"""A nest, and a scalar value that it computes per element."""


@dataclass(frozen=True)
class Epilogue:
    """relu(sums * scale + added), where the relu, the scale and the added values are optional.

    `result`: the map with which the last nest stores it. `sums`: the map with which it reads the
    sums.
    """

    result: Sequence[Expr]
    sums: Sequence[Expr]
    scale: Used | None = None
    added: Sequence[Used] = ()
    relu: bool = False


def epilogue_of(kernel: KernelOp) -> Epilogue | None:
    """The epilogue after the first nest of a kernel with one result; None for anything else.

    Roundings of intermediate results are ignored.
    """
    product, last = kernel.nests[0], kernel.nests[-1]
    if len(product.results) != 1 or list(kernel.yielded) != list(last.results):
        return None
    if last is product:
        return Epilogue(product.output_maps[0], product.output_maps[0])
    if not _is_plain(last):
        return None
    value, relu = _without_relu(_behind_names((last, last.yielded[0])))
    terms = [_factors(t) for t in _terms(value)]
    [scaled, *others] = sorted(terms, key=lambda used: not _read(used, product))
    sums, scale = _read(scaled, product), [u for u in scaled if u[0] is not product.results[0]]
    if len(sums) != 1 or len(scale) > 1 or any(
            len(used) != 1 or _read(used, product) for used in others):
        return None
    return Epilogue(last.output_maps[0], sums[0][1], scale[0] if scale else None,
                    [used[0] for used in others], relu)


def used_by(kernel: KernelOp, product: NestOp, epilogue: Epilogue) -> list[Sequence[Expr]] | None:
    """The map with which each kernel argument is read; None unless each is read exactly once."""
    used = [*zip(product.inputs, product.input_maps, strict=True),
            *([] if epilogue.scale is None else [epilogue.scale]), *epilogue.added]
    maps = dict(used)
    arguments = list(kernel.body.block.args)
    return [maps[a] for a in arguments] if len(used) == len(arguments) and all(
        a in maps for a in arguments) else None


def elements_of(kernel: KernelOp) -> set[str]:
    """The names of the element types that a kernel reads and stores."""
    return {str(v.type.element) for v in (*kernel.body.block.args, *kernel.yielded)
            if isinstance(v.type, TensorType)}


def _read(used: Sequence[Used], product: NestOp) -> list[Used]:
    """Those values that are the product's sums."""
    return [u for u in used if u[0] is product.results[0]]


def _is_plain(nest: NestOp) -> bool:
    return (nest.is_elementwise and len(nest.results) == 1
            and all(p is None for p in nest.pad_values))


def _without_relu(value: Computed) -> tuple[Computed, bool]:
    """x, if the value is max(x, 0); and whether it was."""
    nest, maximum = value
    if not isinstance(maximum.owner, arith.MaximumfOp):
        return value, False
    others = [v for v in maximum.owner.operands if not _is_zero(v)]
    return (_behind_names((nest, others[0])), True) if len(others) == 1 else (value, False)


def _is_zero(value: SSAValue) -> bool:
    constant = value.owner
    return (isinstance(constant, arith.ConstantOp) and isinstance(constant.value, FloatAttr)
            and constant.value.value.data == 0.0)


def _terms(value: Computed) -> Iterator[Computed]:
    """The summands of a value."""
    nest, added = value
    if isinstance(added.owner, arith.AddfOp):
        for operand in added.owner.operands:
            yield from _terms(_behind_names((nest, operand)))
    else:
        yield value


def _factors(value: Computed) -> list[Used]:
    """The one or two values read and multiplied; none for anything else."""
    nest, factor = value
    factors = [_behind_names((nest, v)) for v in factor.owner.operands] if isinstance(
        factor.owner, arith.MulfOp) else [value]
    found: list[Used] = [(n.inputs[v.index], n.input_maps[v.index])
                         for n, v in factors if isinstance(v, BlockArgument)]
    return found if len(found) == len(factors) else []


def _behind_names(value: Computed) -> Computed:
    """The value before conversions between floats, also in the nest that made what is read."""
    nest, found = value
    if isinstance(found.owner, arith.TruncFOp | arith.ExtFOp):
        return _behind_names((nest, found.owner.operands[0]))
    if not isinstance(found, BlockArgument):
        return value
    maker = nest.inputs[found.index].owner
    if isinstance(maker, NestOp) and _is_plain(maker) and (
            list(nest.input_maps[found.index]) == list(maker.output_maps[0])):
        return _behind_names((maker, maker.yielded[0]))
    return value

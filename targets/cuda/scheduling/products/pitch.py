"""Which factors of a product are copied, so that their rows begin at multiples of a word.

Rows of an odd number of 16-bit floats are loaded one element at a time, and none of these loads can
be asynchronous: 1952x448 @ 448x1313 took 2.3 times as long as with a padded factor. The copy
costs a pass over the factor and a launch, so that programs must read it several times, or wait for
memory several times: without asynchronous loads, no tile is on its way while another is multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialects.loop import KernelOp, NestOp
from dialects.strata.types import TensorType
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from passes.contract import Border
from targets.cuda.scheduling.roles import Roles, symbols_of
from targets.cuda.scheduling.tiles import width_of

WORD, LEAST = 16, 4
"""The bytes of the widest load, and of the narrowest asynchronous one."""
AGAIN = 1024
"""How many rows of the other factor there are at least."""
LONG, SOME = 1024, 256
"""... or the least terms of a sum, over which a program waits for longer than a copy takes, and the
least rows of the other factor then."""


def odd_factors(kernel: KernelOp, nest: NestOp, roles: Roles) -> Mapping[int, Border] | None:
    """How to copy the factors of a `tl.dot` of rows by columns whose rows lie so; None: not."""
    if sum(map(is_contraction, kernel.nests)) > 1:
        return None
    found = {k: Border((0, 1), padded=False, multiple=WORD // width_of(v))
             for k, v in enumerate(nest.inputs) if v in kernel.body.block.args
             and _is_odd(nest, k) and _is_read_again(kernel, nest, k, roles)}
    return found or None


def _is_odd(nest: NestOp, position: int) -> bool:
    """Whether a matrix has rows of a known length that is no multiple of the least load."""
    type_ = nest.inputs[position].type
    assert isinstance(type_, TensorType)
    size = type_.shape[-1].constant if type_.rank == 2 else None
    known = type_.shape[0].constant is not None and nest.pad_values[position] is None
    width = width_of(nest.inputs[position])
    return known and width == 2 and size is not None and size > 1 and bool(size * width % LEAST)


def _is_read_again(kernel: KernelOp, nest: NestOp, position: int, roles: Roles) -> bool:
    own = symbols_of(nest.input_maps[position])
    others = [a for a in (*roles.rows, *roles.columns) if a not in own]
    other, terms = _size(kernel, others), _size(kernel, roles.reduce)
    return other >= AGAIN or (other >= SOME and terms >= LONG)


def _size(kernel: KernelOp, axes: Sequence[Symbol]) -> int:
    """The elements of one axis; 0 for several, or where they are open."""
    return (kernel.axes[axes[0]].constant or 0) if len(axes) == 1 else 0

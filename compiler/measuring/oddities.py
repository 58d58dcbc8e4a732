"""Unexpected outputs: NaN and infinities that no input explains, and empty outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore

FLOATS = "fV"
"""Kinds of dtypes that may hold NaN: NumPy's floats, and all of ml_dtypes."""
Arrays: TypeAlias = "Callable[[], Iterable[Array]]"


def oddities(
    names: Sequence[str], outputs: Sequence[Array], inputs: Sequence[Array], constants: Arrays
) -> list[str]:
    """Warnings about unexpected outputs, by name.

    An output is unexpected if all of it is NaN; if it has NaN or infinities, but neither an input
    nor a constant of the model has any (constants are only computed in this case); or if it is
    empty, but no input is.
    """
    found: list[str] = []
    for name, array in zip(names, outputs, strict=True):
        if not array.size and all(i.size for i in inputs):
            found.append(f"output '{name}' is empty, {_shape(array)}, though no input is")
        elif nan_count(array) == array.size > 0:
            found.append(f"output '{name}' is NaN in all of its {array.size} elements"
                         f"{_explanation(inputs)}")
        elif (odd := _not_finite(array)) and not any(map(_not_finite, inputs)) and (
                not any(map(_not_finite, constants()))):
            found.append(f"output '{name}' has {odd} of {array.size} elements that are NaN or "
                         "infinite, though no input and no constant has such")
    return found


def _shape(array: Array) -> str:
    return f"of shape [{', '.join(map(str, array.shape))}]"


def _explanation(inputs: Sequence[Array]) -> str:
    return "" if any(map(_not_finite, inputs)) else ", though no input has a NaN or an infinity"


def incomparable(names: Sequence[str], outputs: Sequence[Array]) -> list[str]:
    """Warnings about outputs that cannot be compared, by name."""
    found: list[str] = []
    for name, array in zip(names, outputs, strict=True):
        if count := nan_count(array):
            which = "all" if count == array.size else f"{count} of {array.size}"
            found.append(f"{which} elements of output '{name}' are NaN, of which agreement says "
                         "nothing but that")
    return found


def has_numbers(outputs: Sequence[Array]) -> bool:
    """Whether there is anything to compare: an element that is not NaN, or no element at all."""
    return not any(a.size for a in outputs) or any(nan_count(a) < a.size for a in outputs)


def nan_count(array: Array) -> int:
    if array.dtype.kind not in FLOATS:
        return 0
    with np.errstate(invalid="ignore"):
        return int(np.count_nonzero(np.isnan(array.astype(np.float64))))


def _not_finite(array: Array) -> int:
    """How many elements are NaN or infinite."""
    if array.dtype.kind not in FLOATS:
        return 0
    with np.errstate(invalid="ignore"):
        return int(np.count_nonzero(~np.isfinite(array.astype(np.float64))))


def constants_of(module: ModuleOp, weights: WeightStore) -> Iterator[Array]:
    """The constants of a module of any level."""
    from dialects.graph.constant import ConstantOp
    from dialects.host import ConstantOp as HostConstantOp

    for op in module.walk():
        if isinstance(op, ConstantOp):
            yield from op.arrays(weights)
        elif isinstance(op, HostConstantOp):
            yield op.array(weights)

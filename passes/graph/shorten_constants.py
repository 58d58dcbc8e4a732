"""graph-shorten-constants: store f32 constants in half precision if that is exact.

    %w = graph.constant #strata.weight<"norm.w.cast", ...> : f32[4096]
    -->  %0 = graph.constant #strata.weight<"norm.w.cast", ...> : bf16[4096]
         %w = graph.cast %0 {to = f32} : f32[4096]

Half-precision weights are often used in f32, so constant folding folded their casts, and kernels
would read twice the bytes. A widening cast is computed where its result is read. Applies only to
constants that elementwise operations alone read, and only to half types that the function converts
from or to anyway; otherwise any constant of ones and zeros would qualify. For targets that ask for
it (`Facts.shortens_constants`).

Enters: folded constants. Assumes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute

from dialects.graph import CastOp, ConstantOp
from dialects.graph.base import Build
from dialects.graph.composite import cast
from dialects.graph.constant import label_of
from dialects.graph.elementwise import ElementwiseOp
from dialects.strata.elements import dtype_of
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, WeightsAttr, bf16, f16, f32
from passes.base import StrataContext, StrataPass
from passes.rewrites.graph.matching import (
    MAX_COMPARED,
    PROBED,
    type_of,
)
from passes.rewriting import functions, replace

LEAST = 64
"""Constants with fewer elements than this do not justify another operation."""


class GraphShortenConstants(StrataPass):
    """Store constants in half precision where that is exact."""

    name = "graph-shorten-constants"

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if not context.facts.shortens_constants:
            return
        for func in functions(module):
            halves = _converted(func)
            for op in [op for op in func.body.block.ops if isinstance(op, ConstantOp)]:
                self._shorten(op, halves, context)

    def _shorten(
        self, op: ConstantOp, halves: Sequence[Attribute], context: StrataContext
    ) -> None:
        store = context.weights
        if not _is_candidate(op) or op.is_open(store) or op.has_history(store):
            return
        try:
            arrays = op.arrays(store)
        except KeyError:  # text that was read without its weights
            return
        element = next((e for e in halves if all(_holds(e, a) for a in arrays)), None)
        if element is None:
            return
        build = Build(op)
        short = [a.astype(dtype_of(element)) for a in arrays]
        constant = ConstantOp.of_array(short[0], store, op.label)
        if op.varies:
            constant.value = WeightsAttr(ArrayAttr([
                store.add(label_of(w), a) for w, a in zip(op.weights, short, strict=True)]))
        build.insert(constant)
        replace(op, [cast(build, constant.result, f32)], context, "shorter")


def _converted(func: FuncOp) -> list[Attribute]:
    """The half types that a function converts to or from f32."""
    casts = [op for op in func.body.block.ops if isinstance(op, CastOp)]
    found = {type_of(v).element for op in casts for v in (op.x, op.result)}
    return [element for element in (bf16, f16) if element in found]


def _is_candidate(op: ConstantOp) -> bool:
    count = op.type.count.constant
    return op.type.element == f32 and count is not None and LEAST <= count <= MAX_COMPARED and all(
        isinstance(use.operation, ElementwiseOp) for use in op.result.uses)


def _holds(element: Attribute, array: Array) -> bool:
    """Whether a shorter type holds every element; a few elements usually suffice to refute it."""
    flat = array.reshape(-1)
    return _is_exact(flat[:PROBED], element) and _is_exact(flat, element)


def _is_exact(flat: Array, element: Attribute) -> bool:
    with np.errstate(over="ignore"):
        back = flat.astype(dtype_of(element)).astype(np.float32)
    return np.array_equal(back.view(np.int32), flat.view(np.int32))

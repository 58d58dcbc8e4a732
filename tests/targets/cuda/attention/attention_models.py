"""Attention at the graph level, unfused, with what it is in f64.

Used by the tests here, which need no GPU, and wherever there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from dialects.graph import (
    AddOp,
    ConstantOp,
    IsnanOp,
    MatmulOp,
    MulOp,
    SoftmaxOp,
    TransposeOp,
    WhereOp,
)
from dialects.graph.base import GraphOp
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, TensorType, element_of, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr, Size
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
SCALE = 0.3

@dataclass(frozen=True)
class Model:
    """softmax(q @ k^T * SCALE + mask) @ v, of b x s x d, b x t x d and b x t x e.

    `mask`: "add" numbers of s x t, "keep" truth values, "row" numbers of t, "causal" a constant
    triangle of truth values and "lower" one of numbers; the rows in `nothing` are masked entirely,
    and NaN, or 0 if the weights are `guarded`.
    No row sees the first `unseen` columns. `open_sizes`: b, s and t are known to a run only.
    `open_keys`: t alone is.
    """

    b: int
    s: int
    t: int
    d: int
    e: int
    mask: str = ""
    element: str = "f16"
    offset: int = 0
    nothing: tuple[int, ...] = ()
    spread: float = 1.0
    guarded: bool = False
    open_sizes: bool = False
    unseen: int = 0
    open_keys: bool = False

    @property
    def name(self) -> str:
        return "-".join(map(str, (self.b, self.s, self.t, self.d, self.e, self.mask or "plain",
                                  self.element, "open" if self.open_sizes else "fixed")))

    @property
    def is_constant(self) -> bool:
        """Whether the mask is part of the model."""
        return self.mask in ("causal", "lower")

    def arrays(self) -> list[Array]:
        """q, k, v and the mask, if there is one."""
        rng = np.random.default_rng(self.s + self.t)
        shapes = (self.s, self.d), (self.t, self.d), (self.t, self.e)
        found = [rng.standard_normal((self.b, *shape)) for shape in shapes]
        found[0] *= self.spread
        return [x.astype(DTYPES[self.element]) for x in found] + self._masks(rng)

    def _masks(self, rng: np.random.Generator) -> list[Array]:
        shape = (self.t,) if self.mask == "row" else (self.s, self.t)
        if self.is_constant:
            keep = np.tri(self.s, self.t, self.offset, dtype=np.bool_)
        else:
            keep = rng.random(shape) < 0.7
            if self.mask != "row":
                keep[1:2, :self.t // 2] = False  # whole tiles, and then something
            keep[list(self.nothing)] = False
            keep[..., :self.unseen] = False
        if self.mask in ("keep", "causal"):
            return [keep]
        numbers = np.zeros(shape) if self.is_constant else rng.standard_normal(shape)
        return [np.where(keep, numbers, -np.inf).astype(DTYPES[self.element])] if self.mask else []

    @property
    def inputs(self) -> list[Array]:
        return self.arrays()[:3 if self.is_constant else None]

    def expected(self) -> Array:
        q, k, v, *masks = (a if a.dtype == np.bool_ else a.astype(np.float64)
                           for a in self.arrays())
        x = q @ k.swapaxes(1, 2) * SCALE
        for mask in masks:
            x = np.where(mask, x, -np.inf) if mask.dtype == np.bool_ else x + mask
        with np.errstate(invalid="ignore"):
            powers = np.exp(x - x.max(2, keepdims=True))
            weights = powers / powers.sum(2, keepdims=True)
            return np.where(np.isnan(weights) & self.guarded, 0, weights) @ v

    # ------------------------------------------------------------------ as a module
    def module(self) -> tuple[ModuleOp, WeightStore]:
        """The model at the graph level."""
        store, arrays = WeightStore(), self.arrays()
        types = [self._type(a, k) for k, a in enumerate(self.inputs)]
        func = FuncOp.of("main", ["q", "k", "v", "m"][:len(types)], types)
        values: list[SSAValue] = list(func.body.block.args)

        def add(op: GraphOp) -> SSAValue:
            func.body.block.add_op(op)
            return op.results[0]

        values += [add(ConstantOp.of_array(a, store, "mask")) for a in arrays[len(types):]]
        q, k, v, *masks = values
        element = types[0].element
        scores = add(MatmulOp.of(q, add(TransposeOp.of(k, perm=[0, 2, 1]))))
        scores = add(MulOp.of(scores, add(ConstantOp.scalar(SCALE, element))))
        for mask, array in zip(masks, arrays[3:], strict=True):
            none = add(ConstantOp.scalar(-np.inf, element))
            scores = add(WhereOp.of(mask, scores, none) if array.dtype == np.bool_
                         else AddOp.of(scores, mask))
        weights = add(SoftmaxOp.of(scores, axis=2))
        if self.guarded:
            zero = add(ConstantOp.scalar(0.0, element))
            weights = add(WhereOp.of(add(IsnanOp.of(weights)), zero, weights))
        y = add(MatmulOp.of(weights, v))
        func.finish(["y"], [y])
        return ModuleOp([func]), store

    def _type(self, array: Array, number: int) -> TensorType:
        shape: list[Size] = list(array.shape)
        if self.open_sizes and number < 3:
            shape[:2] = Expr.size("b"), Expr.size("s" if number == 0 else "t")
        elif self.open_sizes:
            shape[:] = [Expr.size("s"), Expr.size("t")][-array.ndim:]
        elif self.open_keys and number > 0:
            shape[1 if number < 3 else -1] = Expr.size("t")
        return tensor(element_of(array.dtype), shape)

    def lowered(self, options: TargetOptions) -> tuple[ModuleOp, WeightStore]:
        """The model at block level, for the CUDA target."""
        module, store = self.module()
        context = TARGET.bind(options).context(store)
        context.exact = options.exact
        for _ in lower(module, context):
            pass
        return module, store

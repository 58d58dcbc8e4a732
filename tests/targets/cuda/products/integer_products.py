"""Products of quantized tensors, at the graph level, with what they are by NumPy.

Used by the tests here, which need no GPU, and by `benchmarks/cuda/selftest.py`, which needs one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from dialects.graph import ConstantOp, ConvIntegerOp, MatmulIntegerOp
from dialects.graph.convolution import convolve
from dialects.strata.func import FuncOp
from dialects.strata.types import Array, element_of, tensor
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower


@dataclass(frozen=True)
class Case:
    """A product of x less its zero point, both inputs of a model, with weights less theirs.

    `types`: the element types of x and w, "u1" or "i1". `zeros`: the zero points; that of w may be
    one per column. `arguments`: how many of x, its zero point, w, its zero point are inputs of the
    model; the others are constants.
    """

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    types: str = "u1 u1"
    zeros: tuple[Any, Any] = (131, 117)
    arguments: int = 2
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    on_tensor_cores: bool = True

    @property
    def is_conv(self) -> bool:
        return len(self.x) > 2

    def arrays(self) -> list[Array]:
        """x, its zero point, w, its zero point: all bytes, with the extreme ones side by side."""
        rng = np.random.default_rng(len(self.name))
        found: list[Array] = []
        for shape, kind, zero in zip((self.x, self.w), self.types.split(), self.zeros, strict=True):
            info = np.iinfo(kind)
            array = rng.integers(info.min, info.max + 1, shape).astype(kind)
            array[0], array[-1, ..., 1:] = info.max, info.min
            found += [array, np.array(zero, kind)]
        return found

    @property
    def inputs(self) -> list[Array]:
        """What the model is run with."""
        return self.arrays()[:self.arguments]

    @property
    def depth(self) -> int:
        """How many products make one sum."""
        return int(np.prod(self.w[1:] if self.is_conv else self.w[:1]))

    def expected(self) -> Array:
        """Sums in f64, which holds them exactly, wrapped into i32."""
        x, zero_x, w, zero_w = (a.astype(np.float64) for a in self.arrays())
        if not self.is_conv:
            total = (x - zero_x) @ (w - zero_w)
        else:
            w = w - zero_w.reshape(-1, *[1] * (w.ndim - 1))
            [op] = [op for op in self.module()[0].walk() if isinstance(op, ConvIntegerOp)]
            shape = op.result_tensors[0].static_shape
            assert shape is not None
            total = convolve(x - zero_x, w, op.properties, shape, w.dtype)
        return total.astype(np.int64).astype(np.int32)

    def module(self) -> tuple[ModuleOp, WeightStore]:
        """The model at the graph level."""
        arrays, store = self.arrays(), WeightStore()
        names = ["x", "zero_x", "w", "zero_w"][:self.arguments]
        types = [tensor(element_of(a.dtype), a.shape) for a in arrays[:self.arguments]]
        func = FuncOp.of("main", names, types)
        values = [*func.body.block.args, *(
            _constant(func.body.block, a, store) for a in arrays[self.arguments:])]
        kind = ConvIntegerOp if self.is_conv else MatmulIntegerOp
        x, zero_x, w, zero_w = values
        op = kind.of(x, w, zero_x, zero_w, **self.attributes)
        func.body.block.add_op(op)
        func.finish(["y"], op.results)
        return ModuleOp([func]), store

    def lowered(self, options: TargetOptions) -> tuple[ModuleOp, WeightStore]:
        """The model at block level, for the CUDA target."""
        module, store = self.module()
        for _ in lower(module, TARGET.bind(options).context(store)):
            pass
        return module, store


def _constant(block: Block, array: Array, store: WeightStore) -> SSAValue:
    op = ConstantOp.of_array(array, store, "weight")
    block.add_op(op)
    return op.results[0]


CASES: Sequence[Case] = [
    Case("signed", (17, 131), (131, 33), "i1 i1", (0, 0)),
    Case("unsigned, sums beyond 2^24", (19, 2503), (2503, 21)),
    Case("mixed, one zero point per column", (5, 67), (67, 17), "u1 i1",
         (255, np.arange(-8, 9)), arguments=1),
    Case("zero points in the middle", (33, 40), (40, 16), zeros=(128, 128), arguments=1),
    Case("two activations", (37, 96), (96, 50), "i1 u1", (-128, 255), arguments=4),
    Case("convolution, zero point around", (2, 5, 7, 11), (19, 5, 3, 3), attributes={
        "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    Case("convolution, no zero points", (1, 16, 13, 13), (24, 16, 3, 3), "i1 i1", (0, 0),
         arguments=1, attributes={"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    Case("groups", (1, 12, 9, 5), (20, 6, 3, 3), attributes={"pads": [1] * 4, "group": 2}),
    Case("one column", (1, 7, 6, 6), (1, 7, 3, 3), on_tensor_cores=False),
    Case("depthwise", (1, 6, 8, 8), (6, 1, 3, 3), attributes={"group": 6}, on_tensor_cores=False),
]
"""Odd and prime sizes; tiles, groups and sums of all kinds."""

LARGE_CASES: Sequence[Case] = [
    Case("matmul 4096", (4096, 4096), (4096, 4096), "i1 i1", (0, 0)),
    Case("matmul 512x1152x288, zero points", (512, 1152), (1152, 288)),
    Case("conv 3x3 64 to 64 at 256, zero points", (1, 64, 256, 256), (64, 64, 3, 3),
         attributes={"pads": [1] * 4}),
    Case("conv 3x3 256 to 256 at 32", (1, 256, 32, 32), (256, 256, 3, 3), "u1 i1", (128, 0),
         attributes={"pads": [1] * 4}, arguments=1),
]
"""At sizes where speed can be read off."""

"""Sizes, bounds, pads and axes in lists whose length is open, too.

Where an operator requires one length, a list of another is an error that names the node. Otherwise
each length gets a program of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import compiler
from dialects.strata.assumptions import SizeError
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, value_info

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(1).standard_normal((1, 2, 4, 5)).astype(np.float32)
VECTORS = np.random.default_rng(2).standard_normal((2, 2, 3)).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


@dataclass(frozen=True)
class Case:
    """An operator, and the inputs of calls. `known`: inputs that are constants of the model."""

    op_type: str
    names: str
    calls: tuple[tuple[Array, ...], ...]
    known: dict[str, Array] = field(default_factory=dict[str, Array])
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    outputs: int = 1
    opset: int = 19

    def program(self, target: str) -> tuple[compiler.Executable, ReferenceEvaluator]:
        """The program, and ONNX's own evaluator."""
        names = self.names.split(" ")
        results = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op_type, names, results, name="node", **self.attributes)
        given = [name for name in names if name and name not in self.known]
        inputs = [value_info(name, array.dtype, [f"{name}_{k}" for k in range(array.ndim)])
                  for name, array in zip(given, self.calls[0], strict=True)]
        model = make_model([node], inputs, results, self.known, self.opset)
        return compiler.compile(model, target=target, cache="off"), ReferenceEvaluator(model)

    def feeds(self, call: tuple[Array, ...]) -> dict[str, Array]:
        names = [name for name in self.names.split(" ") if name and name not in self.known]
        return dict(zip(names, call, strict=True))


REQUIRED = {
    "pads": Case("Pad", "x p", ((X, ints(0, 1, 1, 0, 1, 0)), (X, ints(1, 2, 2, 0, 0, 2)))),
    "pads of known axes": Case("Pad", "x p  a", ((X, ints(1, 2)),), {"a": ints(-1)}),
    "axes of known pads": Case("Pad", "x p  a", ((X, ints(-1, 0)),), {"p": ints(1, 2, 0, 3)}),
    "repeats": Case("Tile", "x r", ((X, ints(1, 2, 0)), (X, ints(2, 1, 3)))),
    "parts": Case("Split", "x s", ((X, ints(1, 3)), (X, ints(4, 0))), attributes={"axis": 2},
                  outputs=2),
    "sizes": Case("Resize", "x   s", ((IMAGE, ints(1, 2, 3, 8)), (IMAGE, ints(1, 2, 9, 1)))),
    "sizes of axes": Case("Resize", "x   s", ((IMAGE, ints(3, 8)),), attributes={"axes": [2, 3]}),
    "scales": Case("Resize", "x  s", ((IMAGE, floats(1, 1, 2, 0.5)),),
                   attributes={"mode": "linear"}),
    "region": Case("Resize", "x r  s", ((IMAGE, floats(0, 0, .1, .2, 1, 1, .9, .8)),),
                   {"s": ints(1, 2, 3, 8)}, {
                       "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}),
    "bounds": Case("Slice", "x s e a", ((X, ints(1, 0), ints(2, 0)), (X, ints(-2, 1), ints(1, 2))),
                   {"e": ints(3, 2)}),
    "grid": Case("AffineGrid", "t s", ((ints(2, 1, 3, 4),),), {"t": VECTORS}, opset=20),
    "image": Case("Col2Im", "x s b", ((X[:1, :1].repeat(4, 1).repeat(2, 2)[:, :, :6],
                                       ints(3, 4)),), {"b": ints(2, 2)}),
    "vectors": Case("ScatterND", "x i u", ((X, ints(0, 1, 1, 2).reshape(2, 2), X[0, :2]),)),
    "count": Case("TopK", "x k", ((X, ints(2)), (X, ints(4))), outputs=2),
}
CHOSEN = {
    "shape": Case("Reshape", "x s", (
        (X, ints(2, 3, 4)), (X, ints(6, -1)), (X, ints(24)), (X[:1, :1, :1], ints()),
        (X, ints(0, 3, 2, 2)))),
    "expanded": Case("Expand", "x s", ((X, ints(2, 3, 4)), (X, ints(5, 1, 3, 4)), (X, ints(4)))),
    "filled": Case("ConstantOfShape", "s", ((ints(2, 3, 4),), (ints(2),), (ints(),))),
    "bounds": Case("Slice", "x s e", ((X, ints(1), ints(9)), (X, ints(-2, 0), ints(2, 2)))),
    "pads": Case("Pad", "x p  a", ((X, ints(1, 2), ints(-1)), (X, ints(1, 2, 0, 1), ints(-1, 0)))),
    "grid": Case("AffineGrid", "t s", (
        (VECTORS, ints(2, 1, 3, 4)), (X[:, :, :4], ints(2, 1, 3, 4, 2))), opset=20),
}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("case", [*REQUIRED.values(), *CHOSEN.values()],
                         ids=[*REQUIRED, *(f"any {name}" for name in CHOSEN)])
def test_lists_of_open_length(case: Case, target: str) -> None:
    program, evaluator = case.program(target)
    for call in case.calls:
        feeds = case.feeds(call)
        for got, want in zip(program(**feeds), evaluator.run(None, feeds), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["pads", "repeats", "parts", "sizes", "vectors", "count"])
def test_another_length_is_refused_by_name(name: str) -> None:
    case = REQUIRED[name]
    program, _ = case.program("reference")
    first, given, *others = case.calls[0]
    longer = np.concatenate([given, given[..., :1]], axis=-1)
    with pytest.raises(SizeError, match="node 'node'"):
        program(**case.feeds((first, longer, *others)))

"""Reshapes whose size -1 is what remains, also where sizes that are kept are 0 at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compiler
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol

FLOAT = onnx.TensorProto.FLOAT


def reshaped(dims: list[str], kept: int, parts: int) -> onnx.ModelProto:
    """x with `kept` dims copied, then `parts` parts of what remains of the others."""
    wanted = np.array([0] * kept + [parts, -1], np.int64)
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "wanted"], ["y"])], "remaining",
        [helper.make_tensor_value_info("x", FLOAT, dims)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(wanted, "wanted")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("dims", "kept"), [(["b", "h"], 1), (["b", "s", "h"], 2),
                                            (["b", "s", "h"], 1), (["b", "b", "h"], 1)])
def test_kept_sizes_may_be_0(dims: list[str], kept: int, target: str) -> None:
    exe = compiler.compile(reshaped(dims, kept, 3), target=target, cache="off")
    for b, s, h in [(2, 5, 12), (0, 5, 12), (2, 0, 12), (0, 0, 0), (1, 1, 0), (0, 7, 3)]:
        sizes = {"b": b, "s": s, "h": h}
        shape = [sizes[d] for d in dims]
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        [made] = exe.run([x])
        rest: Any = int(np.prod(shape[kept:])) // 3
        np.testing.assert_array_equal(made, x.reshape(*shape[:kept], 3, rest))


def test_symbols_of_both_are_cancelled() -> None:
    b, h, s = (Expr.symbol(Symbol.size(name)) for name in "bhs")
    assert (b * h * s) // (2 * b * s) == h // 2
    assert (b * h + b) // (3 * b) == (h + 1) // 3
    assert str((b * h) // (2 * s)) == "((b*h) floordiv (2*s))"

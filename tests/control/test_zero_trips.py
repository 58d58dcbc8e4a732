"""Loops that no iteration runs, whose carried values have sizes that only a call knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import compiler
from tests.frontend.onnx_models import make_model, value_info

ROWS = {"doubled": ("Add", ["v", "v"], {}), "turned": ("Transpose", ["v"], {}),
        "longer": ("Concat", ["v", "v"], {"axis": 0})}


def expected(name: str, x: Any, trips: int) -> Any:
    for _ in range(trips):
        x = {"doubled": x + x, "turned": x.T, "longer": np.concatenate([x, x])}[name]
    return x


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("name", ROWS)
def test_carried_values_are_those_at_the_start(name: str, target: str) -> None:
    op_type, operands, attributes = ROWS[name]
    body = helper.make_graph(
        [helper.make_node(op_type, operands, ["w"], **attributes),
         helper.make_node("Identity", ["go"], ["go_on"])], "body",
        [value_info("i", np.int64, []), value_info("go", np.bool_, []),
         value_info("v", np.float32, None)],
        [value_info("go_on", np.bool_, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, None)])
    node = helper.make_node("Loop", ["n", "c", "x"], ["y"], body=body)
    infos = [value_info("n", np.int64, []), value_info("c", np.bool_, []),
             value_info("x", np.float32, ["r", "q"])]
    executable = compiler.compile(make_model([node], infos, ["y"], {}, 18), target=target,
                                  cache="off")
    for shape in ((3, 2), (0, 2), (4, 1)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for trips, go in ((0, True), (2, False), (2, True), (1, True)):
            [y] = executable(n=np.array(trips), c=np.array(go), x=x)
            np.testing.assert_array_equal(y, expected(name, x, trips * go))

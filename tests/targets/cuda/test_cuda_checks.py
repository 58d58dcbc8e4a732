"""`--check` on a device: wrong indices and accesses end the run there too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import compiler
from compiler.frontend import MemoryModel
from dialects.strata.assumptions import AccessError, IndexRangeError
from tests.bounds.test_checked_accesses import WRONG, inputs, program

pytestmark = pytest.mark.gpu
HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
MODELS = {
    "gather": "g (float[7, 5] x, int64[p] i) => (float[a, b] y) { y = Gather(x, i) }",
    "scatter": "g (float[7, 5] x, int64[p, 1] i, float[p, 5] u) => (float[a, b] y) "
               "{ y = ScatterND<reduction = \"add\">(x, i, u) }",
    "in a loop": "a (float[7, 5] x, int64[p, 3] i) => (float[a, b, c] y) "
                 "{ t = Constant<value = int64 {4}>() e = Constant<value = bool {1}>() "
                 "y = Loop(t, e) <body = b (int64 k, bool c) => (bool d, float[u, 5] v) "
                 "{ d = Identity(c) row = Gather(i, k) v = Gather(x, row) }> }",
}


@pytest.mark.parametrize("name", list(MODELS))
def test_indices(name: str) -> None:
    model = onnx.parser.parse_model(HEADER + MODELS[name])
    made = {check: compiler.compile(MemoryModel("m.onnx", model.SerializeToString()),
                                    target="cuda", cache="off", check=check)
            for check in (None, True)}
    random = np.random.default_rng(0)
    shapes = {"gather": (4,), "scatter": (4, 1), "in a loop": (4, 3)}
    right = random.integers(-7, 7, shapes[name])
    wrong = right.copy()
    wrong.reshape(-1)[2] = 7
    rest = [random.standard_normal((4, 5)).astype(np.float32)] * (name == "scatter")
    x = random.standard_normal((7, 5)).astype(np.float32)
    for _ in range(2):
        np.testing.assert_allclose(*(e(x, right, *rest)[0] for e in made.values()), rtol=1e-6)
        assert np.isfinite(made[None](x, wrong, *rest)[0]).all()  # memory is safe
        with pytest.raises(IndexRangeError, match="is 7 at node"):
            made[True](x, wrong, *rest)


@pytest.mark.parametrize("kind", [k for k in WRONG if k != "scratch memory"])
def test_accesses(tmp_path: Path, kind: str) -> None:
    body, message = WRONG[kind]
    plain = body.replace("[8]", "8").replace("[2]", "2")
    checked = program(tmp_path, plain, target="cuda")
    for _ in range(2):
        with pytest.raises(AccessError, match=message):
            checked.run(inputs(True))

"""Models as libraries, used by programs in C: they compute what Strata computes, and refuse what
does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import compiler
from tests.targets.cpu.artifact.shipped import (
    build,
    needs_tools,
    output_of,
    ship,
)

pytestmark = needs_tools
MLP = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[n, 8] x) => (float[n, 4] y)
<float[8, 16] v = {FIRST}, float[16, 4] w = {SECOND}> {
    a = MatMul(x, v)  b = Relu(a)  c = MatMul(b, w)  y = Softmax(c)
}
""".replace("FIRST", ", ".join(f"{k % 7 - 3}.25" for k in range(128))).replace(
    "SECOND", ", ".join(f"{k % 5 - 2}.5" for k in range(64)))
STATIC = MLP.replace("[n, ", "[3, ")


def made_up(*shape: int) -> np.ndarray:
    """The numbers that the example makes up."""
    count = int(np.prod(shape))
    return (np.arange(count) % 7 / 7 - 0.4).astype(np.float32).reshape(shape)


@pytest.mark.parametrize(("text", "rows"), [(STATIC, 3), (MLP, 2), (MLP, 5)])
@pytest.mark.parametrize("suffix", [".so", ".a", ".o"])
def test_the_example_runs_each_form(
    tmp_path: Path, text: str, rows: int, suffix: str
) -> None:
    library = ship(onnx.parser.parse_model(text), tmp_path / f"lib{suffix}", "mlp")
    build([tmp_path / "mlp_main.c", library], tmp_path / "main")
    printed = output_of(tmp_path / "main", *([str(rows)] if text is MLP else []))
    [y] = compiler.compile(onnx.parser.parse_model(text))(made_up(rows, 8))
    assert printed == f"y: {y.size} elements, sum {y.astype(np.float64).sum():.9g}\n"


def test_a_folder_has_all_pieces(tmp_path: Path) -> None:
    folder = ship(onnx.parser.parse_model(MLP), tmp_path / "mlp", "mlp")
    assert {"mlp.h", "mlp.c", "mlp.so", "mlp.a", "main.c", "kernels.o", "Makefile"} <= {
        f.name for f in folder.iterdir()}
    build([folder / "main.c", folder / "mlp.a"], tmp_path / "main")
    assert output_of(tmp_path / "main", "4").startswith("y: 16 elements")

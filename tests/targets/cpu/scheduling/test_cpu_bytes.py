"""Products of bytes: exact on machines with and without an instruction for them.

The sums of two products of bytes do not fit in 16 bits, at which AVX2's instruction for bytes would
stop. Without VNNI, bytes are therefore multiplied as 16-bit integers, and weights stay bytes.
"""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from dialects.strata.types import Array
from targets.cpu.machine import machine_of
from tests.frontend.onnx_models import make_model, save
from tests.models.onnx_graph import OnnxGraph
from tests.targets.cpu.cpu_kernels import available_features

x86 = pytest.mark.skipif(not machine_of().is_x86, reason="feature sets are of x86-64")
BYTES = {"signed": np.int8, "unsigned": np.uint8}
each_sign = pytest.mark.parametrize("data", BYTES)


def extremes(dtype: type[np.int8] | type[np.uint8], *shape: int) -> Array:
    """Bytes of which most are the largest or the smallest."""
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.min, limits.max, limits.max, 1, 0]
    return np.random.default_rng(3).choice(numbers, shape).astype(dtype)


def product(folder: Path, data: str, weights: Array, rows: int | str) -> Path:
    """A model that multiplies rows of bytes, whose zero point is 3, by constant bytes."""
    g = OnnxGraph({})
    x = g.input("x", BYTES[data], [rows, weights.shape[0]])
    y = g.node("MatMulInteger", x, g.constant(weights, weights.dtype),
               g.constant(np.array(3), BYTES[data]))
    made = make_model(g.nodes, g.inputs, [y])
    made.graph.initializer.extend(g.weights)
    return save(made, folder)


def kernel_of(assembly: str) -> list[str]:
    """The lines of the function of the only product."""
    begun = dropwhile(lambda line: not re.match(r"contract_\d+:", line), assembly.splitlines())
    return list(takewhile(lambda line: "func_end" not in line, begun))


@pytest.mark.parametrize("features", [None, *available_features()])
@pytest.mark.parametrize("columns", BYTES)
@each_sign
@pytest.mark.parametrize("size", [(1, 5, 3), (13, 67, 37), (96, 64, 48), ("rows", 34, 50)], ids=str)
def test_products_of_extreme_bytes(
    size: tuple[int | str, int, int], data: str, columns: str, features: str | None, tmp_path: Path
) -> None:
    rows, terms, width = size
    weights = extremes(BYTES[columns], terms, width)
    exe = compiler.compile(product(tmp_path, data, weights, rows), features=features)
    for count in (0, 1, 7, 19) if isinstance(rows, str) else (rows,):
        x = extremes(BYTES[data], count, terms)
        [y] = exe.run([x])
        np.testing.assert_array_equal(y, (x.astype(np.int32) - 3) @ weights.astype(np.int32))


@x86
@each_sign
@pytest.mark.parametrize("features", ["avx2", "avx512"])
def test_bytes_are_multiplied_as_shorts_without_vnni(
    features: str, data: str, tmp_path: Path
) -> None:
    weights = extremes(np.int8, 64, 192)
    compilation = Compiler(str(product(tmp_path, data, weights, 96)), CompileOptions(
        features=features, cache="off", tuned="off"))
    lines = kernel_of(lower_to_text(compilation, "asm"))
    assert any("vpmaddwd" in line for line in lines)
    assert any(re.search(r"vpmovsxbw\s.*\(", line) for line in lines)  # weights stay bytes
    assert not any(re.search(r"vps[lr][la]w", line) for line in lines)  # nothing is split in place
    spilled = r"vmov\w+\s+%[yz]mm\d+, .*\(%rsp\)"
    assert not any(re.search(spilled, line) for line in lines)

"""Reductions over the few taps of a window, which are written out: pools of both layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from dialects.strata.types import Array
from tests.frontend.onnx_models import make_model, save
from tests.models.onnx_graph import OnnxGraph
from tests.targets.cpu.cpu_kernels import feature_set

each_machine = pytest.mark.parametrize(
    "features", [None, feature_set("avx2")], ids=["machine", "avx2"])


def pool(folder: Path, shape: list[int | str], taps: int, step: int, pad: int, last: bool) -> Path:
    """A model that takes the maxima of windows of an image, whose channels may be last."""
    g = OnnxGraph({})
    x = g.input("x", np.float32, shape)
    y = g.node("Transpose", x, perm=[0, 3, 1, 2]) if last else x
    y = g.node("MaxPool", y, kernel_shape=[taps, taps], strides=[step, step], pads=[pad] * 4)
    return save(make_model(g.nodes, g.inputs, [
        g.node("Transpose", y, perm=[0, 2, 3, 1]) if last else y]), folder)


def maxima(x: Array, taps: int, step: int, pad: int) -> Array:
    """Of windows over the two last dims."""
    wide = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (taps, taps), (2, 3))
    return windows[:, :, ::step, ::step].max((-2, -1))


@each_machine
@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("window", [(3, 2, 1), (2, 2, 0), (3, 1, 1), (4, 3, 1)], ids=str)
@pytest.mark.parametrize("channels", [1, 7, 56, 67])
def test_maxima_of_windows(
    channels: int, window: tuple[int, int, int], last: bool, is_open: bool, features: str | None,
    tmp_path: Path,
) -> None:
    """With numbers that are none, and infinite ones, of sizes that no tile divides."""
    x = np.random.default_rng(7).standard_normal((2, channels, 13, 19)).astype(np.float32)
    x[0, 0, 0, 0], x[1, 0, 5, 7], x[0, -1, 12, 18] = np.nan, np.inf, -np.inf
    given = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x
    shape: list[int | str] = [*given.shape]
    if is_open:
        shape = ["n", *(("h", "w", channels) if last else (channels, "h", "w"))]
    [y] = compiler.compile(pool(tmp_path, shape, *window, last), features=features).run([given])
    expected = maxima(x, *window)
    np.testing.assert_array_equal(y.transpose(0, 3, 1, 2) if last else y, expected)


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(("taps", "is_written_out"), [(3, True), (4, False)])
def test_few_taps_are_written_out(
    taps: int, is_written_out: bool, last: bool, tmp_path: Path
) -> None:
    shape: list[int | str] = [2, 28, 28, 56] if last else [2, 56, 28, 28]
    model = pool(tmp_path, shape, taps, 2, 1, last)
    text = lower_to_text(Compiler(str(model), CompileOptions(tuned="off")), "host")
    assert text.count(f"unroll {taps}") == (2 if is_written_out else 0)

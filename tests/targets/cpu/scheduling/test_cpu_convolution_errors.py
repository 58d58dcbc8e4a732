"""How exact convolutions are whose windows were shortened, beside direct ones, both against f64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.windows import (
    FEW_POINTS,
    POINTS,
    Window,
    input_table,
    output_table,
    weight_table,
)
from targets.cpu.scheduling.windows import MAX_LOSS
from tests.models.onnx_graph import Array, OnnxGraph

LIMIT = 4.0
"""How many times the error of direct sums that of fewer products may be."""
RESULTS, SIZE = 32, 28
KINDS = ("mixed", "positive", "sparse", "smooth")


def model(channels: int, taps: int) -> tuple[onnx.ModelProto, Array]:
    g = OnnxGraph({})
    x = g.input("x", np.float32, (1, channels, SIZE, SIZE))
    weight = np.random.default_rng(channels).standard_normal((RESULTS, channels, taps, taps))
    weight = (weight / np.sqrt(taps * taps * channels)).astype(np.float32)
    return g.model({"y": g.node("Conv", x, g.constant(weight))}), weight


def data(kind: str, channels: int) -> Array:
    """`sparse`: what a ReLU leaves where little is positive; `smooth`: nearly constant."""
    random = np.random.default_rng(channels)
    x = random.standard_normal((1, channels, SIZE, SIZE))
    made = {"mixed": x, "positive": np.abs(x), "smooth": 1 + 0.1 * x,
            "sparse": np.maximum(x - 1.5, 0)}
    return made[kind].astype(np.float32)


def error(got: Array, want: Array) -> float:
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want ** 2)))


def lowered(path: Path, **options: str) -> str:
    compilation = Compiler(path, CompileOptions(target="cpu", features="avx2", cache="off",
                                                **options))  # pyright: ignore[reportArgumentType]
    return str(compilation.lower("loop").module)


@pytest.mark.parametrize(("channels", "taps"), [(16, 3), (32, 3), (96, 3), (32, 5)])
def test_fewer_products_lose_few_digits(tmp_path: Path, channels: int, taps: int) -> None:
    made, weight = model(channels, taps)
    onnx.save(made, path := tmp_path / "m.onnx")
    assert lowered(path) != lowered(path, passes="default,without(loop-winograd)")
    short, direct = (compiler.compile(path, target="cpu", threads=1, cache="off", passes=passes)
                     for passes in ("default", "default,without(loop-winograd)"))
    for kind in KINDS:
        x = data(kind, channels)
        windows = np.lib.stride_tricks.sliding_window_view(
            x.astype(np.float64), (taps, taps), (2, 3))
        want = np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64), optimize=True)
        errors = [error(exe(x)[0], want) for exe in (short, direct)]
        assert errors[0] <= LIMIT * errors[1], (kind, errors)


def test_only_fast_results_lose_more(tmp_path: Path) -> None:
    """Six points in both windows: 16 results of 36 products."""
    onnx.save(model(64, 3)[0], path := tmp_path / "m.onnx")
    both = f"f32[{POINTS}, {POINTS}, "
    assert both not in lowered(path)
    assert both in lowered(path, precision="fast")


@pytest.mark.parametrize("taps", [2, 3])
@pytest.mark.parametrize("points", [FEW_POINTS, POINTS])
def test_loss_is_that_of_independent_roundings(points: int, taps: int) -> None:
    """By experiment: products off by random relative errors, for random taps and data."""
    random, samples = np.random.default_rng(points), 200_000
    window = _window(points, taps)
    values = input_table(points) @ random.standard_normal((points, samples))
    factors = weight_table(points, taps) @ (w := random.standard_normal((taps, samples)))
    off = random.standard_normal((points, samples)) * values * factors
    loss = np.sqrt(np.mean((output_table(points, taps) @ off) ** 2) / np.mean(w ** 2) / taps)
    assert abs(loss / window.loss - 1) < 0.05


def test_which_windows_the_bound_allows() -> None:
    six, four = (_window(points, 3).loss for points in (POINTS, FEW_POINTS))
    assert six * four <= MAX_LOSS < six * six


def _window(points: int, taps: int) -> Window:
    return Window(Symbol.axis("i0"), Symbol.axis("i1"), taps, 1, 2, points)

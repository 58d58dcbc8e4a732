"""Filters that a run packs, gradients of filters, and small images: a window's short axes are last
in memory. They change places with channels in registers, not element by element."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from dialects.strata.types import Array
from tests.targets.cpu.cpu_kernels import available_features

HEADER = "// strata: level=graph\nbuiltin.module {\n  strata.func @main"
KERNELS = [(3, 3), (5, 5), (7, 7), (1, 9), (2, 3), (11, 1)]


def forward(path: Path, given: int, made: int, kernel: tuple[int, int]) -> Path:
    """A convolution whose filter is an argument: its taps are read in order."""
    taps = f"{kernel[0]}, {kernel[1]}"
    path.write_text(f"""{HEADER}(%x: f32[2, {given}, 13, 13], %w: f32[{made}, {given}, {taps}]) \
-> (f32[2, {made}, {14 - kernel[0]}, {14 - kernel[1]}]) inputs ["x", "w"] outputs ["y"] {{
    %y = graph.conv %x, %w : f32[2, {made}, {14 - kernel[0]}, {14 - kernel[1]}]
    strata.return %y
  }}
}}
""")
    return path


def of_data(path: Path, given: int, made: int, kernel: tuple[int, int]) -> Path:
    """The gradient of such a convolution's data: taps are read from the last to the first."""
    taps = f"{kernel[0]}, {kernel[1]}"
    path.write_text(f"""{HEADER}(%y: f32[2, {made}, {14 - kernel[0]}, {14 - kernel[1]}], \
%w: f32[{made}, {given}, {taps}]) -> (f32[2, {given}, 13, 13]) inputs ["y", "w"] outputs ["x"] {{
    %x = graph.conv_transpose %y, %w : f32[2, {given}, 13, 13]
    strata.return %x
  }}
}}
""")
    return path


def of_filter(path: Path, given: int, made: int, kernel: tuple[int, int]) -> Path:
    """The gradient of its filter: the taps are last in the result."""
    taps = f"{kernel[0]}, {kernel[1]}"
    path.write_text(f"""{HEADER}(%x: f32[2, {given}, 13, 13], \
%y: f32[2, {made}, {14 - kernel[0]}, {14 - kernel[1]}]) -> (f32[{made}, {given}, {taps}]) \
inputs ["x", "y"] outputs ["w"] {{
    %w = graph.conv_filter_gradient %x, %y {{kernel = [{taps}]}} : f32[{made}, {given}, {taps}]
    strata.return %w
  }}
}}
""")
    return path


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(s).astype(np.float32) for s in shapes]


def windows(x: Array, kernel: tuple[int, int]) -> Array:
    """The windows of a batch of images, in f64: [n, c, p, q, taps...]."""
    return np.lib.stride_tricks.sliding_window_view(x.astype(float), kernel, (2, 3))


@pytest.mark.parametrize("features", available_features())
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("given", "made"), [(16, 32), (19, 17), (33, 16)])
def test_three_products_of_a_filter(
    tmp_path: Path, given: int, made: int, kernel: tuple[int, int], features: str
) -> None:
    def run(path: Path, *inputs: Array) -> Array:
        return compiler.compile(path, target="cpu", cache="off", features=features)(*inputs)[0]

    x, y, w = draw((2, given, 13, 13), (2, made, 14 - kernel[0], 14 - kernel[1]),
                   (made, given, *kernel))
    path, moved = tmp_path / "filter.mlir", windows(x, kernel)
    np.testing.assert_allclose(run(forward(path, given, made, kernel), x, w), np.einsum(
        "ncpqij,ocij->nopq", moved, w, optimize=True), rtol=1e-4, atol=2e-4)
    np.testing.assert_allclose(run(of_filter(path, given, made, kernel), x, y), np.einsum(
        "ncpqij,nopq->ocij", moved, y, optimize=True), rtol=1e-4, atol=2e-4)
    wide = np.pad(y, [(0, 0), (0, 0), *((k - 1, k - 1) for k in kernel)])
    np.testing.assert_allclose(run(of_data(path, given, made, kernel), y, w), np.einsum(
        "nopqij,ocij->ncpq", windows(wide, kernel), w[:, :, ::-1, ::-1], optimize=True),
        rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("features", ["avx2", "avx512"])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5)])
@pytest.mark.parametrize("program", [forward, of_data, of_filter])
def test_copies_move_no_element_alone(
    tmp_path: Path, program: Callable[..., Path], kernel: tuple[int, int], features: str
) -> None:
    path = program(tmp_path / "filter.mlir", 64, 32, kernel)
    text = lower_to_text(Compiler(model_of(str(path)), CompileOptions(
        target="cpu", cache="off", features=features)), "llvm")
    copies = dict(re.findall(
        r"^define void @contract_\d+_(pack1|result)(\(.*?^})", text, re.M | re.S))
    assert {*copies} == ({"pack1"} if program is of_data else {"pack1", "result"})
    assert not any("masked.scatter" in c or "masked.gather" in c for c in copies.values())

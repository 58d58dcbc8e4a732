"""Depthwise convolutions with channels last: how wide their tiles are, and right results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from tests.targets.cpu.cpu_kernels import feature_set

HEADER = "// strata: level=graph\nbuiltin.module {\n  strata.func @main"


def depthwise(path: Path, channels: int, side: int, taps: int, stride: int) -> Path:
    """A convolution of each channel by a filter of its own, padded to keep the size."""
    made, pad = -(-side // stride), taps // 2
    path.write_text(f"""{HEADER}(%x: f32[2, {side}, {side}, {channels}], \
%w: f32[{channels}, 1, {taps}, {taps}]) -> (f32[2, {made}, {made}, {channels}]) \
inputs ["x", "w"] outputs ["y"] {{
    %t = graph.transpose %x {{perm = [0, 3, 1, 2]}} : f32[2, {channels}, {side}, {side}]
    %c = graph.conv %t, %w {{strides = [{stride}, {stride}], pads = [{pad}, {pad}, {pad}, {pad}], \
group = {channels}}} : f32[2, {channels}, {made}, {made}]
    %y = graph.transpose %c {{perm = [0, 2, 3, 1]}} : f32[2, {made}, {made}, {channels}]
    strata.return %y
  }}
}}
""")
    return path


@pytest.mark.parametrize(("features", "wide"), [("baseline", 8), ("avx2", 16), ("avx512", 16)])
@pytest.mark.parametrize(("channels", "least"), [(96, 16), (37, 16), (11, 11), (5, 5)])
def test_tiles_are_two_vectors_in_a_cache_line(
    tmp_path: Path, features: str, wide: int, channels: int, least: int
) -> None:
    path = depthwise(tmp_path / "depthwise.mlir", channels, 13, 7, 1)
    options = CompileOptions(target="cpu", features=features, cache="off")
    text = lower_to_text(Compiler(model_of(str(path)), options), "loop")
    kernel = text.split("loop.kernel @contract_0(")[1]
    [found] = re.findall(r"tile (\d+) lanes", kernel[:kernel.index("loop.nest")])
    assert int(found) == min(wide, least)


@pytest.mark.parametrize("features", [feature_set(f) for f in ("baseline", "avx2", "avx512")])
@pytest.mark.parametrize(("channels", "side", "taps", "stride"), [
    (37, 13, 7, 1), (24, 11, 7, 2), (40, 7, 5, 2), (11, 9, 5, 1), (17, 13, 3, 1), (1, 8, 3, 2)])
def test_windows_of_all_sizes_are_right(
    tmp_path: Path, features: str, channels: int, side: int, taps: int, stride: int
) -> None:
    draw = np.random.default_rng(channels)
    x = draw.standard_normal((2, side, side, channels)).astype(np.float32)
    w = draw.standard_normal((channels, 1, taps, taps)).astype(np.float32)
    x[0, side // 2, 1, channels // 2] = np.nan
    wide = np.pad(x.astype(float), [(0, 0), *[(taps // 2, taps // 2)] * 2, (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (taps, taps), (1, 2))
    expected = np.einsum("nhwcij,cij->nhwc", windows[:, ::stride, ::stride], w[:, 0])
    exe = compiler.compile(depthwise(tmp_path / "depthwise.mlir", channels, side, taps, stride),
                           target="cpu", cache="off", features=features)
    np.testing.assert_allclose(exe(x, w)[0], expected, rtol=1e-4, atol=1e-4)

"""Reductions that read one input along memory and another across it: squares of both are read, and
turned in registers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text
from dialects.strata.types import Array
from targets.cpu.machine import machine_of
from tests.targets.cpu.cpu_kernels import available_features

HEADER = "// strata: level=graph\nbuiltin.module {\n  strata.func @main"


def squares(path: Path, features: str) -> list[list[int]]:
    """Of each kernel that reduces: all tiles of its schedule that are larger than one."""
    text = lower_to_text(Compiler(model_of(str(path)), CompileOptions(
        target="cpu", cache="off", features=features)), "loop")
    kernels = [k for k in text.split("loop.kernel @")[1:] if "reduce i" in k]
    schedules = [re.search(r"schedule<(.*?)>", k) for k in kernels]
    levels = [[x for x in s[1].split(", ") if "partial" not in x] for s in schedules if s]
    return [[int(t) for x in found for t in re.findall(r"tile (\d+)", x) if t != "1"]
            for found in levels]


def compiled(path: Path, features: str) -> compiler.Executable:
    return compiler.compile(path, target="cpu", cache="off", features=features)


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("features", available_features())
@pytest.mark.parametrize(("rows", "width"), [(32, 64), (33, 41), (20, 16)])
def test_rows_that_are_normalized(tmp_path: Path, rows: int, width: int, features: str) -> None:
    """The sum of an image and a turned one, as between the layers of a mixer."""
    path = tmp_path / "normalized.mlir"
    path.write_text(f"""{HEADER}(%x: f32[3, {rows}, {width}], %y: f32[3, {width}, {rows}]) \
-> (f32[3, {rows}, {width}]) inputs ["x", "y"] outputs ["z"] {{
    %t = graph.transpose %y {{perm = [0, 2, 1]}} : f32[3, {rows}, {width}]
    %a = graph.add %x, %t : f32[3, {rows}, {width}]
    %m = graph.reduce_mean %a {{axes = [2], keepdims = true}} : f32[3, {rows}, 1]
    %z = graph.sub %a, %m : f32[3, {rows}, {width}]
    strata.return %z
  }}
}}
""")
    lanes = machine_of(features).lanes
    assert squares(path, features) == [[lanes, lanes]]
    x, y = draw((3, rows, width), (3, width, rows))
    total = x.astype(float) + y.swapaxes(1, 2)
    np.testing.assert_allclose(
        compiled(path, features)(x, y)[0], total - total.mean(2, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("features", available_features())
@pytest.mark.parametrize(("channels", "places"), [(64, 100), (35, 49), (16, 33)])
def test_sums_of_images_in_two_layouts(
    tmp_path: Path, channels: int, places: int, features: str
) -> None:
    """The gradient of a batch norm whose image has channels first, and whose gradient has them
    last."""
    path = tmp_path / "images.mlir"
    image, last = f"f32[4, {places}, {channels}]", f"f32[4, {channels}, {places}]"
    path.write_text(f"""{HEADER}(%x: {last}, %g: {image}) -> (f32[{channels}], {image}) \
inputs ["x", "g"] outputs ["s", "d"] {{
    %t = graph.transpose %x {{perm = [0, 2, 1]}} : {image}
    %p = graph.mul %t, %g : {image}
    %s = graph.reduce_sum %p {{axes = [0, 1], keepdims = false}} : f32[{channels}]
    %q = graph.mul %t, %s : {image}
    %d = graph.sub %g, %q : {image}
    strata.return %s, %d
  }}
}}
""")
    lanes = machine_of(features).lanes
    assert squares(path, features) == [[lanes, lanes]]
    x, g = draw((4, channels, places), (4, places, channels))
    turned = x.swapaxes(1, 2).astype(float)
    sums = (turned * g).sum((0, 1))
    for got, want in zip(compiled(path, features)(x, g), (sums, g - turned * sums), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("features", available_features())
@pytest.mark.parametrize("axes", ["[0, 1]", "[0]", "[1]", "both"])
def test_sums_of_a_square(tmp_path: Path, axes: str, features: str) -> None:
    """A matrix and its transpose, as in a loss of pairs: summed whole, by rows and by columns."""
    path = tmp_path / "pairs.mlir"
    shape = {"[0, 1]": "f32[]"}.get(axes, "f32[37]")
    first, second = ("[0]", "[1]") if axes == "both" else (axes, axes)
    path.write_text(f"""{HEADER}(%x: f32[37, 37]) -> ({shape}, {shape}, f32[37, 37]) \
inputs ["x"] outputs ["a", "b", "s"] {{
    %t = graph.transpose %x {{perm = [1, 0]}} : f32[37, 37]
    %s = graph.sub %x, %t : f32[37, 37]
    %e = graph.exp %s : f32[37, 37]
    %a = graph.reduce_sum %e {{axes = {first}, keepdims = false}} : {shape}
    %b = graph.reduce_sum %s {{axes = {second}, keepdims = false}} : {shape}
    strata.return %a, %b, %s
  }}
}}
""")
    [x] = draw((37, 37))
    s = x - x.T.astype(float)
    over = [{"[0]": 0, "[1]": 1}.get(a) for a in (first, second)]
    want = [np.exp(s).sum(over[0]), s.sum(over[1]), s]
    for one, other in zip(compiled(path, features)(x), want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)

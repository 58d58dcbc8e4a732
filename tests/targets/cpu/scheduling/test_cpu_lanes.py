"""Which axis fills the vectors of a kernel: the one along which what it reads lies in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.frontend import model_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler, lower_to_text

HEADER = "// strata: level=graph\nbuiltin.module {\n  strata.func @main"


def lanes(model: Any, word: str = "", features: str | None = None) -> list[str]:
    """Of each kernel in lanes, or of those whose text has a word: the axis as its first nest lists
    it, as `reduce i2: 7`."""
    source = model_of(str(model) if isinstance(model, Path) else model)
    options = CompileOptions(target="cpu", cache="off", features=features)
    text = lower_to_text(Compiler(source, options), "loop")
    found: list[str] = []
    for kernel in text.split("loop.kernel @")[1:]:
        if word not in kernel:
            continue
        axes = re.findall(r"((?:reduce )?(i\d+): [^,)]+)", kernel.split("loop.nest (")[1])
        schedule = kernel[kernel.index("schedule<"):].split(">")[0]
        wide = re.search(r"(i\d+) tile \d+ lanes", schedule)
        found += [axis for axis, name in axes if wide and name == wide[1]][:1]
    return found


@pytest.mark.parametrize("heads", [6, 2])
@pytest.mark.parametrize("keys", ["77", "n"])
def test_a_query_of_one_row_runs_along_its_keys(tmp_path: Path, keys: str, heads: int) -> None:
    """Each row of keys is read once, or by each head of its group: in order, not across."""
    repeated = "" if heads == 6 else f"""
    %a = graph.reshape %k {{shape = [3, 2, 1, {keys}, 64]}} : f32[3, 2, 1, {keys}, 64]
    %b = graph.broadcast %a {{shape = [3, 2, 3, {keys}, 64]}} : f32[3, 2, 3, {keys}, 64]
    %c = graph.reshape %b {{shape = [3, 6, {keys}, 64]}} : f32[3, 6, {keys}, 64]"""
    rows = "%k" if heads == 6 else "%c"
    path = tmp_path / "query.mlir"
    path.write_text(f"""{HEADER}(%q: f32[3, 6, 1, 64], %k: f32[3, {heads}, {keys}, 64]) \
-> (f32[3, 6, 1, {keys}]) inputs ["q", "k"] outputs ["y"] {{{repeated}
    %t = graph.transpose {rows} {{perm = [0, 1, 3, 2]}} : f32[3, 6, 64, {keys}]
    %y = graph.matmul %q, %t : f32[3, 6, 1, {keys}]
    strata.return %y
  }}
}}
""")
    [axis] = lanes(path)
    assert re.fullmatch(r"reduce i\d+: 64", axis)
    exe = compiler.compile(path, target="cpu", cache="off")
    draw = np.random.default_rng(0)
    for count in (77, *((1, 5) if keys == "n" else ())):
        q, k = (draw.standard_normal(s).astype(np.float32)
                for s in ((3, 6, 1, 64), (3, heads, count, 64)))
        expected = q.astype(float) @ np.repeat(k, 6 // heads, 1).astype(float).swapaxes(2, 3)
        np.testing.assert_allclose(exe(q, k)[0], expected, atol=1e-5)


def test_sums_of_channels_run_along_images(tmp_path: Path) -> None:
    """A number for each channel is little beside the images, though many nests compute it."""
    path = tmp_path / "channels.mlir"
    ops = "\n".join(f"    %{b} = graph.{op} %{a} : f32[1, 24, 1, 1]" for a, b, op in (
        ("s", "a", "abs"), ("a", "b", "sqrt"), ("b", "c", "exp"), ("c", "d", "neg")))
    path.write_text(f"""{HEADER}(%x: f32[5, 24, 7, 7]) -> (f32[5, 24, 7, 7]) \
inputs ["x"] outputs ["y"] {{
    %s = graph.reduce_sum %x {{axes = [0, 2, 3], keepdims = true}} : f32[1, 24, 1, 1]
{ops}
    %t = graph.mul %d, %a : f32[1, 24, 1, 1]
    %u = graph.sub %x, %t : f32[5, 24, 7, 7]
    %y = graph.mul %u, %b : f32[5, 24, 7, 7]
    strata.return %y
  }}
}}
""")
    [axis] = lanes(path)
    assert re.fullmatch(r"reduce i\d+: 49", axis)
    exe = compiler.compile(path, target="cpu", cache="off")
    x = np.random.default_rng(0).standard_normal((5, 24, 7, 7)).astype(np.float32)
    wide = x.astype(float)
    a = np.abs(wide.sum((0, 2, 3), keepdims=True))
    np.testing.assert_allclose(
        exe(x)[0], (wide + np.exp(np.sqrt(a)) * a) * np.sqrt(a), rtol=1e-4, atol=1e-3)


def test_windows_run_along_their_results(tmp_path: Path) -> None:
    """What is done to a sum is done to each result, so it counts."""
    path = tmp_path / "windows.mlir"
    path.write_text(f"""{HEADER}(%x: f32[2, 3, 20, 20]) -> (f32[2, 3, 10, 10]) \
inputs ["x"] outputs ["y"] {{
    %y = graph.avg_pool %x {{kernel = [3, 3], strides = [2, 2], dilations = [1, 1], \
pads = [1, 1, 0, 0], count_include_pad = true}} : f32[2, 3, 10, 10]
    strata.return %y
  }}
}}
""")
    assert lanes(path) == ["i3: 10"]


@pytest.mark.parametrize(("given", "made", "kernel", "stride", "layout"), [
    (3, 24, (7, 7), 2, "first"), (19, 32, (3, 3), 1, "first"), (19, 32, (3, 3), 1, "last"),
    (1, 16, (1, 3), 1, "first"), (19, 40, (3, 3), 2, "last")])
def test_gradients_of_filters_run_along_channels(
    tmp_path: Path, given: int, made: int, kernel: tuple[int, int], stride: int, layout: str
) -> None:
    """Taps, which are last in the result, fill no vector. One kernel computes all of them, and at
    most its two factors and its result are copied: not the data for each tap."""
    path, (n, side) = tmp_path / "filter.mlir", (3, 12)
    low = [k // 2 for k in kernel]
    p, q = ((side + 2 * a - k) // stride + 1 for a, k in zip(low, kernel, strict=True))
    last = layout == "last"
    x_shape = f"{n}, {side}, {side}, {given}" if last else f"{n}, {given}, {side}, {side}"
    data = f"""
    %d = graph.transpose %x {{perm = [0, 3, 1, 2]}} : f32[{n}, {given}, {side}, {side}]"""
    shape = f"{made}, {given}, {kernel[0]}, {kernel[1]}"
    path.write_text(f"""{HEADER}(%x: f32[{x_shape}], %y: f32[{n}, {made}, {p}, {q}]) \
-> (f32[{shape}]) inputs ["x", "y"] outputs ["w"] {{{data if last else ""}
    %w = graph.conv_filter_gradient {"%d" if last else "%x"}, %y {{kernel = [{kernel[0]}, \
{kernel[1]}], strides = [{stride}, {stride}], pads = [{low[0]}, {low[1]}, {low[0]}, {low[1]}]}} : \
f32[{shape}]
    strata.return %w
  }}
}}
""")
    assert len(lanes(path)) <= 4
    [found] = lanes(path, "reduce i")
    assert re.fullmatch(rf"i\d+: {made}", found)
    exe = compiler.compile(path, target="cpu", cache="off")
    draw = np.random.default_rng(0)
    x = draw.standard_normal((n, given, side, side)).astype(np.float32)
    y = draw.standard_normal((n, made, p, q)).astype(np.float32)
    wide = np.pad(x.astype(float), [(0, 0), (0, 0), *((a, a) for a in low)])
    expected = np.stack([np.stack([np.einsum(
        "ncpq,nopq->oc", wide[:, :, i:i + p * stride:stride, j:j + q * stride:stride][..., :p, :q],
        y) for j in range(kernel[1])], -1) for i in range(kernel[0])], -2)
    np.testing.assert_allclose(
        exe(x.transpose(0, 2, 3, 1).copy() if last else x, y)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("features", ["avx2", "avx512"])
def test_lanes_are_contiguous_in_copies_with_a_border(tmp_path: Path, features: str) -> None:
    """An image whose channels are far apart is copied with channels last where they fill lanes."""
    path = tmp_path / "filter.mlir"
    path.write_text(f"""{HEADER}(%y: f32[2, 6, 6, 24]) -> (f32[24, 3, 3, 40]) \
inputs ["y"] outputs ["w"] {{
    %r = graph.range {{start = 0, step = 1, count = 2880, to = f32}} : f32[2880]
    %x = graph.reshape %r {{shape = [2, 40, 6, 6]}} : f32[2, 40, 6, 6]
    %t = graph.transpose %y {{perm = [0, 3, 1, 2]}} : f32[2, 24, 6, 6]
    %g = graph.conv_filter_gradient %x, %t {{kernel = [3, 3], pads = [1, 1, 1, 1], group = 1}} \
: f32[24, 40, 3, 3]
    %w = graph.transpose %g {{perm = [0, 2, 3, 1]}} : f32[24, 3, 3, 40]
    strata.return %w
  }}
}}
""")
    options = CompileOptions(target="cpu", features=features, cache="off")
    text = lower_to_text(Compiler(model_of(str(path)), options), "loop")
    [wide] = re.findall(r"(i\d+) tile \d+ lanes", text)
    read = re.search(r"ins\(%\w+\[([^\]]*)\]", text.split("loop.kernel @contract")[1])
    assert read is not None and "+" in read[1] and read[1].endswith(f", {wide}")


@pytest.mark.parametrize("features", ["avx2", "avx512"])
@pytest.mark.parametrize(("shape", "factor", "walked"), [
    ((2, 34, 34, 19), 2, "grid i0 tile 1, grid i1 tile 1, loop i2 tile 1"),
    ((64, 1, 700, 7), 3, "grid i0 tile 1, grid i1 tile 1, grid i2 tile 525, loop i2 tile 1"),
    ((2, 4, 5, 19), 2, "grid i0 tile 1, grid i1 tile 1, grid i2 tile 2, loop i2 tile 1"),
    ((2, 3, 5, 19), 2, "grid i0 tile 1, grid i1 tile 1, grid i2 tile 1"),
    ((2, 34, 34, 999), 2, "grid i0 tile 1, grid i1 tile 1, grid i2 tile 1")])
def test_a_program_writes_several_short_rows(
    tmp_path: Path, features: str, shape: tuple[int, ...], factor: int, walked: str
) -> None:
    """As many as leave programs for threads; long rows are programs of their own."""
    made = [shape[0], shape[1] * factor, shape[2] * factor, shape[3]]
    path = tmp_path / "resize.mlir"
    path.write_text(f"""{HEADER}(%x: f32{list(shape)}) -> (f32{made}) inputs ["x"] outputs ["y"] {{
    %y = graph.resize %x {{shape = {made}, scales = literal[], mode = "nearest", \
coordinates = "asymmetric"}} : f32{made}
    strata.return %y
  }}
}}
""")
    options = CompileOptions(target="cpu", features=features, cache="off")
    text = lower_to_text(Compiler(model_of(str(path)), options), "loop")
    assert f"schedule<{walked}, loop i3" in text


@pytest.mark.parametrize("features", ["baseline", "avx2", "avx512", "amx"])
@pytest.mark.parametrize(("made", "group", "element", "kept"), [
    (32, 1, "f32", True), (32, 2, "f32", True), (24, 2, "f32", False), (8, 1, "f32", False),
    (32, 1, "bf16", True)])
def test_gradients_of_filters_are_one_nest_where_channels_fill_vectors(
    tmp_path: Path, made: int, group: int, element: str, kept: bool, features: str
) -> None:
    """Others are defined by products, as are those that matrix units multiply."""
    path = tmp_path / "filter.mlir"
    path.write_text(f"""{HEADER}(%x: {element}[2, 32, 6, 6], %y: {element}[2, {made}, 6, 6]) \
-> ({element}[{made}, {32 // group}, 3, 3]) inputs ["x", "y"] outputs ["w"] {{
    %w = graph.conv_filter_gradient %x, %y {{kernel = [3, 3], pads = [1, 1, 1, 1], \
group = {group}}} : {element}[{made}, {32 // group}, 3, 3]
    strata.return %w
  }}
}}
""")
    options = CompileOptions(target="cpu", features=features, cache="off")
    text = lower_to_text(Compiler(model_of(str(path)), options), "graph")
    matrices = features == "amx" and element == "bf16"
    assert ("graph.conv_filter_gradient" in text) == (kept and not matrices)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_channels_last_fill_vectors(tmp_path: Path, transposed: bool, stride: int) -> None:
    """An image that is given and wanted with channels last is read as it lies, by a convolution
    and by each phase of a transposed one; the filter is an argument."""
    draw, path = np.random.default_rng(0), tmp_path / "last.mlir"
    size = 2 * stride
    name, filters = ("conv_transpose", "24, 40") if transposed else ("conv", "40, 24")
    pad = stride // 2 if transposed else stride - stride // 2
    side = 8 * stride + size - 2 * pad if transposed else (9 + 2 * pad - size) // stride + 1
    path.write_text(f"""{HEADER}(%x: f32[2, 9, 9, 24], %w: f32[{filters}, {size}, {size}]) \
-> (f32[2, {side}, {side}, 40]) inputs ["x", "w"] outputs ["y"] {{
    %t = graph.transpose %x {{perm = [0, 3, 1, 2]}} : f32[2, 24, 9, 9]
    %c = graph.{name} %t, %w {{strides = [{stride}, {stride}], pads = {[pad] * 4}}} \
: f32[2, 40, {side}, {side}]
    %y = graph.transpose %c {{perm = [0, 2, 3, 1]}} : f32[2, {side}, {side}, 40]
    strata.return %y
  }}
}}
""")
    found = lanes(path, features="avx512")
    assert {axis.split(": ")[1] for axis in found} <= {"40", "16", "24"}
    exe = compiler.compile(path, target="cpu", cache="off")
    x, w = (draw.standard_normal(s).astype(np.float32) for s in (
        (2, 9, 9, 24), (*map(int, filters.split(", ")), size, size)))
    torch = pytest.importorskip("torch")
    run = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    wanted = run(torch.tensor(x).permute(0, 3, 1, 2).double(), torch.tensor(w).double(),
                 None, stride, pad).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(exe(x, w)[0], wanted, atol=1e-4)


def test_places_of_a_table_are_read_once_for_many_elements() -> None:
    """Rows that a table tells are mixed as vectors: what varies along memory is in lanes."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Upsample((50, 66), mode="bilinear")
    x = torch.randn(2, 3, 20, 33, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(model, (x,))
    assert [axis.split(": ")[1] for axis in lanes(program)] == ["66", "66"]
    exe = compiler.compile(program, target="cpu", cache="off")
    np.testing.assert_allclose(exe(x)[0].numpy(), model(x).numpy(), atol=1e-5)


@pytest.mark.parametrize(("features", "rows"), [("avx2", 2), ("avx512", 4)])
@pytest.mark.parametrize("bounds", [16, 17])
def test_rows_that_read_the_same_are_reduced_together(
    tmp_path: Path, bounds: int, features: str, rows: int
) -> None:
    """Numbers below many bounds are counted for as many of these as registers hold, in one walk."""
    path = tmp_path / "counts.mlir"
    path.write_text(f"""{HEADER}(%x: f32[n, 1], %b: f32[{bounds}]) -> (i32[{bounds}]) \
inputs ["x", "b"] outputs ["y"] {{
    %l = graph.less %x, %b : i1[n, {bounds}]
    %c = graph.cast %l {{to = i32}} : i32[n, {bounds}]
    %y = graph.reduce_sum %c {{axes = [0], keepdims = false}} : i32[{bounds}]
    strata.return %y
  }}
}}
""")
    options = CompileOptions(target="cpu", cache="off", features=features)
    text = lower_to_text(Compiler(model_of(str(path)), options), "loop")
    [schedule] = re.findall("schedule<(.*)>", text)
    found = re.match(r"grid i0(?: tile (\d+))?, loop i1 tile \d+ lanes", schedule)
    assert found and int(found[1] or 1) == (rows if bounds % rows == 0 else 1)

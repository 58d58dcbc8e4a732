"""Few rows read weights as the integer codes that they are computed from."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.block import LoadOp
from dialects.graph import ConstantOp
from dialects.host import LaunchOp
from dialects.host.interpret import interpret_host
from dialects.strata.func import main_function
from dialects.strata.types import Array, TileType, buffer_type, i8
from dialects.symbolic.symbol import Symbol
from passes.graph import fold_constants
from targets.base import TargetOptions, find_target
from tests.passes.harness import Run, assert_same, parse, run_passes

PASSES = ("graph-decompose,graph-simplify,graph-to-loop,loop-simplify-nests,loop-fuse,loop-outline,"
          "loop-collapse-axes,loop-prepare-kernels,loop-pack-operands,loop-schedule,host-bufferize,"
          "host-plan-buffers,loop-to-block,block-split-tiles,block-prove-bounds")


def coded(rows: int, depth: int, columns: int, code: str, element: str) -> str:
    """x @ (codes * scales) of the weights' rows; [rows, columns]."""
    return f"""builtin.module {{
  strata.func @main(%x: {element}[{rows}, {depth}], %w: {code}[{columns}, {depth}],
      %s: {element}[{columns}, 1]) -> ({element}[{rows}, {columns}])
      inputs ["x", "w", "s"] outputs ["y"] {{
    %f = graph.cast %w {{to = {element}}} : {element}[{columns}, {depth}]
    %m = graph.mul %f, %s : {element}[{columns}, {depth}]
    %t = graph.transpose %m {{perm = [1, 0]}} : {element}[{depth}, {columns}]
    %y = graph.matmul %x, %t : {element}[{rows}, {columns}]
    strata.return %y
  }}
}}"""


@pytest.mark.parametrize(("rows", "depth", "columns", "code", "element", "launches"), [
    (1, 64, 48, "i8", "bf16", 1), (1, 37, 7, "ui8", "f16", 1), (1, 64, 48, "i8", "f32", 1),
    (3, 64, 48, "i8", "bf16", 1), (8, 96, 33, "ui8", "f16", 1), (16, 64, 64, "i8", "f32", 1),
    (64, 64, 32, "i8", "bf16", 1), (65, 64, 32, "i8", "bf16", 2), (5, 1, 16, "i8", "f32", 2),
    (8, 64, 48, "i16", "bf16", 2)])
def test_codes_are_converted_where_few_rows_read_them(
    rows: int, depth: int, columns: int, code: str, element: str, launches: int
) -> None:
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    module = parse(coded(rows, depth, columns, code, element), context)
    function = main_function(module)
    run = Run.of(function)
    expected = run.results(function, context)
    run_passes(module, PASSES, context)
    tolerance = {"f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}[element]
    for a, b in zip(interpret_host(module, run.inputs, context.weights), expected, strict=True):
        assert_same(a, b, tolerance)
    assert sum(isinstance(op, LaunchOp) for op in module.walk()) == launches


@pytest.mark.parametrize(("depth", "columns"), [(4096, 4096), (1000, 5003), (11008, 64)])
def test_one_row_reads_long_pieces_of_codes(depth: int, columns: int) -> None:
    """Neither the sums nor the scales by column lead to loads of bytes that lie apart."""
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    module = parse(coded(1, depth, columns, "i8", "bf16"), context)
    run_passes(module, PASSES, context)
    [load] = [op for op in module.walk() if isinstance(op, LoadOp)
              and buffer_type(op.buffer).element == i8]
    type_ = load.results[0].type
    assert isinstance(type_, TileType)
    places = [Symbol.place(k) for k in range(len(type_.shape))]
    found = load.exprs[-1].linear(places)
    assert found is not None
    [(place, step)] = found[0].items()
    assert step.constant == 1 and type_.shape[places.index(place)] >= 512


def constant(rows: str, after: str = "%m") -> str:
    """The same with constant codes; the second result reads what `after` says."""
    return f"""builtin.module {{
  strata.func @main(%x: f32[{rows}, 2], %s: f32[4, 1]) -> (f32[{rows}, 4], f32[4, 2])
      inputs ["x", "s"] outputs ["y", "w"] {{
    %w = graph.constant {{value = literal[1, -2, 3, 4, 5, -6, 7, 8]}} : i8[4, 2]
    %f = graph.cast %w {{to = f32}} : f32[4, 2]
    %m = graph.mul %f, %s : f32[4, 2]
    %t = graph.transpose %m {{perm = [1, 0]}} : f32[2, 4]
    %y = graph.matmul %x, %t : f32[{rows}, 4]
    %z = graph.mul %s, %s : f32[4, 1]
    %v = graph.broadcast %z {{shape = [4, 2]}} : f32[4, 2]
    strata.return %y, {after}
  }}
}}"""


@pytest.mark.parametrize(("rows", "after", "target", "kept"), [
    ("1", "%v", "cuda", True), ("64", "%v", "cuda", True), ("65", "%v", "cuda", False),
    ("n", "%v", "cuda", False), ("1", "%m", "cuda", False), ("2", "%v", "cpu", True),
    ("3", "%v", "cpu", False)])
def test_constant_codes_stay_codes_if_only_few_rows_read_them(
    rows: str, after: str, target: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_constants, "SMALL", 4)
    features = {"features": "sm_90"} if target == "cuda" else {}
    context = find_target(target).bind(TargetOptions(**features)).context()
    module = parse(constant(rows, after), context)
    run_passes(module, "graph-fold-constants", context)
    assert _holds_codes(module) == kept


def test_codes_in_blocks_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel of the product could compute them: floats would be stored in each call."""
    monkeypatch.setattr(fold_constants, "SMALL", 4)
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    module = parse(BLOCKS, context)
    run_passes(module, "graph-fold-constants", context)
    assert not _holds_codes(module)


@pytest.mark.parametrize(("rows", "stay"), [(1, True), (2, False)])
def test_one_row_reads_codes_in_blocks(
    rows: int, stay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scales are repeated, so that codes stay as they lie. Reading halves is faster for more."""
    monkeypatch.setattr(fold_constants, "SMALL", 4)
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    module = parse(BLOCKS.replace("f32[1, ", f"f32[{rows}, "), context)
    function = main_function(module)
    run = Run.of(function)
    expected = run.results(function, context)
    run_passes(module, "graph-delay-scales,graph-fold-constants", context)
    assert _holds_codes(module) == stay
    run_passes(module, PASSES, context)
    for a, b in zip(interpret_host(module, run.inputs, context.weights), expected, strict=True):
        assert_same(a, b, 1e-4)
    assert sum(isinstance(op, LaunchOp) for op in module.walk()) == 1


BLOCKS = """builtin.module {
  strata.func @main(%x: f32[1, 4]) -> (f32[1, 2]) inputs ["x"] outputs ["y"] {
    %w = graph.constant {value = literal[1, -2, 3, 4, 5, -6, 7, 8]} : i8[2, 2, 2]
    %f = graph.cast %w {to = f32} : f32[2, 2, 2]
    %s = graph.constant {value = literal[1.0, 2.0, 3.0, 4.0]} : f32[2, 2, 1]
    %m = graph.mul %f, %s : f32[2, 2, 2]
    %r = graph.reshape %m {shape = [2, 4]} : f32[2, 4]
    %t = graph.transpose %r {perm = [1, 0]} : f32[4, 2]
    %y = graph.matmul %x, %t : f32[1, 2]
    strata.return %y
  }
}"""


def _holds_codes(module: Operation) -> bool:
    constants = [op for op in module.walk() if isinstance(op, ConstantOp)]
    return any(op.type.short.startswith("i8") for op in constants)


@pytest.mark.parametrize(("depth", "columns", "least", "code", "packed"), [
    (96, 700, 0, np.uint8, True), (64, 1031, -8, np.int8, True), (64, 1031, 3, np.int8, True),
    (96, 700, -9, np.int8, True), (97, 700, 0, np.uint8, False)])
@pytest.mark.parametrize("transposed", [False, True])
def test_one_row_reads_two_codes_in_a_byte(
    depth: int, columns: int, least: int, code: type, packed: bool, transposed: bool
) -> None:
    """Each byte is read once, by one nest, whatever the smallest code is."""
    random = np.random.default_rng(depth)
    shape = (columns, depth) if transposed else (depth, columns)
    codes = random.integers(least, least + 16, shape).astype(code)
    module, is_packed = multiplied(codes, transposed, "1, ", "bf16", 1e-1)
    assert is_packed == packed
    assert sum(isinstance(op, LaunchOp) for op in module.walk()) <= 2


@pytest.mark.parametrize("rows", ["", "1, ", "1, 1, ", "0, ", "2, 0, ", "2, "])
@pytest.mark.parametrize(("element", "tolerance"), [
    ("bf16", 1e-1), ("f16", 1e-2), ("f32", 1e-4), ("f64", 1e-12)])
def test_packed_products_are_as_precise_as_others(
    element: str, tolerance: float, rows: str
) -> None:
    """Of all types of floats; only one row is packed."""
    codes = np.random.default_rng(5).integers(0, 16, (96, 700)).astype(np.uint8)
    _, is_packed = multiplied(codes, False, rows, element, tolerance)
    assert is_packed == (rows in ("", "1, ", "1, 1, "))


def multiplied(
    codes: Array, transposed: bool, rows: str, element: str, tolerance: float
) -> tuple[ModuleOp, bool]:
    """A product with constant codes, lowered once its numbers are as they were, and whether its
    codes are packed. `rows`: the dims before the last one."""
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    depth, columns = codes.T.shape if transposed else codes.shape
    at = f"{codes.shape[0]}, {codes.shape[1]}"
    y = f"{element}[{rows}{columns}]"
    turn = f"%t = graph.transpose %f {{perm = [1, 0]}} : {element}[{depth}, {columns}]"
    module = parse(f"""builtin.module {{
      strata.func @main(%x: {element}[{rows}{depth}]) -> ({y}) inputs ["x"] outputs ["y"] {{
        %w = graph.constant {{value = #strata.weight<"w", "codes">}} : {
            "ui8" if codes.dtype == np.uint8 else "i8"}[{at}]
        %f = graph.cast %w {{to = {element}}} : {element}[{at}]
        {turn if transposed else ""}
        %y = graph.matmul %x, {"%t" if transposed else "%f"} : {y}
        strata.return %y
      }}
    }}""", context)
    context.weights.arrays["codes"] = codes
    function = main_function(module)
    run = Run.of(function)
    expected = run.results(function, context)
    run_passes(module, f"graph-pack-codes,{PASSES}", context)
    for a, b in zip(interpret_host(module, run.inputs, context.weights), expected, strict=True):
        assert_same(a, b, tolerance)
    used = {w.shape for key, w in context.weights.arrays.items() if key != "codes"}
    halves = (columns, depth // 2) if transposed else (depth // 2, columns)
    return module, halves in used

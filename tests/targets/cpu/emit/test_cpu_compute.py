"""Computation on tiles: every scalar operation, broadcasts, reductions, dot, loops."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.targets.cpu.cpu_kernels import body, check, each_machine, randoms, unlike

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
INTEGERS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-6, "f64": 1e-13}
LANES = ["[20]", "5"]


def map_kernel(source: str, target: str, dim: str, inputs: int, lines: str) -> str:
    """y = body(x0, x1 ...) on one tile."""
    extent = dim.strip("[]")
    buffers = ", ".join(f"%x{k}: {source}[{extent}]" for k in range(inputs))
    loads = "\n".join(f"%v{k} = block.load %x{k}[t0] : tile<{dim}x{source}>"
                      for k in range(inputs))
    values = ", ".join(f"%v{k}[0]" for k in range(inputs))
    arguments = ", ".join(f"%a{k}: {source}" for k in range(inputs))
    return f"""
    block.kernel @map({buffers}, %y: {target}[{extent}]) grid() sizes() {{
      {loads}
      %r = block.map ({values}) : tile<{dim}x{target}> {body(arguments, lines, result="%r")}
      block.store %r, %y[t0]
      block.yield
    }}"""


def operands(dtype: Any, count: int, extent: int, positive: bool = False) -> list[Any]:
    values = [randoms(extent, dtype=dtype) for _ in range(count)]
    return [np.abs(v) + np.ones((), dtype) if positive else v for v in values]


# ---------------------------------------------------------------------- scalar operations
@each_machine
@pytest.mark.parametrize("dim", LANES)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("op", ["addf", "subf", "mulf", "divf", "maximumf", "minimumf"])
def test_float_binary(features: str, op: str, element: str, dim: str) -> None:
    extent = int(dim.strip("[]"))
    x, y = operands(FLOATS[element], 2, extent, positive=op == "divf")
    if op in ("maximumf", "minimumf"):
        x[1], y[2] = np.nan, np.nan
    text = map_kernel(element, element, dim, 2, f"%r = arith.{op} %a0, %a1 : {element}")
    check(text, x, y, unlike(extent, dtype=FLOATS[element]), features=features,
          tolerance=TOLERANCE[element])


@each_machine
@pytest.mark.parametrize("dim", LANES)
@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("op", ["math.absf", "arith.negf", "math.floor", "math.ceil",
                                "math.roundeven", "math.trunc"])
def test_float_unary_is_exact(features: str, op: str, element: str, dim: str) -> None:
    extent = int(dim.strip("[]"))
    x = operands(FLOATS[element], 1, extent)[0] * np.array(3, FLOATS[element])
    text = map_kernel(element, element, dim, 1, f"%r = {op} %a0 : {element}")
    check(text, x, unlike(extent, dtype=FLOATS[element]), features=features)


@each_machine
@pytest.mark.parametrize("dim", LANES)
@pytest.mark.parametrize("element", ["f16", "f32", "f64"])
@pytest.mark.parametrize("op", ["exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt",
                                "tanh", "erf", "sin", "cos", "tan"])
def test_math_functions(features: str, op: str, element: str, dim: str) -> None:
    extent = int(dim.strip("[]"))
    x, = operands(FLOATS[element], 1, extent, positive=True)
    text = map_kernel(element, element, dim, 1, f"%r = math.{op} %a0 : {element}")
    check(text, x, unlike(extent, dtype=FLOATS[element]), features=features,
          tolerance=4 * TOLERANCE[element])


@each_machine
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("op", ["powf", "copysign", "atan2"])
def test_binary_math(features: str, op: str, element: str) -> None:
    x, y = operands(FLOATS[element], 2, 20, positive=op == "powf")
    text = map_kernel(element, element, "[20]", 2, f"%r = math.{op} %a0, %a1 : {element}")
    check(text, x, y, unlike(20, dtype=FLOATS[element]), features=features,
          tolerance=TOLERANCE[element])


@each_machine
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_fused_multiply_add(features: str, element: str) -> None:
    values = operands(FLOATS[element], 3, 20)
    text = map_kernel(element, element, "[20]", 3, f"%r = math.fma %a0, %a1, %a2 : {element}")
    check(text, *values, unlike(20, dtype=FLOATS[element]), features=features,
          tolerance=TOLERANCE[element])


@each_machine
@pytest.mark.parametrize("dim", LANES)
@pytest.mark.parametrize("element", INTEGERS)
@pytest.mark.parametrize("op", ["addi", "subi", "muli", "divsi", "divui", "remsi", "remui",
                                "floordivsi", "ceildivsi", "maxsi", "maxui", "minsi", "minui",
                                "andi", "ori", "xori", "shli", "shrsi", "shrui"])
def test_integer_binary(features: str, op: str, element: str, dim: str) -> None:
    extent = int(dim.strip("[]"))
    x, y = operands(INTEGERS[element], 2, extent)
    if "div" in op or "rem" in op:
        y[y == 0] = 3
    if op.startswith("sh"):
        y = (np.abs(y) % 7).astype(y.dtype)
    text = map_kernel(element, element, dim, 2, f"%r = arith.{op} %a0, %a1 : {element}")
    check(text, x, y, unlike(extent, dtype=INTEGERS[element]), features=features)


@each_machine
@pytest.mark.parametrize("op", ["andi", "ori", "xori"])
def test_truth_values(features: str, op: str) -> None:
    x, y = operands(np.bool_, 2, 20)
    text = map_kernel("i1", "i1", "[20]", 2, f"%r = arith.{op} %a0, %a1 : i1")
    check(text, x, y, unlike(20, dtype=np.bool_), features=features)


@each_machine
@pytest.mark.parametrize("dim", LANES)
@pytest.mark.parametrize("predicate", ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq",
                                       "ugt", "uge", "ult", "ule", "une", "uno"])
def test_float_comparisons(features: str, predicate: str, dim: str) -> None:
    extent = int(dim.strip("[]"))
    x, y = operands(np.float32, 2, extent)
    x[0], y[1], x[2] = np.nan, np.nan, y[2]
    text = map_kernel("f32", "i1", dim, 2, f"%r = arith.cmpf {predicate}, %a0, %a1 : f32")
    check(text, x, y, unlike(extent, dtype=np.bool_), features=features)


@each_machine
@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt",
                                       "uge"])
def test_integer_comparisons(features: str, predicate: str) -> None:
    x, y = operands(np.int64, 2, 20)
    x[2] = y[2]
    text = map_kernel("i64", "i1", "[20]", 2, f"%r = arith.cmpi {predicate}, %a0, %a1 : i64")
    check(text, x, y, unlike(20, dtype=np.bool_), features=features)


@each_machine
@pytest.mark.parametrize("dim", LANES)
@pytest.mark.parametrize(("op", "source", "target"), [
    ("extf", "f16", "f32"), ("extf", "bf16", "f32"), ("extf", "f16", "f64"),
    ("extf", "bf16", "f64"), ("extf", "f32", "f64"), ("truncf", "f32", "f16"),
    ("truncf", "f32", "bf16"), ("truncf", "f64", "f32"), ("truncf", "f64", "f16"),
    ("extsi", "i8", "i32"), ("extsi", "i16", "i64"), ("extui", "i8", "i64"),
    ("extui", "i1", "i8"), ("extsi", "i1", "i32"), ("trunci", "i64", "i8"),
    ("trunci", "i32", "i1"), ("sitofp", "i32", "f32"), ("sitofp", "i64", "f32"),
    ("sitofp", "i8", "f16"), ("uitofp", "i8", "f32"), ("uitofp", "i1", "f32"),
    ("uitofp", "i64", "f64"), ("sitofp", "i32", "bf16"), ("fptosi", "f32", "i32"),
    ("fptosi", "f32", "i64"), ("fptosi", "f64", "i8"), ("fptosi", "f16", "i32"),
    ("bitcast", "f32", "i32"), ("bitcast", "i16", "bf16"), ("bitcast", "f16", "i16"),
])
def test_casts(features: str, op: str, source: str, target: str, dim: str) -> None:
    kinds = {**FLOATS, **INTEGERS, "i1": np.bool_}
    extent = int(dim.strip("[]"))
    x = randoms(extent, dtype=kinds[source])
    text = map_kernel(source, target, dim, 1, f"%r = arith.{op} %a0 : {source} to {target}")
    check(text, x, unlike(extent, dtype=kinds[target]), features=features)


@each_machine
def test_unsigned_casts(features: str) -> None:
    x = np.minimum(np.abs(randoms(20)) * 100, 255)  # beyond, the result is undefined
    text = map_kernel("f32", "i8", "[20]", 1, "%r = arith.fptoui %a0 : f32 to i8")
    check(text, x, unlike(20, dtype=np.int8), features=features)


# ---------------------------------------------------------------------- maps
@each_machine
def test_broadcasts_of_every_kind(features: str) -> None:
    text = f"""
    block.kernel @maps(%a: f32[3], %b: f32[20], %c: f32[3, 20], %s: f32[1], %y: f32[3, 20],
                       %z: f32[3, 20], %w: f32[3, 20]) grid(%p: 1) sizes() {{
      %x0 = block.load %a[t0] : tile<3xf32>
      %x1 = block.load %b[t0] : tile<[20]xf32>
      %x2 = block.load %c[t0, t1] : tile<3x[20]xf32>
      %x3 = block.load %s[0] : tile<f32>
      %x4 = block.load %b[t0] : tile<20xf32>
      %x5 = block.load %a[t0] : tile<[3]xf32>
      %r, %q = block.map (%x0[0], %x1[1], %x2[0, 1], %x3[], %p[])
          : tile<3x[20]xf32>, tile<3x[20]xf32> {body(
              "%i: f32, %j: f32, %k: f32, %l: f32, %m: index",
              "%n = arith.mulf %i, %l : f32", "%o = arith.addf %n, %j : f32",
              "%u = arith.index_cast %m : index to i32", "%v = arith.sitofp %u : i32 to f32",
              "%d = arith.addf %v, %k : f32", "%t = arith.addf %d, %o : f32", result="%t, %n")}
      %m2 = block.map (%x4[1], %x5[0]) : tile<3x[20]xf32> {body(
          "%i: f32, %j: f32", "%k = arith.mulf %i, %j : f32", result="%k")}
      block.store %r, %y[t0, t1]
      block.store %q, %z[t0, t1]
      block.store %m2, %w[t0, t1]
      block.yield
    }}"""
    check(text, randoms(3), randoms(20), randoms(3, 20), randoms(1), unlike(3, 20),
          unlike(3, 20), unlike(3, 20), features=features, tolerance=1e-6)


# ---------------------------------------------------------------------- reductions and dot
@each_machine
@pytest.mark.parametrize("combiner", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "i64", "i32"])
@pytest.mark.parametrize(("shape", "dim"), [
    ("3x[64]", 1), ("3x[50]", 1), ("[13]x2", 0), ("5x[20]", 0), ("[20]x7", 1), ("4x5", 0),
    ("4x5", 1), ("2x3x[8]", 1), ("2x[1]", 1),
])
def test_reductions(
    features: str, combiner: str, element: str, shape: str, dim: int
) -> None:
    extents = [int(s.strip("[]")) for s in shape.split("x")]
    kept = [s for k, s in enumerate(shape.split("x")) if k != dim]
    result = "x".join([*kept, element])
    dtype = {**FLOATS, **INTEGERS}[element]
    rest = [e for k, e in enumerate(extents) if k != dim]
    inner = ", ".join(f"t{k}" for k in range(len(extents)))
    outer = ", ".join(f"t{k}" for k in range(len(rest)))
    text = f"""
    block.kernel @reduce(%x: {element}{extents}, %y: {element}{rest}) grid() sizes() {{
      %a = block.load %x[{inner}] : tile<{shape}x{element}>
      %b = block.reduce {combiner} %a dim {dim} : tile<{result}>
      block.store %b, %y[{outer}]
      block.yield
    }}"""
    check(text, randoms(*extents, dtype=dtype), unlike(*rest, dtype=dtype), features=features,
          tolerance=20 * TOLERANCE.get(element, 0))


@each_machine
@pytest.mark.parametrize("combiner", ["add", "max"])
@pytest.mark.parametrize(("shape", "dim"), [
    ("5x[20]", 0), ("[13]x6", 1), ("4x5", 1), ("3x4x[8]", 1)])
def test_scans(features: str, combiner: str, shape: str, dim: int) -> None:
    extents = [int(s.strip("[]")) for s in shape.split("x")]
    at = ", ".join(f"t{k}" for k in range(len(extents)))
    text = f"""
    block.kernel @scan(%x: f32{extents}, %y: f32{extents}) grid() sizes() {{
      %a = block.load %x[{at}] : tile<{shape}xf32>
      %b = block.scan {combiner} %a dim {dim} : tile<{shape}xf32>
      block.store %b, %y[{at}]
      block.yield
    }}"""
    check(text, randoms(*extents), unlike(*extents), features=features, tolerance=1e-5)


@each_machine
@pytest.mark.parametrize("combiner", ["and", "or"])
def test_truth_reductions(features: str, combiner: str) -> None:
    text = f"""
    block.kernel @reduce(%x: i1[4, 21], %y: i1[4], %z: i1[21]) grid() sizes() {{
      %a = block.load %x[t0, t1] : tile<4x[21]xi1>
      %b = block.reduce {combiner} %a dim 1 : tile<4xi1>
      block.store %b, %y[t0]
      %c = block.reduce {combiner} %a dim 0 : tile<[21]xi1>
      block.store %c, %z[t0]
      block.yield
    }}"""
    for value in (False, True):
        x = np.full((4, 21), value)
        x[2, 20] = not value
        check(text, x, unlike(4, dtype=np.bool_), unlike(21, dtype=np.bool_), features=features)


@each_machine
def test_equal_registers_are_all_counted(features: str) -> None:
    text = """
    block.kernel @count(%y: f32[1]) grid() sizes() {
      %a = block.full 1.0 : tile<[29]xf32>
      %b = block.reduce add %a dim 0 : tile<f32>
      block.store %b, %y[0]
      block.yield
    }"""
    check(text, unlike(1), features=features)


@each_machine
@pytest.mark.parametrize("place", [0, 5, 63])
def test_nan_survives_a_maximum(features: str, place: int) -> None:
    text = """
    block.kernel @reduce(%x: f32[64], %y: f32[1]) grid() sizes() {
      %a = block.load %x[t0] : tile<[64]xf32>
      %b = block.reduce max %a dim 0 : tile<f32>
      block.store %b, %y[0]
      block.yield
    }"""
    x = randoms(64)
    x[place] = np.nan
    assert np.isnan(check(text, x, unlike(1), features=features)[1][0])


@each_machine
@pytest.mark.parametrize("lanes", [None, 0, 1])
@pytest.mark.parametrize(("element", "total"), [("f32", "f32"), ("f16", "f32"), ("i8", "i32")])
def test_dot(features: str, lanes: int | None, element: str, total: str) -> None:
    def tile(*extents: int, lane: int | None) -> str:
        return "x".join(f"[{e}]" if k == lane else str(e) for k, e in enumerate(extents))

    a, b, c = (tile(5, 4, lane=None), tile(4, 20, lane=1), tile(5, 20, lane=lanes))
    text = f"""
    block.kernel @dot(%a: {element}[5, 4], %b: {element}[4, 20], %c: {total}[5, 20])
        grid() sizes() {{
      %x = block.load %a[t0, t1] : tile<{a}x{element}>
      %y = block.load %b[t0, t1] : tile<{b}x{element}>
      %z = block.load %c[t0, t1] : tile<{c}x{total}>
      %d = block.dot %x, %y, %z ieee : tile<{c}x{total}>
      block.store %d, %c[t0, t1]
      block.yield
    }}"""
    kinds = {**FLOATS, **INTEGERS}
    check(text, randoms(5, 4, dtype=kinds[element]), randoms(4, 20, dtype=kinds[element]),
          randoms(5, 20, dtype=kinds[total]), features=features, tolerance=1e-5)


# ---------------------------------------------------------------------- loops
def sum_kernel(lower: str, upper: str, step: int, unroll: int) -> str:
    """y[p] = sum of x[k] over the loop, with k scaled by the trip; y is 20 lanes wide."""
    return f"""
    block.kernel @loop(%x: f32[64, 20], %y: f32[3, 20]) grid(%p: 3) sizes(n) {{
      %z = block.full 0.0 : tile<[20]xf32>
      %s = block.for %k = {lower} to {upper} step {step} unroll {unroll} (%c = %z) {{
        %a = block.load %x[%k, t0] : tile<[20]xf32>
        %n = block.map (%c[0], %a[0], %k[]) : tile<[20]xf32> {body(
            "%i: f32, %j: f32, %h: index", "%l = arith.index_cast %h : index to i32",
            "%m = arith.sitofp %l : i32 to f32", "%o = arith.mulf %m, %j : f32",
            "%q = arith.addf %i, %o : f32", result="%q")}
        block.yield %n
      }}
      block.store %s, %y[%p, t0]
      block.yield
    }}"""


@each_machine
@pytest.mark.parametrize("unroll", [1, 3, 4])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(("lower", "upper"), [
    ("0", "0"), ("5", "3"), ("2", "3"), ("0", "3"), ("0", "12"), ("1", "14"), ("0", "63"),
    ("%p", "n"), ("2*%p", "n + %p"), ("n", "%p"), ("0", "n"), ("%p", "%p + 7"),
])
def test_loops(features: str, lower: str, upper: str, step: int, unroll: int) -> None:
    for n in (0, 1, 13, 40):
        check(sum_kernel(lower, upper, step, unroll), randoms(64, 20), unlike(3, 20),
              features=features, tolerance=1e-4, n=n)


@each_machine
def test_nested_loops_and_unequal_carried_tiles(features: str) -> None:
    text = f"""
    block.kernel @nest(%x: f32[6, 5, 20], %y: f32[20], %z: f32[2], %i: i64[20])
        grid() sizes(n) {{
      %a = block.full 0.0 : tile<[20]xf32>
      %b = block.full 1.0 : tile<f32>
      %c = block.full 0 : tile<[20]xi64>
      %r, %s, %t = block.for %k = 0 to n step 1 (%d = %a, %e = %b, %f = %c) {{
        %g, %h = block.for %m = 0 to %k step 2 unroll 2 (%u = %d, %v = %f) {{
          %w = block.load %x[%k, %m, t0] : tile<[20]xf32>
          %n1, %n2 = block.map (%u[0], %v[0], %w[0]) : tile<[20]xf32>, tile<[20]xi64> {body(
              "%p: f32, %q: i64, %o: f32", "%one = arith.constant 1 : i64",
              "%l = arith.addf %p, %o : f32", "%j = arith.addi %q, %one : i64",
              result="%l, %j")}
          block.yield %n1, %n2
        }}
        %n3 = block.map (%e[]) : tile<f32> {body(
            "%p: f32", "%l = arith.addf %p, %p : f32", result="%l")}
        block.yield %g, %n3, %h
      }}
      block.store %r, %y[t0]
      block.store %s, %z[1]
      block.store %t, %i[t0]
      block.yield
    }}"""
    for n in (0, 1, 6):
        check(text, randoms(6, 5, 20), unlike(20), unlike(2), unlike(20, dtype=np.int64),
              features=features, tolerance=1e-5, n=n)


@each_machine
def test_carried_values_may_swap(features: str) -> None:
    text = """
    block.kernel @swap(%x: f32[2, 20], %y: f32[2, 20]) grid() sizes(n) {
      %a = block.load %x[0, t0] : tile<[20]xf32>
      %b = block.load %x[1, t0] : tile<[20]xf32>
      %c, %d = block.for %k = 0 to n step 1 unroll 2 (%e = %a, %f = %b) {
        block.yield %f, %e
      }
      block.store %c, %y[0, t0]
      block.store %d, %y[1, t0]
      block.yield
    }"""
    for n in (0, 1, 2, 5):
        check(text, randoms(2, 20), unlike(2, 20), features=features, n=n)


@each_machine
@pytest.mark.parametrize(("m", "k", "n"), [(14, 40, 128), (6, 1, 64)])
def test_matrix_product(features: str, m: int, k: int, n: int) -> None:
    def rows(count: int, first: int, last: int) -> str:
        return f"""
        block.for %m{count} = {first} to {last} step {count} parallel {{
          %z = block.full 0.0 : tile<{count}x[64]xf32>
          %acc = block.for %k = 0 to {k} step 1 unroll 4 (%c = %z) {{
            %a = block.load %A[%m{count} + t0, %k] : tile<{count}xf32>
            %b = block.load %B[%no, %k, t0] : tile<[64]xf32>
            %n = block.map (%a[0], %b[1], %c[0, 1]) : tile<{count}x[64]xf32> {body(
                "%x: f32, %y: f32, %w: f32", "%p = arith.mulf %x, %y : f32",
                "%q = arith.addf %w, %p : f32", result="%q")}
            block.yield %n
          }}
          block.store %acc, %Y[%m{count} + t0, 64*%no + t1]
          block.yield
        }}"""
    full = m // 6 * 6
    text = f"""
    block.kernel @gemm(%A: f32[{m}, {k}], %B: f32[{n // 64}, {k}, 64], %Y: f32[{m}, {n}])
        grid(%no: {n // 64}) sizes() {{
      {rows(6, 0, full)}
      {rows(m - full, full, m) if m > full else ""}
      block.yield
    }}"""
    check(text, randoms(m, k), randoms(n // 64, k, 64), unlike(m, n), features=features,
          tolerance=1e-4)

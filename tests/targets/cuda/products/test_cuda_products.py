"""Matrix products on the CUDA target: their tiles, what they multiply, and what they compute."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.context import make_context
from dialects.graph import ConstantOp, MatmulOp
from dialects.host.interpret import interpret_host
from dialects.loop import KernelOp as LoopKernelOp
from dialects.strata.func import FuncOp
from dialects.strata.schedule import ScheduleAttr, parse_schedule
from dialects.strata.types import Array, BufferType, f16, tensor
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from passes.analyses.loop.kinds import is_contraction
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, resources
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.cuda.scheduling.products.rules import candidates, schedule_product
from tests.lowering import STEPS, lower

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
OPTIONS = TargetOptions(features="sm_90")


def product(m: int | str, n: int, k: int, element: str = "f16") -> str:
    return f"""
strata.func @main(%a: {element}[{m}, {k}], %b: {element}[{k}, {n}], %c: {element}[{n}])
    -> ({element}[{m}, {n}]) inputs ["a", "b", "c"] outputs ["y"] {{
  %p = graph.matmul %a, %b : {element}[{m}, {n}]
  %y = graph.add %p, %c : {element}[{m}, {n}]
  strata.return %y
}}"""


def lowered(text: str, options: TargetOptions, steps: Sequence[str] = STEPS) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, TARGET.bind(options).context(), steps):
        pass
    return module


def contraction(text: str) -> LoopKernelOp:
    """The kernel of a product as rules meet it."""
    module = lowered(text, OPTIONS, STEPS[:STEPS.index("loop-schedule")])
    return next(op for op in module.walk() if isinstance(op, LoopKernelOp) and any(
        map(is_contraction, op.nests)))


def sources(text: str, options: TargetOptions = OPTIONS) -> list[KernelOp]:
    return [op for op in lowered(text, options).walk() if isinstance(op, KernelOp)]


# ---------------------------------------------------------------------- tiles
@pytest.mark.parametrize("text", [
    product(512, 768, 256), product("m", 768, 256), product(1, 4096, 4096), product(16, 40, 72),
    product(128, 64, 72, "f32")], ids=["static", "open", "vector", "odd", "f32"])
def test_candidates_begin_with_the_rules_choice_and_differ(text: str) -> None:
    kernel = contraction(text)
    found = list(candidates(kernel, OPTIONS))
    nest = next(n for n in kernel.nests if is_contraction(n))
    assert found[0] == schedule_product(kernel, nest, OPTIONS)
    assert len({*map(str, found)}) == len(found)
    assert all({x.axis for x in s.levels} == set(kernel.axes) for s in found)


def test_what_is_no_product_has_no_candidates() -> None:
    module = lowered("""strata.func @main(%a: f32[64]) -> (f32[64]) inputs ["a"] outputs ["y"] {
  %y = graph.abs %a : f32[64]
  strata.return %y
}""", OPTIONS, STEPS[:STEPS.index("loop-schedule")])
    [kernel] = [op for op in module.walk() if isinstance(op, LoopKernelOp)]
    assert not list(candidates(kernel, OPTIONS))


# ---------------------------------------------------------------------- numbers
SHAPES = [(1, 1, 1), (1, 300, 2048), (300, 1, 2048), (1, 64, 0), (0, 8, 8), (2, 3, 7),
          (16, 512, 4096), (17, 131, 67), (64, 80, 1024), (130, 33, 256)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
def test_tiles_compute_the_product(m: int, n: int, k: int, element: str) -> None:
    """Tile operations as they are defined, against float64; parts of sums are among them."""
    check(product(m, n, k, element), m, n, k, element, TargetOptions(features="sm_90"))


@pytest.mark.parametrize("k", [8, 24, 40])
def test_short_sums_of_rounded_factors(k: int) -> None:
    """What tl.dot takes at least, whatever the sum's length."""
    [kernel] = sources(product(64, 64, k, "f32"), TargetOptions(features="sm_90", precision="tf32"))
    assert "tl.dot" in emit_kernel(kernel).text


@pytest.mark.parametrize("m", [1, 5, 70])
def test_open_rows(m: int) -> None:
    check(product("m", 72, 96), m, 72, 96, "f16", OPTIONS)


@needs_triton
@pytest.mark.parametrize(("m", "n", "k"), [(1, 300, 2048), (16, 512, 4096), (17, 131, 67)])
def test_triton_source_computes_the_product(m: int, n: int, k: int) -> None:
    options = TargetOptions(features="sm_90", interpret=True)
    check(product(m, n, k), m, n, k, "f16", options, launcher())


def launcher() -> Any:
    """What runs kernels in Triton's interpreter."""
    interpreter = Interpreter()

    def launch(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    return launch


def test_what_is_no_number_stays_so() -> None:
    a, b, c = arrays(16, 512, 4096, "f16")
    a[3, 4000], a[5, 0], b[77, 9] = np.nan, np.inf, -np.inf
    module = lowered(product(16, 512, 4096), OPTIONS)
    [found] = interpret_host(module, [a, b, c], WeightStore())
    with np.errstate(all="ignore"):
        expected = a.astype(float) @ b.astype(float) + c.astype(float)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))


def arrays(m: int, n: int, k: int, element: str) -> list[Array]:
    dtype = np.dtype({"f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16}[element])
    rng = np.random.default_rng(m + n + k)
    return [rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n), (n,))]


def check(
    text: str, m: int, n: int, k: int, element: str, options: TargetOptions,
    launch: Any = None,
) -> None:
    inputs = arrays(m, n, k, element)
    module = lowered(text, options)
    [found] = interpret_host(module, inputs, WeightStore(), *([launch] if launch else []))
    a, b, c = (x.astype(np.float64) for x in inputs)
    error = np.abs(found.astype(np.float64) - (a @ b + c))
    step = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}[element]
    limit = step * (np.abs(a) @ np.abs(b) / np.sqrt(max(k, 1)) + np.abs(a @ b) + 1)
    assert found.shape == (m, n) and bool(np.all(error <= limit)), float(np.max(error / limit))


# ---------------------------------------------------------------------- code
def test_the_parts_of_a_sum_are_added_by_the_kernel_of_what_follows() -> None:
    parts, total = [emit_kernel(k).text for k in sources(product(16, 64, 8192))]
    assert "tl.dot" in parts and ".to(tl.float16)" not in parts
    assert "tl.sum" in total and "tl.load(c" in total


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("m", [1, 16])
def test_constants_that_few_rows_read_lie_column_by_column(m: int, held: bool) -> None:
    """But not those that the caller holds: they would be in memory twice."""
    weights, store = arrays(m, 96, 4096, "f16")[1], WeightStore()
    func = FuncOp.of("main", ["a"], [tensor(f16, (m, 4096))])
    constant = ConstantOp.of_array(weights, store, "weight")
    product_ = MatmulOp.of(func.body.block.args[0], constant.results[0])
    func.body.block.add_ops([constant, product_])
    func.finish(["y"], product_.results)
    module = ModuleOp([func])
    if held:
        store.held |= store.arrays.keys()
    for _ in lower(module, TARGET.bind(OPTIONS).context(store)):
        pass
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    packed = kernels[0].buffers[1].type
    assert isinstance(packed, BufferType)
    shape = [size.constant for size in packed.shape]
    assert shape == [4096, 96] if held else (shape[-3], shape[-1]) == (96, 1)
    a = arrays(m, 96, 4096, "f16")[0]
    [found] = interpret_host(module, [a], store)
    np.testing.assert_allclose(found.astype(float), a.astype(float) @ weights.astype(float),
                               rtol=1e-2, atol=0.3)


FLOAT8 = """strata.func @main(%a: f8E4M3FN[512, 2048], %b: f8E4M3FN[512, 2048])
    -> (bf16[512, 512]) inputs ["a", "b"] outputs ["y"] {
  %p = graph.cast %a {to = bf16} : bf16[512, 2048]
  %q = graph.cast %b {to = bf16} : bf16[512, 2048]
  %t = graph.transpose %q {perm = [1, 0]} : bf16[2048, 512]
  %y = graph.matmul %p, %t : bf16[512, 512]
  strata.return %y
}"""


@needs_triton
@pytest.mark.parametrize("k", [128, 200, 256, 300])
def test_partial_sums(k: int) -> None:
    """Parts of 128 products, the last one shorter, or all in one; NaN and infinities stay."""
    options, middle = TargetOptions(features="sm_90", interpret=True), STEPS.index("loop-schedule")
    module = lowered(product(20, 40, k), options, STEPS[:middle])
    [kernel] = [op for op in module.walk() if isinstance(op, LoopKernelOp)]
    rows, columns, summed = kernel.axes
    kernel.properties["schedule"] = ScheduleAttr(parse_schedule(
        f"<grid {rows} tile 16, grid {columns} tile 16, loop {summed} tile 32 "
        "| dot = 1, tails = mask, stages = 3, promote = 128>"))
    for _ in lower(module, TARGET.bind(options).context(),
                   STEPS[middle:]):
        pass
    [lowest] = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert (f"{summed} % 128 == 96" in emit_kernel(lowest).text) == (k > 128)
    a, b, c = arrays(20, 40, k, "f16")
    a[3, 5], a[4, 0], b[k - 1, 7] = np.nan, np.inf, -np.inf
    [found] = interpret_host(module, [a, b, c], WeightStore(), launcher())
    with np.errstate(all="ignore"):
        expected = a.astype(float) @ b.astype(float) + c.astype(float)
    np.testing.assert_allclose(found.astype(float), expected, rtol=2e-2, atol=0.1)


@needs_triton
def test_floats_of_a_byte_are_multiplied_as_they_are() -> None:
    [kernel] = sources(FLOAT8)
    source = emit_kernel(kernel)
    assert [t for _, t in source.signature] == ["*fp8e4nv", "*fp8e4nv", "*bf16"]
    assert re.search(r" % 512 == \d+:", source.text), "parts of 512 products are added in f32"
    [whole] = sources(FLOAT8.replace("bf16", "f32"))
    assert re.search(r" % 128 == \d+:|max_num_imprecise_acc=128", emit_kernel(whole).text)
    [binary] = compile_kernels([Job(source, (0, 1, 2))], CompileOptions())
    assert "e4m3.e4m3" in binary.ptx and "cp.async.cg" in binary.ptx
    needed = resources(binary)
    assert needed is None or needed.local == 0
    [fast] = sources(FLOAT8, TargetOptions(features="sm_90", precision="fast"))
    assert "part" not in emit_kernel(fast).text
    [*_, older] = sources(FLOAT8, TargetOptions(features="sm_80"))
    assert "fp8" not in str(emit_kernel(older).signature)


@pytest.mark.parametrize(("rows", "columns"), [("512, 1", "1, 256"), ("1, 1", "1, 1")],
                         ids=["of each row", "of a tensor"])
def test_scales_of_floats_of_a_byte_are_in_the_kernel_of_their_product(
    rows: str, columns: str
) -> None:
    [kernel] = sources(f"""
strata.func @main(%a: f8E4M3FN[512, 384], %b: f8E4M3FN[256, 384], %s: f32[{rows}],
    %t: f32[{columns}]) -> (bf16[512, 256]) inputs ["a", "b", "s", "t"] outputs ["y"] {{
  %p = graph.cast %a {{to = f32}} : f32[512, 384]
  %q = graph.cast %b {{to = f32}} : f32[256, 384]
  %c = graph.transpose %q {{perm = [1, 0]}} : f32[384, 256]
  %m = graph.matmul %p, %c : f32[512, 256]
  %u = graph.mul %m, %s : f32[512, 256]
  %v = graph.mul %u, %t : f32[512, 256]
  %y = graph.cast %v {{to = bf16}} : bf16[512, 256]
  strata.return %y
}}""")
    source = emit_kernel(kernel)
    assert [t for _, t in source.signature] == ["*fp8e4nv", "*fp8e4nv", "*fp32", "*fp32", "*bf16"]
    assert "tl.dot" in source.text


@needs_triton
def test_large_tiles_fit_registers_and_copy_asynchronously() -> None:
    [kernel] = sources(product(1536, 2304, 768))
    [binary] = compile_kernels([Job(emit_kernel(kernel), (0, 1, 2, 3))], CompileOptions())
    needed = resources(binary)
    assert "wgmma" in binary.ptx and "cp.async" in binary.ptx
    assert "st.global.v4" in binary.ptx or "cp.async.bulk.tensor.2d.global" in binary.ptx
    assert needed is None or needed.local == 0

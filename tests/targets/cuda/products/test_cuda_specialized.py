"""Products whose factors a warp of their own loads: text, what is refused, code, launches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import exp, log
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.context import make_context
from dialects.loop import KernelOp as LoopKernelOp
from dialects.strata.schedule import Schedule, ScheduleAttr, parse_schedule
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, compile_kernels, resources
from targets.cuda.emit import EmitError, EmitOptions, emit_kernel
from targets.cuda.machine import machine_of
from targets.cuda.planning.plan import planned_kernel
from targets.cuda.planning.program import load_module
from targets.cuda.planning.sources import EmittedSources
from targets.cuda.runtime import driver
from targets.cuda.runtime.variants.variant import job_of_source
from targets.cuda.scheduling.products.rules import candidates
from targets.cuda.scheduling.products.time import Product, ProductTile
from targets.cuda.scheduling.specialized_tiles import specialized_seconds
from tests.lowering import STEPS, lower
from tests.targets.cuda.fakes.fake_driver import FakeDriver

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
SM_90 = TargetOptions(features="sm_90")
TWO = "warps = 8, stages = 4, specialize = 1"
ONE = TWO.replace("8", "4")
NEWLINE = "\n  "
EPILOGUE = """
  %q = graph.add %p, %c : {e}[{m}, {n}]
  %s = graph.tanh %q : {e}[{m}, {n}]
  %y = graph.add %s, %r : {e}[{m}, {n}]"""


def product(
    m: int | str, n: int, k: int, *, element: str = "bf16", right: bool = True, left: bool = False
) -> str:
    """tanh(a @ b + c) + r; `left`, `right`: which factors lie transposed."""
    e, one, other = element, f"{k}, {m}" if left else f"{m}, {k}", f"{k}, {n}"
    lines = [f"%t = graph.transpose %b {{perm = [1, 0]}} : {e}[{k}, {n}]"] if right else []
    lines += [f"%u = graph.transpose %a {{perm = [1, 0]}} : {e}[{m}, {k}]"] if left else []
    a, b = "%u" if left else "%a", "%t" if right else "%b"
    return f"""
strata.func @main(%a: {e}[{one}], %b: {e}[{f"{n}, {k}" if right else other}], %c: {e}[{n}],
    %r: {e}[{m}, {n}]) -> ({e}[{m}, {n}]) inputs ["a", "b", "c", "r"] outputs ["y"] {{
  {NEWLINE.join(lines)}
  %p = graph.matmul {a}, {b} : {e}[{m}, {n}]{EPILOGUE.format(e=e, m=m, n=n)}
  strata.return %y
}}"""


@dataclass
class Lowered:
    """A model of one product, before or behind the pass that schedules it."""

    module: ModuleOp
    context: StrataContext
    kernel: LoopKernelOp
    steps: Sequence[str]

    @staticmethod
    def of(text: str, target: TargetOptions, scheduled: bool = True) -> Lowered:
        middle = STEPS.index("loop-schedule") + scheduled
        context = TARGET.bind(target).context()
        module = Parser(make_context(), text).parse_module()
        for _ in lower(module, context, STEPS[:middle]):
            pass
        [kernel] = [op for op in module.walk() if isinstance(op, LoopKernelOp)]
        return Lowered(module, context, kernel, STEPS[middle:])

    @property
    def schedule(self) -> Schedule:
        assert self.kernel.schedule is not None
        return self.kernel.schedule.data

    def with_schedule(self, schedule: Schedule) -> ModuleOp:
        """At block level."""
        module = self.module.clone()
        [kernel] = [op for op in module.walk() if isinstance(op, LoopKernelOp)]
        kernel.properties["schedule"] = ScheduleAttr(schedule)
        for _ in lower(module, self.context, self.steps):
            pass
        return module


def scheduled(
    text: str, options: str, tile: tuple[int, int, int] = (64, 128, 64)
) -> ModuleOp:
    """A model of one product at block level, in groups' tiles of rows, columns and depth."""
    found = Lowered.of(text, SM_90)
    levels = ", ".join(f"{x.kind} {x.axis} tile {size}"
                       for x, size in zip(found.schedule.levels, tile, strict=True))
    return found.with_schedule(parse_schedule(
        f"<{levels} | dot = 1, tails = mask, strip = 8, {options}>"))


def kernel_of(module: ModuleOp) -> KernelOp:
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)]
    return kernel


def arrays(m: int, n: int, k: int) -> list[Array]:
    random = np.random.default_rng(m + n + k)
    return [random.standard_normal(s).astype(np.float16) for s in ((m, k), (n, k), (n,), (m, n))]


def expected(a: Array, b: Array, c: Array, r: Array) -> Any:
    a, b, c, r = (x.astype(float) for x in (a, b, c, r))
    return np.tanh(a @ b.T + c) + r


# ---------------------------------------------------------------------- text
def test_groups_share_what_is_loaded_of_columns() -> None:
    source = emit_kernel(kernel_of(scheduled(product(1576, 768, 256), TWO)))
    loads, sums = (source.code.split("@gluon.jit")[k] for k in (1, 2))
    assert source.groups == 2 and source.warps == 4
    # 25 tiles of rows are 13 pairs, of which the last has one
    assert "range(tl.program_id(0), 78, tl.num_programs(0))" in loads
    assert re.findall(r"tma_load\((\w+), \[(.*?)\]", loads) == [
        ("a", "64*(2*i0 + 0), i2"), ("a", "64*(2*i0 + 1), i2"), ("b", "128*i1, i2")]
    assert "mbarrier.expect(ready, 32768)" in loads
    assert re.search(r"if \(2\*i0\w* \+ group\) < 25:", sums)
    assert "mbarrier.init(free.index(stage), count=2)" in source.code
    even = emit_kernel(kernel_of(scheduled(product(1536, 768, 256), TWO)))
    assert not re.search(r"if \(2\*i0", even.code)


def test_names_of_a_model_hide_none_of_the_text() -> None:
    text = product(256, 768, 256).replace("%a", "%stage").replace("%b", "%tma").replace(
        "%r", "%gl")
    source = emit_kernel(kernel_of(scheduled(text, TWO)))
    assert [n for n, _ in source.signature] == ["stage_2", "tma_2", "c", "gl_2", "y"]


def test_wide_results_are_stored_in_two_parts() -> None:
    wide = emit_kernel(kernel_of(scheduled(product(256, 768, 256), TWO, (64, 256, 64))))
    assert wide.code.count("tma_store(") == 2
    assert [t.partition("<")[2].partition(",NV")[0] for _, t in wide.signature] == [
        "bf16[64, 64]", "bf16[256, 64]", "", "", "bf16[64, 128]"]


FLOAT8 = """strata.func @main(%a: f8E4M3FN[1024, {k}], %b: f8E4M3FN[1024, {k}])
    -> (bf16[1024, 1024]) inputs ["a", "b"] outputs ["y"] {{
  %p = graph.cast %a {{to = bf16}} : bf16[1024, {k}]
  %q = graph.cast %b {{to = bf16}} : bf16[1024, {k}]
  %t = graph.transpose %q {{perm = [1, 0]}} : bf16[{k}, 1024]
  %y = graph.matmul %p, %t : bf16[1024, 1024]
  strata.return %y
}}"""


@pytest.mark.parametrize(("k", "parts", "steps"), [(2048, 4, 4), (1168, 5, 2), (512, 0, 0)])
def test_sums_of_floats_of_a_byte_are_promoted(k: int, parts: int, steps: int) -> None:
    """In equal parts of at most 512 products; 1168 are ten steps."""
    options, tile = f"{TWO}, promote = 512", (64, 128, 128)
    code = emit_kernel(kernel_of(scheduled(FLOAT8.format(k=k), options, tile))).code
    assert ("sums = sums + part" in code) == bool(parts)
    if parts:
        assert f"in range({parts}):" in code and f"in gl.static_range({steps}):" in code
    with pytest.raises(EmitError, match="cannot be made of steps of 128"):
        emit_kernel(kernel_of(scheduled(FLOAT8.format(k=k), f"{TWO}, promote = 64", tile)))


def test_a_kernel_for_an_interpreter_or_another_vendor_has_the_ordinary_form() -> None:
    kernel = kernel_of(scheduled(product(256, 768, 256), TWO))
    for options in (EmitOptions(interpreted=True), EmitOptions(ptx=False)):
        source = emit_kernel(kernel, options)
        assert "tl.dot(" in source.text and "gluon" not in source.text
        assert source.groups == 0


@pytest.mark.parametrize(("text", "options", "tile", "told"), [
    (product(256, 768, 100), TWO, (64, 128, 32), "tiles of matrices"),
    (product(256, 768, 256), TWO, (32, 128, 64), "64 rows at a time"),
    (product(256, 768, 256), TWO.replace("8", "16"), (64, 128, 64), "consumer warps, not 4"),
], ids=["pitch", "rows", "groups"])
def test_refused(text: str, options: str, tile: tuple[int, int, int], told: str) -> None:
    with pytest.raises(EmitError, match=rf"kernel @\w+.*{told}"):
        emit_kernel(kernel_of(scheduled(text, options, tile)))


def test_what_is_read_twice_is_no_factor() -> None:
    text = product(256, 256, 256).replace("%s, %r", "%s, %a")
    with pytest.raises(EmitError, match="nothing else reads"):
        emit_kernel(kernel_of(scheduled(text, TWO)))


# ---------------------------------------------------------------------- code
@needs_triton
@pytest.mark.parametrize(("text", "options", "tile"), [
    (product(1576, 3072, 768), TWO, (64, 128, 64)),
    (product("m", 3072, 768, right=False), TWO, (64, 256, 64)),
    (product(1576, 3072, 768, left=True), TWO.replace("4", "3"), (128, 128, 64)),
    (product(200, 136, 1000, element="f16"), TWO, (64, 64, 64)),
    (product(1824, 1664, 3520), TWO.replace("8", "12"), (64, 128, 64)),
    (product(200, 136, 1000), ONE, (64, 64, 128)),
    (FLOAT8.format(k=2048), f"{TWO}, promote = 512", (64, 128, 128)),
], ids=["two", "open", "left", "halves", "three", "one", "promoted"])
def test_code_keeps_sums_in_registers(text: str, options: str, tile: tuple[int, int, int]) -> None:
    kernel = kernel_of(scheduled(text, options, tile))
    planned = planned_kernel(kernel)
    source = EmittedSources(CompileOptions()).source(planned, False)
    job = job_of_source((planned, frozenset(), False), source)
    [binary] = compile_kernels([job], CompileOptions())
    groups = int(options.split()[2].rstrip(",")) // 4
    assert binary.warps == 4 * (groups + 1) and binary.shared <= 227 << 10
    assert [d.place for d in binary.descriptors] == [0, 1, len(kernel.buffers) - 1]
    assert binary.parameters[:5] == (128, 4, 4, 8, 8)
    assert "wgmma.mma_async" in binary.ptx and "cp.async.bulk.tensor.2d" in binary.ptx
    assert "setmaxnreg.inc" in binary.ptx
    needed = resources(binary)
    assert needed is None or needed.local == 0


# ---------------------------------------------------------------------- launches
def test_programs_stay() -> None:
    kernel = kernel_of(scheduled(product(1576, 768, 256), TWO))
    source = emit_kernel(kernel)
    assert source.programs([25, 6], 132) == 78
    assert replace(source, groups=1).programs([25, 6], 132) == 132
    assert source.programs([3, 1, 5], 132) == 15


def test_maps_follow_the_callers_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = scheduled(product("m", 136, 72, element="f16"), TWO)
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = load_module(module, WeightStore(), CompileOptions())
    for m in (200, 200, 70):
        inputs = arrays(m, 136, 72)
        [found] = executable.run(inputs)
        np.testing.assert_allclose(found.astype(float), expected(*inputs), rtol=1e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k", "options", "tile"), [
    (1576, 768, 768, TWO, (64, 256, 64)), (1576, 776, 520, TWO.replace("4", "3"), (128, 128, 64)),
    (200, 136, 1000, ONE, (64, 64, 128)),
    (1000, 776, 520, TWO, (64, 64, 64)),
])
def test_numbers(m: int, n: int, k: int, options: str, tile: tuple[int, int, int]) -> None:
    if driver.capability() != "sm_90":
        pytest.skip("needs a Hopper GPU")
    module = scheduled(product(m, n, k, element="f16"), options, tile)
    executable = TARGET.bind(TargetOptions()).running.load(module, WeightStore())
    inputs = arrays(m, n, k)
    for _ in range(2):
        [found] = executable.run(inputs)
        np.testing.assert_allclose(found.astype(float), expected(*inputs), rtol=1e-2, atol=2e-2)


# ---------------------------------------------------------------------- rules
def test_large_products_have_a_warp_that_loads() -> None:
    """8192 x 4096 x 1024 on an H200: 114 us without, 99 us with it."""
    found = Lowered.of(product(8192, 4096, 1024), SM_90).schedule
    assert [x.tile for x in found.levels] == [64, 256, 64] and found.given("warps") == 8
    assert found.given("specialize") == 1
    small = Lowered.of(product(256, 768, 768), SM_90).schedule
    assert not small.given("specialize")


PART = """
strata.func @main(%a: bf16[4096, 4096], %b: bf16[4096, 4096]) -> (bf16[4096, 4096])
    inputs ["a", "b"] outputs ["y"] {
  %l = graph.slice %a {starts = [0, 0], sizes = [4096, 4000], steps = [1, 1]} : bf16[4096, 4000]
  %r = graph.slice %b {starts = [0, 0], sizes = [4000, 4096], steps = [1, 1]} : bf16[4000, 4096]
  %y = graph.matmul %l, %r : bf16[4096, 4096]
  strata.return %y
}"""
"""Columns and rows behind those that are summed must not be."""


@pytest.mark.parametrize(("text", "options"), [
    (product(8192, 4096, 1028), {}), (product(8192, 4096, 1024), {"features": "sm_80"}),
    (product(8192, 4096, 1024), {"features": "sm_100"}),
    (product(8192, 4096, 1024, element="f32"), {}),
    (product(8192, 4096, 1024), {"interpret": True}),
    (product(4096, 4096, 4096).replace("%s, %r", "%s, %a"), {}), (PART, {}),
], ids=["pitch", "Ampere", "Blackwell", "f32", "interpreter", "read twice", "part of a sum"])
def test_where_none_is_offered(text: str, options: dict[str, Any]) -> None:
    target = TargetOptions(**{"features": "sm_90"} | options)
    kernel = Lowered.of(text, target, scheduled=False).kernel
    assert not [s for s in candidates(kernel, target) if s.given("specialize")]


def test_candidates_of_the_tuner_are_emitted() -> None:
    """Whatever has such a warp, and of others the first ones."""
    found = Lowered.of(product(4096, 4096, 4096, right=False), SM_90)
    tried = [s for s in TARGET.bind(SM_90).scheduling.candidates(found.kernel, found.schedule)
             if s.given("specialize")]
    assert len(tried) > 5
    for schedule in tried:
        assert "warpgroup_mma" in emit_kernel(kernel_of(found.with_schedule(schedule))).code


def test_its_model_prefers_the_fastest_of_measured_tiles() -> None:
    """Microseconds on an H200 (Triton 3.6), between events and from cold caches; see
    `specialized_tiles.py`. Rows, columns and depth of groups' tiles, stages, groups."""
    machine, losses = machine_of("sm_90"), list[float]()
    for (rows, columns, depth, width), times in MEASURED.items():
        made = Product(1, rows, columns, depth, width, 2, depth, copied=True)
        tiles = {ProductTile(r, c, d, 4 * g, s, g): t for (r, c, d, s, g), t in times.items()}
        by_model = {t: specialized_seconds(made, t, machine) * 1e6 for t in tiles}
        for tile, taken in tiles.items():
            assert 0.8 < by_model[tile] / taken < 1.25, (rows, columns, depth, tile)
        losses.append(log(tiles[min(tiles, key=by_model.__getitem__)] / min(tiles.values())))
    assert exp(sum(losses) / len(losses)) < 1.03


MEASURED = {
    (1576, 3072, 768, 2): {
        (64, 128, 64, 6, 2): 19.97, (64, 128, 128, 4, 1): 20.0, (64, 64, 64, 8, 2): 20.32,
        (64, 256, 64, 4, 1): 20.58, (64, 64, 128, 6, 1): 21.46, (64, 256, 64, 4, 2): 23.28,
        (64, 64, 64, 8, 1): 25.14, (128, 128, 64, 3, 2): 25.5},
    (1576, 768, 3072, 2): {
        (64, 128, 64, 6, 2): 22.14, (64, 256, 64, 4, 1): 24.24, (64, 128, 128, 4, 1): 24.82,
        (64, 64, 128, 6, 1): 25.71, (64, 64, 64, 8, 2): 27.04, (64, 256, 64, 4, 2): 35.17},
    (8192, 4096, 1024, 2): {
        (64, 256, 64, 3, 2): 99.17, (64, 256, 64, 4, 2): 99.71, (128, 128, 64, 5, 1): 102.46,
        (64, 128, 64, 6, 2): 102.66, (64, 256, 64, 4, 1): 105.76, (128, 128, 64, 3, 2): 106.43},
    (4096, 4096, 4096, 2): {
        (64, 256, 64, 4, 2): 181.95, (64, 256, 64, 3, 2): 184.34, (64, 128, 64, 6, 2): 188.85,
        (128, 128, 64, 3, 2): 199.57, (64, 256, 64, 4, 1): 205.62},
    (4096, 4096, 4096, 1): {
        (64, 256, 128, 4, 2): 97.2, (64, 128, 128, 6, 2): 99.39, (128, 128, 128, 3, 2): 105.63},
}

"""Products whose factors a warp of their own loads: text, what is refused, code, launches."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.context import make_context
from dialects.loop import KernelOp as LoopKernelOp
from dialects.schedule import ScheduleAttr, parse_schedule
from dialects.types import Array
from dialects.weights import WeightStore
from passes.base import StrataContext
from targets.base import TargetOptions
from targets.cuda import TARGET, driver
from targets.cuda.compile import CompileOptions, compile_kernels, resources
from targets.cuda.emit import EmitError, EmitOptions, emit_kernel
from targets.cuda.emit.specialized import programs_of
from targets.cuda.kernels import job_of
from targets.cuda.launch import CudaExecutable
from tests.lowering import STEPS, lower
from tests.targets.cuda.fake_driver import FakeDriver

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
SHARE = "warps = 8, stages = 4, specialize = share"
TURNS = "warps = 8, stages = 4, specialize = turns"
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


def scheduled(
    text: str, options: str, tile: tuple[int, int, int] = (64, 128, 64),
    target: TargetOptions | None = None,
) -> ModuleOp:
    """A model of one product at block level, in groups' tiles of rows, columns and depth."""
    middle = STEPS.index("loop-schedule") + 1
    target = target or TargetOptions(features="sm_90")
    context = StrataContext.with_dialects(WeightStore(), TARGET, target)
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, context, STEPS[:middle]):
        pass
    [kernel] = [op for op in module.walk() if isinstance(op, LoopKernelOp)]
    assert kernel.schedule is not None
    kinds = [x.kind for x in kernel.schedule.data.levels]
    levels = ", ".join(f"{kind} {axis} tile {size}" for kind, axis, size in zip(
        kinds, kernel.axes, tile, strict=True))
    kernel.properties["schedule"] = ScheduleAttr(parse_schedule(
        f"<{levels} | dot = 1, tails = mask, strip = 8, {options}>"))
    for _ in lower(module, context, STEPS[middle:]):
        pass
    return module


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
    source = emit_kernel(kernel_of(scheduled(product(1576, 768, 256), SHARE)))
    loads, sums = (source.code.split("@gluon.jit")[k] for k in (1, 2))
    assert source.together == 2 and source.warps == 4
    # 25 tiles of rows are 13 pairs, of which the last has one
    assert "range(tl.program_id(0), 78, tl.num_programs(0))" in loads
    assert re.findall(r"tma_load\((\w+), \[(.*?)\]", loads) == [
        ("a", "64*(2*i0 + 0), i2"), ("a", "64*(2*i0 + 1), i2"), ("b", "128*i1, i2")]
    assert "mbarrier.expect(ready, 32768)" in loads
    assert re.search(r"if \(2\*i0\w* \+ group\) < 25:", sums)
    assert "mbarrier.init(free.index(k), count=2)" in source.code
    even = emit_kernel(kernel_of(scheduled(product(1536, 768, 256), SHARE)))
    assert not re.search(r"if \(2\*i0", even.code)


def test_groups_take_turns() -> None:
    source = emit_kernel(kernel_of(scheduled(product(1576, 768, 256), TURNS)))
    assert source.together == 1
    assert ("range(tl.program_id(0) + group*tl.num_programs(0), 150, 2*tl.num_programs(0))"
            in source.code)
    assert "mbarrier.wait(turn.index(group), parity)" in source.code
    assert "mbarrier.arrive(turn.index((group + 1) % 2))" in source.code
    assert len(re.findall(r"tma_load\(\w+, ", source.code)) == 2


def test_wide_results_are_stored_in_two_parts() -> None:
    wide = emit_kernel(kernel_of(scheduled(product(256, 768, 256), SHARE, (64, 256, 64))))
    assert wide.code.count("tma_store(") == 2
    assert [t.partition("<")[2].partition(",NV")[0] for _, t in wide.signature] == [
        "bf16[64, 64]", "bf16[256, 64]", "", "", "bf16[64, 128]"]


def test_a_kernel_for_an_interpreter_or_another_vendor_has_the_ordinary_form() -> None:
    kernel = kernel_of(scheduled(product(256, 768, 256), SHARE))
    for options in (EmitOptions(interpreted=True), EmitOptions(ptx=False)):
        source = emit_kernel(kernel, options)
        assert "tl.dot(" in source.text and "gluon" not in source.text
        assert source.together == 0


@pytest.mark.parametrize(("text", "options", "tile", "told"), [
    (product(256, 768, 100), SHARE, (64, 128, 32), "tiles of matrices"),
    (product(256, 768, 256), SHARE, (32, 128, 64), "64 rows at a time"),
    (product(256, 768, 256), SHARE.replace("8", "16"), (64, 128, 64), "of 4 groups"),
    (product(256, 768, 256), SHARE.replace("share", "all"), (64, 128, 64), "share and turns"),
], ids=["pitch", "rows", "groups", "name"])
def test_refused(text: str, options: str, tile: tuple[int, int, int], told: str) -> None:
    with pytest.raises(EmitError, match=rf"kernel @\w+.*{told}"):
        emit_kernel(kernel_of(scheduled(text, options, tile)))


def test_what_is_read_twice_is_no_factor() -> None:
    text = product(256, 256, 256).replace("%s, %r", "%s, %a")
    with pytest.raises(EmitError, match="nothing else reads"):
        emit_kernel(kernel_of(scheduled(text, SHARE)))


# ---------------------------------------------------------------------- code
@needs_triton
@pytest.mark.parametrize(("text", "options", "tile"), [
    (product(1576, 3072, 768), SHARE, (64, 128, 64)),
    (product("m", 3072, 768, right=False), SHARE, (64, 256, 64)),
    (product(1576, 3072, 768, left=True), TURNS, (128, 128, 64)),
    (product(200, 136, 1000, element="f16"), SHARE.replace("8", "12"), (64, 64, 64)),
    (product(200, 136, 1000), SHARE.replace("8", "4"), (64, 64, 128)),
], ids=["share", "open", "turns", "three", "one"])
def test_code_keeps_sums_in_registers(text: str, options: str, tile: tuple[int, int, int]) -> None:
    kernel = kernel_of(scheduled(text, options, tile))
    [binary] = compile_kernels([job_of((kernel, frozenset(), False), exact=False)],
                               CompileOptions())
    groups = int(options.split()[2].rstrip(",")) // 4
    assert binary.warps == 4 * (groups + 1) and binary.shared <= 227 << 10
    assert [d.place for d in binary.descriptors] == [0, 1, 4]
    assert binary.parameters[:5] == (128, 4, 4, 8, 8)
    assert "wgmma.mma_async" in binary.ptx and "cp.async.bulk.tensor.2d" in binary.ptx
    assert "setmaxnreg.inc" in binary.ptx
    needed = resources(binary)
    assert needed is None or needed.local == 0


# ---------------------------------------------------------------------- launches
def test_programs_stay() -> None:
    assert programs_of([25, 6], 2, 132) == 78
    assert programs_of([25, 6], 1, 132) == 132
    assert programs_of([3, 1, 5], 2, 132) == 15


def test_maps_follow_the_callers_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = scheduled(product("m", 136, 72, element="f16"), SHARE)
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = CudaExecutable(module, WeightStore(), CompileOptions())
    for m in (200, 200, 70):
        inputs = arrays(m, 136, 72)
        [found] = executable.run(inputs)
        np.testing.assert_allclose(found.astype(float), expected(*inputs), rtol=1e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "k", "options", "tile"), [
    (1576, 768, 768, SHARE, (64, 256, 64)), (1576, 776, 520, TURNS, (128, 128, 64)),
    (200, 136, 1000, SHARE.replace("8", "4"), (64, 64, 128)),
    (1000, 776, 520, TURNS.replace("4", "5"), (64, 128, 64)),
    (1000, 776, 520, SHARE.replace("8", "12"), (64, 64, 64)),
])
def test_numbers(m: int, n: int, k: int, options: str, tile: tuple[int, int, int]) -> None:
    if driver.capability() != "sm_90":
        pytest.skip("needs a Hopper GPU")
    module = scheduled(product(m, n, k, element="f16"), options, tile)
    executable = TARGET.load(module, WeightStore(), TargetOptions())
    inputs = arrays(m, n, k)
    for _ in range(2):
        [found] = executable.run(inputs)
        np.testing.assert_allclose(found.astype(float), expected(*inputs), rtol=1e-2, atol=2e-2)

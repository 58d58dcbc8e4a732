"""Schedules: what each target's rules choose, and what the lowering refuses."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from passes.base import PassError, StrataContext
from targets.base import TargetOptions, find_target
from targets.reference.interpret import interpret
from tests.passes.harness import parse, run_passes

TO_SCHEDULE = ("graph-decompose,graph-to-loop,loop-fuse,loop-assign-layouts,loop-outline,"
               "loop-collapse-axes,loop-prepare-kernels,loop-pack-operands,loop-schedule")

MATMUL = ("%a: f32[m, 96], %b: f32[96, 128]", "f32[m, 128]",
          "%y = graph.matmul %a, %b : f32[m, 128]")
SOFTMAX = ("%x: f32[rows, 1000]", "f32[rows, 1000]",
           "%y = graph.softmax %x {axis = 1} : f32[rows, 1000]")
ROWS = ("%x: f32[4096, 1000]", "f32[4096]",
        "%y = graph.reduce_sum %x {axes = [1], keepdims = false} : f32[4096]")
SHORT_ROWS, FEW_ROWS = ((f"%x: f32[{n}, 16]", f"f32[{n}]",
                         f"%y = graph.reduce_sum %x {{axes = [1], keepdims = false}} : f32[{n}]")
                        for n in (4096, 60))
LARGE = ("%x: f32[99999, 1000]", "f32[99999, 1000]", "%y = graph.exp %x : f32[99999, 1000]")
COLUMNS = ("%x: f32[64, n]", "f32[n]",
           "%y = graph.reduce_sum %x {axes = [0], keepdims = false} : f32[n]")
LONG_ROWS, UNEVEN_ROWS = ((f"%x: bf16[4096, {n}]", f"bf16[4096, {n}]",
                           f"%y = graph.softmax %x {{axis = 1}} : bf16[4096, {n}]")
                          for n in (50256, 197))
TURNED, FEW_TURNED = ((f"%x: bf16[{n}, 4096]", f"bf16[4096, {n}]",
                       f"%y = graph.transpose %x {{perm = [1, 0]}} : bf16[4096, {n}]")
                      for n in (8192, 64))
SCALED = ("%x: f32[500, 3000], %s: f32[500, 1]", "f32[500, 3000]",
          "%y = graph.mul %x, %s : f32[500, 3000]")
EXP = ("%x: f32[n, 8]", "f32[n, 8]", "%y = graph.exp %x : f32[n, 8]")
SCALAR = ("%x: f32[]", "f32[]", "%y = graph.exp %x : f32[]")
EMPTY = ("%x: f32[3, 0]", "f32[3, 0]", "%y = graph.exp %x : f32[3, 0]")


def scheduled(model: tuple[str, str, str], target: str, features: str | None) -> list[str]:
    """The schedules of a model's kernels."""
    arguments, result, body = model
    names = ", ".join(f'"{a.split(":")[0]}"' for a in arguments.split("%")[1:])
    text = (f"builtin.module {{ strata.func @main({arguments}) -> ({result}) inputs [{names}] "
            f'outputs ["y"] {{ {body} strata.return %y }} }}')
    context = find_target(target).bind(TargetOptions(features=features)).context()
    module = parse(text, context)
    run_passes(module, TO_SCHEDULE, context)
    return [str(k.schedule.data) for k in kernels(module) if k.schedule is not None]


def kernels(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


@pytest.mark.parametrize(("model", "wanted"), [
    (MATMUL, "<grid i1 tile 16 lanes, loop i0 tile 6, loop i2 tile 1 unroll 4>"),
    (SOFTMAX, "<grid i0 tile 1, loop i1 tile 32 lanes | keep = 8>"),
    (ROWS, "<grid i0 tile 1, loop i1 tile 32 lanes>"),
    (SHORT_ROWS, "<grid i0 tile 4, loop i1 tile 16 lanes>"),
    (FEW_ROWS, "<grid i0 tile 1, loop i1 tile 16 lanes>"),
    (LARGE, "<grid i0 tile 4096, loop i0 tile 32 lanes | stream = 1>"),
    (COLUMNS, "<grid i0 tile 32 lanes, loop i1 tile 32 partial, loop i1 tile 1>"),
    (EXP, "<grid i0 tile 4096, loop i0 tile 32 lanes>"),
    (SCALAR, "<>"),
    (EMPTY, "<loop i0 tile 1 lanes>"),
], ids=["matmul", "softmax", "rows", "short rows", "few rows", "large", "columns", "exp", "scalar",
        "empty"])
def test_cpu_schedules(model: tuple[str, str, str], wanted: str) -> None:
    assert scheduled(model, "cpu", "avx2") == [wanted]


@pytest.mark.parametrize(("model", "wanted"), [
    (MATMUL, "<grid i0 tile 16, grid i1 tile 64, loop i2 tile 16 | dot = 1, tails = peel, "
             "warps = 4, stages = 6, precision = f32>"),
    (SOFTMAX, "<grid i0 tile 4, whole i1 tile 1024 | tails = mask, warps = 4>"),
    (ROWS, "<grid i0 tile 2, whole i1 tile 1024 | tails = mask, warps = 4>"),
    (SHORT_ROWS, "<grid i0 tile 32, whole i1 tile 16 | tails = mask, warps = 4>"),
    (LONG_ROWS, "<grid i0 tile 1, loop i1 tile 16384 | tails = mask, warps = 32>"),
    (UNEVEN_ROWS, "<grid i0 tile 2, whole i1 tile 256 | tails = mask, warps = 1>"),
    (COLUMNS, "<grid i0 tile 64, loop i1 tile 16 | tails = mask, warps = 4>"),
    (TURNED, "<grid i0 tile 128, grid i1 tile 128 | tails = mask, warps = 8>"),
    (FEW_TURNED, "<grid i0 tile 32, grid i1 tile 32 | tails = mask, warps = 4>"),
    (SCALED, "<grid i0 tile 1, grid i1 tile 1024 | tails = mask, warps = 4>"),
    (EXP, "<grid i0 tile 1024 | tails = mask, warps = 4>"),
    (SCALAR, "< | tails = mask, warps = 4>"),
    (EMPTY, "<grid i0 tile 1 | tails = mask, warps = 4>"),
], ids=["matmul", "softmax", "rows", "short rows", "long rows", "uneven rows", "columns", "turned",
        "few turned", "scaled", "exp", "scalar", "empty"])
def test_cuda_schedules(model: tuple[str, str, str], wanted: str) -> None:
    assert scheduled(model, "cuda", "sm_90") == [wanted]


# ---------------------------------------------------------------------- what does not fit
def lower_sum(schedule: str) -> ModuleOp:
    """A kernel that sums rows of 40, lowered by a schedule."""
    context = StrataContext.with_dialects()
    module = parse(f"""builtin.module {{
      loop.kernel @sum(%x: f32[n, 40]) -> (f32[n]) sizes(n) {schedule} {{
        %s = loop.nest (i0: n, reduce i1: 40) ins(%x[i0, i1]) outs(add f32[n][i0]) {{
        ^bb0(%p: f32):
          loop.yield %p
        }}
        loop.yield %s
      }}
    }}""", context)
    run_passes(module, "loop-to-block", context)
    return module


@pytest.mark.parametrize(("schedule", "fault"), [
    ("", "it has none"),
    ("schedule<grid i0 tile 1>", "does not place axes i1"),
    ("schedule<grid i0 tile 1, loop i1 tile 1, loop i7 tile 1>", "names unknown axes i7"),
    ("schedule<loop i1 tile 1, grid i0 tile 1>", "grid levels must come before all others"),
    ("schedule<grid i0 tile 8, grid i0 tile 1, loop i1 tile 1>", "axis i0 has two grid levels"),
    ("schedule<loop i0 tile 8 lanes, loop i1 tile 8 lanes>", "only one axis can lie in lanes"),
    ("schedule<loop i0 tile 0, loop i1 tile 8>", "must be at least 1"),
    ("schedule<grid i0 tile 1, whole i1 tile 32>", "a tile of 32 does not hold axis i1 of 40"),
    ("schedule<whole i0 tile 64, loop i1 tile 32>", "a tile of 64 does not hold axis i0 of n"),
    ("schedule<loop i0 tile 1, whole i1 tile 64, loop i1 tile 8>", "further levels inside"),
    ("schedule<grid i0 tile 1, grid i1 tile 8>", "axis i1 is summed over"),
    ("schedule<loop i1 tile 8, loop i0 tile 4>", "axis i0 is inside the loop over i1"),
    ("schedule<grid i0 tile 4 unroll 2, loop i1 tile 8>", "tile of 4, of which 2 are unrolled"),
    ("schedule<grid i0 tile 4 unroll 4, loop i1 tile 8>", "a tile of 4 does not divide it"),
    ("schedule<grid i0 tile 4 unroll 4, loop i0 tile 2, loop i1 tile 8>", "cannot have further"),
])
def test_a_schedule_that_does_not_fit_is_refused(schedule: str, fault: str) -> None:
    with pytest.raises(PassError, match=rf"the schedule of kernel @sum: [\s\S]*{fault}"):
        lower_sum(schedule)


@pytest.mark.parametrize(("at", "schedule", "fault"), [
    ("i2", "<grid i1 tile 8, loop i0 tile 1, loop i2 tile 8>", "axis i1 is a grid level, but"),
    ("39 - i1", "<grid i0 tile 1, loop i1 tile 8>", "a nest walks axis i1, but reads"),
])
def test_what_is_read_elsewhere_must_be_there(at: str, schedule: str, fault: str) -> None:
    """Rows are squared, and copied from where they are kept."""
    context = StrataContext.with_dialects()
    axis = at[-2:]
    module = parse(f"""builtin.module {{
      loop.kernel @square(%x: f32[n, 40]) -> (f32[n, 40]) sizes(n) schedule{schedule} {{
        %s = loop.nest (i0: n, i1: 40) ins(%x[i0, i1]) outs(f32[n, 40][i0, i1]) {{
        ^bb0(%p: f32):
          %q = arith.mulf %p, %p : f32
          loop.yield %q
        }}
        %y = loop.nest (i0: n, {axis}: 40) ins(%s[i0, {at}]) outs(f32[n, 40][i0, {axis}]) {{
        ^bb0(%p: f32):
          loop.yield %p
        }}
        loop.yield %y
      }}
    }}""", context)
    with pytest.raises(PassError, match=rf"the schedule of kernel @square: {fault}"):
        run_passes(module, "loop-to-block", context)


def test_a_schedule_that_fits_is_lowered() -> None:
    module = lower_sum("schedule<grid i0 tile 64, loop i0 tile 4, whole i1 tile 64>")
    assert not kernels(module)


def test_softmax_in_parts_of_rows_with_infinities() -> None:
    """Parts, and rows, of nothing but -inf; a row with +inf; a NaN."""
    x = np.random.default_rng(0).standard_normal((5, 1 << 15)).astype(np.float32)
    x[0, :20000], x[1], x[2, 7], x[3, 9] = -np.inf, -np.inf, np.inf, np.nan
    text = """strata.func @main(%x: f32[5, 32768]) -> (f32[5, 32768]) inputs ["x"] outputs ["y"] {
      %y = graph.softmax %x {axis = 1} : f32[5, 32768]
      strata.return %y
    }"""
    context = find_target("cuda").bind(TargetOptions(features="sm_90")).context()
    module = parse(text, context)
    [before] = interpret(module, context.weights, [x])
    after = run_passes(
        module, "graph-decompose,graph-to-loop,loop-fuse,loop-split-reductions", context)
    assert after.count("reduce i2_part") == 2 and np.isnan(before).any(1).tolist() == [
        False, True, True, True, False]
    [after] = interpret(module, context.weights, [x])
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-9)

"""Attention whose factors a warp of its own loads: text, what is refused, code, numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.block import KernelOp
from dialects.host.interpret import interpret_host
from dialects.loop import KernelOp as LoopKernelOp
from dialects.strata.schedule import Level, Schedule, ScheduleAttr, parse_schedule
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from dialects.symbolic.symbol import Symbol
from passes.base import StrataContext
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, compile_kernels, resources
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import EmitError, EmitOptions, emit_kernel
from targets.cuda.planning.plan import planned_kernel
from targets.cuda.planning.program import load_module
from targets.cuda.planning.sources import EmittedSources
from targets.cuda.runtime import driver
from targets.cuda.runtime.variants.variant import job_of_source
from targets.cuda.scheduling.attention import candidates
from tests.lowering import STEPS, lower
from tests.targets.cuda.attention.attention_models import Model
from tests.targets.cuda.attention.test_cuda_attention import assert_close
from tests.targets.cuda.fakes.fake_driver import FakeDriver

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
SM_90 = TargetOptions(features="sm_90")
CAUSAL = Model(2, 256, 256, 128, 128, "causal", "bf16")
MODELS = [
    Model(2, 256, 512, 64, 64),
    Model(3, 129, 300, 64, 128, element="bf16"),
    Model(2, 200, 200, 128, 128, "causal", "bf16"),
    Model(1, 192, 384, 128, 64, "causal", offset=100),
    Model(1, 140, 140, 64, 64, "causal", offset=-70),
    Model(1, 300, 130, 64, 64, "lower"),
    Model(3, 129, 200, 64, 64, open_sizes=True),
]
each_model = pytest.mark.parametrize("model", MODELS, ids=[m.name for m in MODELS])


def before_blocks(model: Model) -> tuple[ModuleOp, StrataContext, LoopKernelOp]:
    """A model behind the pass that schedules it."""
    module, store = model.module()
    context = TARGET.bind(SM_90).context(store)
    for _ in lower(module, context, STEPS[:STEPS.index("loop-schedule") + 1]):
        pass
    [kernel] = [op for op in module.walk() if isinstance(op, LoopKernelOp)]
    return module, context, kernel


def schedule_of(around: Schedule, rows: int, keys: int, warps: int, stages: int) -> Schedule:
    """With a warp that loads, in tiles of so many rows and keys."""
    *others, row = [x for x in around.levels if x.kind == "grid"]
    levels = [*others, Level("grid", row.axis, rows),
              *(x for x in around.levels if x.kind == "whole"),
              *(Level("loop", x.axis, keys) for x in around.levels if x.kind == "loop")]
    text = ", ".join(map(str, levels))
    return parse_schedule(f"<{text} | online = 1, dot = 1, tails = mask, branch = 1, warps = "
                          f"{warps}, stages = {stages}, specialize = 1>")


def scheduled(
    model: Model, *, rows: int = 64, keys: int = 64, warps: int = 8, stages: int = 2
) -> tuple[ModuleOp, WeightStore]:
    """A model at block level, with a warp that loads."""
    module, context, kernel = before_blocks(model)
    assert kernel.schedule is not None
    chosen = schedule_of(kernel.schedule.data, rows, keys, warps, stages)
    kernel.properties["schedule"] = ScheduleAttr(chosen)
    for _ in lower(module, context, STEPS[STEPS.index("loop-schedule") + 1:]):
        pass
    return module, context.weights


def kernel_of(module: ModuleOp) -> KernelOp:
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)]
    return kernel


# ---------------------------------------------------------------------- text
def test_groups_share_keys_and_values() -> None:
    source = emit_kernel(kernel_of(scheduled(CAUSAL, keys=128)[0]))
    loads, sums = (source.code.split("@gluon.jit")[k] for k in (1, 2))
    assert source.groups == 2 and source.row_axis == 1
    assert re.findall(r"tma_load\((\w+), \[(.*?)\]", loads) == [
        ("b0", "i0, 64*(2*i1 + 0), 0"), ("b0", "i0, 64*(2*i1 + 1), 0"), ("b1", "i0, i3, 0"),
        ("b2", "i0, i3, 0")]
    end = "tl.maximum(64*(2*i1 + 0) + 64, 64*(2*i1 + 1) + 64), 128):"
    assert f"in range(0, {end}" in loads
    assert f"in range(128, {end}" in re.sub(r"(i1)_\d", r"\1", sums)
    assert sums.count("warpgroup_mma(") == 4, "first scores; further ones; weights, and the last"


def test_weights_are_computed_while_products_run() -> None:
    """The assembler moves no arithmetic behind a wait at a barrier."""
    code = emit_kernel(kernel_of(scheduled(CAUSAL)[0])).code
    step = code.partition("is_async=True)\n            mbarrier.wait(value_full")[2]
    places = [step.index(text) for text in (
        "warpgroup_mma_wait(1", "tl.exp2(", "gl.convert_layout(", "mbarrier.wait(value_full",
        "warpgroup_mma_wait(0", "mbarrier.arrive(value_free")]
    assert places == sorted(places)


def test_programs_stay_where_all_take_the_same_time() -> None:
    plain = emit_kernel(kernel_of(scheduled(MODELS[0])[0]))
    assert plain.stays and plain.programs([2, 4], 3) == 3 and plain.programs([2, 3], 132) == 4
    module, _ = Model(32, 1024, 1024, 128, 128, "causal").lowered(SM_90)
    chosen = emit_kernel(kernel_of(module))
    assert not chosen.stays and chosen.programs([32, 16], 132) == 32 * 8
    assert "tl.num_programs" not in chosen.code


def test_rows_that_see_nothing_have_a_step() -> None:
    code = emit_kernel(kernel_of(scheduled(MODELS[4])[0])).code
    assert re.search(r"range\(0, tl\.maximum\(.*, 1\), 64\)", code)


def test_a_kernel_for_an_interpreter_has_the_ordinary_form() -> None:
    source = emit_kernel(kernel_of(scheduled(CAUSAL)[0]), EmitOptions(interpreted=True))
    assert "tl.dot(" in source.text and "gluon" not in source.text


@pytest.mark.parametrize(("model", "rows", "told"), [
    (CAUSAL, 32, "tiles of 64 rows, not 32"),
    (Model(2, 256, 256, 64, 64, "add"), 64, "a kernel without block.load"),
    (Model(2, 256, 256, 64, 64, "keep"), 64, "a kernel without block.load"),
    (Model(2, 256, 256, 20, 64), 64, "padded with zeros"),
    (Model(2, 256, 256, 64, 64, element="f32"), 64, "16-bit floats"),
], ids=["rows", "numbers", "truth values", "pitch", "f32"])
def test_refused(model: Model, rows: int, told: str) -> None:
    with pytest.raises(EmitError, match=rf"kernel @\w+.*{told}"):
        emit_kernel(kernel_of(scheduled(model, rows=rows)[0]))


# ---------------------------------------------------------------------- meaning
@each_model
def test_tiles_and_their_meaning(model: Model) -> None:
    module, store = scheduled(model)
    [found] = interpret_host(module, model.inputs, store)
    assert_close(model, found)


@needs_triton
@pytest.mark.parametrize("model", MODELS[1:6], ids=[m.name for m in MODELS[1:6]])
def test_triton_source(model: Model) -> None:
    """The ordinary form, whose selections are in branches."""
    interpreter = Interpreter()

    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        assert " if " in emit_kernel(kernel, EmitOptions(interpreted=True)).code
        interpreter.run(kernel, buffers, sizes)

    module, store = scheduled(model)
    [found] = interpret_host(module, model.inputs, store, run)
    assert_close(model, found)


def test_maps_follow_the_callers_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(2, 130, 140, 64, 64, open_sizes=True)
    module, store = scheduled(model)
    device = FakeDriver.of(module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    executable = load_module(module, store, CompileOptions())
    for _ in range(2):
        [found] = executable.run(model.inputs)
        assert_close(model, found)


# ---------------------------------------------------------------------- code
@needs_triton
@pytest.mark.parametrize("model", [
    Model(64, 1024, 1024, 128, 128, "causal", "bf16"), Model(64, 1000, 1000, 128, 128),
    Model(64, 1000, 1000, 128, 128, "causal")], ids=["causal", "ragged", "both"])
def test_code_keeps_sums_in_registers(model: Model) -> None:
    """As rules have it."""
    kernel = kernel_of(model.lowered(SM_90)[0])
    planned = planned_kernel(kernel)
    source = EmittedSources(CompileOptions()).source(planned, False)
    job = job_of_source((planned, frozenset(), False), source)
    [binary] = compile_kernels([job], CompileOptions())
    assert binary.warps == 12 and binary.shared <= 227 << 10
    assert [d.place for d in binary.descriptors] == [0, 1, 2, 3]
    assert binary.parameters[:7] == (128, 4, 4, 4, 8, 8, 8)
    assert "cp.async.bulk.tensor.3d" in binary.ptx and "setmaxnreg.inc" in binary.ptx
    needed = resources(binary)
    assert needed is None or needed.local == 0


# ---------------------------------------------------------------------- numbers
def on_hopper(module: ModuleOp, store: WeightStore, inputs: Sequence[Array]) -> Array:
    if driver.capability() != "sm_90":
        pytest.skip("needs a Hopper GPU")
    executable = TARGET.bind(TargetOptions()).running.load(module, store)
    executable.run(inputs)
    return executable.run(inputs)[0]


@pytest.mark.gpu
@pytest.mark.parametrize(("keys", "warps", "stages"), [(64, 8, 3), (128, 8, 2), (64, 4, 2)])
@each_model
def test_numbers(model: Model, keys: int, warps: int, stages: int) -> None:
    module, store = scheduled(model, keys=keys, warps=warps, stages=stages)
    assert_close(model, on_hopper(module, store, model.inputs))


@pytest.mark.gpu
def test_rules_choice() -> None:
    model = Model(17, 1000, 1000, 128, 128, "causal", "bf16")
    module, store = model.lowered(SM_90)
    assert emit_kernel(kernel_of(module)).groups == 2
    assert_close(model, on_hopper(module, store, model.inputs))


@pytest.mark.gpu
def test_what_is_not_finite_stays_in_its_rows() -> None:
    """Of rows, and of a batch whose first values lie behind the last ones of another."""
    model = Model(3, 129, 129, 64, 64)
    queries, keys, values = model.inputs
    queries[0, 5, 3], queries[0, 70, 0], values[1, 0] = np.nan, np.inf, np.nan
    found = on_hopper(*scheduled(model), [queries, keys, values])
    odd = np.zeros((3, 129), dtype=np.bool_)
    odd[0, [5, 70]] = odd[1] = True
    assert np.isnan(found).all(2).tolist() == odd.tolist()
    assert np.isfinite(found[~odd]).all()


# ---------------------------------------------------------------------- rules
def test_wide_factors_of_many_rows_have_a_warp_that_loads() -> None:
    """128 heads of 4096 x 128 causal on an H200: 1.07 ms without, 0.87 ms with it."""
    kernel = before_blocks(Model(32, 4096, 4096, 128, 128, "causal", "bf16"))[2]
    assert kernel.schedule is not None
    chosen = kernel.schedule.data
    assert [x.tile for x in chosen.levels] == [1, 64, 128, 128, 128]
    assert chosen.given("specialize") == 1 and chosen.given("descend") == 1
    first, second = candidates(kernel, SM_90)
    assert first == chosen and not second.given("specialize")
    assert second in TARGET.bind(SM_90).scheduling.candidates(kernel, chosen)


@pytest.mark.parametrize(("model", "target"), [
    (Model(64, 1024, 1024, 64, 64, element="bf16"), SM_90),
    (Model(2, 1024, 1024, 128, 128, element="bf16"), SM_90),
    (Model(64, 512, 512, 128, 128, "causal", "bf16"), SM_90),
    (Model(64, 1024, 1024, 128, 128, element="bf16"), TargetOptions("sm_80")),
    (Model(64, 1024, 1024, 128, 128, element="bf16"), TargetOptions("sm_90", interpret=True)),
    (Model(64, 1024, 1024, 128, 96, element="bf16"), SM_90),
    (Model(64, 1024, 1024, 8, 128, element="bf16"), SM_90),
    (Model(64, 256, 256, 128, 128, "add", "bf16"), SM_90),
], ids=["one line", "few rows", "short rows", "Ampere", "interpreter", "no power", "short heads",
        "memory"])
def test_where_none_is_offered(model: Model, target: TargetOptions) -> None:
    kernel = before_blocks(model)[2]
    assert not [s for s in candidates(kernel, target) if s.given("specialize")]

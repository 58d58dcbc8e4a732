"""Attention as one kernel: what it computes, by which instructions, how far rows are walked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from dialects.block import DotOp, ForOp, KernelOp, ValidOp
from dialects.block.branches import is_single
from dialects.block.programs import tile_type
from dialects.host.interpret import interpret_host
from dialects.loop import KernelOp as LoopKernelOp
from dialects.strata.schedule import ScheduleAttr, parse_schedule
from dialects.strata.types import Array, buffer_type
from dialects.symbolic.symbol import Symbol
from passes.base import PassError
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, resources
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from tests.lowering import STEPS, lower
from tests.targets.cuda.attention.attention_models import DTYPES, Model

MODELS = [
    Model(2, 40, 200, 32, 64),
    Model(1, 17, 67, 16, 16, "keep", nothing=(0,), spread=30),
    Model(2, 37, 131, 40, 24, "add", nothing=(3, 5)),
    Model(3, 33, 129, 20, 64, "row", open_sizes=True),
    Model(1, 70, 70, 16, 16, "add", open_sizes=True, nothing=(69,)),
    Model(1, 40, 70, 16, 16, "add", nothing=(7, 39), guarded=True),
    Model(2, 33, 64, 16, 16, "add", "f32"),
    Model(1, 64, 128, 64, 64, "", "bf16"),
    Model(2, 140, 140, 32, 32, "causal"),
    Model(1, 130, 300, 16, 32, "causal", offset=170),
    Model(1, 300, 130, 16, 32, "lower"),
    Model(1, 140, 140, 16, 32, "causal", offset=-3),
    Model(1, 128, 192, 16, 32, "causal", offset=61),
    Model(1, 128, 128, 16, 32, "causal", offset=-3),
    Model(5, 128, 128, 16, 16, "causal"),
    Model(1, 70, 130, 80, 96, "", "bf16"),
    Model(1, 101, 101, 96, 80, "causal", "bf16"),
    Model(1, 101, 150, 72, 160, "causal", offset=49),
    Model(2, 37, 70, 40, 24, "add", nothing=(3, 5)),
    Model(1, 1, 1, 16, 16),
    Model(2, 1, 250, 20, 16, "keep", "f32"),
    Model(1, 0, 5, 16, 16, open_sizes=True),
]
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-4}
each_model = pytest.mark.parametrize("model", MODELS, ids=[m.name for m in MODELS])
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


def options(model: Model, *, interpret: bool) -> TargetOptions:
    precision = "tf32" if model.element == "f32" else "f32"
    return TargetOptions("sm_90", interpret=interpret, precision=precision)


def kernels_of(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


def assert_close(model: Model, found: Array, tolerance: float | None = None) -> None:
    """NaN stands where it is expected, and nowhere else."""
    expected = model.expected()
    bound = (tolerance or TOLERANCE[model.element]) * max(1, np.nanmax(np.abs(expected), initial=0))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=bound)


@each_model
def test_tiles_and_their_meaning(model: Model) -> None:
    module, store = model.lowered(options(model, interpret=False))
    [found] = interpret_host(module, model.inputs, store)
    assert_close(model, found)
    copies = [k for k in kernels_of(module) if "_rows" in k.sym_name.data]
    assert len(kernels_of(module)) == 1 + len(copies), "scores went to memory"
    assert bool(copies) == _is_odd(model), "masks whose rows begin anywhere, and no others"


def _is_odd(model: Model) -> bool:
    """Whether no load of a mask's rows can be asynchronous at all lengths."""
    width = 1 if model.mask == "keep" else np.dtype(DTYPES[model.element]).itemsize
    return model.s > 1 and model.mask in ("add", "keep") and bool(
        model.open_sizes or model.t * width % 4)


@pytest.mark.gpu
@each_model
def test_on_a_gpu(model: Model) -> None:
    """As it is compiled by default; f32 as exactly as f32 allows."""
    module, store = model.lowered(TargetOptions())
    [found] = TARGET.bind(TargetOptions()).running.load(module, store).run(model.inputs)
    assert_close(model, found, 1e-5 if model.element == "f32" else None)


SHORT = [Model(12, n, n, d, d, mask, "bf16") for mask in ("", "row", "causal")
         for n in (40, 64, 96, 127) for d in (48, 80, 160)]
"""So short that one step, or one and a rest, walk all keys."""


@pytest.mark.gpu
@pytest.mark.parametrize("model", SHORT, ids=[m.name for m in SHORT])
def test_short_rows_on_a_gpu(model: Model) -> None:
    test_on_a_gpu(model)


@pytest.mark.parametrize("model", SHORT, ids=[m.name for m in SHORT])
def test_products_of_short_rows_are_in_a_loop_or_of_whole_tiles(model: Model) -> None:
    """See `tails_of`: products of two tiles that no loop holds were wrong on a GPU."""
    module, _ = model.lowered(TargetOptions("sm_90"))
    dots = [op for op in module.walk() if isinstance(op, DotOp)]
    apart = [op for op in dots if isinstance(op.parent_op(), KernelOp)]
    loops = [op for op in module.walk() if isinstance(op, ForOp) and not is_single(op)]
    if apart or not loops:
        assert model.t <= 64 and len(dots) == 2, "scores and weights of one step, whole"
    assert dots


def interpreted(model: Model, interpreter: Interpreter) -> tuple[Array, list[KernelOp]]:
    """What Triton's interpreter computes, and the kernels."""
    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    module, store = model.lowered(options(model, interpret=True))
    [found] = interpret_host(module, model.inputs, store, run)
    return found, kernels_of(module)


@needs_triton
@each_model
def test_triton_source(model: Model, interpreter: Interpreter) -> None:
    assert_close(model, interpreted(model, interpreter)[0])


@needs_triton
@pytest.mark.parametrize(("rows", "element"), [(1, "f16"), (3, "f16"), (1, "f32")])
def test_few_rows_walk_parts(rows: int, element: str, interpreter: Interpreter) -> None:
    """Parts in which no row sees anything count nothing."""
    model = Model(2, rows, 4096, 16, 16, "keep", element, unseen=2048)
    found, kernels = interpreted(model, interpreter)
    assert_close(model, found)
    assert [k.sym_name.data.partition("_")[0] for k in kernels] == ["online", "parts"]


@needs_triton
@pytest.mark.parametrize("mask", ["", "keep", "add"])
@pytest.mark.parametrize(("rows", "keys", "element"), [
    (1, 2049, "bf16"), (1, 1009, "f32"), (3, 4099, "f16")])
def test_the_last_part_is_shorter(
    rows: int, keys: int, element: str, mask: str, interpreter: Interpreter
) -> None:
    """A cache with one more key than it had is of a length that few numbers divide."""
    model = Model(2, rows, keys, 16, 24, mask, element)
    found, kernels = interpreted(model, interpreter)
    assert_close(model, found)
    assert [k.sym_name.data.partition("_")[0] for k in kernels] == ["online", "parts"]
    parts = buffer_type(kernels[1].buffers[0]).shape[0].constant
    assert parts is not None and parts > 3 and keys % parts, "equal parts would be few"


@needs_triton
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("keys", "mask"), [(1, ""), (64, "add"), (333, "keep"), (1009, "")])
def test_keys_that_only_a_run_counts_are_parts(
    rows: int, keys: int, mask: str, interpreter: Interpreter
) -> None:
    """A cache that grows has as many parts as its keys need; one part, if it is short."""
    model = Model(2, rows, keys, 16, 24, mask, "f16", open_keys=True)
    found, kernels = interpreted(model, interpreter)
    assert_close(model, found)
    assert [k.sym_name.data.partition("_")[0] for k in kernels] == ["online", "parts"]
    fixed = replace(model, t=4096, open_keys=False).lowered(TargetOptions("sm_90"))[0]
    parts = buffer_type(kernels[1].buffers[0]).shape[0]
    assert parts.substitute({Symbol.size("t"): 4096}) == (
        buffer_type(kernels_of(fixed)[1].buffers[0]).shape[0])


@needs_triton
@pytest.mark.parametrize("model", [
    Model(2, 1, 0, 16, 24, open_keys=True), Model(2, 3, 0, 16, 24, "keep", open_keys=True),
    Model(2, 3, 0, 16, 24, open_sizes=True)], ids=lambda m: m.name)
def test_without_keys_sums_are_zero(model: Model, interpreter: Interpreter) -> None:
    """Weights are divided by their sum, of which there are none; their number is 0, not 0 / 0."""
    found = interpreted(model, interpreter)[0]
    assert found.shape == (model.b, model.s, model.e) and not found.any()


def test_rows_are_walked_as_far_as_they_reach() -> None:
    module, _ = Model(1, 256, 256, 64, 64, "causal").lowered(TargetOptions("sm_90"))
    [kernel] = kernels_of(module)
    [loop] = [op for op in kernel.walk() if isinstance(op, ForOp)]
    assert str(loop.upper.data) == "64*%0 + 64", "a loop ends behind the diagonal"
    assert len(kernel.buffers) == 4, "the triangle is compared, not read"


@pytest.mark.parametrize(("size", "widths"), [
    (40, {32, 16}), (64, {64}), (80, {64, 16}), (96, {64, 32}), (112, {128}), (160, {128, 32})])
def test_heads_are_not_padded(size: int, widths: set[int]) -> None:
    """A head is what two tiles hold, as far as tensor cores can multiply them."""
    model = Model(1, 256, 256, size, size, element="bf16")
    [kernel] = kernels_of(model.lowered(options(model, interpret=False))[0])
    dots = [op for op in kernel.walk() if isinstance(op, DotOp)]
    columns = {tile_type(d.result).shape[1] for d in dots if d.a.owner.name == "block.map"}
    summed = {tile_type(d.a).shape[1] for d in dots if d.a.owner.name == "block.load"}
    assert columns == summed == widths


def test_the_diagonal_is_the_end_of_odd_rows() -> None:
    """Scores behind the last key are behind the diagonal as well: no second comparison."""
    model = Model(4, 1001, 1001, 96, 96, "causal", "bf16")
    [kernel] = kernels_of(model.lowered(options(model, interpret=False))[0])
    assert sum(isinstance(op, ForOp) for op in kernel.walk()) == 1
    assert not any(isinstance(op, ValidOp) for op in kernel.walk())
    [kernel] = kernels_of(replace(model, t=1002).lowered(options(model, interpret=False))[0])
    assert not any(isinstance(op, ValidOp) for op in kernel.walk())
    [kernel] = kernels_of(replace(model, t=1001, offset=9).lowered(
        options(model, interpret=False))[0])
    assert any(isinstance(op, ValidOp) for op in kernel.walk())


def test_exact_products_stay_apart() -> None:
    exact = TargetOptions("sm_90", exact=True)
    module, _ = Model(1, 64, 64, 64, 64).lowered(exact)
    assert len(kernels_of(module)) == 3
    single = Model(1, 64, 64, 64, 64, element="f32")
    for arch, count in (("sm_90", 1), ("sm_80", 3)):
        module, _ = single.lowered(TargetOptions(arch))
        assert len(kernels_of(module)) == count
    module, _ = single.lowered(exact)
    assert len(kernels_of(module)) == 3
    module, _ = replace(single, d=128).lowered(TargetOptions("sm_90"))
    assert len(kernels_of(module)) == 3, "too much of f32 in parts for registers"


@needs_triton
def test_single_precision_in_parts(interpreter: Interpreter) -> None:
    """Three products of two parts each, unless another precision is asked for."""
    model = Model(2, 33, 64, 16, 16, "add", "f32")
    split = TargetOptions("sm_90", interpret=True)
    module, store = model.lowered(split)
    [kernel] = kernels_of(module)
    assert {op.precision.data for op in kernel.walk() if isinstance(op, DotOp)} == {"tf32x3"}

    def run(kernel: Operation, buffers: Sequence[Array], sizes: Mapping[Symbol, int]) -> None:
        assert isinstance(kernel, KernelOp)
        interpreter.run(kernel, buffers, sizes)

    [found] = interpret_host(module, model.inputs, store, run)
    assert_close(model, found)


@needs_triton
@pytest.mark.parametrize(("arch", "instruction"), [
    ("sm_90", "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"),
    ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")])
def test_instructions(arch: str, instruction: str) -> None:
    module, _ = Model(2, 1024, 1024, 64, 64).lowered(TargetOptions(arch))
    [kernel] = kernels_of(module)
    job = Job(emit_kernel(kernel), tuple(range(len(kernel.buffers))))
    [binary] = compile_kernels([job], CompileOptions(arch))
    assert instruction in binary.ptx
    assert "cp.async.cg.shared.global" in binary.ptx, "keys and values are loaded ahead"
    needed = resources(binary)
    assert needed is None or needed.local == 0


def test_a_schedule_must_be_online_or_hold_all_columns() -> None:
    module, store = Model(1, 64, 200, 16, 16).module()
    context = TARGET.bind(TargetOptions("sm_90")).context(store)
    for _ in lower(module, context, STEPS[:STEPS.index("loop-schedule") + 1]):
        pass
    [kernel] = [op for op in module.body.block.ops if isinstance(op, LoopKernelOp)]
    assert kernel.schedule is not None
    kernel.schedule = ScheduleAttr(parse_schedule(str(kernel.schedule.data).replace(
        "online = 1", "online = 0")))
    with pytest.raises(PassError, match=r"waits for a finished reduction.*add online = 1"):
        for _ in lower(module, context, STEPS[STEPS.index("loop-schedule") + 1:]):
            pass

"""Scripts of schedules: what is printed gives the same schedule again; steps are checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.loop import KernelOp
from dialects.strata.schedule import Schedule, level_starts, parse_schedule
from dialects.strata.schedule_options import KnownOptions
from dialects.symbolic.symbol import Symbol
from dialects.verifying import verify
from passes.base import StrataContext
from passes.loop.scheduling.apply_schedules import LoopApplySchedules
from passes.scripts.fusion import fuse
from passes.scripts.place import StepError
from passes.scripts.printing import script_of, scripts_of
from passes.scripts.reading import Unreadable, read_entries
from passes.scripts.steps import FORMS, parse_step
from targets.base import TargetOptions, find_target
from tests.lowering import lower
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES
from tests.passes.harness import parse

ALIKE = ("unary", "logic", "activation", "trigonometric", "elementwise", "bits")
"""Families of operators of which one has the schedules of all."""


def family(sample: Sample) -> str:
    name = sample.op.__module__.rpartition(".")[2]
    return name if name in ALIKE else sample.op.name


FIRST = list({family(s): s for s in reversed([*SAMPLES, *PIPELINE_SAMPLES])
              if s.operands}.values())
TARGETS = {"cpu": "avx2", "cuda": "sm_90"}


def kernels_of(module: ModuleOp) -> list[KernelOp]:
    return [op for op in module.body.block.ops if isinstance(op, KernelOp)]


def scheduled(sample: Sample, symbolic: bool, target: str) -> tuple[ModuleOp, StrataContext]:
    """The module after `loop-schedule`."""
    module, _, evaluation = build_module(sample, symbolic)
    chosen, options = find_target(target), TargetOptions(features=TARGETS[target])
    context = chosen.bind(options).context(evaluation.weights)
    context.schedule_options = KnownOptions(tuple(chosen.schedule_options), lambda: ())
    for step in lower(module, context):
        if step == "loop-schedule":
            break
    return module, context


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sample", FIRST, ids=lambda s: s.op.name)
def test_schedules_come_back(sample: Sample, target: str, tmp_path: Path) -> None:
    """Also of kernels that have a schedule of another kind by then."""
    module, context = scheduled(sample, FIRST.index(sample) % 2 == 1, target)
    before = {k.sym_name.data: k.schedule for k in kernels_of(module)}
    if not before:
        return
    text = scripts_of(module)
    assert text.count("@") == len(before) and "<" not in text
    (tmp_path / "script.txt").write_text(text)
    for kernel in kernels_of(module):
        kernel.properties.pop("schedule")
    LoopApplySchedules(str(tmp_path / "script.txt")).apply(context, module)
    assert {k.sym_name.data: k.schedule for k in kernels_of(module)} == before


# ---------------------------------------------------------------------- steps
BEGIN = parse_schedule("<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1, loop i1 tile 8>")


def after(step: str, begin: Schedule = BEGIN) -> str:
    return str(parse_step(step, 1).change(begin))


@pytest.mark.parametrize(("step", "result"), [
    ("tile i0 by 8, 2", "<grid i0 tile 8, loop i0 tile 2, loop i1 tile 16, loop i2 tile 1, "
                        "loop i1 tile 8>"),
    ("tile i1.1 by 2", "<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1, loop i1 tile 2>"),
    ("whole i1.1 by 16", "<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1, whole i1 tile 16>"),
    ("parallelize i2", "<grid i0 tile 4, grid i2 tile 1, loop i1 tile 16, loop i1 tile 8>"),
    ("vectorize i1.1", "<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1, loop i1 tile 8 lanes>"),
    ("vectorize i2 as group",
     "<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1 group, loop i1 tile 8>"),
    ("vectorize i2 as matrix",
     "<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1 matrix, loop i1 tile 8>"),
    ("partial i2", "<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1 partial, loop i1 tile 8>"),
    ("unroll i2 by 4",
     "<grid i0 tile 4, loop i1 tile 16, loop i2 tile 1 unroll 4, loop i1 tile 8>"),
    ("reorder i2, i1.0", "<grid i0 tile 4, loop i2 tile 1, loop i1 tile 16, loop i1 tile 8>"),
    ("fuse i1.0, i1.1", "<grid i0 tile 4, loop i1 tile 8, loop i2 tile 1>"),
    ("pipeline 3", f"{str(BEGIN)[:-1]} | stages = 3>"),
    ("pack", f"{str(BEGIN)[:-1]} | pack = 1>"),
    ("set tails = peel", f"{str(BEGIN)[:-1]} | tails = peel>"),
])
def test_steps(step: str, result: str) -> None:
    assert after(step) == result


def test_options_are_set_again_and_unset() -> None:
    begin = parse_schedule("<grid i0 tile 4 | stages = 2, warps = 8>")
    assert after("pipeline 4", begin) == "<grid i0 tile 4 | stages = 4, warps = 8>"
    assert after("unset stages", begin) == "<grid i0 tile 4 | warps = 8>"


@pytest.mark.parametrize(("step", "reason"), [
    ("tile i9 by 4", "there is no axis i9; there are: i0, i1, i2"),
    ("tile i1 by 4", "axis i1 has 2 levels: write one of i1.0, i1.1"),
    ("tile i1.2 by 4", "there is no level i1.2; the innermost level of axis i1 is i1.1"),
    ("tile i0 by 0", "tiles are at least 1"),
    ("tile i0 by 4, 8", "an inner tile cannot be larger than the outer one"),
    ("parallelize i0", "i0 is already a level of the grid"),
    ("parallelize i1.1", "i1.1 lies inside another level of its axis"),
    ("unroll i2 by 0", "unroll factors are at least 1"),
    ("reorder i1.1, i1.0", "levels of axis i1 would change their order"),
    ("reorder i0, i0", "it names a level twice"),
    ("fuse i0, i2", "i0 and i2 are levels of different axes"),
    ("fuse i1.1, i1.0", "i1.0 is not the next level inside i1.1"),
    ("unset warps", "the schedule does not set warps"),
])
def test_refused_steps(step: str, reason: str) -> None:
    with pytest.raises(StepError) as caught:
        after(step)
    assert reason in str(caught.value)


@pytest.mark.parametrize(("step", "reason"), [
    ("tile i1 by 4", "one tile holds i1, so it cannot be divided further"),
    ("parallelize i1", "one tile holds i1, so there is only one program"),
    ("unroll i1 by 2", "one tile holds i1, so there is no loop to unroll"),
    ("vectorize i1 as matrix", "i1 already has the role lanes"),
    ("fuse i0.0, i0.1", "one tile holds i0.1"),
])
def test_refused_steps_on_whole_levels(step: str, reason: str) -> None:
    begin = parse_schedule("<loop i0 tile 8, whole i0 tile 8, whole i1 tile 8 lanes>")
    with pytest.raises(StepError) as caught:
        after(step, begin)
    assert reason in str(caught.value)


@pytest.mark.parametrize(("text", "reason"), [
    ("@a\n    tiel i0 by 4", "line 2: there is no step 'tiel'; did you mean 'tile'?"),
    ("@a\n    tile i0 4", "line 2: cannot read the step 'tile i0 4'; write: tile AXIS by N"),
    ("\n@a\n    from rules\n    from loops\n", "line 2: a script begins with 'from rules' or"),
    ("nests(maps)\n    pack", "line 1: there is no kind of nest 'maps'; there are contraction"),
    ("    tile i0 by 4", "line 1: expected a kernel and its schedule"),
    ("@a <grid i0 tile 4>\n    pack", "line 1: expected a kernel and its schedule"),
    ("@a\n@b\n    pack", "line 1: expected a kernel and its schedule"),
])
def test_what_cannot_be_read_is_told(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(text)
    with pytest.raises(Unreadable) as caught:
        read_entries(tmp_path / "mine.txt", KnownOptions())
    assert reason in str(caught.value)


@pytest.mark.parametrize("verb", FORMS)
def test_every_step_tells_how_it_is_written(verb: str) -> None:
    with pytest.raises(ValueError, match=f"write: {verb}"):
        parse_step(f"{verb} ?", 1)


def test_axes_of_any_name() -> None:
    begin = Schedule(tuple(parse_schedule(
        '<loop "a, \\"b\\" by 3" tile 1, loop i1 tile 1>').levels))
    assert after('reorder i1, "a, \\"b\\" by 3"', begin) == (
        '<loop i1 tile 1, loop "a, \\"b\\" by 3" tile 1>')


def test_what_steps_cannot_say_is_a_schedule() -> None:
    sample = next(s for s in FIRST if s.op.name == "graph.softmax")
    module, _ = scheduled(sample, False, "cpu")
    kernel = kernels_of(module)[0]
    lacking = parse_schedule("<grid i0 tile 4>")
    lacking = Schedule(tuple(x for x in lacking.levels if len(kernel.axes) > 1))
    assert script_of(kernel, lacking) == f"@{kernel.sym_name.data} {lacking}\n"


# ---------------------------------------------------------------------- axes of the kernel
BODY = """{
        ^bb0(%p: f32):
          loop.yield %p
        }"""


def kernel_of(*nests: str, outs: str = "f32[8, 9, 5]") -> KernelOp:
    """A kernel of nests over `%x: f32[8, 9, 5]`, with the results `%a`, `%b` ..."""
    names = [f"%{'abcd'[k]}" for k in range(len(nests))]
    lines = "\n".join(f"{name} = loop.nest {nest} {BODY}"
                      for name, nest in zip(names, nests, strict=True))
    module = parse(f"""builtin.module {{
      loop.kernel @k(%x: f32[8, 9, 5]) -> ({outs}) sizes() {{
        {lines}
        loop.yield {names[-1]}
      }}
    }}""", StrataContext.with_dialects())
    return kernels_of(module)[0]


MAP = "(i0: 8, i1: 9, i2: 5) ins(%x[i0, i1, i2]) outs(f32[8, 9, 5][i0, i1, i2])"


def test_fusing_axes_rewrites_all_nests() -> None:
    kernel = kernel_of(MAP, MAP.replace("%x", "%a"))
    fuse(kernel, (Symbol.axis("i0"), Symbol.axis("i1")))
    verify(kernel)
    assert {str(axis): str(extent) for axis, extent in kernel.axes.items()} == {
        "i0": "72", "i2": "5"}
    fuse(kernel, (Symbol.axis("i0"), Symbol.axis("i2")))
    verify(kernel)
    assert [[str(e) for e in nest.input_maps[0]] for nest in kernel.nests] == 2 * [
        ["(i0 floordiv 45)", "((i0 floordiv 5) mod 9)", "(i0 mod 5)"]]


@pytest.mark.parametrize(("nests", "outs", "pair", "reason"), [
    ((MAP,), "f32[8, 9, 5]", ("i0", "i7"), "there is no axis i7; there are: i0, i1, i2"),
    ((MAP,), "f32[8, 9, 5]", ("i0", "i2"),
     "in a nest over i0, i1, i2, i2 does not follow directly after i0"),
    ((MAP, "(i0: 8, i2: 5) ins(%a[i0, 0, i2]) outs(f32[8, 5][i0, i2])"), "f32[8, 5]", ("i0", "i1"),
     "a nest over i0, i2 has only i0 of the two"),
    (("(i0: 8, reduce i1: 9, reduce i2: 5) ins(%x[i0, i1, i2]) outs(add f32[8][i0])",), "f32[8]",
     ("i0", "i1"), "a nest over i0, i1, i2 reduces along i1, but not along the other one"),
    ((MAP, MAP.replace("%x[i0, i1", "%a[i0, 8 - i1")), "f32[8, 9, 5]", ("i0", "i1"),
     "a nest reads a value that is computed along i0 and i1 at another position of them"),
])
def test_axes_that_nests_do_not_walk_as_one_stay(
    nests: tuple[str, ...], outs: str, pair: tuple[str, str], reason: str
) -> None:
    kernel = kernel_of(*nests, outs=outs)
    before = str(kernel)
    with pytest.raises(StepError, match=re.escape(reason)):
        fuse(kernel, (Symbol.axis(pair[0]), Symbol.axis(pair[1])))
    assert str(kernel) == before


def test_sums_over_fused_axes_are_complete() -> None:
    kernel = kernel_of("(i0: 8, reduce i1: 9, reduce i2: 5) ins(%x[i0, i1, i2]) "
                       "outs(add f32[8][i0])", outs="f32[8]")
    fuse(kernel, (Symbol.axis("i1"), Symbol.axis("i2")))
    assert [(str(a.name), str(a.extent), a.reduce) for a in kernel.nests[0].axes] == [
        ("i0", "8", False), ("i1", "45", True)]


def test_a_schedule_records_what_was_fused() -> None:
    text = '<fused i0 i1, fused i0 "a b", grid i0 tile 4, loop i2 tile 1 | warps = 4>'
    schedule = parse_schedule(text)
    assert str(schedule) == text and len(schedule.fused) == 2
    assert [text[at:at + 7] for at in level_starts(text)] == ["grid i0", "loop i2"]

"""Convolutions that a library computes: which kernels, as what, and with which engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from compiler.measuring.comparison import error_of
from compiler.pipeline.driver import Compiler
from dialects.loop import KernelOp
from dialects.strata.schedule import parse_schedule
from passes.analyses.loop.kinds import is_contraction
from targets.cuda.build.compile import CompileOptions as CudaOptions
from targets.cuda.errors import CudaError
from targets.cuda.libraries import cudnn, cudnn_descriptors
from targets.cuda.libraries.cudnn import Convolution, Tensor
from targets.cuda.libraries.forms import called, form_of, library_form
from targets.cuda.libraries.shapes import convolution_of
from targets.cuda.planning.program import load_module
from targets.cuda.scheduling.rules import operand_panels
from tests.targets.cuda.libraries.library_convolutions import FORMS, HALF, OTHERS, RELU, SAME, SMALL
from tests.targets.cuda.libraries.library_convolutions import convolution as text_of
from tests.targets.cuda.libraries.test_cuda_library import (
    OPTIONS,
    RULES,
    SETTLED,
    check_calls,
    lowered,
    task_of,
    values_of,
)
from tests.targets.searches import tasks_of_text, written

each_form = pytest.mark.parametrize("form", FORMS)


@each_form
def test_convolutions_that_a_library_has(form: str, tmp_path: Path) -> None:
    task = task_of(FORMS[form], tmp_path)
    assert library_form(task.kernel, SETTLED) == f"cudnn.{form}"
    assert library_form(task.kernel, replace(SETTLED, exact=True)) is None
    rounded = library_form(task.kernel, replace(SETTLED, precision="tf32"))
    is_single = "f32" in str(task.kernel.body.block.args[0].type)
    assert rounded == f"cudnn.{form}" + ".tf32" * is_single
    if is_single:  # there is no word for f32 that is rounded to halves
        assert library_form(task.kernel, replace(SETTLED, precision="fp16")) is None


def test_what_several_nests_make_of_the_sums(tmp_path: Path) -> None:
    """Of two scaled products that are added, the one that is computed last adds the other one."""
    def scaled(name: str) -> str:
        return f"""
        %p{name} = graph.matmul %x, %{name} : f16[48, 24]
        %c{name} = graph.cast %p{name} {{to = f32}} : f32[48, 24]
        %s{name} = graph.mul %c{name}, %a : f32[48, 24]
        %t{name} = graph.add %s{name}, %b : f32[48, 24]
        %y{name} = graph.cast %t{name} {{to = f16}} : f16[48, 24]"""
    text = f"""
      strata.func @main(%x: f16[48, 32], %v: f16[32, 24], %w: f16[32, 24], %a: f32[24], %b: f32[24])
          -> (f16[48, 24]) inputs ["x", "v", "w", "a", "b"] outputs ["y"] {{
        {scaled("v")}
        {scaled("w")}
        %s = graph.add %yv, %yw : f16[48, 24]
        %y = graph.relu %s : f16[48, 24]
        strata.return %y
      }}"""
    kernels = [t.kernel for t in tasks_of_text(text, tmp_path, OPTIONS)]
    assert sorted(len(k.nests) for k in kernels) == [2, 3]
    assert {library_form(k, SETTLED) for k in kernels} == {
        "cudnn.nc.oc.xo.o.no", "cudnn.nc.oc.xo.o.no.no.relu"}


@pytest.mark.parametrize("name", OTHERS)
def test_kernels_that_it_has_not(name: str, tmp_path: Path) -> None:
    assert library_form(task_of(OTHERS[name], tmp_path).kernel, SETTLED) is None


def test_calls_are_the_first_candidates_and_visible(tmp_path: Path) -> None:
    task = task_of(text_of(HALF, SMALL, pads=SAME, behind=RELU), tmp_path)
    rules = RULES.schedule(task.kernel)
    call, compiled, *others = RULES.candidates(task.kernel, rules)
    assert call == called(rules, "cudnn.nhwc.ohwc.o.nhwo.p1x1.relu")
    assert compiled == called(rules, "cudnn.nhwc.ohwc.o.nhwo.p1x1.relu.compiled")
    assert not any("library" in dict(s.options) for s in others)
    assert parse_schedule(str(call)) == call
    compilation = Compiler(*written(task, call, tmp_path, OPTIONS))
    text = compilation.emit(compilation.lower(), "triton")
    assert f"# library cudnn: @{task.name} nhwc.ohwc.o.nhwo.p1x1.relu" in text


def test_filters_lie_as_the_data_does(tmp_path: Path) -> None:
    """Channels last are packed so, and nothing else is; packed, they are there."""
    task = task_of(FORMS["nhwc.ohwc.nhwo.p1x1"], tmp_path)
    call = called(RULES.schedule(task.kernel), "cudnn.nhwc.ohwc.nhwo.p1x1")
    state = Compiler(*written(task, call, tmp_path, OPTIONS)).lower("loop")
    kernel = next(op for op in state.module.body.block.ops
                  if isinstance(op, KernelOp) and form_of(op))
    nest = next(n for n in kernel.nests if is_contraction(n))
    assert [str(v.type) for v in nest.inputs] == [
        "f16[2, 7, 9, 16]", "f16[24, 3, 3, 16]"]
    assert operand_panels(kernel, nest, [1], SETTLED) == {0: None, 1: None}
    assert library_form(kernel, SETTLED) == form_of(kernel)


# ---------------------------------------------------------------------- launches
@each_form
def test_calls_compute_what_kernels_do(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = lowered(task_of(FORMS[form], tmp_path), f"cudnn.{form}", tmp_path)
    _, notes = check_calls(state, "cudnn", tmp_path, monkeypatch)
    assert notes == [f"library cudnn: @contract_0 {form}"]


@pytest.mark.parametrize(("form", "shapes", "wanted"), [
    ("nhwc.ohwc.o.nhwo.s2x2.p1x1.relu", [(2, 8, 8, 4), (6, 3, 3, 4), (6,), (2, 4, 4, 6)],
     Convolution(Tensor((2, 4, 8, 8), (256, 1, 32, 4), "f16"),
                 Tensor((6, 4, 3, 3), (36, 1, 12, 4), "f16"),
                 Tensor((2, 6, 4, 4), (96, 1, 24, 6), "f16"),
                 (2, 2), (1, 1), (1, 1), (0, 0), None, "f16", None, True)),
    ("cw.ocw.ow.ow.p1.tf32", [(4, 9), (6, 4, 3), (6, 9), (6, 9)],
     Convolution(Tensor((1, 4, 1, 9), (36, 9, 9, 1), "f16"),
                 Tensor((6, 4, 1, 3), (12, 3, 3, 1), "f16"),
                 Tensor((1, 6, 1, 9), (54, 9, 9, 1), "f16"),
                 (1, 1), (1, 1), (0, 1), (0, 1), None, None,
                 Tensor((1, 6, 1, 9), (54, 9, 9, 1), "f16"), False, True)),
    ("nc.oc.xo.no.compiled", [(9, 8), (4, 8), (4,), (9, 4)],
     Convolution(Tensor((9, 8, 1, 1), (8, 1, 8, 8), "f16"),
                 Tensor((4, 8, 1, 1), (8, 1, 8, 8), "f16"),
                 Tensor((9, 4, 1, 1), (4, 1, 4, 4), "f16"),
                 (1, 1), (1, 1), (0, 0), (0, 0), "f16", compiled=True)),
    ("hwc.ghw.hwo.d2x2", [(9, 9, 8), (8, 3, 3), (5, 5, 8)],
     Convolution(Tensor((1, 8, 9, 9), (648, 1, 72, 8), "f16"),
                 Tensor((8, 1, 3, 3), (9, 1, 3, 1), "f16"),
                 Tensor((1, 8, 5, 5), (200, 1, 40, 8), "f16"), (1, 1), (2, 2), (0, 0), (0, 0)))])
def test_what_a_form_describes(
    form: str, shapes: Sequence[tuple[int, ...]], wanted: Convolution
) -> None:
    found, order = convolution_of(form, shapes, ["f16"] * len(shapes))
    assert found == wanted and list(order) == [*range(len(shapes))]


def test_buffers_in_another_order() -> None:
    shapes = [(6,), (2, 4, 4, 6), (6,), (6, 3, 3, 4), (2, 4, 4, 4), (2, 4, 4, 6)]
    found, order = convolution_of("o.nhwo.xo.ohwc.nhwc.nhwo.p1x1", shapes, ["f32"] * 6)
    assert list(order) == [4, 3, 2, 0, 1, 5]
    assert found.bias == "f32" and found.added == found.result


# ---------------------------------------------------------------------- cuDNN
ROUNDED, SHORT, TENSOR_CORE, ANY_ORDER, COMPILED = 1, 2, 0, 4, -1


class FakeLibrary:
    """cuDNN's descriptors by handle: their kind and attributes.

    `engines`: for each that the heuristics name, its notes and the bytes it needs; one with
    `COMPILED` among its notes is compiled for a call.
    """

    def __init__(self, engines: Sequence[tuple[Sequence[int], int]]) -> None:
        self.engines = engines
        self.kinds: list[int] = []
        self.attributes: dict[int, dict[int, Any]] = {}

    def call(self, function: str, *arguments: Any) -> None:
        getattr(self, function.removeprefix("cudnn"))(*arguments)

    def BackendCreateDescriptor(self, kind: Any, handle: Any) -> None:
        self.kinds.append(kind.value)
        handle._obj.value = len(self.kinds)
        self.attributes[len(self.kinds)] = {}

    def BackendFinalize(self, handle: Any) -> None:
        pass

    def BackendSetAttribute(
        self, handle: Any, attribute: Any, kind: Any, count: Any, cells: Any
    ) -> None:
        self.attributes[handle.value][attribute.value] = list(cells)

    def BackendGetAttribute(
        self, handle: Any, attribute: Any, kind: Any, most: Any, count: Any, cells: Any
    ) -> None:
        mine = self.attributes[handle.value]
        found = self._found(attribute.value, mine, cells)
        count._obj.value = len(found)
        for k, value in enumerate(found):
            cells[k] = value

    def _found(self, attribute: int, mine: dict[int, Any], cells: Any) -> list[Any]:
        d = cudnn_descriptors
        if attribute == d.HEURISTIC_RESULTS.number:
            for k, _ in enumerate(self.engines):
                self.attributes[cells[k]]["engine"] = k
            return list(cells)[:len(self.engines)]
        if attribute == d.CONFIGURATION_ENGINE.number:
            self.attributes[cells[0]]["engine"] = mine["engine"]
            return [cells[0]]
        if attribute == d.ENGINE_NOTES.number:
            return [n for n in self.engines[mine["engine"]][0] if n != COMPILED]
        if attribute == d.ENGINE_BEHAVIOR.number:
            return [0] * (COMPILED in self.engines[mine["engine"]][0])
        configuration = self.attributes[mine[d.PLAN_CONFIGURATION.number][0]]
        return [self.engines[configuration["engine"]][1]]

    def SetStream(self, handle: Any, stream: Any) -> None:
        self.stream = stream.value

    def BackendExecute(self, handle: Any, plan: Any, pack: Any) -> None:
        d = cudnn_descriptors
        configuration = self.attributes[self.attributes[plan.value][d.PLAN_CONFIGURATION.number][0]]
        given = self.attributes[pack.value]
        self.ran = (configuration["engine"], given[d.PACK_NAMES.number],
                    given[d.PACK_POINTERS.number], given[d.PACK_WORKSPACE.number])


def asked(
    monkeypatch: pytest.MonkeyPatch, *engines: tuple[Sequence[int], int]
) -> FakeLibrary:
    """A cuDNN with such engines."""
    fake = FakeLibrary(engines)
    monkeypatch.setattr(cudnn_descriptors, "library", lambda: None)
    monkeypatch.setattr(cudnn_descriptors, "call", fake.call)
    monkeypatch.setattr(cudnn, "call", fake.call)
    monkeypatch.setattr(cudnn, "_handle", lambda: cudnn.c_void_p(77))
    return fake


def small(element: str, **options: Any) -> Convolution:
    x = Tensor((2, 4, 8, 8), (256, 1, 32, 4), element)
    w = Tensor((4, 4, 3, 3), (36, 1, 12, 4), element)
    return Convolution(x, w, x, (1, 1), (1, 1), (1, 1), (1, 1), **options)


MUCH = cudnn.MOST_WORKSPACE + 1


@pytest.mark.parametrize(("element", "rounded", "engines", "wanted"), [
    ("f16", False, [([TENSOR_CORE], 0), ([], 0)], 0),
    ("f16", False, [([TENSOR_CORE, ANY_ORDER], 0), ([TENSOR_CORE], MUCH), ([TENSOR_CORE], 64)], 2),
    ("f16", False, [([SHORT], 0), ([ROUNDED], 0), ([], 0)], 2),
    ("f32", False, [([TENSOR_CORE], 0), ([], 0)], 1),
    ("f32", True, [([TENSOR_CORE], 0), ([], 0)], 0)])
def test_the_first_engine_that_is_as_exact(
    monkeypatch: pytest.MonkeyPatch, element: str, rounded: bool,
    engines: Sequence[tuple[Sequence[int], int]], wanted: int,
) -> None:
    fake = asked(monkeypatch, *engines)
    call = cudnn.Call(small(element, bias=element, rounded=rounded))
    assert call.workspace == engines[wanted][1]
    call([1 << 40, 2 << 40, 3 << 40, 4 << 40], 9, 5 << 40)
    assert fake.ran == (wanted, [1, 2, 4, 6], [1 << 40, 2 << 40, 3 << 40, 4 << 40], [5 << 40])
    assert fake.stream == 9


def test_an_engine_that_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = asked(monkeypatch, ([], 0), ([ANY_ORDER, COMPILED], 0), ([COMPILED], 0))
    for compiled, wanted in ((False, 0), (True, 2)):
        cudnn.Call(small("f16", compiled=compiled))([1, 2, 3], 9)
        assert fake.ran[0] == wanted


def test_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, ([ANY_ORDER], 0))
    with pytest.raises(CudaError, match="cuDNN does not support Convolution"):
        cudnn.Call(small("f16"))


@pytest.mark.parametrize("behind", [{}, {"relu": True}, {"bias": "f32"}, {
    "scale": "f32", "bias": "f16", "added": small("f16").result, "relu": True}])
def test_only_the_last_result_is_in_memory(
    monkeypatch: pytest.MonkeyPatch, behind: dict[str, Any]
) -> None:
    """What is between lies in f32, and is what the next operation reads."""
    fake, d = asked(monkeypatch), cudnn_descriptors
    made = [fake.attributes[op.handle.value] for op in cudnn.operations(small("f16", **behind))]
    assert len(made) == 1 + len(behind)
    results = [op[(d.SUM if k else d.RESULT).number][0] for k, op in enumerate(made)]
    assert [op[d.LEFT.number][0] for op in made[1:]] == results[:-1]
    tensors = [fake.attributes[handle] for handle in results]
    assert [t[d.IS_VIRTUAL.number] for t in tensors] == [[True]] * len(behind) + [[False]]
    assert [t[d.ELEMENT.number] for t in tensors] == [[0]] * len(behind) + [[2]]


@pytest.mark.gpu
@each_form
def test_cudnn_computes_what_kernels_do(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("triton") is None or cudnn.version() is None:
        pytest.skip("needs Triton and cuDNN")
    state = lowered(task_of(FORMS[form], tmp_path), f"cudnn.{form}", tmp_path)
    values, weights = values_of(state), state.context.weights
    found = load_module(state.module, weights, CudaOptions()).run(values)
    monkeypatch.setattr(cudnn, "version", lambda: None)
    wanted = load_module(state.module, weights, CudaOptions()).run(values)
    assert all(error_of(f, w) < 2e-3 for f, w in zip(found, wanted, strict=True))

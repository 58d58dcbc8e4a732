"""Products that a library computes: which kernels, as what, and inside our graphs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from compiler.io.signature import signature_of
from compiler.measuring.comparison import error_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.state import State
from compiler.tuning.tasks import Task
from dialects.loop import KernelOp
from dialects.strata.schedule import parse_schedule
from targets.base import find_target
from targets.cuda.build.compile import CompileOptions as CudaOptions
from targets.cuda.errors import CudaError
from targets.cuda.libraries import calls as library
from targets.cuda.libraries import cublas, cudnn
from targets.cuda.libraries.calls import LibraryLaunch
from targets.cuda.libraries.cublas import Matrix, Product
from targets.cuda.libraries.forms import called, form_of, library_form, without_library
from targets.cuda.libraries.shapes import product_of
from targets.cuda.planning.program import load_module
from targets.cuda.scheduling.rules import operand_panels
from tests.targets.cuda.fakes.fake_driver import FakeDriver
from tests.targets.cuda.fakes.fake_torch import FakeTorch
from tests.targets.cuda.libraries.library_convolutions import FORMS as CONVOLUTIONS
from tests.targets.searches import attention, tasks_of_text, written

OPTIONS = CompileOptions(target="cuda", features="sm_90", cache="off", tuned="off", library="auto")
SETTLED = OPTIONS.target_options()
RULES = find_target("cuda").bind(SETTLED).scheduling


def product(
    left: str, right: str, element: str = "f16", body: str = "", results: str = ""
) -> str:
    """`left` and `right`: the factors' shapes, rows and columns of a product, `T` if transposed."""
    shapes, lines, names = [], [], []
    for name, text in (("a", left), ("b", right)):
        rows, columns = map(int, text.removesuffix("T").split("x"))
        lies = (columns, rows) if text.endswith("T") else (rows, columns)
        shapes.append(f"{element}[{lies[0]}, {lies[1]}]")
        names.append(f"{name}t" if text.endswith("T") else name)
        if text.endswith("T"):
            lines.append(f"%{name}t = graph.transpose %{name} {{perm = [1, 0]}} : "
                         f"{element}[{rows}, {columns}]")
    m, n = left.removesuffix("T").split("x")[0], right.removesuffix("T").split("x")[1]
    result = f"{element}[{m}, {n}]"
    lines.append(f"%p = graph.matmul %{names[0]}, %{names[1]} : {result}")
    lines += [line.replace("RESULT", result) for line in body.split("; ") if line]
    last = results or ("%y" if "%y" in body else "%p")
    return (f"strata.func @main(%a: {shapes[0]}, %b: {shapes[1]}, %c: {element}[{n}]) -> "
            f'({result}) inputs ["a", "b", "c"] outputs ["y"] {{\n'
            + "\n".join((*lines, f"strata.return {last}")) + "\n}")


BIAS = "%y = graph.add %p, %c : RESULT"
BATCHED = """
  strata.func @main(%a: f16[3, 20, 36], %b: f16[3, 36, 24]) -> (f16[3, 20, 24])
      inputs ["a", "b"] outputs ["y"] {
    %y = graph.matmul %a, %b : f16[3, 20, 24]
    strata.return %y
  }"""
RELU = BIAS.replace("%y", "%s") + "; %y = graph.relu %s : RESULT"
ADDED = """
  strata.func @main(%a: f16[20, 36], %b: f16[36, 24], %c: f16[24], %d: f16[20, 24]) -> (f16[20, 24])
      inputs ["a", "b", "c", "d"] outputs ["y"] {
    %p = graph.matmul %a, %b : f16[20, 24]
    %s = graph.add %p, %c : f16[20, 24]
    %t = graph.add %d, %s : f16[20, 24]
    %y = graph.relu %t : f16[20, 24]
    strata.return %y
  }"""
PRODUCTS = {
    "mk.kn.mn": product("20x36", "36x24"), "mk.nk.mn": product("20x36", "36x24T"),
    "km.kn.mn": product("20x36T", "36x24"), "mk.nk.n.mn": product("20x36", "36x24T", body=BIAS),
    "mk.kn.n.mn": product("20x36", "36x24", "f32", BIAS), "bmk.bkn.bmn": BATCHED,
    "mk.kn.mn.relu": product("20x36", "36x24", body="%y = graph.relu %p : RESULT"),
    "mk.kn.n.mn.relu": product("20x36", "36x24", body=RELU), "mk.kn.mn.n.mn.relu": ADDED}
PART = """
  strata.func @main(%a: f16[20, 64], %b: f16[64, 24]) -> (f16[20, 24])
      inputs ["a", "b"] outputs ["y"] {
    %l = graph.slice %a {starts = [0, 0], sizes = [20, 36], steps = [1, 1]} : f16[20, 36]
    %r = graph.slice %b {starts = [0, 0], sizes = [36, 24], steps = [1, 1]} : f16[36, 24]
    %y = graph.matmul %l, %r : f16[20, 24]
    strata.return %y
  }"""
WIDENED = """
  strata.func @main(%a: f16[20, 36], %b: f16[36, 24]) -> (f64[20, 24])
      inputs ["a", "b"] outputs ["y"] {
    %p = graph.matmul %a, %b : f16[20, 24]
    %y = graph.cast %p {to = f64} : f64[20, 24]
    strata.return %y
  }"""
FORMS = {f"cublas.{form}": text for form, text in PRODUCTS.items()}
OTHERS = {
    "tanh": product("20x36", "36x24", body="%y = graph.tanh %p : RESULT"),
    "bias behind relu": product("20x36", "36x24", body="%s = graph.relu %p : RESULT; "
                                "%y = graph.add %s, %c : RESULT"),
    "two biases": product("20x36", "36x24", body="%s = graph.add %p, %c : RESULT; "
                          "%y = graph.add %s, %c : RESULT"),
    "doubled": product("20x36", "36x24", body="%y = graph.add %p, %p : RESULT"),
    "f64": product("20x36", "36x24", "f64"), "widened": WIDENED, "a part of the sum": PART,
    "attention": attention("f16", 16)}


def task_of(text: str, folder: Path) -> Task:
    return next(t for t in tasks_of_text(text, folder, OPTIONS)
                if not t.name.startswith(("map", "copy")))


def lowered(task: Task, form: str, folder: Path) -> State:
    """The task at block level, its kernel a call."""
    rules = RULES.schedule(task.kernel)
    return Compiler(*written(task, called(rules, form), folder, OPTIONS)).lower()


@pytest.mark.parametrize("form", FORMS)
def test_products_that_a_library_has(form: str, tmp_path: Path) -> None:
    task = task_of(FORMS[form], tmp_path)
    assert library_form(task.kernel, SETTLED) == form
    assert library_form(task.kernel, replace(SETTLED, exact=True)) is None
    narrow = library_form(task.kernel, replace(SETTLED, precision="tf32"))
    assert narrow != form if "f32" in FORMS[form] else narrow == form


@pytest.mark.parametrize("name", OTHERS)
def test_kernels_that_it_has_not(name: str, tmp_path: Path) -> None:
    assert library_form(task_of(OTHERS[name], tmp_path).kernel, SETTLED) is None


@pytest.mark.parametrize("reduced", [False, True])
def test_kernels_without_products_are_no_calls(reduced: bool, tmp_path: Path) -> None:
    """Every kernel of a model is asked, also one that adds two numbers."""
    end = "%y = graph.reduce_sum %s {axes = [0], keepdims = false} : f16[24]" if reduced else \
        "%y = graph.exp %s : f16[20, 24]"
    text = f"""
strata.func @main(%a: f16[20, 24], %b: f16[24]) -> ({end.rpartition(": ")[2]})
    inputs ["a", "b"] outputs ["y"] {{
  %s = graph.add %a, %b : f16[20, 24]
  {end}
  strata.return %y
}}"""
    [task] = tasks_of_text(text, tmp_path, OPTIONS)
    assert library_form(task.kernel, SETTLED) is None
    assert RULES.candidates(task.kernel, RULES.schedule(task.kernel))


def test_a_call_is_the_first_candidate_and_visible(tmp_path: Path) -> None:
    task = task_of(FORMS["cublas.mk.nk.n.mn"], tmp_path)
    rules = RULES.schedule(task.kernel)
    call, *others = RULES.candidates(task.kernel, rules)
    assert call == called(rules, "cublas.mk.nk.n.mn") == called(call, "cublas.mk.nk.n.mn")
    assert without_library(call) == rules and parse_schedule(str(call)) == call
    around = RULES.candidates(task.kernel, call)
    assert around[0] == call
    assert not any("library" in dict(s.options) for s in (*others, *around[1:]))
    alone = find_target("cuda").bind(replace(SETTLED, library=False)).scheduling
    assert call not in alone.candidates(task.kernel, rules)
    compilation = Compiler(*written(task, call, tmp_path, OPTIONS))
    text = compilation.emit(compilation.lower(), "triton")
    assert f"# library cublas: @{task.name} mk.nk.n.mn" in text


def test_nothing_is_packed_for_a_call(tmp_path: Path) -> None:
    task = task_of(product("16x64", "64x64"), tmp_path)
    nest = task.kernel.nests[0]
    assert operand_panels(task.kernel, nest, [1], SETTLED)
    state = Compiler(*written(task, called(RULES.schedule(task.kernel), "cublas.mk.kn.mn"),
                              tmp_path, OPTIONS)).lower("loop")
    kernel = next(op for op in state.module.body.block.ops if isinstance(op, KernelOp))
    assert form_of(kernel) == "cublas.mk.kn.mn"
    assert operand_panels(kernel, kernel.nests[0], [1], SETTLED) is None


# ---------------------------------------------------------------------- launches
def values_of(state: State) -> list[Any]:
    source = np.random.default_rng(0)
    return [source.normal(size=[int(e.evaluate({})) for e in t.shape]).astype(t.dtype)
            for t in signature_of(state.module).input_types]


def check_calls(state: State, library: str, folder: Path, patch: pytest.MonkeyPatch
                ) -> tuple[FakeDriver, Sequence[str]]:
    """That a library's calls give what the kernel's own meaning is: made by the graph, and again at
    other addresses. The device, and what is noted of the model."""
    device = FakeDriver.of(state.module)
    device.install(patch)
    device.install_compiler(patch)
    values, weights = values_of(state), state.context.weights
    own = load_module(state.module, weights, CudaOptions(cache=folder)).run(values)
    assert f"run {library}" not in device.log  # there is none: our kernel stands in
    device.install_libraries(patch)
    device.log.clear()
    executable = load_module(state.module, weights, CudaOptions(cache=folder))
    torch = FakeTorch(device)
    torch.install(patch)
    for _ in range(2):  # the second time on other tensors, which change the node
        [found] = executable.run([torch.tensor(v) for v in values])
        assert error_of(found.numpy(), own[0]) < 2e-3
    assert device.log.count(f"run {library}") == 2
    return device, executable.notes


@pytest.mark.parametrize("form", FORMS)
def test_calls_compute_what_kernels_do(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = lowered(task_of(FORMS[form], tmp_path), form, tmp_path)
    device, [note] = check_calls(state, "cublas", tmp_path, monkeypatch)
    assert "compile 1" not in device.log and "update 0" in device.log
    assert note.startswith("library cublas: @") and note.endswith(form.removeprefix("cublas."))


@pytest.mark.parametrize("form", ["cublas.mk.kn.mn", "cudnn.nhwc.ohwc.nhwo.p1x1"])
def test_libraries_of_the_machine_have_no_part(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake device has the libraries that a test gives it, also where there are real ones."""
    class Real:
        def __init__(self, asked: object) -> None:
            raise AssertionError(f"asked the machine's own library for {asked}")

    for module in (cublas, cudnn):
        monkeypatch.setattr(module, "version", lambda: 120805)
        monkeypatch.setattr(module, "Call", Real)
    name, _, rest = form.partition(".")
    task = task_of(FORMS[form] if name == "cublas" else CONVOLUTIONS[rest], tmp_path)
    check_calls(lowered(task, form, tmp_path), name, tmp_path, monkeypatch)


def test_fake_calls_end_with_their_test(tmp_path: Path) -> None:
    """What the fake libraries were asked for is not kept for tests on a real device."""
    kept = library._made
    before = kept.cache_info()
    state = lowered(task_of(FORMS["cublas.mk.kn.mn"], tmp_path), "cublas.mk.kn.mn", tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        check_calls(state, "cublas", tmp_path, patch)
        assert library._made.cache_info().currsize == 1
    assert library._made is kept and kept.cache_info() == before


def test_our_kernel_runs_where_the_library_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(product: Product) -> None:
        raise CudaError(f"none for {product}")

    state = lowered(task_of(FORMS["cublas.mk.kn.mn"], tmp_path), "cublas.mk.kn.mn", tmp_path)
    device = FakeDriver.of(state.module)
    device.install(monkeypatch)
    device.install_compiler(monkeypatch)
    device.install_libraries(monkeypatch)
    monkeypatch.setattr(cublas, "Call", refuse)
    load_module(state.module, state.context.weights, CudaOptions(cache=tmp_path)).run(
        values_of(state))
    assert "compile 1" in device.log and "run cublas" not in device.log


def test_threads_capture_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver refuses to begin where a capture goes on."""
    log: list[str] = []
    begun = Event()

    class Slow:
        workspace = 0

        def __call__(self, addresses: Sequence[int], stream: int, workspace: int = 0) -> None:
            begun.wait(0.2)  # for the other thread to begin, too

    def call(function: str, *arguments: Any) -> None:
        log.append(function)
        if len(log) > 1:
            begun.set()

    monkeypatch.setattr(library.driver, "call", call)
    monkeypatch.setattr(library, "_capturing", lambda urgent: 1)
    launches = [LibraryLaunch(Slow(), (), []) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(LibraryLaunch.captured, launches))
    assert log == ["cuStreamBeginCapture_v2", "cuStreamEndCapture"] * 2


@pytest.mark.parametrize(("form", "shapes", "wanted"), [
    ("kn.mk.mn", [(5, 7), (3, 5), (3, 7)], (3, 5, 5, 7, False, False, [1, 0, 2])),
    ("km.nk.n.mn", [(5, 3), (7, 5), (7,), (3, 7)], (5, 3, 7, 5, True, True, [0, 1, 2, 3]))])
def test_what_a_form_describes(
    form: str, shapes: Sequence[tuple[int, ...]], wanted: tuple[Any, ...]
) -> None:
    found, order = product_of(form, shapes, ["f16"] * len(shapes))
    left, right = found.left, found.right
    assert (left.rows, left.columns, right.rows, right.columns, found.left_transposed,
            found.right_transposed, list(order)) == wanted
    assert found.result == Matrix(3, 7, "f16") and (found.bias == "f16") == (len(shapes) == 4)


def test_what_cublas_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By columns: the factors change places, and so do rows and columns."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    def note(function: str, *arguments: Any) -> None:
        asked.append((function, tuple(getattr(a, "value", a) for a in arguments)))
        if function == "cublasLtMatmulAlgoGetHeuristic":
            arguments[-1]._obj.value = 1

    monkeypatch.setattr(cublas, "_call", note)
    monkeypatch.setattr(cublas, "_handle", lambda: None)
    call = cublas.Call(Product(Matrix(3, 5, "f16"), Matrix(7, 5, "f16"), Matrix(3, 7, "f32"),
                               right_transposed=True, bias="f16"))
    layouts = [a[1:] for f, a in asked if f == "cublasLtMatrixLayoutCreate"]
    assert layouts == [(2, 5, 7, 5), (2, 5, 3, 5), (0, 7, 3, 7)]
    call([1 << 40, 2 << 40, 3 << 40, 4 << 40], 9)
    function, arguments = asked[-1]
    assert function == "cublasLtMatmul"
    assert [arguments[k] for k in (3, 5, 8, 10, -1)] == [
        2 << 40, 1 << 40, 4 << 40, 4 << 40, 9]


def test_calls_free_what_they_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where cuBLAS has no such product."""
    alive = set[int]()

    def note(function: str, *arguments: Any) -> None:
        if function.endswith("Create"):
            made = arguments[0]._obj
            made.value = max(alive, default=0) + 1
            alive.add(made.value)
        elif function.endswith("Destroy"):
            alive.remove(arguments[0].value)
        elif function == "cublasLtMatmulAlgoGetHeuristic":
            arguments[-1]._obj.value = int(has_one)

    monkeypatch.setattr(cublas, "_call", note)
    monkeypatch.setattr(cublas, "_handle", lambda: None)
    asked = Product(Matrix(3, 5, "f16"), Matrix(5, 7, "f16"), Matrix(3, 7, "f16"))
    has_one = True
    call = cublas.Call(asked)
    assert len(alive) == 4
    del call
    assert not alive
    has_one = False
    with pytest.raises(CudaError, match="does not support Product"):
        cublas.Call(asked)
    assert not alive


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
def test_cublas_computes_what_kernels_do(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("triton") is None or cublas.version() is None:
        pytest.skip("needs Triton and cuBLAS")
    state = lowered(task_of(FORMS[form], tmp_path), form, tmp_path)
    values = values_of(state)
    weights = state.context.weights
    found = load_module(state.module, weights, CudaOptions()).run(values)
    monkeypatch.setattr(cublas, "version", lambda: None)
    wanted = load_module(state.module, weights, CudaOptions()).run(values)
    assert all(error_of(f, w) < 2e-3 for f, w in zip(found, wanted, strict=True))

"""Programs of their own for sizes that come often: when they are made, and that nobody notices."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from xdsl.parser import Parser

import compiler
from compiler.__main__ import main
from compiler.diagnostics import StrataError
from compiler.options import CompileOptions, Specialize
from compiler.pipeline.driver import Compiler
from compiler.programs import collection
from compiler.programs.collection import LEAVES, THRESHOLDS, rare_collections
from compiler.specialization import (
    FAILURES,
    THREAD,
    WATCHED,
    Specialization,
    Specializer,
    Specializing,
)
from dialects.context import make_context
from dialects.symbolic.symbol import Symbol
from passes.base import PassError, StrataContext
from passes.graph.fix_sizes import GraphFixSizes
from targets.base import Executable as Program
from tests import processes
from tests.control.programs import BRANCHES, GROWING, LOOP_IN_LOOP, PROGRAMS, STEPS
from tests.control.programs import Program as Control
from tests.models import tiny_bert, tiny_cnn, tiny_lstm
from tests.models.onnx_graph import Array, Sizes

ROOT = Path(__file__).parents[2]
TOLERANCE = 2e-6
"""Of an output's largest magnitude: what the order of sums may change."""
AT_ONCE = Specialize(after=1, most=99, background=False)
LENGTHS = ({"batch": 2, "seq": 16}, {"batch": 1, "seq": 11}, {"batch": 3, "seq": 1})


def save(tiny: ModuleType, folder: Path) -> Path:
    path = folder / "tiny.onnx"
    path.write_bytes(tiny.make_model(tiny.OPEN).SerializeToString())
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled code that the tests of this file share."""
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_bert, tmp_path_factory.mktemp("bert"))


Make = Callable[..., compiler.Executable]


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Make]:
    """Makes softmax(x @ w) for x: f32[n, 4], quick to compile; no thread outlives the test."""
    path = tmp_path / "rows.onnx"
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows.n", 4])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows.n", 4])
    w = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32) * 2, "w")
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["s"], name="project"),
             onnx.helper.make_node("Softmax", ["s"], ["y"], name="normalize", axis=-1)]
    graph = onnx.helper.make_graph(nodes, "rows", [x], [y], [w])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    path.write_bytes(model.SerializeToString())

    def make(
        choice: Specialize, target: str = "reference", cache: Path | None = None
    ) -> compiler.Executable:
        return compiler.compile(path, target=target, cache=cache, threads=1, specialize=choice)

    yield make
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()


def numbers(n: int) -> Array:
    return np.random.default_rng(n).standard_normal((n, 4), np.float32)


def softmax(x: Array) -> Array:
    e = np.exp(2 * x - 2 * x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def check_rows(exe: compiler.Executable, n: int) -> None:
    """One call, whose answer must be right."""
    (y,) = exe(numbers(n))
    np.testing.assert_allclose(y, softmax(numbers(n)), rtol=1e-5, atol=1e-6)


def states(exe: compiler.Executable) -> list[tuple[int, str, int]]:
    """Rows, state and answered calls of each specialization."""
    return [(s.sizes["rows.n"], s.state, s.calls) for s in exe.specializations]


def assert_same(actual: Sequence[Array], expected: Sequence[Array]) -> None:
    for a, e in zip(actual, expected, strict=True):
        assert (a.dtype, a.shape) == (e.dtype, e.shape)
        scale = np.abs(e).max(initial=0) or 1
        assert np.abs(a.astype(np.float64) - e).max(initial=0) <= TOLERANCE * scale


# ---------------------------------------------------------------------- results
@pytest.mark.parametrize(("tiny", "cases"), [
    (tiny_bert, LENGTHS), (tiny_cnn, tiny_cnn.CASES), (tiny_lstm, tiny_lstm.CASES),
], ids=["bert", "cnn", "lstm"])
def test_results_stay_the_same(
    tiny: ModuleType, cases: Sequence[Sizes], tmp_path: Path, cache: Path
) -> None:
    """Each set of sizes is answered by the general program, and then by its own."""
    exe = compiler.compile(save(tiny, tmp_path), cache=cache, specialize=AT_ONCE)
    for sizes in cases:
        inputs = tiny.make_inputs(sizes)
        expected = exe(**inputs)
        assert_same(exe(**inputs), expected)
        made = exe.specializations[-1]
        assert (made.state, made.calls, made.remark) == ("ready", 1, "")
        assert made.sizes.items() <= sizes.items()
    assert len(exe.specializations) == len(cases)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_control_flow_and_late_sizes(program: Control, tmp_path: Path) -> None:
    check_control(program, tmp_path, "reference")


@pytest.mark.parametrize("program", [BRANCHES, STEPS, GROWING, LOOP_IN_LOOP],
                         ids=lambda p: p.name)
def test_control_flow_as_native_code(program: Control, tmp_path: Path) -> None:
    check_control(program, tmp_path, "cpu")


def check_control(program: Control, folder: Path, target: str) -> None:
    path = folder / "program.mlir"
    path.write_text(program.text)
    exe = compiler.compile(path, target=target, cache="off", threads=1, specialize=AT_ONCE)
    for inputs in [*program.inputs, *program.inputs]:
        assert_same(exe.run(inputs), program.expected(inputs))
    assert {s.state for s in exe.specializations} == {"ready"}
    assert sum(s.calls for s in exe.specializations) >= len(program.inputs)


def test_many_threads_and_sizes(rows: Make) -> None:
    """Programs come and go while threads call; no answer is wrong."""
    exe = rows(Specialize(after=3, most=2), "cpu")
    wrong: list[BaseException] = []

    def call(seed: int) -> None:
        try:
            for n in np.random.default_rng(seed).integers(0, 6, 150):
                check_rows(exe, int(n))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(s.state == "ready" for s in exe.specializations) <= 2
    until(lambda: any(s.state == "ready" for s in exe.specializations))
    ready = next(s for s in exe.specializations if s.state == "ready")
    check_rows(exe, ready.sizes["rows.n"])
    assert sum(s.calls for s in exe.specializations) >= ready.calls + 1


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---------------------------------------------------------------------- when
def test_a_program_is_made_after_so_many_calls(rows: Make) -> None:
    exe = rows(Specialize(after=3, background=False))
    for _ in range(2):
        check_rows(exe, 5)
        check_rows(exe, 7)
    assert exe.specializations == []
    check_rows(exe, 5)
    assert exe.specializations == [Specialization({"rows.n": 5}, 0, "ready")]
    check_rows(exe, 5)
    check_rows(exe, 9)
    assert exe.specializations == [Specialization({"rows.n": 5}, 1, "ready")]


def test_the_program_used_longest_ago_makes_room(rows: Make) -> None:
    exe = rows(Specialize(after=1, most=2, background=False))
    for n in (3, 5, 3, 7):
        check_rows(exe, n)
    assert states(exe) == [(5, "dropped", 0), (3, "ready", 1), (7, "ready", 0)]
    check_rows(exe, 5)  # the second time it takes twice as many calls
    assert states(exe)[-1] == (5, "dropped", 0)
    check_rows(exe, 5)
    assert states(exe) == [(3, "dropped", 1), (7, "ready", 0), (5, "ready", 0)]


def test_counts_are_bounded(rows: Make) -> None:
    exe = rows(Specialize(after=2, most=1, background=False))
    for n in range(WATCHED + 20):
        exe(numbers(n))
    check_rows(exe, 0)  # its first call is forgotten, that of the last size is not
    assert exe.specializations == []
    check_rows(exe, WATCHED + 19)
    assert [s.state for s in exe.specializations] == ["ready"]


def test_calls_go_on_while_a_thread_compiles(
    rows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, compile_ = threading.Event(), Specializer.compile

    def wait(self: Specializer, sizes: Mapping[Symbol, int]) -> Program:
        go_on.wait()
        return compile_(self, sizes)

    monkeypatch.setattr(Specializer, "compile", wait)
    exe = rows(Specialize(after=1))
    for _ in range(3):
        check_rows(exe, 5)
        check_rows(exe, 7)  # one at a time: these wait
    assert states(exe) == [(5, "compiling", 0)]
    go_on.set()
    until(lambda: states(exe) == [(5, "ready", 0)])


def test_no_open_sizes_and_no_wish(bert: Path) -> None:
    fixed = compiler.compile(bert, target="reference", dims={"batch": 1, "seq": 4},
                             specialize=AT_ONCE)
    open_ = compiler.compile(bert, target="reference")
    for exe in (fixed, open_):
        exe(**tiny_bert.make_inputs({"batch": 1, "seq": 4}))
        assert exe.specializations == []
        assert not isinstance(exe.loaded, Specializing)


@pytest.mark.parametrize("options", [{"after": 0}, {"most": 0}])
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(StrataError, match="from 1 on"):
        Specialize(**options)


# ---------------------------------------------------------------------- what goes wrong
def test_a_failure_is_remembered_and_breaks_no_call(
    rows: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fail(self: Specializer, sizes: Mapping[Symbol, int]) -> Program:
        tried.append(sizes[Symbol.size("rows.n")])
        raise MemoryError("no room")

    monkeypatch.setattr(Specializer, "compile", fail)
    exe = rows(Specialize(after=1, background=False))
    for n in [1, *range(FAILURES + 3)] * 2:
        check_rows(exe, n)
    assert tried == [1, 0, 2]  # each once, and after FAILURES no more
    assert len(exe.specializations) == FAILURES
    assert {(s.state, s.calls, s.remark) for s in exe.specializations} == {("failed", 0, "no room")}
    assert "the sizes {'rows.n': 1}: no room" in caplog.text


def broken(self: Specializer, sizes: Mapping[Symbol, int]) -> Program:
    return Broken()


class Broken(Program):
    """A program that fails at every call."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        raise RuntimeError("the arena is gone")


def test_the_general_program_answers_for_one_that_fails(
    rows: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Specializer, "compile", broken)
    exe = rows(Specialize(after=1, background=False))
    for _ in range(3):
        check_rows(exe, 5)
    (made,) = exe.specializations
    assert made.state == "failed"
    assert "the arena is gone" in made.remark


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_bad_calls_are_named_errors_and_change_nothing(rows: Make, target: str) -> None:
    exe = rows(Specialize(after=2, background=False), target)
    check_rows(exe, 5)
    bad = [(np.ones((5, 3), np.float32), "dim 1 of input 'x' is 3 but must be 4"),
           (np.ones(5, np.float32), "input 'x' must have 2 dims"),
           (np.ones((5, 4)), "input 'x' must be float32, not float64")]
    for _ in range(3):
        for x, message in bad:
            with pytest.raises(ValueError, match=message):
                exe(x)
    assert exe.specializations == []
    check_rows(exe, 5)
    for x, message in bad:
        with pytest.raises(ValueError, match=message):
            exe(x)
    check_rows(exe, 5)
    assert states(exe) == [(5, "ready", 1)]


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("choice", [None, AT_ONCE], ids=["general", "specialized"])
def test_sizes_that_contradict(target: str, choice: Specialize | None, tmp_path: Path) -> None:
    """Sizes of two inputs that a node wants equal: an error that names the node, then an answer."""
    path = tmp_path / "product.mlir"
    path.write_text("""
      strata.func @main(%a: f32[n, k], %b: f32[m, 3], %c: f32[2*n]) -> (f32[n, 3])
          inputs ["a", "b", "c"] outputs ["y"] {
        %y = graph.matmul %a, %b : f32[n, 3] loc("product")
        strata.return %y
      }""")
    exe = compiler.compile(path, target=target, cache="off", threads=1, specialize=choice)
    a, b, c = np.ones((2, 5), np.float32), np.ones((5, 3), np.float32), np.ones(4, np.float32)
    for _ in range(2):
        with pytest.raises(ValueError, match="'product'"):
            exe(a, b[:4], c)
        with pytest.raises(ValueError, match="dim 0 of input 'c' is 3 but must be 4"):
            exe(a, b, c[:3])
        np.testing.assert_array_equal(exe(a, b, c)[0], np.full((2, 3), 5))
    assert [s.sizes for s in exe.specializations] == (
        [] if choice is None else [{"n": 2, "k": 5, "m": 5}])


def test_a_text_beyond_graph_level_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.mlir").write_text("""
      host.func @main(%a: f32[n]) inputs ["a"] outputs [] sizes(n) {
        host.return
      }""")
    with pytest.raises(StrataError, match="is at host level; sizes can be fixed at graph level"):
        compiler.compile(tmp_path / "empty.mlir", specialize=AT_ONCE)


def test_a_size_that_means_two_things_is_not_fixed() -> None:
    """@late's `n`, which it gives to @inner, is not that of @main."""
    inner = """strata.func @inner(%x: f32[1]) -> (f32[n]) sizes(n) inputs ["x"] outputs ["y"] {
        %y = graph.broadcast %x {shape = [n]} : f32[n]
        strata.return %y
      }"""
    text = f"""builtin.module {{ {inner}
      strata.func @late(%x: f32[1], %c: i64[], %go: i1[]) -> (f32[n]) inputs ["x", "c", "go"]
          outputs ["y"] {{
        strata.size n = %c
        %y = strata.if %go then @inner else @inner (%x) : f32[n]
        strata.return %y
      }}
      strata.func @main(%x: f32[1], %s: f32[n], %c: i64[], %go: i1[]) -> (f32[k]) inputs
          ["x", "s", "c", "go"] outputs ["y"] {{
        %y = strata.if %go then @late else @late (%x, %c, %go) defines(k) : f32[k]
        strata.return %y
      }} }}"""
    module = Parser(make_context(), text).parse_module()
    with pytest.raises(PassError, match=r"the size n .* names a different size in @late"):
        GraphFixSizes(("n",), (3,)).apply(StrataContext.with_dialects(), module)


# ---------------------------------------------------------------------- what is shared
def test_the_file_is_not_needed_any_more(rows: Make, tmp_path: Path) -> None:
    exe = rows(AT_ONCE)
    (tmp_path / "rows.onnx").unlink()
    check_rows(exe, 5)
    check_rows(exe, 5)
    assert states(exe) == [(5, "ready", 1)]


def test_weights_are_shared_and_the_snapshot_stays(bert: Path) -> None:
    """On a machine of wide vectors, where panels are as wide for few rows as for many."""
    options = CompileOptions(threads=1, cache="off", features="avx512")
    compilation = Compiler(str(bert), options)
    snapshot = compilation.keep()
    before = str(snapshot.source.module)
    general = compilation.prepare().context.weights.arrays
    own = replace(snapshot, sizes={"batch": 2, "seq": 8}, known=general)
    state = Compiler(own, options).prepare()
    assert "seq" not in str(state.module)
    made = state.context.weights.arrays
    assert all(made[key] is array for key, array in general.items())
    assert sum(a.nbytes for k, a in made.items() if k not in general) < 4096  # masks and the like
    assert str(snapshot.source.module) == before


def test_compiled_code_comes_from_the_cache(rows: Make, tmp_path: Path) -> None:
    def code() -> set[Path]:
        return set((tmp_path / "code").rglob("*.o"))

    exe = rows(AT_ONCE, "cpu", tmp_path / "code")
    general = code()
    check_rows(exe, 5)
    own = code()
    assert own > general
    check_rows(rows(AT_ONCE, "cpu", tmp_path / "code"), 5)
    assert code() == own


def test_the_collector_is_set_back_whoever_is_last() -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() >= THRESHOLDS
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_what_compilations_leave_behind_is_collected_in_the_end(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that has compiled nothing before."""
    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    fresh = collection._Collector()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(collection, "_COLLECTOR", fresh)
    left = [_left_behind(Cycle) for _ in range(LEAVES)]
    assert left[0]() is None


def _left_behind(make: Callable[[], object]) -> weakref.ref[object]:
    """A reference to garbage of a context with rare collections."""
    with rare_collections():
        return weakref.ref(make())


ENDS = """
import sys, numpy as np, compiler
from tests.models import tiny_bert
exe = compiler.compile(sys.argv[1], cache="off", threads=1, specialize=compiler.Specialize(after=1))
exe(**tiny_bert.make_inputs({"batch": 1, "seq": 4}))
print(exe.specializations[0].state)
"""


def test_a_process_may_end_while_a_thread_compiles(bert: Path) -> None:
    done = processes.run([sys.executable, "-c", ENDS, str(bert)], cwd=ROOT, text=True,
                         capture_output=True, limit=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "compiling\n", "")


# ---------------------------------------------------------------------- the command line
@pytest.mark.parametrize(("words", "shown"), [
    (("lower", "--to", "graph"), "%x: f32[6, 4]"), (("run",), "float32[6, 4]"),
    (("verify", "--levels-only"), "executions agree"),
    (("bench", "--rounds", "2", "--threads", "1"), "strata "),
], ids=lambda words: words[0])
def test_dim_fixes_a_size_everywhere(
    words: Sequence[str], shown: str, rows: Make, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [words[0], str(tmp_path / "rows.onnx"), "--cache", "off", *words[1:]]
    assert main([*command, "--dim", "rows.n=6"]) == 0
    assert shown in capsys.readouterr().out
    assert main([*command, "--dim", "cols=6"]) == 1
    assert "--dim names 'cols', which is not a size of the model" in capsys.readouterr().err


def test_bench_times_both(
    rows: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", str(tmp_path / "rows.onnx"), "--specialize", "--rounds", "2", "--cache",
               "off", "--threads", "1", "--json", str(tmp_path / "figures.json")]
    assert main([*command, "--dim", "rows.n=6"]) == 0
    assert "strata, sizes fixed" in capsys.readouterr().out
    figures = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert [row["name"] for row in figures] == ["strata", "strata, sizes fixed"]
    assert figures[1]["difference"] <= TOLERANCE
    assert main([*command, "--dim", "cols=6"]) == 1
    assert "--dim names 'cols'" in capsys.readouterr().err
    assert main([*command, "--shape", "x=2x4"]) == 1
    assert "the model has no open sizes" in capsys.readouterr().err


# ---------------------------------------------------------------------- torch
@pytest.mark.slow
def test_exported_programs_and_captured_graphs() -> None:
    torch: Any = pytest.importorskip("torch")
    from compiler.torch.backend import strata

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (torch.ones(3, 4),), dynamic_shapes=({0: batch},))
    exe = compiler.compile(program, cache="off", specialize=AT_ONCE)
    captured = torch.compile(model, backend=strata, dynamic=True,
                             options={"cache": "off", "specialize": AT_ONCE})
    with torch.no_grad():
        for n in (3, 3, 5, 5, 3):
            x = torch.from_numpy(numbers(n))
            torch.testing.assert_close(exe(x)[0], model(x))
            torch.testing.assert_close(captured(x), model(x))
    assert [(s.sizes, s.calls) for s in exe.specializations] == [
        ({"batch": 5}, 1), ({"batch": 3}, 2)]

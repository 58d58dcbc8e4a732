"""Whole models on the CPU target: sizes, memory, threads, the cache, and what is emitted."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.strata.weights import WeightStore
from targets.base import Executable, TargetOptions
from targets.cpu import TARGET
from targets.cpu.build import helpers, jit, worker
from targets.cpu.build.cache import ObjectCache, object_key
from targets.cpu.machine import machine_of
from targets.cpu.runtime.processors import thread_count
from targets.cpu.runtime.threads import loaded_libgomp, thread_pool
from tests import processes
from tests.targets.cpu.cpu_kernels import each_machine, native, parse, parse_module, randoms

ADD = """
block.kernel @add{name}(%X: f32[n, 200], %W: f32[4], %Y: f32[n, 200]) grid(%r: n) sizes(n) {{
  %w = block.load %W[{place}] : tile<f32>
  %x = block.load %X[%r, t0] : tile<[200]xf32>
  %e = block.map (%x[0], %w[]) : tile<[200]xf32> {{
  ^bb0(%a: f32, %b: f32):
    %v = arith.addf %a, %b : f32
    block.yield %v
  }}
  block.store %e, %Y[%r, t0]
  block.yield
}}
"""
MODEL = ADD.format(name="1", place=1) + ADD.format(name="2", place=2) + """
host.func @main(%x: f32[batch, 2, 100], %y: f32[batch, 200], %z: f32[batch, 200])
    inputs ["x"] outputs ["y", "z"] sizes(batch) arena(800*batch) {
  %w = host.constant literal[0.5, 1.0, 2.0, 4.0] : f32[4]
  %v = host.view %x : f32[batch, 200]
  %h = host.alloc offset 0 : f32[batch, 200]
  %g = host.alloc : f32[batch, 200]
  host.launch @add1(%v, %w, %h) sizes(batch)
  host.copy %h, %g
  host.launch @add2(%g, %w, %y) sizes(batch)
  host.launch @add1(%y, %w, %z) sizes(batch)
  host.return
}
"""


def model() -> ModuleOp:
    return parse_module(MODEL)


def load(**options: Any) -> Executable:
    return TARGET.bind(TargetOptions(**options)).running.load(model(), WeightStore())


# ---------------------------------------------------------------------- results
@each_machine
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_launches_copies_and_views(features: str, threads: int) -> None:
    executable = load(features=features, threads=threads)
    for batch in (3, 0, 1, 700, 700, 5):
        x = randoms(batch, 2, 100)
        y, z = executable.run([x])
        np.testing.assert_array_equal(y, x.reshape(batch, 200) + np.float32(1) + np.float32(2))
        np.testing.assert_array_equal(z, y + np.float32(1))


def test_outputs_of_earlier_calls_stay() -> None:
    executable = load(threads=1)
    first, _ = executable.run([np.zeros((2, 2, 100), np.float32)])
    executable.run([np.ones((2, 2, 100), np.float32)])
    assert (first == 3).all()


def test_calls_from_several_python_threads() -> None:
    executable = load(threads=2)
    failures: list[int] = []

    def call(value: int) -> None:
        x = np.full((100 + value, 2, 100), value, np.float32)
        for _ in range(20):
            if not (executable.run([x])[0] == value + 3).all():
                failures.append(value)

    callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_inputs_need_not_be_contiguous_or_aligned() -> None:
    executable = load(threads=1)
    raw = np.zeros(4 * 400 + 1, np.uint8)[1:]
    x = raw.view(np.float32).reshape(2, 2, 100)
    assert (executable.run([x])[0] == 3).all()
    assert (executable.run([np.zeros((2, 2, 200), np.float32)[:, :, ::2]])[0] == 3).all()


# ---------------------------------------------------------------------- errors
@pytest.mark.parametrize(("inputs", "message"), [
    ([], r"takes 1 inputs \(x\), not 0"),
    ([np.zeros((2, 200), np.float32)], "input 'x' must have 3 dims"),
    ([np.zeros((2, 2, 100))], "input 'x' must be float32, not float64"),
    ([np.zeros((2, 3, 100), np.float32)], "dim 1 of input 'x' is 3 but must be 2"),
])
def test_wrong_inputs_are_named(inputs: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(threads=1).run(inputs)


def test_contradicting_sizes_are_named() -> None:
    module = parse_module("""
    host.func @main(%a: f32[n, 2*n + 1], %b: f32[n]) inputs ["a", "b"] outputs [] sizes(n) {
      host.return
    }""")
    executable = TARGET.bind(TargetOptions(threads=1)).running.load(module, WeightStore())
    executable.run([np.zeros((3, 7), np.float32), np.zeros(3, np.float32)])
    with pytest.raises(ValueError, match="dim 0 of input 'b' is 4 but must be 3"):
        executable.run([np.zeros((3, 7), np.float32), np.zeros(4, np.float32)])


def test_an_unknown_operation_is_named() -> None:
    kernel = parse("""
    block.kernel @k(%x: i32[4]) grid() sizes() {
      %a = block.load %x[t0] : tile<[4]xi32>
      %b = block.map (%a[0]) : tile<[4]xi32> {
      ^bb0(%i: i32):
        %c = math.ctpop %i : i32
        block.yield %c
      }
      block.store %b, %x[t0]
      block.yield
    }""")
    with pytest.raises(ValueError, match=r"no scalar operation math\.ctpop"):
        native(kernel, machine_of())


# ---------------------------------------------------------------------- denormals
@pytest.mark.parametrize("threads", [1, 2])
def test_denormals_are_flushed_inside_and_kept_outside(threads: int) -> None:
    module = parse_module("""
    block.kernel @half(%x: f32[n], %y: f32[n]) grid(%p: n ceildiv 16) sizes(n) {
      %a = block.load %x[16*%p + t0] check [0] : tile<[16]xf32>
      %b = block.map (%a[0]) : tile<[16]xf32> {
      ^bb0(%v: f32):
        %h = arith.constant 0.5 : f32
        %w = arith.mulf %v, %h : f32
        block.yield %w
      }
      block.store %b, %y[16*%p + t0] check [0]
      block.yield
    }
    host.func @main(%x: f32[n], %y: f32[n]) inputs ["x"] outputs ["y"] sizes(n) {
      host.launch @half(%x, %y) sizes(n)
      host.return
    }""")
    executable = TARGET.bind(TargetOptions(threads=threads)).running.load(module, WeightStore())
    tiny = np.full(1 << 20, np.finfo(np.float32).tiny)
    assert not executable.run([tiny])[0].any()
    assert (tiny * np.float32(0.5)).all()  # this thread computes with denormals again


# ---------------------------------------------------------------------- the cache
def test_a_second_load_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(cache=tmp_path)
    assert len(list((tmp_path / "cpu").iterdir())) == 4  # two kernels, and the driver in two parts

    def fail(*job: str) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(worker, "compile_text", fail)
    executable = load(cache=tmp_path)
    assert (executable.run([np.zeros((1, 2, 100), np.float32)])[0] == 3).all()


def test_damaged_files_count_as_absent(tmp_path: Path) -> None:
    load(cache=tmp_path)
    for k, file in enumerate(sorted((tmp_path / "cpu").iterdir())):
        content = file.read_bytes()
        file.write_bytes((content[:-1], b"", content[:50] + b"?" + content[51:])[k % 3])
    executable = load(cache=tmp_path)
    assert (executable.run([np.zeros((1, 2, 100), np.float32)])[0] == 3).all()


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file")
    cache.put("key", b"code")
    assert cache.get("key") is None
    assert ObjectCache(None).get("key") is None


def test_writers_at_the_same_time(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    writers = [threading.Thread(target=cache.put, args=("key", b"code" * 10000))
               for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert cache.get("key") == b"code" * 10000
    assert [f.name for f in (tmp_path / "cpu").iterdir()] == ["key.o"]


def test_equal_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    load = TARGET.bind(TargetOptions(threads=1)).running.load
    load(parse_module(MODEL), WeightStore())  # also compiles what all models share
    texts: list[str] = []
    compile_text = worker.compile_text
    monkeypatch.setattr(worker, "compile_text", lambda text, *rest, **options: (
        texts.append(text), compile_text(text, *rest, **options))[1])
    module = parse_module(MODEL.replace("%W[2]", "%W[1]"))
    executable = load(module, WeightStore())
    assert len(texts) == 2  # the driver and one kernel
    assert (executable.run([np.zeros((1, 2, 100), np.float32)])[1] == 3).all()


def test_helper_processes_compile_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(machine_of(), cores=3)
    texts = [f"define i32 @f{k}() {{ ret i32 {k} }}\n" for k in range(5)]
    expected = jit.compile_texts(texts, machine, ObjectCache(None))
    monkeypatch.setattr(jit, "_HELPERS_PAY", 1e-9)
    assert jit.compile_texts(texts, machine, ObjectCache(None)) == expected


def test_foreseen_helper_processes_compile_the_same_and_end() -> None:
    machine = replace(machine_of(), cores=3)
    texts = [f"define i32 @f{k}() {{ ret i32 {k} }}\n" for k in range(5)]
    expected = jit.compile_texts(texts, machine, ObjectCache(None))
    jit.foresee_texts(1000, machine)
    jit.foresee_texts(1000, machine)
    started = [h._process for h in helpers._foreseen]
    assert jit.compile_texts(texts, machine, ObjectCache(None)) == expected
    assert None not in [p.poll() for p in started]


def test_a_fork_leaves_foreseen_processes_to_its_parent() -> None:
    helpers.foresee(1)
    if not (child := processes.fork()):
        os._exit(helpers.are_foreseen() or helpers._taken() is not None)
    assert os.waitpid(child, 0)[1] == 0
    assert helpers.are_foreseen()
    helpers.dismiss()
    assert not helpers.are_foreseen()


def test_what_a_helper_process_fails_at_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(machine_of(), cores=3)
    texts = [f"define i32 @f{k}() {{ ret i32 {k} }}\n" for k in range(5)]
    expected = jit.compile_texts(texts, machine, ObjectCache(None))
    monkeypatch.setattr(jit, "_HELPERS_PAY", 1e-9)
    monkeypatch.setattr(helpers.sys, "executable", "/bin/false")
    assert jit.compile_texts(texts, machine, ObjectCache(None)) == expected


def test_helper_processes_end_when_no_text_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def texts() -> Iterator[str]:
        yield "define i32 @f() { ret i32 1 }\n"
        raise ValueError("no more")

    monkeypatch.setattr(jit, "_HELPERS_PAY", 1e-9)
    before = threading.active_count()
    with pytest.raises(ValueError, match="no more"):
        jit.compile_texts(texts(), replace(machine_of(), cores=2), ObjectCache(None))
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize("cores", [1, 3])
def test_what_is_compiled_is_kept_when_the_rest_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    machine, cache = replace(machine_of(), cores=cores), ObjectCache(tmp_path)
    texts = [f"define i32 @f{k}() {{ ret i32 {k} }}\n" for k in range(5)]
    counts: list[int] = []

    def report(done: int) -> None:
        counts.append(done)
        assert len(list((tmp_path / "cpu").glob("*.o"))) >= done  # kept before it is told
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jit.compile_texts(texts, machine, cache, report)
    keys = [object_key(text, machine.key) for text in texts]
    assert sum(cache.get(key) is not None for key in keys) == max(counts) == 3
    compiled: list[str] = []
    compile_text = worker.compile_text
    monkeypatch.setattr(worker, "compile_text", lambda text, *rest: (
        compiled.append(text), compile_text(text, *rest))[1])
    jit.compile_texts(texts, machine, cache)
    assert len(compiled) == 2


# ---------------------------------------------------------------------- emitted code
def test_a_feature_set_bounds_the_instructions() -> None:
    options = TargetOptions(features="avx2")
    assert "zmm" not in TARGET.bind(options).emission.emit(model(), "asm")
    assert "ymm" in TARGET.bind(options).emission.emit(model(), "asm")


@each_machine
def test_emitted_text_is_deterministic_and_readable(features: str) -> None:
    options = TargetOptions(features=features)
    text = TARGET.bind(options).emission.emit(model(), "llvm")
    assert text == TARGET.bind(options).emission.emit(model(), "llvm")
    assert "define void @add1(ptr noalias %buffer0" in text
    assert "define i32 @strata_entry(" in text


def test_unknown_features_are_an_error() -> None:
    with pytest.raises(ValueError, match="no feature set 'sse'; there are: baseline, avx2, avx512"):
        machine_of("sse")


# ---------------------------------------------------------------------- threads
def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert (thread_count(None), thread_count(5)) == (3, 5)
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert thread_count(None) == machine_of().cores


def test_the_thread_pool_of_torch_is_preferred() -> None:
    system = "7f00-7f01 r-xp 00000000 08:01 1234   /usr/lib/libgomp.so.1.0.0"
    own = "7f02-7f03 r-xp 00000000 08:01 1235   /site packages/torch/lib/libgomp-a34b3233.so.1"
    assert loaded_libgomp(f"{system}\n{own}") == "/site packages/torch/lib/libgomp-a34b3233.so.1"
    assert loaded_libgomp(system) == "/usr/lib/libgomp.so.1.0.0"
    assert loaded_libgomp("") is None


def test_the_report_names_the_machine_and_the_thread_pool() -> None:
    lines = TARGET.report()
    assert machine_of().cpu in lines[0]
    assert thread_pool().source in lines[2]

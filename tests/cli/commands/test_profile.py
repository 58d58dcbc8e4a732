"""`profile`: times of kernels that add up, in programs that compute the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from compiler.io.signature import signature_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.profiling import measure, roofline
from compiler.profiling.measure import profile_model
from compiler.profiling.result import Launch, ProfileResult
from compiler.profiling.roofline import Roofline
from targets.cpu.driver.clock import stamp
from targets.profiles import CounterProfile, Timings, disturbance, seconds_waited
from tests.cli.conftest import Run
from tests.counts import models
from tests.counts.count import Subject
from tests.models.onnx_graph import OnnxGraph
from tests.processes import start

LIMIT = Roofline(1e11, 1e10)


@pytest.fixture(autouse=True)
def fixed_roofline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring the machine takes a second; one test does."""
    if "roofline" not in request.node.name:
        monkeypatch.setattr(measure, "measured", lambda options, narrow: LIMIT)


def products(depth: int, side: int) -> onnx.ModelProto:
    g = OnnxGraph({})
    y = g.input("x", np.float32, [side, side])
    for _ in range(depth):
        y = g.node("Softmax", g.node("MatMul", y, g.random_weight(side, side)), axis=-1)
    return g.model({"y": y})


def profiled(model: onnx.ModelProto, threads: int, seconds: float = 0.1) -> ProfileResult:
    options = CompileOptions(threads=threads, cache="off")
    named = MemoryModel("m.onnx", model.SerializeToString())
    return profile_model(named, options, lambda signature: [
        signature.random_input(n, 0, [s.constant or 2 for s in t.shape]) for n, t in zip(
            signature.input_names, signature.input_types, strict=True)], seconds=seconds)


@pytest.mark.parametrize("threads", [1, 2])
def test_times_add_up_to_the_call(threads: int) -> None:
    """What the counter tells of launches, gaps and calls is what the clock tells of the wall. A
    call of some milliseconds is launches, but for a few microseconds; other programs on a busy
    machine may interrupt it anywhere, so one of some profiles must fit. Where they have the
    processor often, launches in their quickest rounds take no longer than the plain program."""
    for _ in range(12):
        found = profiled(products(4, 512), threads, 0.3)
        inside = found.host_ms + sum(x.ms for x in found.launches)
        if abs(found.rest_ms) <= 0.05 * found.wall_ms and (
                0 < inside < 1.1 * found.plain_ms if found.times.disturbed else
                0.85 <= inside / found.wall_ms <= 1.05):
            break
    else:
        pytest.fail(f"{found.wall_ms} ms: {inside} in launches, {found.rest_ms} not accounted for")
    assert len(found.launches) >= 8
    assert all(x.ms > 0 and x.runs == 1 and x.bytes > 0 for x in found.launches)
    assert {n for x in found.launches for n in x.nodes} >= {"MatMul_0", "Softmax_1"}


def test_interruptions_are_told() -> None:
    """A process on the same processor has it about half of the time."""
    if not seconds_waited():
        pytest.skip("this Linux does not tell how long threads wait")
    assert disturbance(0.01) == []
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(ours)})
    try:
        with start([sys.executable, "-c", "while True: pass"]) as other:  # inherits it
            found = profiled(products(2, 256), 1, 0.5)
            other.kill()
    finally:
        os.sched_setaffinity(0, ours)
    [told] = found.times.notes
    assert re.fullmatch(r"other programs had the processor for \d+% of the time, so each .*", told)
    assert found.times.disturbed and found.overhead is None
    assert told in found.lines()
    assert found.json["overhead"] is None
    assert found.json["overhead_told"].startswith("not measurable: other programs")
    assert f"(overhead {found.overhead_told})" in found.lines()[0]


@pytest.mark.parametrize("make", [models.control, models.cnn, models.experts],
                         ids=lambda make: make.__name__)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_program_with_a_clock_computes_the_same(
    make: Callable[[], Subject], threads: int
) -> None:
    subject = make()
    options = CompileOptions(threads=threads, cache="off")
    compilation = Compiler(MemoryModel("m.onnx", subject.model.SerializeToString()), options)
    state = compilation.prepare()
    running, weights = compilation.parts.running, state.context.weights
    timed = running.profile(state.module, weights)
    assert isinstance(timed, CounterProfile)
    plain = timed.plain
    signature = signature_of(state.module)
    sizes = {s: 4 for s in signature.symbols()}
    inputs = [signature.random_input(n, 1, [int(e.evaluate(sizes)) for e in t.shape])
              for n, t in zip(signature.input_names, signature.input_types, strict=True)]
    for _ in range(3):
        for a, b in zip(timed.executable.run(inputs), plain.run(inputs), strict=True):
            np.testing.assert_array_equal(a, b)
    outside, _, *launches = timed.rows()
    assert outside[1] == 3
    assert sum(runs for _, runs in launches) >= 3


def test_plain_programs_have_no_clock() -> None:
    options = CompileOptions(cache="off")
    model = MemoryModel("m.onnx", models.cnn().model.SerializeToString())
    compilation = Compiler(model, options)
    assert stamp.name not in compilation.emit(compilation.lower(), "llvm")


def test_the_text_lists_what_takes_the_time() -> None:
    """Small kernels are one row, so the rows still add up; no row is less than nothing."""
    launches = [Launch(f"k{k}", [], ms, 1, 1e3, 1e3) for k, ms in enumerate(
        [9.0, 4.0, 1.0, *[0.001] * 30])]
    total = sum(x.ms for x in launches)
    times = Timings(total / 1e3 - 1e-12, total / 1e3, 0, 0, 1, (), "", "", "")
    rows = [line.split() for line in ProfileResult("m", times, 0, launches, LIMIT).lines()
            if re.match(r" +-?[0-9.]+ +-?[0-9.]+%", line)]
    assert len(rows) == 3 + 1 + 3
    assert sum(float(r[0]) for r in rows) == pytest.approx(total, abs=1e-3)
    assert not any(r[0].startswith("-") or r[1].startswith("-") for r in rows)
    assert " ".join(rows[3]).endswith("30 more kernels (--json has all)")


def test_the_command_writes_figures_and_a_trace(strata: Run, small_model: Path) -> None:
    done = strata("profile", small_model, "--dim", "n=16", "--input", "rows=[0, 1, 2]", "--threads",
                  "1", "--seconds", "0.05", "--json", "p.json", "--trace", "t.json")
    assert done.status == 0, done.err
    assert "ms a call on 1 thread(s)" in done.out
    assert "overhead" in done.out or "so each row" in done.out
    found = json.loads(Path("p.json").read_text())
    assert found["wall_ms"] > 0
    for row in found["kernels"]:
        assert row.keys() >= {"name", "ms", "share", "of_roofline", "nodes"}
    assert [r["ms"] for r in found["kernels"]] == sorted(
        (r["ms"] for r in found["kernels"]), reverse=True)
    assert {n["name"] for n in found["nodes"]} == {"project", "normalize", "pick"}
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    counters = [e for e in events if e["ph"] == "C"]
    assert len(counters) == len(found["memory"]) and all(e["args"]["bytes"] > 0 for e in counters)
    assert max(row["live"] for row in found["memory"]) <= found["arena"]
    spans = [e for e in events if e["ph"] == "X" and e["tid"] == 1]
    assert len(spans) == sum(r["launches"] for r in found["kernels"])
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(spans))


def test_shares_of_the_roofline() -> None:
    """1e8 FLOPs at 1e11 a second take 1 ms; 1e6 bytes at 1e10 a second 0.1 ms."""
    launches = [Launch("a", ["n"], 2.0, 1, 1e6, 1e8), Launch("a", ["m"], 2.0, 1, 1e6, 1e8)]
    times = Timings(5e-3, 4e-3, 5e-4, 4e-4, 10, [], "1 thread(s)", "between", "outside")
    found = ProfileResult("m", times, 0, launches, LIMIT)
    [row] = found.json["kernels"]
    assert row["of_roofline"] == pytest.approx(0.5) and row["bound"] == "flops"
    assert LIMIT.bound(1e6, 1e6) == "bytes"
    narrow = Roofline(1e11, 1e10, 1e12)
    assert narrow.seconds(1e8, 1e6, True) == pytest.approx(1e-4)
    assert narrow.bound(1e8, 1e7, True) == "bytes" and LIMIT.bound(1e8, 1e6, True) == "flops"
    assert row["share"] == pytest.approx(0.8)
    assert (found.call_ms, found.overhead) == (pytest.approx(0.4), pytest.approx(0.25))
    assert found.rest_ms == pytest.approx(0.1)
    rows = [*found.json["kernels"], *found.json["gaps"]]
    assert sum(r["ms"] for r in rows) == pytest.approx(found.wall_ms)
    assert [r["name"] for r in found.json["gaps"]] == ["launch gaps", "call", "rest"]


def test_the_roofline_is_measured() -> None:
    found = roofline.measured(CompileOptions(threads=1))
    assert found.flops > 1e9 and found.bytes > 1e8


@pytest.mark.parametrize("given, told", [("rows=[99]", "rows"), ("in/x:0=2x5xf32=ones", "in/x:0")])
def test_inputs_that_the_model_refuses(
    strata: Run, small_model: Path, given: str, told: str
) -> None:
    done = strata("profile", small_model, "--dim", "n=2", "--dim", "m=1", "--input", given)
    assert done.status == 1 and told in done.err and "fault of the compiler" not in done.err


@pytest.mark.parametrize("target", ["cuda", "reference"])
def test_targets_without_a_clock_refuse(
    strata: Run, small_model: Path, target: str
) -> None:
    if target == "cuda" and shutil.which("nvidia-smi"):
        pytest.skip("there is a GPU, which has one")
    done = strata("profile", small_model, "--target", target, "--dim", "n=4", "--dim", "m=2",
                  *(["--features", "sm_90"] if target == "cuda" else []))
    assert done.status == 1, done.err
    assert "Traceback" not in done.err and f"target {target} cannot do that" in done.err


def test_an_executable_is_profiled() -> None:
    exe = compiler.compile(products(1, 64), threads=1)
    found = compiler.profile(exe, np.ones((64, 64), np.float32))
    assert found.launches and found.lines()
    with pytest.raises(StrataError):
        compiler.profile(exe, np.ones((63, 64), np.float32))


def test_inputs_without_dims_stay_so() -> None:
    g = OnnxGraph({})
    x, by = g.input("x", np.float32, [64]), g.input("by", np.float32, [])
    exe = compiler.compile(g.model({"y": g.node("Mul", x, by)}), threads=1)
    assert compiler.profile(exe, np.ones(64, np.float32), np.array(2, np.float32)).launches

"""`--check`: an access outside its buffer ends a run with an error, and all of ours stay inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.__main__ import main
from dialects.strata.assumptions import AccessError
from dialects.strata.types import Array
from targets.base import TargetOptions
from tests.lowering import assert_close
from tests.pipeline.test_samples_everywhere import (
    CPU,
    FEW,
    FIRST,
    Sample,
    each_sample,
    each_size,
    lowered,
    needs_triton,
)
from tests.targets.cpu.cpu_kernels import feature_set

MORE = ("scatter_nd", "scatter_elements", "top_k", "pad", "resize", "cumsum",
        "max_pool_indices", "search_sorted", "transpose", "reduce_sum", "slice")


# ---------------------------------------------------------------------- ours stay inside
def run_checked(sample: Sample, symbolic: bool, features: str | None) -> None:
    options = TargetOptions(features=features, check=True)
    module, context, inputs, expected = lowered(sample, symbolic, "cpu", options)
    model = CPU.bind(options).running.load(module, context.weights)
    assert_close(model.run(inputs), expected, sample.tolerance or 0, "checked")


@pytest.mark.parametrize("sample", [
    s for op, s in FIRST.items() if op.name.removeprefix("graph.") in (*FEW, *MORE)
], ids=lambda s: s.label)
def test_accesses_of_a_few_samples_stay_inside(sample: Sample) -> None:
    run_checked(sample, True, None)


@pytest.mark.slow
@each_size
@each_sample
@pytest.mark.parametrize("features", [*map(feature_set, ("avx2", "avx512"))])
def test_accesses_of_all_samples_stay_inside(
    sample: Sample, symbolic: bool, features: str
) -> None:
    run_checked(sample, symbolic, features)


# ---------------------------------------------------------------------- what is wrong is found
TEXT = """// strata: level=block
builtin.module {
  host.func @main(%x: f32[n, 8], %i: i64[n], %y: f32[n, 8])
      inputs ["x", "i"] outputs ["y"] sizes(n) arena(0) {
    host.launch @k(%x, %i, %y) sizes(n) loc("some/node")
    host.return
  }
  block.kernel @k(%x: f32[n, 8], %i: i64[n], %y: f32[n, 8]) grid(%p: n) sizes(n) {
    BODY
    block.yield
  }
}
"""
READS = """%v = block.load %x[READ] : tile<[8]xf32> loc("some/node")
    block.store %v, %y[%p, t0] loc("some/node")"""
WRITES = """%v = block.load %x[%p, t0] : tile<[8]xf32> loc("some/node")
    block.store %v, %y[WRITE] loc("some/node")"""
GATHERS = """%g = block.load %i[%p] : tile<i64> loc("some/node")
    %v = block.load %x[%g, t0] : tile<[8]xf32> loc("some/node")
    block.store %v, %y[%p, t0] loc("some/node")"""
SCRATCH = """%s = block.scratch : f32[6]
    %v = block.load %x[%p, t0] : tile<[8]xf32> loc("some/node")
    block.store %v, %s[t0] loc("some/node")
    block.store %v, %y[%p, t0] loc("some/node")"""
LOOPS = """block.for %k = 0 to 10 step 2 parallel {
      %v = block.load %x[%p, %k + t0] : tile<[2]xf32> loc("some/node")
      block.store %v, %y[%p, %k + t0] check [1] loc("some/node")
      block.yield
    }"""
WRONG = {
    "a row behind the last": (READS.replace("READ", "%p + 1, t0"), "block.load leaves dim 0 of x"),
    "a row before the first": (READS.replace("READ", "%p - 1, t0"), "block.load leaves dim 0 of x"),
    "far away": (READS.replace("READ", "%p, t0 + 1000000000000"), "block.load leaves dim 1 of x"),
    "another row's columns": (READS.replace("READ", "%p, t0 + 1"), "block.load leaves dim 1 of x"),
    "beside a checked dim": (READS.replace("READ", "%p + 1, t0").replace(
        "] : tile", "] check [1] pad 0.0 : tile"), "block.load leaves dim 0 of x"),
    "a store": (WRITES.replace("WRITE", "%p + n, t0"), "block.store leaves dim 0 of y"),
    "a store far away": (WRITES.replace("WRITE", "%p - 99999999999, t0"),
                         "block.store leaves dim 0 of y"),
    "a gather": (GATHERS, "block.load leaves dim 0 of x"),
    "scratch memory": (SCRATCH, "block.store leaves dim 0 of s"),
    "in a loop": (LOOPS, "block.load leaves dim 1 of x"),
}


def program(tmp_path: Path, body: str, check: bool = True, **more: object) -> compiler.Executable:
    path = tmp_path / "k.mlir"
    path.write_text(TEXT.replace("BODY", body))
    return compiler.compile(path, check=check, cache="off", **more)  # type: ignore[arg-type]


def inputs(wrong: bool) -> list[Array]:
    indices = np.arange(5)
    indices[3] = 5 if wrong else 0
    return [np.arange(40, dtype=np.float32).reshape(5, 8), indices]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", list(WRONG))
def test_an_access_outside_is_an_error(tmp_path: Path, kind: str, threads: int) -> None:
    body, message = WRONG[kind]
    checked = program(tmp_path, body, threads=threads)
    for _ in range(2):
        with pytest.raises(AccessError, match=f"{message}.* in kernel @k at node 'some/node'"):
            checked.run(inputs(True))


def test_what_stays_inside_computes_what_it_did(tmp_path: Path) -> None:
    for body in (GATHERS, READS.replace("READ", "%p, t0"),
                 READS.replace("READ", "%p - 3, t0").replace("] :", "] check [0] pad 1.5 :")):
        given = inputs(False)
        [found] = program(tmp_path, body).run(given)
        [expected] = program(tmp_path, body, check=False).run(given)
        np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------------- what is not written
HALF = """%v = block.load %x[%p, t0] : tile<[4]xf32>
    block.store %v, %y[%p, t0]"""
PARTS = """// strata: level=block
builtin.module {
  host.func @main(%x: f32[n, 8], %i: i64[1], %y: f32[n, 8])
      inputs ["x", "i"] outputs ["y"] sizes(n) arena(256*((64*n + 255) floordiv 256)) {
    %h = host.alloc offset 0 : i64[n, 8]
    host.launch @first(%i, %h) sizes(n)
    host.launch @second(%x, %h, %y) sizes(n)
    host.return
  }
  block.kernel @first(%i: i64[1], %h: i64[n, 8]) grid(%p: n) sizes(n) {
    %v = block.load %i[0] : tile<i64>
    block.store %v, %h[%p, 0]
    block.store %v, %h[%p, LAST]
    block.yield
  }
  block.kernel @second(%x: f32[n, 8], %h: i64[n, 8], %y: f32[n, 8]) grid(%p: n, %q: 8) sizes(n) {
    %g = block.load %h[%p, 7*(%q floordiv 7)] : tile<i64>
    %v = block.load %x[%g, %q] : tile<f32>
    block.store %v, %y[%p, %q]
    block.yield
  }
}
"""
"""The second kernel gathers by what the first one has written: all that is read, or not."""
CALLED = """// strata: level=block
builtin.module {
  host.func @main(%x: f32[n], %c: i1[]) inputs ["x", "c"] outputs ["y": f32[n]] sizes(n) arena(0) {
    %y = strata.if %c then @f else @f (%x) buffers f32[n]
    host.return %y
  }
  host.func @f(%x: f32[n]) inputs ["x"] outputs ["y": f32[n]] sizes(n) arena(0) {
    %y = host.alloc : f32[n]
    host.launch @k(%x, %y) sizes(n)
    host.return %y
  }
  block.kernel @k(%x: f32[n], %y: f32[n]) grid(%p: n - 1) sizes(n) {
    %v = block.load %x[%p] : tile<f32>
    block.store %v, %y[%p]
    block.yield
  }
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_not_written_is_no_number(tmp_path: Path, threads: int) -> None:
    """Each time, not what was there before."""
    checked = program(tmp_path, HALF, threads=threads)
    for _ in range(2):
        [found] = checked.run(inputs(False))
        assert np.isnan(found[:, 4:]).all()
        assert not np.isnan(found[:, :4]).any()


@pytest.mark.parametrize("threads", [1, 2])
def test_called_functions_do_not_see_what_was_there(tmp_path: Path, threads: int) -> None:
    (tmp_path / "k.mlir").write_text(CALLED)
    model = compiler.compile(tmp_path / "k.mlir", check=True, cache="off", threads=threads)
    x = np.arange(9, dtype=np.float32)
    for _ in range(3):
        [found] = model.run([x, np.array(True)])
        assert np.isnan(found[-1])
        np.testing.assert_array_equal(found[:-1], x[:-1])


def test_an_index_that_is_not_written_leaves_its_buffer(tmp_path: Path) -> None:
    x, index = np.arange(40, dtype=np.float32).reshape(5, 8), np.array([2])
    for last, wrong in (("7", False), ("6", True)):
        (tmp_path / "k.mlir").write_text(PARTS.replace("LAST", last))
        model = compiler.compile(tmp_path / "k.mlir", check=True, cache="off")
        if wrong:
            with pytest.raises(AccessError, match=r"block\.load leaves dim 0 of x"):
                model.run([x, index])
        else:
            np.testing.assert_array_equal(model.run([x, index])[0], x[[2] * 5])


@needs_triton
@pytest.mark.parametrize("kind", ["a row behind the last", "a store", "a gather"])
def test_cuda_finds_it_too(tmp_path: Path, kind: str) -> None:
    body, message = WRONG[kind]
    checked = program(tmp_path, body.replace("[8]", "8"), target="cuda", interpret=True)
    with pytest.raises(AccessError, match=message):
        checked.run(inputs(True))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path, GATHERS)
    np.savez("in.npz", x=inputs(True)[0], i=inputs(True)[1])
    assert main(["run", "k.mlir", "--inputs", "in.npz", "--check", "--cache", "off"]) == 3
    assert "AccessError: block.load leaves dim 0 of x" in capsys.readouterr().err

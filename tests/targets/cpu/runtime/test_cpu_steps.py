"""Launches one by one: the same results, checks and files as one call that runs everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import compiler
from compiler import IndexRangeError, MemoryModel
from compiler.executable import Executable
from targets.cpu.runtime.executable import CpuExecutable

LOOKUP = """
    g (float[rows, 64] table, int64[n] at, float[n, 64] x) => (y, s) {
        found = Gather<axis = 0>(table, at)
        sum = Add(found, x)
        y = Softmax(sum)
        s = ReduceSum<keepdims = 0>(y)
    }"""
BRANCH = """
    g (float[n] x, bool c) => (y) {
        z = Relu(x)
        y = If(c) <then_branch = t () => (a) { a = Exp(z) }, else_branch = e () => (b) {
            b = Neg(z) }>
    }"""


def compiled(text: str, **options: Any) -> Executable:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    return compiler.compile(MemoryModel("m.onnx", model.SerializeToString()), cache="off",
                            **options)


def steps(exe: Executable) -> int:
    loaded = exe.loaded.general
    assert isinstance(loaded, CpuExecutable)
    return loaded.plan.steps


def inputs(n: int, rows: int = 5) -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.standard_normal((rows, 64)).astype(np.float32), rng.integers(0, rows, n),
            rng.standard_normal((n, 64)).astype(np.float32)]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("strategy", ["per-op", "block"])
def test_results_at_open_sizes(strategy: str, threads: int) -> None:
    """Few rows are no work for several threads, many are; sizes come back, too."""
    whole = compiled(LOOKUP, threads=threads)
    exe = compiled(LOOKUP, strategy=strategy, threads=threads)
    assert steps(whole) == 0 and steps(exe) > (3 if strategy == "per-op" else 1)
    for n in (1, 7, 4000, 7, 0):
        for got, want in zip(exe(*inputs(n)), whole(*inputs(n)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_checks_end_a_run(threads: int) -> None:
    exe = compiled(LOOKUP, strategy="per-op", threads=threads)
    table, at, x = inputs(300)
    at[250] = 77
    for _ in range(2):
        with pytest.raises(IndexRangeError, match="77"):
            exe(table, at, x)
        exe(*inputs(300))


def test_checked_accesses() -> None:
    exe = compiled(LOOKUP, strategy="per-op", check=True)
    for got, want in zip(exe(*inputs(9)), compiled(LOOKUP)(*inputs(9)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("text", "options"), [
    (BRANCH, {}), (LOOKUP, {"without_groups": ["memory"]})], ids=["branch", "memory of its own"])
def test_what_lives_from_step_to_step_stays_one_call(text: str, options: dict[str, Any]) -> None:
    exe, whole = compiled(text, strategy="per-op", **options), compiled(text)
    given = inputs(3) if text is LOOKUP else [np.arange(4, dtype=np.float32) - 2, np.array(True)]
    for got, want in zip(exe(*given), whole(*given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert steps(exe) == 0


def test_steps_are_kept_in_files(tmp_path: Path) -> None:
    exe = compiled(LOOKUP, strategy="per-op")
    exe.save(tmp_path / "m.strata")
    again = compiler.load(tmp_path / "m.strata")
    assert steps(again) == steps(exe) > 0
    for got, want in zip(again(*inputs(6)), exe(*inputs(6)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_switch_alone() -> None:
    """The same kernels, launched in another way."""
    exe, whole = compiled(LOOKUP, without_groups=["one-launch"]), compiled(LOOKUP)
    assert exe.text("block") == whole.text("block") and steps(exe) > 0 == steps(whole)

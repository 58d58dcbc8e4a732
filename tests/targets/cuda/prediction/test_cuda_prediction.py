"""Predicted times: near those that were measured, and higher for all that makes kernels slow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from compiler.pipeline.text import parse_module
from dialects.block import KernelOp, LoadOp
from passes.base import StrataContext
from targets.cuda.machine import MACHINES
from targets.cuda.prediction import predict
from targets.cuda.prediction.accesses import access_of
from targets.cuda.prediction.time import at_a_time, total
from targets.cuda.prediction.work import Work
from tests.counts import predicted as kernels
from tests.counts.count import SM_90, Subject, lowered

H200 = replace(MACHINES["sm_90"], name="H200", bandwidth=4800)
MEASURED = {
    "product 4096x4096x4096": 179, "product 16x4096x4096": 16, "product 1x4096x4096": 13.2,
    "3x3, constant": 25.2, "3x3 32 groups": 44.3, "3x3 depthwise": 25.1,
    "attention 64x1024 head 64": 43.3, "softmax rows 8192x4096": 36.7, "layer norm 8192x4096": 37.1,
    "softmax 4096x50257": 301, "sum of columns 8192x4096": 25.6, "running sum of rows": 68.6,
    "transpose 8192x8192": 68.6}
"""Microseconds on an H200, from benchmarks/cuda/RESULTS.md; attention's of twice as many heads."""


def module_of(name: str, passes: str = "default") -> ModuleOp:
    kernel = next(k for k in kernels.KERNELS if k.name == name)
    return lowered(Subject("kernel", kernel.model()), replace(SM_90, passes=passes))[1].module


def microseconds(module: ModuleOp) -> float:
    return total(predict(module, H200, {}), H200) * 1e6


@pytest.mark.parametrize("name", MEASURED)
def test_predictions_are_within_a_factor_of_measured_times(name: str) -> None:
    ratio = microseconds(module_of(name)) / MEASURED[name]
    assert 1 / 1.6 <= ratio <= (2.1 if name == "3x3 depthwise" else 1.6), ratio


BEHIND = {
    "top 50 of 64x32000": (0.015, 4.1), "attention window of 256": (0.42, 17.2),
    "rotary embedding": (0.38, 64), "cross entropy 4096x32000": (0.65, 512),
    "Adam 4096x4096": (0.76, 320), "softmax rows 8192x4096": (0.95, 128)}
"""How near to the fastest of their peers some kernels were on an H100, and MB that must move."""


def test_what_is_far_behind_its_peers_is_predicted_to_be_far_from_what_memory_allows() -> None:
    def reached(name: str, megabytes: float) -> float:
        least = 2.1 + megabytes * (1 << 20) / (0.9 * kernels.H100.bandwidth * 1e3)
        steps = predict(module_of(name), kernels.H100, {})
        return least / (total(steps, kernels.H100) * 1e6)

    found = {name: reached(name, megabytes) for name, (_, megabytes) in BEHIND.items()}
    order = sorted(BEHIND, key=lambda name: BEHIND[name][0])
    ranks = [sorted(found.values()).index(found[name]) for name in order]
    assert np.corrcoef(ranks, range(len(ranks)))[0, 1] > 0.7, found


# ---------------------------------------------------------------------- what makes kernels slow
TEXT = """
builtin.module {
  host.func @main(%x: f32[1024, 1024], %y: f32[1024, 1024])
      inputs ["x"] outputs ["y"] sizes() arena(0) {
    host.launch @copy(%x, %y) sizes()
    host.return
  }
  block.kernel @copy(%x: f32[1024, 1024], %y: f32[1024, 1024]) grid(%i: GRID) sizes() {
    %v = block.load %x[LOAD] : tile<TILE>
    block.store %v, %y[STORE]
    block.yield
  }
}
"""


def copy(load: str, store: str, grid: int = 1024, tile: str = "1024xf32") -> ModuleOp:
    text = TEXT.replace("LOAD", load).replace("STORE", store).replace("GRID", str(grid))
    return parse_module(text.replace("TILE", tile), StrataContext.with_dialects(), Path("copy"))


ROWS = copy("%i, t0", "%i, t0")


@pytest.mark.parametrize(("name", "slower"), [
    ("columns", copy("t0, %i", "%i, t0")),
    ("one element a program", copy("%i floordiv 1024, %i mod 1024", "%i floordiv 1024, %i mod 1024",
                                   1 << 20, "f32")),
    ("divisions", copy("(1024*%i + t0 + 3) mod 1021, (1024*%i + t0 + 5) mod 1019", "%i, t0"))])
def test_slow_copies_are_predicted_to_be_slow(name: str, slower: ModuleOp) -> None:
    assert microseconds(slower) > 1.2 * microseconds(ROWS), name


@pytest.mark.parametrize(("name", "without"), [
    ("attention 64x1024 head 64", "loop-join-online"), ("rotary embedding", "loop-fuse"),
    ("3x3, argument", "loop-pack-operands"), ("3x3 channels first", "loop-pack-operands")])
def test_a_pass_that_is_left_out_is_seen(name: str, without: str) -> None:
    assert microseconds(module_of(name, f"default,without({without})")) > 1.1 * microseconds(
        module_of(name))


def test_a_loop_that_data_bound_costs_nothing() -> None:
    """The exact sum of a transposed convolution, where the quick one is NaN."""
    argument, constant = (microseconds(module_of(f"transposed 4x4 stride 2, {kind}"))
                          for kind in ("argument", "constant"))
    assert argument - constant < 5


# ---------------------------------------------------------------------- accesses
@pytest.mark.parametrize(("load", "sectors", "width"), [
    ("%i, t0", 128, 16), ("t0, %i", 1024, 4), ("%i, 1023 - t0", 128, 4),
    ("%i, (2*t0) mod 1024", 128, 4), ("%i, 4*(t0 floordiv 4) + (t0 mod 4)", 128, 16)])
def test_sectors_and_words(load: str, sectors: int, width: int) -> None:
    kernel = kernel_of(copy(load, "%i, t0"))
    op = next(op for op in kernel.walk() if isinstance(op, LoadOp))
    values: dict[SSAValue, int] = {kernel.program_ids[0]: 5}
    found = access_of(op, values, {})
    assert (found.elements, found.sectors, found.width) == (1024, sectors, width)


def test_programs_beside_each_other() -> None:
    """Four warps with 1,024 words need few registers, and a multiprocessor has 2,048 threads."""
    assert at_a_time(Work(kernel_of(ROWS), {}, H200), H200) == 16


def kernel_of(module: ModuleOp) -> KernelOp:
    return next(op for op in module.body.block.ops if isinstance(op, KernelOp))

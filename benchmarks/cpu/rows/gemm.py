"""f32 products as compiled models: the share of the measured peak of multiply-adds.

Sizes are m x n x k. The peak is measured in the same turns, so both see the same clock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from microkernel import aligned, load, peak_text

from rows import Figures, Goal, Measure, Setting, milliseconds
from rows.contests import OURS, Race, random
from rows.graphs import matmul, matmul_of_inputs
from targets.cpu.machine import machine_of

TITLE = "f32 products: share of the measured peak of multiply-adds, per thread"
GOAL = Goal(0.75, 0.85)
MEAN = False
SHAPES = ((1024, 1024, 1024), (128, 3072, 768), (3136, 64, 576))
TWINS = Path(__file__).parents[1] / "twins.py"
PEAK = "peak"
TRIPS = 100_000


def rows(setting: Setting) -> dict[str, Measure]:
    found: dict[str, Measure] = {name_of(s): partial(constant, s) for s in SHAPES}
    return found | {f"{name_of(SHAPES[0])}, both given": partial(given, SHAPES[0])}


def name_of(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def constant(shape: tuple[int, int, int], setting: Setting) -> Figures:
    """The second operand is a constant, as in models."""
    m, n, k = shape
    x, w = random(m, k), random(k, n, seed=1)
    race = Race(matmul(setting.folder / "gemm.onnx", x, w), {"x": x}, setting)
    race.add_peer("onnxruntime")
    race.add_peer("openvino")
    race.add_peer("torch", f"{TWINS}:gemm_{name_of(shape)}")
    return _share_of_peak(race, shape)


def given(shape: tuple[int, int, int], setting: Setting) -> Figures:
    """Both operands are inputs: whoever wants panels makes them in the call."""
    m, n, k = shape
    x, w = random(m, k), random(k, n, seed=1)
    path = matmul_of_inputs(setting.folder / "gemm.onnx", x, w)
    race = Race(path, {"x": x, "w": w}, setting)
    race.add_peer("onnxruntime")
    race.add_peer("openvino")
    return _share_of_peak(race, shape)


def _share_of_peak(race: Race, shape: tuple[int, int, int]) -> Figures:
    run, operations = peak_loop()
    race.add(PEAK, run)
    times = race.times()
    per_ms = operations / times.pop(PEAK) * race.setting.threads
    m, n, k = shape
    shares = {name: 2 * m * n * k / ms / per_ms for name, ms in times.items()}
    texts = {name: f"{milliseconds(ms)} ({shares[name]:.0%})" for name, ms in times.items()}
    ours = texts.pop(OURS)
    return Figures(ours, texts, shares[OURS], (*race.notes(list(texts)),
                   f"peak {per_ms / 1e6:.0f} GFLOP/s"))


def peak_loop() -> tuple[Callable[[], Sequence[Any]], int]:
    """A call that does nothing but multiply and add on one thread, and how many operations."""
    machine = machine_of()
    chains = machine.vector_registers * 3 // 4
    library = load(peak_text(machine, chains), "peak", machine)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address)
    memory = aligned(64)

    def run() -> Sequence[Any]:
        function(memory.ctypes.data, TRIPS)
        assert library is not None  # which holds the code
        return ()

    return run, 2 * chains * machine.lanes * TRIPS

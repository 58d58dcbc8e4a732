"""Samples of operations on other machines, many in one program.

Most of the time that one sample takes is that of a C compiler, a linker and an emulator's start. A
batch needs these once. Where a batch does not run to its end, halves of it do, or halves of those,
until the samples are known that fail alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from compiler.io.signature import signature_of
from dialects.strata.types import Array
from targets.base import TargetOptions, find_target
from targets.interface import TargetError
from targets.shipping import Shipment
from tests.lowering import lower, without_subnormals
from tests.op_samples.graph_samples import SAMPLES, Sample
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES
from tests.op_samples.sample import Joined, join_samples
from tests.targets.cpu.artifact.abroad import (
    LONGER,
    MACHINES,
    Abroad,
    EmulatorFault,
    outputs_of,
    program_of,
)

SIZE = 64
"""The samples of a batch."""


class Named(NamedTuple):
    """A sample under a name that no other has."""

    name: str
    sample: Sample


EVERY = [Named(f"{number}-{sample.label}", sample)
         for number, sample in enumerate([*SAMPLES, *PIPELINE_SAMPLES])]
BATCHES = [EVERY[at: at + SIZE] for at in range(0, len(EVERY), SIZE)]


class Verdict(NamedTuple):
    """What became of samples on a machine: how many are right, and a line for each other one."""

    right: int
    wrong: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def plus(self, other: Verdict) -> Verdict:
        return Verdict(self.right + other.right, self.wrong + other.wrong,
                       self.skipped + other.skipped)


def machines_here() -> list[Abroad]:
    """Those whose programs can be made and run here."""
    return [m for m in (*MACHINES, *LONGER) if m.is_there]


def examine(batch: Sequence[Named], compute: Callable[[Sequence[Named]], Sequence[str]]) -> Verdict:
    """What became of each sample of a batch.

    `compute`: runs samples in one program, and returns a line for each that is wrong. It raises
    EmulatorFault, AssertionError, TargetError or TimeoutExpired if the program fails.
    """
    try:
        wrong = compute(batch)
    except EmulatorFault as fault:
        alone = Verdict(0, skipped=(f"{batch[0].name}: {fault}",))
    except (AssertionError, TargetError, subprocess.TimeoutExpired) as error:
        alone = Verdict(0, wrong=(f"{batch[0].name}: {error}",))
    else:
        return Verdict(len(batch) - len(wrong), tuple(wrong))
    if len(batch) == 1:
        return alone
    half = len(batch) // 2
    return examine(batch[:half], compute).plus(examine(batch[half:], compute))


class Workshop:
    """Programs of batches in a folder, and what they must compute. Each is made once, for all
    machines that run the same code."""

    def __init__(self, folder: Path, symbolic: bool = False):
        """`symbolic`: whether the sizes that samples name are open."""
        self.folder, self.symbolic = folder, symbolic
        self._programs: dict[tuple[str, ...], list[str]] = {}
        self._computed: dict[tuple[str, ...], Computed] = {}

    def differences(self, machine: Abroad, batch: Sequence[Named]) -> list[str]:
        """A line for each sample of which a machine computes other outputs than this process."""
        here = self._here(batch)
        found = outputs_of(machine, self._program(batch, machine), here.inputs)
        return differing(batch, here, found)

    def _here(self, batch: Sequence[Named]) -> Computed:
        key = tuple(named.name for named in batch)
        if key not in self._computed:
            self._computed[key] = compute_here(
                [named.sample for named in batch], self.symbolic)
        return self._computed[key]

    def _program(self, batch: Sequence[Named], machine: Abroad) -> list[str]:
        key = (machine.triple, machine.features, *(named.name for named in batch))
        if key not in self._programs:
            folder = self.folder / str(len(self._programs))
            folder.mkdir()
            joined = join_samples([named.sample for named in batch], self.symbolic)
            self._programs[key] = _made_program(joined, machine, folder)
        return self._programs[key]


class Computed(NamedTuple):
    """The inputs of a batch, what this process computes, and how many outputs are each sample's."""

    inputs: list[Array]
    outputs: list[Array]
    counts: list[int]


def compute_here(samples: Sequence[Sample], symbolic: bool) -> Computed:
    """Compile a batch for this machine, and run it."""
    module, arrays, context, counts = join_samples(samples, symbolic)
    inputs, parts = without_subnormals(arrays), find_target("cpu").bind(TargetOptions(threads=1))
    list(lower(module, parts.context(context.weights)))
    outputs = parts.running.load(module, context.weights).run(inputs)
    return Computed(inputs, [np.asarray(o) for o in outputs], counts)


def _made_program(joined: Joined, machine: Abroad, folder: Path) -> list[str]:
    """Compile a batch for another machine."""
    module, _, context, _ = joined
    parts = find_target("cpu").bind(TargetOptions(
        triple=machine.triple, features=machine.features))
    list(lower(module, parts.context(context.weights)))
    form = ".wasm" if machine.is_wasm else ".a"
    parts.building.ship(module, context.weights).write(Shipment(
        "batch", str(folder / f"batch{form}"), form, "0",
        facts={"signature": signature_of(module).facts()}))
    return program_of(machine, folder, "batch")


def differing(batch: Sequence[Named], here: Computed, found: Sequence[Array]) -> list[str]:
    """A line for each sample whose outputs differ."""
    assert len(found) == len(here.outputs), f"{len(found)} outputs"
    wrong: list[str] = []
    pairs = iter(zip(found, here.outputs, strict=True))
    for named, count in zip(batch, here.counts, strict=True):
        try:
            for one, wanted in [next(pairs) for _ in range(count)]:
                assert (one.dtype, one.shape) == (wanted.dtype, wanted.shape)
                assert_close(one, wanted)
        except AssertionError as error:
            wrong.append(f"{named.name}: {error}")
    return wrong


def assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal for integers but for one step of rounding, close for floats."""
    if found.dtype.kind in "iub":
        difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        assert np.max(difference, initial=0) <= 1
        assert np.mean(difference > 0) <= 0.05 if difference.size else True
        return
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide, reference = found.astype(np.float64), wanted.astype(np.float64)
    tolerance = {8: 1e-12, 4: 3e-5, 2: 1e-2, 1: 0.15}[found.dtype.itemsize]
    np.testing.assert_allclose(wide, reference, rtol=tolerance, atol=tolerance)

"""Batches of samples: each computes what it does alone, and the one that is wrong is found."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dialects.strata.array_type import dtype_named
from targets.base import TargetOptions, find_target
from targets.cpu.artifact.c_text import DTYPES
from tests import processes
from tests.abroad.batches import (
    BATCHES,
    EVERY,
    Named,
    Verdict,
    Workshop,
    compute_here,
    differing,
    examine,
    machines_here,
)
from tests.abroad.record import Record
from tests.lowering import lower, without_subnormals
from tests.op_samples.sample import build_module
from tests.targets.cpu.artifact.abroad import EmulatorFault, name_of, pack, unpack

SOME = EVERY[::61]


def test_every_sample_is_in_one_batch() -> None:
    assert [named for batch in BATCHES for named in batch] == EVERY
    assert len({named.name for named in EVERY}) == len(EVERY)


@pytest.mark.parametrize("symbolic", [False, True], ids=["constant", "open"])
def test_a_batch_computes_what_its_samples_compute_alone(symbolic: bool) -> None:
    joined = compute_here([named.sample for named in SOME], symbolic)
    found = iter(joined.outputs)
    for named, count in zip(SOME, joined.counts, strict=True):
        module, arrays, context = build_module(named.sample, symbolic)
        parts = find_target("cpu").bind(TargetOptions(threads=1))
        list(lower(module, parts.context(context.weights)))
        alone = parts.running.load(module, context.weights).run(without_subnormals(arrays))
        assert len(alone) == count
        for wanted in alone:
            np.testing.assert_array_equal(next(found), np.asarray(wanted))


def test_a_sample_with_other_outputs_is_named() -> None:
    batch = [EVERY[0], EVERY[100], EVERY[200]]
    here = compute_here([named.sample for named in batch], False)
    found = [np.array(o) for o in here.outputs]
    assert not differing(batch, here, found)
    changed = here.counts[0]  # the first output of the second sample
    found[changed] = found[changed] + np.ones((), found[changed].dtype) * 2
    [line] = differing(batch, here, found)
    assert line.startswith(batch[1].name)


@pytest.mark.parametrize("fault", [AssertionError, EmulatorFault])
def test_a_sample_that_ends_its_program_is_found(fault: type[Exception]) -> None:
    """The others of its batch are compared all the same, one of which is wrong."""
    batch, bad, wrong = EVERY[:13], EVERY[5], EVERY[11]

    def compute(part: Sequence[Named]) -> list[str]:
        if bad in part:
            raise fault("the program ended")
        return [wrong.name] if wrong in part else []

    verdict = examine(batch, compute)
    line = f"{bad.name}: the program ended"
    assert verdict == (Verdict(11, (line, wrong.name)) if fault is AssertionError
                       else Verdict(11, (wrong.name,), (line,)))


def test_a_record_holds_while_sources_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "record.json"
    Record(path, "one").add("wasm32", 3, ["3-relu: skipped"])
    kept = Record(path, "one")
    assert kept.has("wasm32", 3)
    assert kept.skipped() == ["wasm32: 3-relu: skipped"]
    assert not kept.has("wasm32", 4)
    assert not kept.has("aarch64", 3)
    assert not Record(path, "two").has("wasm32", 3)


@pytest.mark.parametrize("element", sorted(set(DTYPES) - {"index"}))
def test_arrays_of_every_type_are_passed(element: str) -> None:
    array = np.arange(1, 3).astype(dtype_named(name_of(element))).reshape(2, 1)
    [found] = unpack(pack([array]))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


@pytest.mark.skipif(not machines_here(), reason="there is no Zig, no QEMU and no Node")
def test_a_batch_runs_on_another_machine(tmp_path: Path) -> None:
    machine = machines_here()[-1]
    workshop, batch = Workshop(tmp_path), EVERY[:4]
    assert not workshop.differences(machine, batch)
    assert not workshop.differences(machine, batch)  # the same program again
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("node"), reason="there is no Node")
def test_the_command_goes_on_where_it_ended(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.abroad", "--machine", "wasm32", "--batch", "0",
             "--record", tmp_path / "record.json"]
    root = Path(__file__).parents[2]
    for more, told in (["--seconds", "-1"], "0 pairs are right, 2 are left"), (
            [], "2 pairs are right, 0 are left"), (["--seconds", "-1"], "2 pairs are right"):
        done = processes.run([*words, *more], capture_output=True, text=True, cwd=root, limit=600)
        assert done.returncode == 0, done.stderr
        assert told in done.stdout

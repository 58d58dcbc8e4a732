"""Samples of a few operations on other machines: they compute what this process computes.

They run in QEMU and in Node. Roundings differ where one processor fuses a product with a sum. Their
sizes are open. `python -m tests.abroad` runs the samples of all operations.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from compiler.io.signature import signature_of
from targets.base import TargetOptions, find_target
from targets.cpu.artifact.cross import zig_command
from targets.shipping import Shipment
from tests.abroad.batches import assert_close
from tests.lowering import lower, without_subnormals
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.targets.cpu.artifact.abroad import (
    LONGER,
    MACHINES,
    Abroad,
    each_machine,
    emulator,
    run_abroad,
)
from tests.targets.cpu.artifact.shipped import ship
from tests.targets.cpu.artifact.test_c_programs import MLP

FIRST = {s.op.name: s for s in reversed(SAMPLES) if s.operands}
FEW = ("graph.conv", "graph.matmul_integer", "graph.softmax", "graph.top_k")


def check(sample: Sample, symbolic: bool, machine: Abroad, folder: Path) -> None:
    """Compile a sample for both machines, and compare."""
    module, arrays, context = build_module(sample, symbolic)
    inputs, here = without_subnormals(arrays), find_target("cpu").bind(TargetOptions(threads=1))
    list(lower(module, here.context(context.weights)))
    expected = here.running.load(module, context.weights).run(inputs)
    module, _, context = build_module(sample, symbolic)
    abroad = find_target("cpu").bind(TargetOptions(
        triple=machine.triple, features=machine.features))
    list(lower(module, abroad.context(context.weights)))
    form = ".wasm" if machine.is_wasm else ".a"
    abroad.building.ship(module, context.weights).write(Shipment(
        "sample", str(folder / f"sample{form}"), form, "0",
        facts={"signature": signature_of(module).facts()}))
    found = run_abroad(machine, folder, "sample", inputs)
    assert len(found) == len(expected)
    for one, wanted in zip(found, map(np.asarray, expected), strict=True):
        assert (one.dtype, one.shape) == (wanted.dtype, wanted.shape)
        assert_close(one, wanted)


@each_machine
@pytest.mark.parametrize("name", [name for name in FEW if name in FIRST])
def test_a_few_samples_abroad(name: str, machine: Abroad, tmp_path: Path) -> None:
    check(FIRST[name], True, machine, tmp_path)


@pytest.mark.parametrize("machine", [pytest.param(m, id=m.runner[-1]) for m in LONGER])
@pytest.mark.parametrize("name", [name for name in FEW if name in FIRST])
def test_longer_vectors_compute_the_same(name: str, machine: Abroad, tmp_path: Path) -> None:
    if not machine.is_there:
        pytest.skip(f"there is no Zig or no {machine.runner[0]}")
    check(FIRST[name], True, machine, tmp_path)


def test_scalable_vectors_that_are_too_short_are_refused(tmp_path: Path) -> None:
    [machine] = [m for m in MACHINES if m.features == "sve256"]
    if not machine.is_there:
        pytest.skip("there is no Zig or no QEMU")
    short = machine._replace(runner=emulator("aarch64", "-cpu", "max,sve-max-vq=1"))
    with pytest.raises(AssertionError, match="the processor lacks instructions"):
        check(FIRST["graph.softmax"], True, short, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not zig_command(), reason="there is no Zig")
@pytest.mark.parametrize(("name", "triple", "start"), [
    ("net.dll", "x86_64-windows", b"MZ"), ("net.dylib", "arm64-apple-macos", b"\xcf\xfa\xed\xfe")])
def test_libraries_of_other_systems_are_linked(
    name: str, triple: str, start: bytes, tmp_path: Path
) -> None:
    found = ship(onnx.parser.parse_model(MLP), tmp_path / name, "net", triple=triple)
    assert found.read_bytes().startswith(start)

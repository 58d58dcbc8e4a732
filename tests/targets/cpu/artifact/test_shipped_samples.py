"""Samples of all operations as libraries: they compute what this process computes, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.io.signature import signature_of
from targets.base import TargetOptions, find_target
from targets.cpu.artifact.loaded import load_library
from targets.library_file import read_facts
from targets.shipping import SHARED, Shipment
from tests.lowering import lower, without_subnormals
from tests.op_samples.graph_samples import SAMPLES, Sample, build_module
from tests.op_samples.pipeline_samples import PIPELINE_SAMPLES
from tests.targets.cpu.artifact.shipped import needs_tools

pytestmark = needs_tools
ALL = [*SAMPLES, *PIPELINE_SAMPLES]
FIRST = {s.op.name: s for s in reversed(SAMPLES) if s.operands}
"""The first row of each operation."""
FEW = ("graph.matmul", "graph.softmax", "graph.conv", "graph.gather", "graph.nonzero",
       "graph.quantize_linear", "graph.qlinear_matmul", "graph.top_k", "graph.cast")


def check(sample: Sample, symbolic: bool, folder: Path) -> None:
    """Compile a sample, load it in both ways, and compare."""
    module, arrays, context = build_module(sample, symbolic)
    inputs = without_subnormals(arrays)
    parts = find_target("cpu").bind(TargetOptions(threads=2))
    list(lower(module, parts.context(context.weights)))
    path = folder / "sample.so"
    facts = {"system": "here", "target": "cpu", "signature": signature_of(module).facts()}
    parts.building.ship(module, context.weights).write(
        Shipment("sample", str(path), SHARED, "0", facts=facts))
    expected = parts.running.load(module, context.weights).run(inputs)
    library = load_library(str(path), read_facts(str(path)), 2)
    for _ in range(2):  # a state is used again
        for found, wanted in zip(library.run(inputs), expected, strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            assert found.tobytes() == wanted.tobytes()
    if inputs and inputs[0].dtype != np.float64:
        with pytest.raises(ValueError, match="must be"):
            library.run([inputs[0].astype(np.float64), *inputs[1:]])


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", [name for name in FEW if name in FIRST])
def test_a_few_samples_compute_the_same(name: str, symbolic: bool, tmp_path: Path) -> None:
    check(FIRST[name], symbolic, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("sample", ALL, ids=[f"{k}-{s.label}" for k, s in enumerate(ALL)])
def test_every_sample_computes_the_same(sample: Sample, symbolic: bool, tmp_path: Path) -> None:
    check(sample, symbolic, tmp_path)

"""Public models on other machines: the same cases as in this process, within their tolerances.

The folder that STRATA_ZOO names holds them and `models.json`. The smallest THIRTY are compiled for
each kind of processor; sensitive ones, of which a rounding decides, are left out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from tests.targets.cpu.artifact.abroad import MACHINES, Abroad, run_abroad
from tests.targets.cpu.artifact.shipped import ship

FOLDER = os.environ.get("STRATA_ZOO")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(
    not FOLDER, reason="STRATA_ZOO is unset: it must name a folder of models")]
THIRTY = 30
LIMIT = 1500
"""Seconds of one call in an emulator: some models take minutes where machines are busy."""
ONE_EACH = ("i8mm", "v", "simd128")
"""The sets of features that are tried, the best of each architecture."""
sys.path.append(str(Path(__file__).parents[4] / "benchmarks" / "zoo"))


def described() -> list[dict[str, Any]]:
    """The models of the folder that tell something, the smallest first."""
    if not FOLDER or not (Path(FOLDER) / "models.json").exists():
        return []
    models = json.loads((Path(FOLDER) / "models.json").read_text())["models"]
    there = [m for m in models if path_of(m).exists() and not m["flags"].get("sensitive")
             and not m["flags"].get("constant_weights")]
    return sorted(there, key=lambda m: path_of(m).stat().st_size)[:THIRTY]


def path_of(model: Mapping[str, Any]) -> Path:
    return Path(FOLDER or "") / f"{model['name']}.onnx"


def is_close(found: np.ndarray, wanted: np.ndarray, limits: Mapping[str, float]) -> bool:
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    if wanted.dtype.kind not in "f":
        return bool(np.array_equal(found, wanted))
    top = np.abs(wanted).max(initial=0.0)
    off = np.abs(found.astype(np.float64) - wanted)
    return bool((off <= limits["rtol"] * np.abs(wanted) + limits["atol"] * top).all())


@pytest.mark.parametrize("machine", [
    pytest.param(m, id=f"{m.triple}-{m.features}") for m in MACHINES if m.features in ONE_EACH])
@pytest.mark.parametrize("model", [pytest.param(m, id=m["name"]) for m in described()])
def test_a_public_model_abroad(
    model: Mapping[str, Any], machine: Abroad, tmp_path: Path
) -> None:
    from inputs import make_inputs

    if not machine.is_there:
        pytest.skip(f"there is no Zig or no {machine.runner[0]}")
    exe = compiler.compile(str(path_of(model)), threads=1)
    ship(path_of(model), tmp_path / f"model{'.wasm' if machine.is_wasm else '.a'}", "model",
         triple=machine.triple, features=machine.features)
    for case in model["cases"]:
        given = make_inputs(case)
        arrays = [given[name] for name in exe.input_names]
        found = run_abroad(machine, tmp_path, "model", arrays, LIMIT)
        for name, one, wanted in zip(exe.output_names, found, exe(*arrays), strict=True):
            assert is_close(one, np.asarray(wanted), model["tolerance"]), name

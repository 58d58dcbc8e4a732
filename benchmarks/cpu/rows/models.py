"""Models of the zoo as rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "zoo"))
from inputs import make_inputs

from rows import VARIABLE, Figures, Measure, Missing, Setting
from rows.contests import duel


def model_rows(
    names: Sequence[str], setting: Setting, peers: Sequence[str], precision: str = "f32"
) -> dict[str, Measure]:
    """A row per model, whether it is there or not."""
    found = setting.zoo()
    return {name: partial(measure, name, found.get(name), peers, precision) for name in names}


def measure(
    name: str, entry: Mapping[str, Any] | None, peers: Sequence[str], precision: str,
    setting: Setting,
) -> Figures:
    """The first case of a model against the best of some peers."""
    path, inputs = model_and_inputs(name, entry)
    return duel(path, inputs, setting, dict.fromkeys(peers), precision)


def model_and_inputs(name: str, entry: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Where a model is, and the inputs of its first case. Raises Missing."""
    if entry is None:
        raise Missing(f"{name}.onnx is not in the folder ${VARIABLE}, or not in models.json")
    return entry["path"], make_inputs(entry["cases"][0])

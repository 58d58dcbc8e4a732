"""Whole processes: `first_result.py`, started, watched and waited for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rows import Setting
from rows.models import model_and_inputs

PROGRAM = Path(__file__).parents[1] / "first_result.py"


@dataclass(frozen=True)
class Started:
    """Seconds from the start of the process to its first result, and its peak of memory."""

    seconds: float
    peak: int


def start(setting: Setting, who: str, *words: object) -> Started:
    """One process, from its start to its end. Raises CalledProcessError."""
    command = [sys.executable, str(PROGRAM), who, *map(str, words),
               "--threads", str(setting.threads)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = time.perf_counter() - started
        rest = process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Started(seconds, int(rest))


def saved_model(
    name: str, entry: Mapping[str, Any] | None, setting: Setting
) -> tuple[str, Path]:
    """A model of the zoo, and a file with the inputs of its first case. Raises Missing."""
    model, inputs = model_and_inputs(name, entry)
    file = setting.folder / "inputs.npz"
    np.savez(file, **inputs)
    return model, file

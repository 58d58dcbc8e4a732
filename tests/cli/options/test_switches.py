"""Switches together, each pair of values somewhere: right numbers, or refused before work starts.

What is refused is refused by the command line with the same words as by Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from tests.cli.conftest import Run
from tests.models.test_left_out_passes import MODELS, RNG

MINE = "mine.txt"
TOLERANCES = {"f32": 2e-6, "tf32": 2e-3, "fp16": 2e-3, "bf16": 2e-2, "fp8": 1e-1}
"""Of the largest magnitude: a few steps of the format that products may have."""
VALUES: dict[str, tuple[Any, ...]] = {
    "precision": tuple(TOLERANCES), "exact": (False, True),
    "features": (None, "avx2", "sm_90", "nonsense"), "threads": (None, 1, 3),
    "library": ("never", "auto"), "schedule": (None, MINE, "missing.txt"),
    "tuned": ("off", "missing.sqlite"),
}
FEATURES = {"cpu": ("avx2",), "reference": (), "cuda": ("sm_90",)}
TRIED: dict[str, tuple[str, ...]] = {
    "cpu": ("small", "halves", "quantized"), "reference": ("small",), "cuda": ("small", "halves")}
"""The models of each target."""


def pairwise(values: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Few combinations that have every two values of different switches together."""
    combinations = [dict(zip(values, chosen, strict=True))
                    for chosen in itertools.product(*values.values())]

    def pairs(found: Mapping[str, Any]) -> set[Any]:
        return set(itertools.combinations(found.items(), 2))

    left = set().union(*map(pairs, combinations))
    while left:
        best = max(combinations, key=lambda c: len(pairs(c) & left))
        left -= pairs(best)
        yield best


COMBINATIONS = list(pairwise(VALUES))


def test_every_pair_is_there() -> None:
    for (a, of_a), (b, of_b) in itertools.combinations(VALUES.items(), 2):
        found = {(c[a], c[b]) for c in COMBINATIONS}
        assert found == set(itertools.product(of_a, of_b))


def problems(target: str, options: Mapping[str, Any]) -> list[str]:
    """Parts of the message that refuses the options; none where they are to work."""
    missing = [options[name] for name in ("schedule", "tuned")
               if str(options[name]).startswith("missing")]
    found = [f"{name!r}, and there is no such file" for name in missing]
    features = options["features"]
    if not found and features is not None and features not in FEATURES[target]:
        found.append(repr(features))
    return found


def words(options: Mapping[str, Any]) -> list[str]:
    """The same on the command line."""
    given = [w for name, value in options.items() if not isinstance(value, bool)
             and value is not None for w in (f"--{name}", str(value))]
    return given + ["--exact"] * options["exact"]


def model_of(name: str) -> tuple[MemoryModel, dict[str, Any]]:
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
    model, inputs = MODELS[name]()
    return MemoryModel(f"{name}.onnx", model.SerializeToString()), inputs


def kernels_scheduled(path: Path, target: str, options: Mapping[str, Any]) -> str:
    """A file of schedules: what the target itself chooses, for every kernel, written out."""
    text = compiler.compile(path, target=target, cache="off", interpret=target == "cuda",
                            **{**options, "schedule": None}).text("loop")
    lines: list[str] = []
    for line in text.splitlines():
        before, found, after = line.partition("schedule<")
        if found and "@" in before:
            name = before.split("@")[1].split("(")[0].strip()
            lines.append(f"@{name} <{after.rpartition('>')[0]}>")
    return "\n".join(lines)


@pytest.mark.parametrize("target", TRIED)
def test_what_cannot_be_is_refused_before_the_model_is_read(strata: Run, target: str) -> None:
    """The file that is named does not exist."""
    Path(MINE).write_text("")
    refused = [c for c in COMBINATIONS if problems(target, c)][::4]
    assert refused
    for options in refused:
        with pytest.raises(StrataError) as told:
            compiler.compile("no-such-file.onnx", target=target, **options)
        done = strata("run", "no-such-file.onnx", "--target", target, *words(options))
        assert all(part in str(told.value) for part in problems(target, options)), options
        assert (done.status, done.err) == (1, f"error: {told.value}\n"), options


def cases() -> list[Any]:
    """The fast one has every ninth combination."""
    fast = pytest.param("cpu", "small", 9)
    return [fast, *(pytest.param(target, name, 1, marks=pytest.mark.slow)
                    for target, names in TRIED.items() for name in names)]


@pytest.mark.parametrize(("target", "name", "every"), cases())
def test_switches_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, name: str, every: int
) -> None:
    if target == "cuda":
        pytest.importorskip("triton")
    monkeypatch.chdir(tmp_path)
    model, inputs = model_of(name)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.data)
    expected = compiler.compile(path, target="reference", cache="off", exact=True)(**inputs)
    for options in [c for c in COMBINATIONS if not problems(target, c)][::every]:
        if options["schedule"] is not None:
            Path(MINE).write_text(kernels_scheduled(path, target, options))
        found = compiler.compile(path, target=target, interpret=target == "cuda", cache="off",
                                 **options)(**inputs)
        for got, want in zip(found, expected, strict=True):
            check(got, want, options, name)


def check(got: Any, want: Any, options: Mapping[str, Any], name: str) -> None:
    assert (got.shape, got.dtype) == (want.shape, want.dtype), options
    granted = TOLERANCES[options["precision"]]
    granted = max(granted, 5e-3) if want.dtype == np.float16 else granted
    if name == "quantized":  # one step of the quantization, which is 0.05
        granted = max(granted, 0.051 / float(np.abs(want).max()))
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=granted * np.abs(want).max(),
                               err_msg=str(options))

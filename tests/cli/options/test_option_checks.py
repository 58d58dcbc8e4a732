"""The Python interface refuses what the command line refuses, before any work, and all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
from compiler.diagnostics import StrataError
from compiler.options import CompileOptions


@pytest.mark.parametrize(("option", "value", "part"), [
    ("precision", "fp64", "did you mean fp16"), ("precision", None, "precision is None"),
    ("library", "always", "there are: auto, never"), ("threads", -1, "threads is -1"),
    ("threads", 0, "threads is 0"), ("threads", True, "threads is True"),
    ("threads", 2.0, "threads is 2.0"), ("shapes", {"x": [None, 3]}, "dim 0 of input 'x' is None"),
    ("shapes", {"x": 3}, "input 'x' has 3"), ("shapes", {"x": "3x4"}, "give a list"),
    ("shapes", {"x": [-1, 8]}, "dim 0 of input 'x' is -1"), ("shapes", [("x", 3)], "not a mapping"),
    ("shapes", {"x": [True, 8]}, "is True"), ("shapes", {"x": [1.5, 8]}, "is 1.5"),
    ("shapes", {"x": ["", 8]}, "is ''"), ("shapes", {3: [1]}, "3 is not a name"),
    ("dims", {"n": 2.5}, "size 'n' has the value 2.5"), ("dims", {"n": None}, "value None"),
    ("dims", {"n": -2}, "value -2"), ("plugins", "a.py", "not a list"),
    ("cache", "a\0b", "no path"), ("tuned", "a\0b", "no path"), ("dump_dir", "a\0b", "no path"),
    ("weights", 3, "not a path"),
    ("constants", {"x": {1}}, "'x' cannot be read"), ("constants", [1], "not a mapping"),
    ("shapes", "", "not a mapping"), ("dims", [], "not a mapping"),
    ("constants", 0, "not a mapping"),
    ("args", 5, "type int is no list"), ("args", np.ones(3), "type ndarray is no list"),
    ("kwargs", "x", "type str is no mapping"), ("kwargs", {5: 1}, "no mapping from names"),
    ("mode", "fast", "no mode 'fast'"), ("exact", 1, "exact is 1"), ("features", 3, "features"),
    ("passes", "", "passes is ''"), ("specialize", 3, "specialize is 3"),
    ("target", "gpu", "did you mean cuda"),
])
def test_options_that_cannot_be(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: Any,
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StrataError) as told:
        compiler.compile(small_model, **{option: value})
    assert part in str(told.value)
    assert list(tmp_path.iterdir()) == []  # no reproducer, no dump


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(StrataError) as told:
        CompileOptions(precision="fp64", threads=0, library="always")
    assert len(told.value.problems) == 3


@pytest.mark.parametrize(("option", "value", "part"), [
    ("precision", "fp64", "fp64"), ("seconds", 0, "seconds is 0"), ("jobs", 0, "jobs is 0"),
    ("seconds", float("nan"), "seconds is nan"), ("kernels", "contract", "not a list"),
    ("sizes", {"n": None}, "size 'n'"), ("mode", "fast", "no mode 'fast'"),
    ("dims", {"n": "8"}, "size 'n'"), ("target", "reference", "cannot be tuned"),
])
def test_tuning_refuses_alike(small_model: Path, option: str, value: Any, part: str) -> None:
    with pytest.raises(StrataError, match=part):
        compiler.tune(small_model, **{option: value})


def test_numbers_of_numpy_are_numbers(small_model: Path) -> None:
    exe = compiler.compile(small_model, target="reference", dims={"n": np.int64(4)},
                           shapes={"rows": [np.int32(3)]}, threads=np.int64(2))
    assert exe.input_types == ["f32[4, 8]", "i64[3]"]

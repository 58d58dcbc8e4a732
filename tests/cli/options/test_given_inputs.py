"""`--input NAME=VALUE`: what values mean, and that nothing is compiled where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.cli.given_inputs import Filled, Literal, parse_value
from compiler.diagnostics import StrataError
from dialects.strata.array_type import ArrayType
from dialects.symbolic.expr import Expr
from tests.cli.conftest import Run


def type_of(element: str, dtype: Any, *sizes: int) -> ArrayType:
    return ArrayType(element, np.dtype(dtype), tuple(map(Expr.of, sizes)))


@pytest.mark.parametrize(("text", "value"), [
    ("16000", Literal(16000)), ("-1.5e3", Literal(-1500.0)), ("+3", Literal(3)),
    ("true", Literal(True)), ("[1, 2]", Literal([1, 2])), ("[[1],[2.5]]", Literal([[1], [2.5]])),
    ("inf", Literal(np.inf)), ("-Inf", Literal(-np.inf)), ("[]", Literal([])),
    ("random", Filled("random")), ("zeros", Filled("zeros")),
    ("1x3x224x224xf32=random", Filled("random", (1, 3, 224, 224), "f32")),
    ("2x3=range", Filled("range", (2, 3))), ("f32=ones", Filled("ones", None, "f32")),
    ("2x0xui8=7", Filled(7, (2, 0), "ui8")), ("5=0.5", Filled(0.5, (5,))),
    ("2xf8E4M3FN=1", Filled(1, (2,), "f8E4M3FN")),
    ("x.npy", Path("x.npy")), ("a=b.npy", Path("a=b.npy")), ("-", Path("-")),
])
def test_values(text: str, value: object) -> None:
    assert parse_value("x", text) == value


@pytest.mark.parametrize("text", [
    "rando", "1x3=rand", "1x=3x=ones", "1xx3=ones", "'a'", "[1, 'a']", "3f32=ones", "nowhere/x",
    "{}", "null", "[" * 5000, "x=y=3", "--1", "1e", "0x1f",
])
def test_values_that_mean_nothing(text: str) -> None:
    with pytest.raises(StrataError, match="--input x cannot be used"):
        value = parse_value("x", text)
        assert isinstance(value, Literal)  # lists of what are no numbers are found later
        value.array("x", type_of("f32", np.float32, 2))


@pytest.mark.parametrize(("numbers", "element", "dtype", "part"), [
    (3.5, "i64", np.int64, "i64 has no 3.5"), (300, "i8", np.int8, "i8 has no 300"),
    (-1, "ui8", np.uint8, "ui8 has no -1"), (2, "i1", np.bool_, "i1 has no 2"),
    (1e5, "f16", np.float16, "f16 has no 100000.0"), (np.nan, "i32", np.int32, "i32 has no nan"),
    (2**63, "i64", np.int64, "i64 has no"), (8, "i4", ml_dtypes.int4, "i4 has no 8"),
    ([1, [2]], "f32", np.float32, "different lengths"),
])
def test_numbers_that_a_type_has_not(
    numbers: Any, element: str, dtype: Any, part: str
) -> None:
    with pytest.raises(StrataError, match=part):
        Literal(numbers).array("x", type_of(element, dtype))


@pytest.mark.parametrize(("numbers", "element", "dtype"), [
    (2**63 - 1, "i64", np.int64), (2**64 - 1, "ui64", np.uint64), (-2**63, "i64", np.int64),
    (1, "i1", np.bool_), (np.inf, "f16", np.float16), (np.nan, "bf16", ml_dtypes.bfloat16),
    (-8, "i4", ml_dtypes.int4), (3.0, "i32", np.int32), (65504, "f16", np.float16),
])
def test_numbers_are_kept(numbers: Any, element: str, dtype: Any) -> None:
    array = Literal(numbers).array("x", type_of(element, dtype))
    assert (array.dtype, array.shape) == (np.dtype(dtype), ())
    assert array.item() == numbers or (numbers != numbers and np.isnan(array.astype(np.float64)))


def test_one_number_fits_every_input_of_one_element() -> None:
    assert Literal(7).array("x", type_of("i64", np.int64, 1, 1)).shape == (1, 1)
    with pytest.raises(StrataError, match="one number is given"):
        Literal(7).array("x", type_of("i64", np.int64, 2))


def test_ranges_stay_in_their_type() -> None:
    found = Filled("range", (300,)).array("x", type_of("i8", np.int8, 300), (300,), np.zeros)
    assert found.min() == 0 and found.max() == 127


def test_inputs_that_are_written_out(strata: Run, small_model: Path) -> None:
    np.savez("in.npz", **{"in/x:0": np.ones((5, 8), np.float32), "rows": np.array([4, 0, 2])})
    given = strata("run", small_model, "--target", "reference", "--inputs", "in.npz")
    for words in (["--input", "in/x:0=5x8xf32=ones", "--input", "rows=[4, 0, 2]"],
                  ["--input", "in/x:0=ones", "--dim", "n=5", "--input", "rows=[4,0,2]"],
                  ["--inputs", "in.npz", "--input", "in/x:0=5x8=1"]):
        done = strata("run", small_model, "--target", "reference", *words)
        assert (done.status, done.out) == (0, given.out), done.err


STRANGE = (["--input", "row=[0]"], 1, ["no input 'row'", "did you mean 'rows'?", "it takes 'in/x"])


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_nothing_is_compiled_by_the_other_commands(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    test_nothing_is_compiled_for_inputs_that_do_not_fit(
        strata, small_model, monkeypatch, *STRANGE, command=command)


@pytest.mark.parametrize(("words", "status", "parts"), [
    STRANGE,
    (["--input", "rows=[0.5]"], 1, ["i64 has no 0.5"]),
    (["--input", "rows=3xi32=zeros"], 1, ["given as i32", "i64[m]"]),
    (["--input", "rows=[[0]]"], 1, ["shape [1, 1]", "i64[m]"]),
    (["--input", "in/x:0=5x9=ones"], 1, ["shape [5, 9]", "f32[n, 8]"]),
    (["--input", "rows=[0]", "--input", "rows=[1]"], 2, ["'rows' more than once"]),
    (["--input", "rows=lost.npy"], 1, ["no file lost.npy"]),
    (["--input", "rows=-", "--inputs", "-"], 2, ["cannot both come on standard input"]),
    (["--input", "in/x:0=99999999999x8=zeros"], 1, ["no memory"]),
])
def test_nothing_is_compiled_for_inputs_that_do_not_fit(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch, words: list[str],
    status: int, parts: list[str], command: str = "run",
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a pass has run")

    monkeypatch.setattr("compiler.pipeline.driver.Compiler.run_step", fail)
    done = strata(command, small_model, "--target", "cpu", "--cache", "off", *words)
    assert done.status == status, done.err
    assert all(part in done.err for part in parts), done.err


@pytest.mark.parametrize(("option", "name"), [("run", "--output"), ("lower", "-o"),
                                              ("bench", "--json"), ("opt", "-o")])
def test_a_place_that_cannot_be_written_is_told_first(
    strata: Run, small_model: Path, monkeypatch: pytest.MonkeyPatch, option: str, name: str
) -> None:
    monkeypatch.setattr("compiler.pipeline.driver.Compiler.read", lambda _: 1 / 0)
    Path("text.mlir").write_text("")
    model = "text.mlir" if option == "opt" else small_model
    for place, part in (("no/folder/y", "no such folder"), (".", "it is a folder")):
        done = strata(option, model, "--cache", "off", name, place)
        assert done.status == 1
        assert f"cannot write {place}: {part}" in done.err or "there is no" in done.err

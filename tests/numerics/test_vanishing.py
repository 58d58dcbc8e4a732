"""Outputs that are zero but for rounding."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.parser import Parser

from compiler.instrument.vanishing import is_within, vanishing
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from targets.reference.interpret import interpret

WORDS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def outputs_of(element: str, terms: np.ndarray[Any, Any]) -> tuple[list[Any], dict[int, Any]]:
    """Sums of terms and of their magnitudes, and the terms; which of them vanish."""
    context = StrataContext.with_dialects(WeightStore())
    module = Parser(context, f"""
      strata.func @main(%x: {element}[n, 6]) -> ({element}[2, 3], {element}[6], {element}[n, 6])
          inputs ["x"] outputs ["y", "z", "w"] {{
        %s = graph.reduce_sum %x {{axes = [0], keepdims = true}} : {element}[1, 6]
        %y = graph.reshape %s {{shape = [2, 3]}} : {element}[2, 3]
        %a = graph.abs %x : {element}[n, 6]
        %z = graph.reduce_sum %a {{axes = [0], keepdims = false}} : {element}[6]
        %w = graph.neg %x : {element}[n, 6]
        strata.return %y, %z, %w
      }}""").parse_module()
    given = [terms.astype(WORDS[element])]
    expected = interpret(module, context.weights, given)
    return expected, dict(vanishing(module, context.weights, given, expected))


@pytest.mark.parametrize("element", WORDS)
def test_sums_of_terms_that_cancel(element: str) -> None:
    half = np.random.default_rng(0).standard_normal((19, 6)).astype(WORDS[element])
    outputs, found = outputs_of(element, np.concatenate([half, -half]))
    assert found.keys() == {0} and found[0].shape == (2, 3)
    assert is_within(outputs[0], found[0])
    for wrong in (1.0, np.nan, -1.0):  # a term too much, or too few
        off = outputs[0].copy()
        off[1, 2] += half[0, 5] if wrong == 1.0 else wrong
        assert not is_within(off, found[0])


@pytest.mark.parametrize("terms", [np.ones((5, 6)), np.full((5, 6), np.inf)])
def test_other_sums(terms: np.ndarray[Any, Any]) -> None:
    assert outputs_of("f32", terms)[1] == {}


def test_no_terms() -> None:
    outputs, found = outputs_of("f32", np.ones((0, 6)))
    assert found.keys() == {0, 1} and all(is_within(outputs[k], found[k]) for k in found)

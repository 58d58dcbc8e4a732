"""Closed forms of the places that a resize reads, beside the coordinates that define them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dialects.graph.resize import rounded_coordinates, source_coordinates
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from passes.graph_to_loop.resizing import ResizedDim

MODES = ["asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"]
RULES = ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
SIZES = [(1, 1, None), (1, 5, None), (5, 1, None), (7, 7, None), (7, 13, None), (13, 7, None),
         (67, 100, 1.5), (19, 28, 1.5), (10, 25, 2.5), (33, 40, 1.23), (24, 16, None),
         (101, 37, 0.37), (6, 600, None)]
PLACE = Symbol.axis("i0")


@pytest.mark.parametrize("mode", MODES)
def test_places_are_those_of_the_coordinates(mode: str) -> None:
    found = 0
    for (source, size, scale), rule, step in product(SIZES, RULES, (-1, 0, 2)):
        dim = ResizedDim(0, Expr.of(source), Expr.of(size), scale, mode)
        form = dim.closed(Expr.symbol(PLACE), rule, step)
        if form is None:
            continue
        coordinates = source_coordinates(mode, source, size, scale)
        wanted = np.clip(rounded_coordinates(coordinates, rule) + step, 0, source - 1)
        assert [form.evaluate({PLACE: p}) for p in range(size)] == wanted.tolist(), (
            source, size, scale, rule, step)
        found += 1
    assert found > 0.8 * len(SIZES) * len(RULES) * 3


def test_open_sizes_have_none() -> None:
    dim = ResizedDim(0, Expr.of(4), Expr.symbol(Symbol.axis("n")), None, "asymmetric")
    assert dim.closed(Expr.symbol(PLACE), "floor") is None

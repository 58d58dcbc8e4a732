"""The model of products' time on the CUDA target, against times that were measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import exp, log
from pathlib import Path

import pytest

from targets.cuda.machine import MACHINES
from targets.cuda.product_parts import parts_of
from targets.cuda.product_tiles import tiles
from targets.cuda.product_time import Product, ProductTile, seconds

H200 = MACHINES["sm_90"]
_TILE = re.compile(r"(\d+)x(\d+)x(\d+)/(\d+)/(\d+)=(\S+)")


def measured() -> Mapping[str, tuple[Product, Mapping[ProductTile, float]]]:
    """Products, and the microseconds of some tiles of each."""
    found: dict[str, tuple[Product, dict[ProductTile, float]]] = {}
    name = ""
    for line in Path(__file__).with_name("measured_tiles.txt").read_text().splitlines():
        if line.startswith(" "):
            found[name][1].update({ProductTile(*map(int, tile)): float(time)
                                   for *tile, time in _TILE.findall(line)})
        elif not line.startswith("#"):
            name, _, numbers = line.partition(": ")
            *sizes, narrow = map(int, numbers.split())
            found[name] = Product(*sizes, narrow=bool(narrow)), {}
    return found


MEASURED = measured()


def test_the_tiles_that_it_prefers_are_among_the_fastest() -> None:
    """Of the measured tiles of a product, the one that it orders first; on the geometric mean."""
    losses: dict[str, float] = {}
    for name, (product, times) in MEASURED.items():
        chosen = next(times[t] for t in tiles(product, H200) if t in times)
        losses[name] = log(chosen / min(times.values()))
    assert len(losses) > 40 and exp(sum(losses.values()) / len(losses)) < 1.06
    assert max(losses.values()) < log(1.25), max(losses, key=lambda name: losses[name])


def test_its_times_are_about_those_measured() -> None:
    """Of good tiles: within a factor of 1.5, as parts of sums are chosen by the difference."""
    for name, (product, times) in MEASURED.items():
        best = min(times, key=lambda t: times[t])
        ratio = seconds(product, best, H200) * 1e6 / times[best]
        assert 1 / 1.5 < ratio < 1.5, (name, ratio)


@pytest.mark.parametrize(("rows", "columns", "depth", "pays"), [
    (128, 768, 3072, True), (49, 512, 2048, True), (1576, 768, 3072, False),
    (1024, 768, 3072, False), (512, 768, 3072, False), (16, 4096, 4096, False)])
def test_sums_in_parts_where_they_were_faster(
    rows: int, columns: int, depth: int, pays: bool
) -> None:
    """With the kernel that adds them, on an H200: 20% less time, or as much and more."""
    product = Product(1, rows, columns, depth, 2, 4, depth)
    assert (parts_of(product, H200, 128) > 1) == pays

"""Tiles of products on the CUDA target, and the model of their time, against measured times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest

from targets.cuda.machine import AMD_MACHINES, MACHINES, machine_of
from targets.cuda.scheduling.products.parts import parts_of
from targets.cuda.scheduling.products.tiles import tiles
from targets.cuda.scheduling.products.time import Product, ProductTile, seconds

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


# ---------------------------------------------------------------------- tiles
def plain(batch: int, rows: int, columns: int, depth: int, width: int = 2) -> Product:
    """Of a matrix product that stores halves."""
    return Product(batch, rows, columns, depth, width, 2, depth)


@pytest.mark.parametrize("sizes", [
    (1, 1, 1, 1), (1, 4096, 4096, 4096), (12, 128, 128, 64), (1, 16, 4096, 4096), (3, 17, 31, 7),
    (1, 64, 64, 24), (1, 64, 64, 8)])
@pytest.mark.parametrize("arch", [*MACHINES, *AMD_MACHINES])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_tiles_fit_the_machine(
    sizes: tuple[int, int, int, int], arch: str, width: int
) -> None:
    machine, product_ = machine_of(arch), plain(*sizes, width)
    found = tiles(product_, machine)
    assert found and len({*found}) == len(found)
    for tile in found:
        assert tile.shared(width) <= machine.shared and tile.depth * width >= 32
        assert min(tile.rows, tile.columns, tile.depth) >= 16
        assert tile.rows * tile.columns <= 256 * 32 * tile.warps
    times = [seconds(product_, t, machine) for t in found]
    assert times[0] <= min(times) * exp(machine.fitted.products.alike) * 1.02


def test_large_products_have_large_tiles_and_small_ones_many_programs() -> None:
    large = tiles(plain(1, 4096, 4096, 4096), H200)[0]
    assert (large.rows, large.columns, large.warps) == (128, 256, 8)
    small = tiles(plain(1, 128, 768, 768), H200)[0]
    assert (128 // small.rows) * (768 // small.columns) >= 96
    assert tiles(replace(plain(1, 1024, 4096, 1024), open=True), H200)[0].rows <= 128


def test_whole_rounds_of_programs() -> None:
    """One program more than there are multiprocessors takes another round."""
    tile = ProductTile(128, 256, 64, 8, 3)
    full = seconds(plain(1, 132 * 128, 256, 4096), tile, H200)
    more = seconds(plain(1, 133 * 128, 256, 4096), tile, H200)
    assert 1.4 < more / full < 2.2


def test_small_products_with_a_bias_keep_what_they_need_in_registers() -> None:
    """A thread's share of a vector along 256 columns, beside 128 sums, is too much."""
    small = Product(1, 1568, 2048, 1024, 2, 2, 1024)
    for product, columns in ((small, 256), (replace(small, vectors=True), 128),
                             (Product(1, 8192, 8192, 8192, 2, 2, 8192, vectors=True), 256)):
        assert tiles(product, H200)[0].columns == columns

"""What was fitted on an H200; an H100 has the same multiprocessors, and takes it, too."""

from __future__ import annotations

from targets.cuda.facts.fitted import (
    CopiedTimes,
    EarlyLaunches,
    Fitted,
    GuessedCycles,
    PartTimes,
    ProductTimes,
    RowTiles,
)

PRODUCTS = ProductTimes(
    efficiency=0.91, fma_efficiency=0.8, half_columns=46, group_rows=64, group_warps=4,
    short_rows=0.057e-6, fma_loads=2.3, latency=0.55e-6, step=0.012e-6, start=2.1e-6, filled=0.44,
    stored=120e9, stored_among_others=290e9, memory=0.9, beside_memory=0.37, hiding=4, waiting=3,
    registers=64, spilled=2.5e-6, column_threads=4, alike=0.03)
"""Fitted to 620 measured tiles of 49 shapes: products of BERT, GPT-2 and ViT, squares, and the
convolutions of ResNet-50. Of these tiles, the ones that the model takes for the fastest take 4%
longer than the fastest, on the geometric mean. `tests/targets/cuda/products/measured_tiles.txt` has
them.

`spilled` is a guess, by which small products avoid such tiles, as they also take ten times as long
to compile. `group_rows`, `group_warps` and `column_threads` are those of the instructions (PTX ISA,
"wgmma")."""

COPIED = CopiedTimes(
    start=6.1e-6, efficiency=0.93, half_columns=22, loads=1.26, latency=0.85e-6, stored=700e9,
    hiding=8, waiting=5, reach=768, caution=1.08)
"""Fitted to 188 measured times of 15 shapes (Triton 3.6), between events and from cold caches: 5%
off, by the root of the mean square. Of these tiles, the ones that the model takes for the fastest
take 1% longer than the fastest, on the geometric mean.

`reach`: 29 shapes of heads of 128 bf16 took 0.71 to 0.98 of the time in other tiles, but rows of
256 or 512 that reach to a diagonal 0.98 to 1.07. `caution`: of 22 further products, those that are
so chosen took 0 to 25% less than in other tiles.
"""

PARTS = PartTimes(gain=0.91, adding=1.5e-6, adding_online=2.5e-6, programs=4, sharing=4, alike=1.1,
                  alone=10)
"""Measured in graphs, where the kernel that adds follows the one that walks."""

ROWS = RowTiles(
    elements=1024, side=256, longest_whole=16384, held=32, least_held=4, alone=1024, read_words=2,
    shared=(8192, 16384), held_sharing=16, sharing_warps=16, step=16384, step_apart=4096,
    step_once=1024, step_open=8192, step_warps=32, step_apart_warps=16, other_step_warps=8,
    step_online=8192, online_warps=16, step_scan=2048, scan_warps=4, short=8192, height=16,
    open_height=4, beside=64, across=16, across_warps=4, programs=8)
"""`shared`: an RMS norm of 8192x4096 with a scale of 16 KiB gains 2% by it; a layer norm with 32
KiB loses 5%."""

GUESS = GuessedCycles(narrow_rate=1024, wide_rate=128, ungrouped=0.6, near_bytes=32, latency=800,
                      step=60, start=2000)
"""Rough: measuring decides, and the guess only what is measured first."""

EARLY = EarlyLaunches(held=256, trips=8)
"""A decode step of GPT-2 takes 372 us so. It takes 395 us if kernels let others begin before they
wait, so that two kernels' weights compete for the memory."""

H200 = Fitted("H200", PRODUCTS, COPIED, PARTS, ROWS, GUESS, EARLY, graph_lanes=4,
              joined_channels=32, strip_programs=1.5, read_once=0.25)
"""`graph_lanes`: every node that begins a chain by itself takes the host 0.7 us.

`joined_channels`: 32 channels take 0.5 to 0.9 of the time of 16, and 0.8 to 0.9 of that of 64.

`read_once`: from a cache full of what others wrote, 4096 x 4096 halves take 14.1 us so, and 15.4
if caches keep them; 11008 x 4096 take 27.6, and 31.6; 3072 x 768 the same. Where the matrix is in
the cache, all take the same.

`scheduling/products/vector.py` reads columns of 64 bytes, and of 32 where a program has all of the
sums: 768 x 768 halves take 2.5 us so, and 2.8 in 64 bytes, which are 24 programs; 3072 x 768 take
4.5, and 5.7; but 768 x 2304 take 3.8 us, and 3.2, and 768 x 3072 take 3.9, and 3.5."""

"""Numbers that were fitted on an H200. An H100 has the same multiprocessors and uses them as well.

benchmarks/CONSTANTS.md lists the measurements.
"""

from __future__ import annotations

from targets.cuda.facts.fitted import (
    CopiedTimes,
    EarlyLaunches,
    Fitted,
    GuessedCycles,
    LinkTimes,
    PartTimes,
    ProductTimes,
    RowTiles,
)

PRODUCTS = ProductTimes(
    efficiency=0.91, fma_efficiency=0.8, half_columns=46, group_rows=64, group_warps=4,
    short_rows=0.057e-6, fma_loads=2.3, latency=0.55e-6, step=0.012e-6, start=2.1e-6, filled=0.44,
    stored=120e9, stored_among_others=290e9, memory=0.9, beside_memory=0.37, hiding=4, waiting=3,
    registers=64, spilled=2.5e-6, column_threads=4, alike=0.03,
    skewed=(1.3, 1.9, 3.2))
"""Fitted to the tiles in `tests/targets/cuda/products/measured_tiles.txt`, and `skewed` to 120 more
of products drawn at random.

`spilled` is a guess that keeps small products away from tiles that spill; these also take ten times
as long to compile. `group_rows`, `group_warps` and `column_threads` are properties of the
instructions (PTX ISA, "wgmma")."""

COPIED = CopiedTimes(
    start=3.6e-6, efficiency=1.2, half_columns=36, loads=1.45, latency=0.96e-6, stored=59e9,
    stored_apart=6.5, full=0.89, skewed=(1.9, 2.4, 2.4), hiding=8, waiting=5, empty=3.0e-9,
    reach=768)
"""Fitted with Triton 3.6 to times between events, with cold caches, less the 1.25 us by which these
clocks differ from those of `PRODUCTS`: 308 tiles of 53 products, most drawn at random, on an H200
(mean error 5%). `empty` was fitted to four products of 8 to 65 rows there. The efficiency is above
1 because the clock of the data sheet is exceeded."""

PARTS = PartTimes(gain=0.91, adding=1.5e-6, adding_online=2.5e-6, programs=4, sharing=4, alike=1.1,
                  alone=10)
"""Measured in CUDA graphs in which the combining kernel follows the split one."""

ROWS = RowTiles(
    elements=1024, least_elements=256, side=256, longest_whole=16384, held=32, least_held=4,
    alone=1024, read_words=2,
    shared=(8192, 16384), held_sharing=16, sharing_warps=16, step=16384, step_apart=4096,
    step_once=1024, step_open=8192, step_warps=32, step_apart_warps=16, other_step_warps=8,
    step_online=8192, online_warps=16, step_scan=2048, scan_warps=4, short=8192, height=16,
    open_height=4, beside=64, across=16, across_warps=4, programs=8)
"""`shared` was chosen with RMS norms and layer norms of 8192x4096."""

GUESS = GuessedCycles(narrow_rate=1024, wide_rate=128, ungrouped=0.6, near_bytes=32, latency=800,
                      step=60, start=2000)
"""Rough: these numbers only decide the order in which candidates are measured."""

EARLY = EarlyLaunches(held=256, trips=8)
"""Chosen with a decode step of GPT-2. If kernels released their successors earlier, the weights of
two kernels would compete for memory bandwidth."""

LINK = LinkTimes(wait=13e-6, bandwidth=300e9, message=3e-6, occupied=24)
"""Fitted to all-reduces by NCCL on two of them: 15 us for 0.5 MB, 0.14 ms for 32 MB and 0.46 ms for
128 MB, which it tells within 12%. On two H100 0.5 MB took 14 us, and 32 MB as long. `occupied` is
an assumption, which NCCL has not been asked about yet."""

H200 = Fitted("H200", PRODUCTS, COPIED, PARTS, ROWS, GUESS, EARLY, LINK, graph_lanes=4,
              joined_channels=32, strip_programs=1.5, read_once=0.25)
"""`graph_lanes` is small because each node that begins a chain costs host time at every launch."""

"""Predicted times of transformers on 1 to 512 GPUs: where tensor parallelism stops paying.

    python benchmarks/distributed/plan.py        writes PLAN.md beside this file; needs no GPU

A layer takes the time of its products or of its memory, whichever is longer, some time for each
kernel, and two all-reduces. Two numbers of each device, the time of a kernel and the share of the
data sheet's rate that long products keep up, follow from measured times on one GPU. Times on two
GPUs are predicted from those and from the facts of links, and compared with measured ones. Links
between hosts are assumptions: they were not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill

from passes.contract import Rates
from targets.cuda.machine import MACHINES

LINK = MACHINES["sm_90"].fitted.link
TENSOR_RATE = MACHINES["sm_90"].tensor_rate * 1e12
READ_SHARE = MACHINES["sm_90"].fitted.products.memory
HOST = 8
"""GPUs of a host, which NVLink connects; more of them talk through the network."""
NETWORK = Rates(0, 0, exchanges=45e9, waits=25e-6)
"""An assumption: 400 Gb/s for each GPU, of which 90% are reached, and 25 us for a small message."""
KERNELS = 12
"""Kernels of a layer."""
PAYS = 1.25
"""Twice as many ranks pay if a step becomes so many times as fast; twice would be ideal."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Shape:
    """A transformer with bf16 weights: gated MLPs, groups of queries with common keys."""

    name: str
    width: int
    hidden: int
    keys: int
    layers: int
    head: int = 128

    @property
    def weights(self) -> int:
        """Of a layer."""
        w = self.width
        return 2 * w * w + 2 * w * self.keys * self.head + 3 * w * self.hidden


@dataclass(frozen=True)
class Case:
    """What a step computes: `rows` new tokens of each of `batch` sequences, after `past` others.
    `trains`: with gradients, which are twice the work again. `copies`: new keys and values are
    concatenated with cached ones, which writes and reads all of them once more."""

    name: str
    batch: int
    rows: int
    past: int
    trains: bool = False
    copies: bool = False

    @property
    def tokens(self) -> int:
        return self.batch * self.rows


@dataclass(frozen=True)
class Device:
    """A GPU. `reads`: bytes per second; `kernel`: seconds around each kernel; `sustained`: the
    share of the tensor cores' rate."""

    name: str
    reads: float
    memory: float
    kernel: float = 0.0
    sustained: float = 1.0

    def step(self, shape: Shape, case: Case, ranks: int) -> float:
        """The seconds of a step of which each rank computes a part of every product."""
        passes = 3 if case.trains else 1
        flops = passes * self._flops(shape, case) / ranks
        moved = passes * self._bytes(shape, case, ranks)
        layer = max(flops / (TENSOR_RATE * self.sustained), moved / (self.reads * READ_SHARE))
        layer += passes * KERNELS * self.kernel
        sums = 2 * (2 if case.trains else 1) * links(ranks).all_reduce(
            2 * case.tokens * shape.width, ranks)
        return shape.layers * (layer + sums)

    def _flops(self, shape: Shape, case: Case) -> float:
        seen = case.past + case.rows / 2
        return 2 * case.tokens * shape.weights + 4 * case.tokens * seen * shape.width

    def _bytes(self, shape: Shape, case: Case, ranks: int) -> float:
        """Weights and cached keys and values; ranks beyond the heads of keys have the same ones."""
        cache = 2 * 2 * case.batch * case.past * shape.keys * shape.head
        times = 3 if case.copies else 1
        return 2 * shape.weights / ranks + times * cache / min(ranks, shape.keys)

    def fits(self, shape: Shape, case: Case, ranks: int) -> bool:
        """Whether weights and caches fit; in training, also gradients and Adam's f32 state."""
        held = shape.layers * self._bytes(shape, case, ranks)
        return held * (8 if case.trains else 1) < 0.9 * self.memory


def links(ranks: int) -> Rates:
    return NETWORK if ranks > HOST else Rates(0, 0, LINK.bandwidth, LINK.wait)


# ---------------------------------------------------------------------- check
CHECKED = (Case("decode, batch 1", 1, 1, 2048, copies=True),
           Case("decode, batch 16", 16, 1, 2048, copies=True),
           Case("prefill of 2,048", 1, 2048, 0))
MEASURED: Mapping[str, tuple[tuple[float, float], ...]] = {
    "H100": ((0.83, 0.64), (1.31, 1.14), (5.68, 3.60)),
    "H200": ((0.67, 0.61), (1.02, 0.84), (5.59, 3.56)),
}
"""Milliseconds of four layers on one GPU and on two, under `mode="reduce-overhead"`; of prefill on
two H200, 3.53 under `default`."""
FOUR = Shape("8B", 4096, 14336, 8, 4)
DEVICES = (Device("H100", 3350e9, 80e9), Device("H200", 4800e9, 141e9))


def calibrated(device: Device) -> Device:
    """The device with its two numbers from times on one GPU."""
    decode, _, prefill = (1e-3 * one for one, _ in MEASURED[device.name])
    free = device.step(FOUR, CHECKED[0], 1)
    kernel = (decode - free) / (FOUR.layers * KERNELS)
    flops = FOUR.layers * device._flops(FOUR, CHECKED[2])
    busy = prefill - FOUR.layers * KERNELS * kernel
    return replace(device, kernel=kernel, sustained=flops / TENSOR_RATE / busy)


def checks(device: Device) -> Iterator[str]:
    for case, (one, two) in zip(CHECKED, MEASURED[device.name], strict=True):
        found = [1e3 * device.step(FOUR, case, ranks) for ranks in (1, 2)]
        yield (f"| {device.name} | {case.name} | {one:.2f} | {found[0]:.2f} | {two:.2f} | "
               f"{found[1]:.2f} | {found[1] / two - 1:+.0%} | {one / two:.2f}x | "
               f"{found[0] / found[1]:.2f}x |")


# ---------------------------------------------------------------------- plans
SHAPES = (Shape("8B", 4096, 14336, 8, 32), Shape("70B", 8192, 28672, 8, 80))
LATENCIES = (Case("decode, 1 sequence, 2,048 cached", 1, 1, 2048),
             Case("decode, 64 sequences", 64, 1, 2048), Case("prefill of 8,192", 1, 8192, 0),
             Case("training, 16,384 tokens", 4, 4096, 0, trains=True))


def latency_rows(device: Device, shape: Shape) -> Iterator[str]:
    """Milliseconds of a step on more and more ranks, and the last doubling that pays."""
    for case in LATENCIES:
        times = {n: device.step(shape, case, n) for n in SIZES}
        cells = [f"{1e3 * t:.3g}" if device.fits(shape, case, n) else f"({1e3 * t:.3g})"
                 for n, t in times.items()]
        yield f"| {shape.name}: {case.name} | {' | '.join(cells)} | **{last_paying(times)}** |"


def last_paying(times: Mapping[int, float]) -> int:
    """The number of ranks up to which each doubling pays."""
    found = 1
    for n in SIZES[1:]:
        if times[n // 2] / times[n] < PAYS:
            break
        found = n
    return found


def best_division(device: Device, shape: Shape, case: Case, count: int) -> tuple[int, float]:
    """Ranks of tensor parallelism and the seconds of a step, fastest of `count` GPUs that compute
    `case` on each of them; replicas in training add gradients."""
    found: list[tuple[float, int]] = []
    for ranks in (n for n in SIZES if n <= count):
        own = replace(case, batch=case.batch * ranks)
        seconds = device.step(shape, own, ranks)
        if case.trains:
            rates, replicas = links(count), count // ranks
            seconds += rates.all_reduce(2 * shape.layers * shape.weights / ranks, replicas)
        if device.fits(shape, own, ranks):
            found.append((seconds, ranks))
    seconds, ranks = min(found, default=(float("inf"), 0))
    return ranks, seconds


LOADS = (Case("decode, 16 sequences on each GPU", 16, 1, 2048),
         Case("training, 4,096 tokens on each GPU", 1, 4096, 0, trains=True))


def load_rows(device: Device) -> Iterator[str]:
    """The division with most tokens per second."""
    for shape in SHAPES:
        for case in LOADS:
            cells: list[str] = []
            for count in (8, 64, 512):
                ranks, seconds = best_division(device, shape, case, count)
                rate = case.tokens * count / seconds
                cells.append(f"tp={ranks}, dp={count // ranks}: {rate:,.0f}" if ranks else
                             "does not fit")
            yield f"| {shape.name}: {case.name} | {' | '.join(cells)} |"


def page() -> str:
    devices = [calibrated(d) for d in DEVICES]
    own = devices[0]
    told = "; ".join(f"{d.name}: {1e6 * d.kernel:.1f} us around a kernel, {d.sustained:.0%} of the "
                     "tensor cores' rate" for d in devices)
    parts = [
        "# Plans for more devices than two", "", _filled(
            "Written by `python benchmarks/distributed/plan.py`. Only the first table contains "
            "measured times; all others are predictions of a simple model."), "", _filled(
            "A layer takes the time of its products or of its memory, whichever is longer, some "
            f"time around each of {KERNELS} kernels, and two all-reduces of its activations (four "
            f"in training). From times on one GPU follow, {told}. An all-reduce of s bytes among "
            f"n ranks takes {1e6 * LINK.wait:.0f} us * log2 n + 2 s (n-1)/n / "
            f"{LINK.bandwidth / 1e9:.0f} GB/s within a host, the facts that `--mesh` uses, and "
            f"{1e6 * NETWORK.waits:.0f} us and {NETWORK.exchanges / 1e9:.0f} GB/s beyond {HOST} "
            "GPUs, which is assumed. Nothing overlaps."), "",
        "## Check", "", _filled(
            "Four layers in the shape of Llama 8B, milliseconds of PyTorch's compiler under "
            "`reduce-overhead`. The model was fitted to one GPU's decoding of batch 1 and prefill; "
            "all else is predicted. Decoding concatenates new keys and values with cached ones."),
        "", "| device | case | one, measured | one, model | two, measured | two, predicted | error "
        "| gain, measured | gain, predicted |", "|---|---|" + "---:|" * 7,
        *(row for d in devices for row in checks(d)), "", "## Tensor parallelism alone", "",
        _filled(f"Milliseconds of a step on 1 to {SIZES[-1]} {own.name}; in brackets: weights and "
                "caches do not fit. The last column is the number of ranks up to which each "
                f"doubling makes a step at least {PAYS} times as fast."), "",
        "| step | " + " | ".join(map(str, SIZES)) + " | pays up to |",
        "|---|" + "---:|" * (len(SIZES) + 1),
        *(row for shape in SHAPES for row in latency_rows(own, shape)), "",
        "## Most tokens per second", "",
        _filled(f"The best division of {own.name}s, with a constant load on each; gradients of "
                "replicas are all-reduced at the end."),
        "", "| load | 8 GPUs | 64 GPUs | 512 GPUs |", "|---|---|---|---|", *load_rows(own), ""]
    return "\n".join(parts)


def _filled(text: str) -> str:
    return fill(text, 120, break_long_words=False)


if __name__ == "__main__":
    (Path(__file__).parent / "PLAN.md").write_text(page())

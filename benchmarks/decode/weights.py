"""Products of few rows by weights of 16, 8 and 4 bits: time beside the bytes that they must read.

    python benchmarks/decode/weights.py [--device cuda] [--rows 1,8,32] [--kinds bf16,int8,int4]
        [--width 4096] [--layers 12] [--block 128] [--modes reduce-overhead] [-o WEIGHTS.md]

Layers of width x width follow each other. int8 has a scale for each column; int4 has two codes in
a byte, and a scale for each block of a column, as torchao and `MatMulNBits` lay them out. All are
written as PyTorch computes them: codes become floats, which are multiplied. `share`: the bytes of
codes and scales, over the time, over the rate at which this machine copies (GPU) or reads (CPU)
memory. Strata, eager mode and PyTorch's compiler take turns in one process.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from turns import in_turns, rate_of

Tensor = torch.Tensor


class Floats(nn.Module):
    """Weights as they are multiplied."""

    def __init__(self, width: int, block: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(width, width) / width ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Bytes(nn.Module):
    """Codes of 8 bits [columns, width], and scales [columns, 1]."""

    def __init__(self, width: int, block: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(-128, 128, (width, width), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(width, 1) / (64 * width ** 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.codes.to(x.dtype) * self.scales).T


class Nibbles(nn.Module):
    """Codes of 4 bits [columns, width / 2], the first in the low half of a byte, and scales
    [columns, blocks, 1]. The zero point is 8."""

    def __init__(self, width: int, block: int) -> None:
        super().__init__()
        self.block = block
        self.register_buffer("codes", torch.randint(0, 256, (width, width // 2)).to(torch.uint8))
        self.register_buffer("scales", torch.rand(width, width // block, 1) / (4 * width ** 0.5))

    def forward(self, x: Tensor) -> Tensor:
        codes = torch.stack([self.codes & 15, self.codes >> 4], -1).flatten(1)
        blocks = codes.to(x.dtype).unflatten(1, (-1, self.block)) - 8
        return x @ (blocks * self.scales).flatten(1).T


KINDS: Mapping[str, Callable[[int, int], nn.Module]] = {
    "bf16": Floats, "int8": Bytes, "int4": Nibbles}


def measured(kind: str, rows: int, options: argparse.Namespace) -> Iterator[str]:
    """A line of the table per contestant; who fails is told."""
    torch._dynamo.reset()  # which gives up a function after eight compilations
    torch.manual_seed(0)
    layers = [KINDS[kind](options.width, options.block) for _ in range(options.layers)]
    made = nn.Sequential(*layers).eval().to(options.device)
    for buffer in made.buffers():
        if buffer.is_floating_point():
            buffer.data = buffer.data.to(torch.bfloat16)
    x = torch.randn(rows, options.width, dtype=torch.bfloat16, device=options.device)
    own: dict[str, Any] = {"threads": 1} if options.device == "cpu" else {}
    calls = {"eager": made, "strata": torch.compile(
        made, backend="strata", options={"cache": "off", **own})}
    calls |= {mode: torch.compile(made, mode=mode)
              for mode in filter(None, options.modes.split(","))}
    size = sum(b.numel() * b.element_size() for b in made.buffers())
    with torch.no_grad():
        want = made(x).float()
        errors = {name: float((call(x).float() - want).abs().max() / want.abs().max())
                  for name, call in calls.items()}
        times = in_turns({n: lambda call=call: call(x) for n, call in calls.items()},
                         options.device)
    rate = rate_of(options.device)
    for name, ms in times.items():
        yield (f"| {kind} | {rows} | {name} | {ms:.3f} | {size / ms / 1e9:.2f} | "
               f"{size / (ms / 1e3) / rate:.2f} | {errors[name]:.1e} |")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--rows", default="1,8,32")
    parser.add_argument("--kinds", default="bf16,int8,int4")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--modes", default="reduce-overhead")
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.device == "cpu":
        torch.set_num_threads(1)
    lines = ["| weights | rows | by | ms | TB/s | share | error |", "|---|---:|---|" + "---:|" * 4]
    for kind in options.kinds.split(","):
        for rows in options.rows.split(","):
            lines += measured(kind, int(rows), options)
    print("\n".join(lines))
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

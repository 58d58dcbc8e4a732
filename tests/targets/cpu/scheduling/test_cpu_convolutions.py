"""Convolutions as native code: odd, prime, tiny and open sizes, strides, dilations, groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import compiler
from dialects.graph.convolution import convolve
from dialects.strata.types import Array, ExprAttr, SizesAttr
from dialects.symbolic.expr import Expr
from tests.targets.cpu.cpu_kernels import feature_set

each_machine = pytest.mark.parametrize(
    "features", [None, feature_set("avx2")], ids=["machine", "avx2"])
TOLERANCE = 4e-6
"""Of the largest magnitude."""


@dataclass(frozen=True)
class Convolution:
    """A convolution between two elementwise operators, which leave layouts free."""

    inputs: int
    outputs: int
    size: tuple[int, ...]
    taps: tuple[int, ...] = (3, 3)
    pads: int | tuple[int, ...] = 1
    strides: int = 1
    dilations: int = 1
    group: int = 1
    samples: int = 1

    @property
    def window(self) -> dict[str, list[int]]:
        rank = len(self.size)
        pads = [self.pads] * 2 * rank if isinstance(self.pads, int) else [*self.pads]
        return {"pads": pads, "strides": [self.strides] * rank,
                "dilations": [self.dilations] * rank}

    @property
    def filter_shape(self) -> tuple[int, ...]:
        return (self.outputs, self.inputs // self.group, *self.taps)

    def results(self, size: tuple[int, ...]) -> list[int]:
        """The sizes of the result."""
        pads, rank = self.window["pads"], len(size)
        return [(n + pads[d] + pads[d + rank] - self.dilations * (self.taps[d] - 1) - 1)
                // self.strides + 1 for d, n in enumerate(size)]

    def text(self, is_open: bool) -> str:
        """The model, its sizes open or fixed; the filter are numbers that the compiler folds."""
        names = [f"s{d}" for d in range(len(self.size))] if is_open else [*map(str, self.size)]
        x = f"f32[{self.samples}, {self.inputs}, {', '.join(names)}]"
        stored = [self._result(d, n) for d, n in enumerate(names)] if is_open else [
            str(n) for n in self.results(self.size)]
        y = f"f32[{self.samples}, {self.outputs}, {', '.join(stored)}]"
        shape = list(self.filter_shape)
        count = int(np.prod(shape))
        window = ", ".join(f"{k} = {v}" for k, v in self.window.items())
        return f'''builtin.module {{
          strata.func @main(%x: {x}) -> ({y}) inputs ["x"] outputs ["y"] {{
            %r = graph.range {{start = 0, step = 1, count = {count}, to = f32}} : f32[{count}]
            %s = graph.sin %r : f32[{count}]
            %w = graph.reshape %s {{shape = {shape}}} : f32{shape}
            %a = graph.abs %x : {x}
            %c = graph.conv %a, %w {{{window}, group = {self.group}}} : {y}
            %y = graph.neg %c : {y}
            strata.return %y
          }}
        }}'''

    def _result(self, dim: int, name: str) -> str:
        pads, rank = self.window["pads"], len(self.size)
        rest = pads[dim] + pads[dim + rank] - self.dilations * (self.taps[dim] - 1) - 1
        return f"(({name} + {rest}) floordiv {self.strides}) + 1"

    def expected(self, x: Array) -> Array:
        """In double precision, by the definition of the operator."""
        w = np.sin(np.arange(np.prod(self.filter_shape), dtype=np.float32))
        attributes = {k: SizesAttr.of(v) for k, v in self.window.items()}
        shape = (self.samples, self.outputs, *self.results(x.shape[2:]))
        return -convolve(
            np.abs(x).astype(np.float64), w.reshape(self.filter_shape).astype(np.float64),
            {**attributes, "group": ExprAttr(Expr.of(self.group))}, shape, np.dtype(np.float64))


CONVOLUTIONS = {
    "shortened": Convolution(32, 32, (16, 16)),
    "shortened odd": Convolution(24, 40, (13, 19)),
    "shortened samples": Convolution(48, 33, (9, 8), samples=3),
    "shortened dilated": Convolution(64, 48, (17, 23), pads=2, dilations=2),
    "shortened 5x5": Convolution(32, 32, (14, 14), (5, 5), pads=2),
    "shortened line": Convolution(32, 48, (61,), (3,)),
    "shortened columns": Convolution(64, 64, (12, 20), (3, 1), pads=(1, 0, 1, 0)),
    "prime": Convolution(7, 11, (13, 5)),
    "stride": Convolution(16, 72, (15, 14), strides=2),
    "far taps": Convolution(16, 40, (7, 7), pads=6, dilations=6, samples=2),
    "taps in the border alone": Convolution(9, 24, (5, 4), pads=9, dilations=9),
    "results of the border alone": Convolution(8, 33, (4, 3), pads=7, strides=2),
    "uneven border": Convolution(12, 32, (9, 6), (5, 3), pads=(0, 3, 4, 1), strides=3),
    "image": Convolution(3, 24, (23, 21), (7, 7), pads=3, strides=2),
    "one channel": Convolution(1, 40, (11, 17)),
    "pointwise": Convolution(1024, 70, (5, 3), (1, 1), pads=0),
    "pointwise wide": Convolution(20, 80, (9, 9), (1, 1), pads=0),
    "one place": Convolution(16, 16, (1, 1)),
    "depthwise": Convolution(32, 32, (14, 14), group=32),
    "depthwise odd": Convolution(19, 19, (9, 7), group=19),
    "depthwise tiny": Convolution(5, 5, (2, 1), group=5),
    "depthwise stride": Convolution(48, 48, (13, 16), group=48, strides=2, pads=(0, 0, 1, 1)),
    "depthwise dilated": Convolution(20, 20, (11, 10), group=20, dilations=3, pads=3),
    "depthwise 5x5": Convolution(17, 17, (8, 12), (5, 5), pads=2, group=17),
    "depthwise 9x9": Convolution(16, 16, (10, 10), (9, 9), pads=4, group=16),
    "depthwise line": Convolution(40, 40, (37,), (7,), pads=3, group=40),
    "groups": Convolution(68, 136, (7, 6), (1, 1), pads=0, group=4),
    "groups 3x3": Convolution(24, 36, (10, 9), group=3),
}
"""By what is special about them on this target."""


def check(case: Convolution, path: Path, sizes: list[tuple[int, ...]], is_open: bool,
          features: str | None) -> None:
    path.write_text(case.text(is_open))
    exe = compiler.compile(path, target="cpu", threads=1, cache=None, features=features)
    for size in sizes:
        shape = (case.samples, case.inputs, *size)
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        [got], want = exe(x), case.expected(x)
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()


@each_machine
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_fixed_sizes(name: str, features: str | None, tmp_path: Path) -> None:
    case = CONVOLUTIONS[name]
    check(case, tmp_path / "conv.mlir", [case.size], False, features)


@pytest.mark.parametrize("name", ["far taps", "results of the border alone", "shortened odd",
                                  "shortened dilated", "shortened line", "stride", "depthwise",
                                  "depthwise stride", "depthwise line", "groups 3x3"])
def test_open_sizes(name: str, tmp_path: Path) -> None:
    """One code for all sizes."""
    case = CONVOLUTIONS[name]
    sizes = [case.size, tuple(n - 3 for n in case.size), tuple(2 * n + 1 for n in case.size)]
    check(case, tmp_path / "conv.mlir", sizes, True, None)


def chained(first: str, last: str) -> str:
    """A model that does what two do, one after the other."""
    head, _, result = first.partition(" -> (")
    signature, _, tail = last.partition("{\n")[2].partition("{\n")
    result = result.partition("\n")[2].rpartition("strata.return")[0]
    renamed = re.sub(r"%(\w+)", lambda m: "%y" if m[1] == "x" else f"%{m[1]}2", tail)
    return f"{head} -> ({signature.partition(' -> (')[2]}{{\n{result}{renamed}"


@each_machine
@pytest.mark.parametrize("channels", [64, 67, 13])
def test_one_result_channel(channels: int, features: str | None, tmp_path: Path) -> None:
    """What one convolution makes with channels last, another sums to one channel."""
    first = Convolution(6, channels, (11, 9))
    last = Convolution(channels, 1, (11, 9), strides=2)
    path = tmp_path / "two.mlir"
    path.write_text(chained(first.text(False), last.text(False)))
    exe = compiler.compile(path, target="cpu", threads=1, cache=None, features=features)
    x = np.random.default_rng(1).standard_normal((1, 6, 11, 9)).astype(np.float32)
    [got], want = exe(x), last.expected(first.expected(x))
    assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()

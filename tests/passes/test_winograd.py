"""Fewer products for the windows of convolutions: every size and window, and how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from dialects.graph import ConstantOp
from dialects.graph.convolution import convolve
from dialects.graph.interpret import evaluate_func
from dialects.loop import KernelOp, NestOp
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.schedule import Schedule
from dialects.strata.types import Array, SizesAttr
from passes.analyses.loop.windows import Window
from passes.base import StrataContext
from passes.contract import Rules
from passes.rewriting import functions
from tests.passes.harness import parse, run_passes

PASSES = "graph-to-loop,loop-fuse,loop-assign-layouts,loop-winograd"
CHANNELS, RESULTS = 8, 5


@dataclass(frozen=True)
class Convolution:
    """Sizes and window of a convolution over one or two dims, of which some windows shorten."""

    size: tuple[int, ...]
    taps: tuple[int, ...]
    shortened: int
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    open: bool = False
    """Whether the sizes are known only when it runs."""

    @property
    def window(self) -> dict[str, tuple[int, ...]]:
        rank = len(self.size)
        return {"pads": self.pads or (0,) * 2 * rank, "dilations": self.dilations or (1,) * rank}

    @property
    def result(self) -> list[int]:
        pads, dilations, rank = *self.window.values(), len(self.size)
        return [self.size[d] + pads[d] + pads[d + rank] - dilations[d] * (self.taps[d] - 1)
                for d in range(rank)]

    def text(self, channels: int) -> str:
        """The module, its filter an argument."""
        names = [f"s{d}" if self.open else str(n) for d, n in enumerate(self.size)]
        stored = [f"s{d} + {r - n}" if self.open else str(r)
                  for d, (r, n) in enumerate(zip(self.result, self.size, strict=True))]
        x = f"f32[1, {channels}, {', '.join(names)}]"
        w = f"f32[{RESULTS}, {channels}, {', '.join(map(str, self.taps))}]"
        y = f"f32[1, {RESULTS}, {', '.join(stored)}]"
        window = ", ".join(f"{k} = {list(v)}" for k, v in self.window.items())
        return (f'builtin.module {{ strata.func @main(%x: {x}, %w: {w}) -> ({y}) '
                f'inputs ["x", "w"] outputs ["y"] {{ '
                f'%y = graph.conv %x, %w {{{window}}} : {y} strata.return %y }} }}')


CONVOLUTIONS = [
    Convolution((9, 14), (3, 3), 1, pads=(1, 1, 1, 1)),
    Convolution((9, 14), (3, 3), 2, pads=(1, 1, 1, 1)),
    Convolution((8, 8), (3, 3), 2),
    Convolution((2, 2), (3, 3), 2, pads=(1, 1, 1, 1)),
    Convolution((3, 9), (3, 3), 1),
    Convolution((7, 5), (2, 4), 2, pads=(1, 0, 0, 2)),
    Convolution((11, 6), (5, 5), 2, pads=(2, 2, 2, 2)),
    Convolution((13, 1), (3, 1), 1, pads=(1, 0, 1, 0)),
    Convolution((29,), (3,), 1, pads=(1, 1)),
    Convolution((40,), (3,), 1, pads=(5, 5), dilations=(5,)),
    Convolution((23, 17), (3, 3), 2, pads=(2, 3, 2, 3), dilations=(2, 3)),
    Convolution((10, 13), (3, 3), 2, pads=(1, 1, 1, 1), open=True),
    Convolution((31,), (4,), 1, pads=(0, 3), dilations=(2,), open=True),
]


@dataclass
class _Shortening(Rules):
    """So many windows are shortened, whatever that costs."""

    windows: int

    def schedule(self, kernel: KernelOp) -> Schedule:
        raise NotImplementedError("no pass of this test asks for schedules")

    def shorten(self, nest: NestOp, data: int, windows: Sequence[Window]) -> Sequence[Window]:
        return sorted(windows, key=lambda w: -w.dim)[:self.windows]


def outputs(case: Convolution, x: Array, w: Array, windows: int) -> tuple[Array, str]:
    """The result in single precision, so many windows shortened, and the text behind the passes."""
    context = StrataContext.with_dialects(rules=_Shortening(windows))
    module = parse(case.text(x.shape[1]), context)
    [func] = functions(module)
    block = func.body.block
    [conv, _] = block.ops
    constant = ConstantOp.of_array(w, context.weights, "w")
    constant.location = conv.location
    block.insert_op_before(constant, conv)
    block.args[1].replace_all_uses_with(constant.result)
    text = run_passes(module, PASSES, context)
    [func] = functions(module)
    [y] = evaluate_func(func, [x, w], EvaluationContext(weights=context.weights))
    return y, text


def reference(case: Convolution, x: Array, w: Array) -> Array:
    """In double precision, by the definition of the operator."""
    attributes = {k: SizesAttr.of(v) for k, v in case.window.items()}
    shape = (1, w.shape[0], *case.result)
    return convolve(x.astype(np.float64), w.astype(np.float64), attributes, shape,
                    np.dtype(np.float64))


def numbers(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_close(case: Convolution) -> None:
    """Each window that shall be shortened is, and the sums are those of the operator."""
    x, w = numbers(1, CHANNELS, *case.size), numbers(RESULTS, CHANNELS, *case.taps)
    got, text = outputs(case, x, w, case.shortened)
    assert text.count("loop.nest") == 1 + 2 * case.shortened
    want = reference(case, x, w)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 4e-6 * np.abs(want).max()


@pytest.mark.parametrize(("taps", "windows", "most"), [(3, 1, 12), (3, 2, 16), (5, 2, 20)])
def test_roundings(taps: int, windows: int, most: float) -> None:
    """Errors are at most so many roundings of a result (by the root of the mean square): plain sums
    of these lengths are off by 4 to 7, which depends on how NumPy adds."""
    case = Convolution((12, 12), (taps, taps), windows)
    x, w = numbers(1, 64, *case.size), numbers(RESULTS, 64, *case.taps)
    want = reference(case, x, w)
    error = outputs(case, x, w, windows)[0] - want
    assert np.sqrt((error**2).mean()) <= most * 2.0**-24 * np.sqrt((want**2).mean())

"""Convolutions of arguments, by window and by channel, and their gradients by the filter: drawn
sizes, strides and layouts against their definitions in f64; schedules; and instructions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from random import Random

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.block import DotOp, KernelOp
from dialects.graph.interpret import evaluate_func
from dialects.host.interpret import interpret_host
from dialects.semantics.evaluation import EvaluationContext
from dialects.strata.func import main_function
from dialects.strata.types import Array, BufferType
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.compile import CompileOptions, Job, compile_kernels, resources
from targets.cuda.emit import emit_kernel
from targets.cuda.scheduling import convolution_layouts
from tests.lowering import lower
from tests.passes.harness import parse

OPTIONS = TargetOptions(features="sm_90")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


@dataclass(frozen=True)
class Drawn:
    """Sizes of an image [n, c, h, w], a window, and whether channels lie last in memory."""

    n: int
    c: int
    co: int
    places: tuple[int, int]
    kernel: tuple[int, int]
    stride: int = 1
    dilation: int = 1
    group: int = 1
    last: bool = True
    element: str = "f16"

    @property
    def size(self) -> tuple[int, ...]:
        """The image's height and width, with half a window around."""
        return tuple(places * self.stride for places in self.places)

    @property
    def attributes(self) -> str:
        pads = [self.dilation * ((k - 1) // 2) for k in self.kernel]
        return (f"strides = [{self.stride}, {self.stride}], pads = {[*pads, *pads]}, "
                f"dilations = [{self.dilation}, {self.dilation}], group = {self.group}")

    def tensor(self, shape: Sequence[int]) -> str:
        return f"{self.element}[{', '.join(map(str, shape))}]"

    def given(self, name: str, shape: Sequence[int]) -> tuple[str, str, tuple[int, ...]]:
        """An argument, the line that makes a tensor `name` of it, and its shape in memory."""
        if not self.last:
            return f"%{name}: {self.tensor(shape)}", "", tuple(shape)
        lies = (shape[0], *shape[2:], shape[1])
        return (f"%{name}_: {self.tensor(lies)}", f"%{name} = graph.transpose %{name}_ "
                f"{{perm = [0, 3, 1, 2]}} : {self.tensor(shape)}\n", lies)

    def module(self, gradient: bool) -> tuple[ModuleOp, list[Array]]:
        image = (self.n, self.c, *self.size)
        made, filter_ = (self.n, self.co, *self.places), (
            self.co, self.c // self.group, *self.kernel)
        result, other = (filter_, made) if gradient else (made, filter_)
        x, y = self.given("x", image), self.given("y", other)
        kind = f"conv_filter_gradient %x, %y {{kernel = {[*self.kernel]}, " if gradient else (
            "conv %x, %y {")
        lies = (result[0], *result[2:], result[1]) if self.last else result
        turned = f"%s = graph.transpose %r {{perm = [0, 2, 3, 1]}} : {self.tensor(lies)}\n"
        text = (f"builtin.module {{ strata.func @main({x[0]}, {y[0]}) -> ({self.tensor(lies)}) "
                f"inputs [\"x\", \"y\"] outputs [\"r\"] {{\n{x[1]}{y[1]}"
                f"%r = graph.{kind}{self.attributes}}} : {self.tensor(result)}\n"
                f"{turned if self.last else ''}strata.return {'%s' if self.last else '%r'} }} }}")
        rng = np.random.default_rng(self.n + self.c + self.co)
        dtype = f"f{int(self.element[1:]) // 8}"
        arrays = [rng.standard_normal(shape).astype(dtype) for shape in (x[2], y[2])]
        return parse(text, StrataContext.with_dialects()), arrays


def lowered(module: ModuleOp) -> list[KernelOp]:
    for _ in lower(module, TARGET.bind(OPTIONS).context()):
        pass
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def products(kernels: Sequence[KernelOp]) -> list[KernelOp]:
    return [k for k in kernels if any(isinstance(op, DotOp) for op in k.walk())]


def check(drawn: Drawn, gradient: bool) -> list[KernelOp]:
    """The kernels, whose results must be right."""
    module, arrays = drawn.module(gradient)
    exact, _ = replace(drawn, element="f64").module(gradient)
    [wanted] = evaluate_func(main_function(exact), [a.astype(np.float64) for a in arrays],
                             EvaluationContext())
    kernels = lowered(module)
    [found] = interpret_host(module, arrays, WeightStore())
    scale = float(np.abs(wanted).max(initial=1.0))
    limit = {"f16": 2e-3, "f32": 2e-6}[drawn.element]
    np.testing.assert_allclose(found.astype(np.float64) / scale, wanted / scale, rtol=0, atol=limit)
    return kernels


def draw(random: Random, depthwise: bool = False) -> Drawn:
    kernel = random.choice(((3, 3), (3, 3), (1, 3), (5, 5)))
    group = 1 if depthwise or random.random() < 0.7 else 2
    c, co = (group * random.choice((3, 8, 17, 33, 45, 64)) for _ in range(2))
    c, co, group = (c, c, c) if depthwise else (c, co, group)
    return Drawn(random.choice((1, 2, 5, 18)), c, co, (random.choice((1, 4, 7)), random.choice((
        3, 8, 11))), kernel, random.choice((1, 1, 2)), 1 if depthwise else random.choice((1, 1, 2)),
        group, random.random() < 0.5, random.choice(("f16", "f16", "f32")))


@pytest.mark.parametrize("seed", range(16))
def test_gradients_of_any_size(seed: int) -> None:
    check(draw(Random(seed)), gradient=True)


@pytest.mark.parametrize("seed", range(8))
def test_convolutions_of_any_size(seed: int) -> None:
    check(draw(Random(seed)), gradient=False)


@pytest.mark.parametrize("seed", range(8))
def test_depthwise_convolutions_of_any_size(seed: int) -> None:
    check(draw(Random(seed), depthwise=True), gradient=False)


@pytest.mark.parametrize("seed", range(8))
def test_gradients_of_depthwise_filters_of_any_size(seed: int) -> None:
    check(draw(Random(seed), depthwise=True), gradient=True)


# ---------------------------------------------------------------------- schedules
@pytest.mark.parametrize("kernel", [(3, 3), (7, 7), (1, 9)], ids=str)
@pytest.mark.parametrize("channels", [40, 96])
def test_lanes_of_depthwise_gradients_are_channels(
    channels: int, kernel: tuple[int, int]
) -> None:
    """Where channels lie last, a program sums all taps, and its lanes read neighbours."""
    drawn = Drawn(2, channels, channels, (14, 15), kernel, group=channels)
    [sums] = [k for k in check(drawn, gradient=True) if k.sym_name.data.startswith("contract")]
    taps = 1 << (kernel[0] * kernel[1] - 1).bit_length()
    tile = min(2048 // taps, 1 << (channels - 1).bit_length())
    assert f"tile<{taps}x{tile}xf32>" in str(sums)


def test_a_gradient_over_pixels_of_few_channels_is_divided() -> None:
    """Channels of x lie last, columns of y: positions are summed in parts all the same."""
    text = ("builtin.module { strata.func @main(%x_: f16[4, 128, 128, 3], %y: f16[4, 96, 32, 32]) "
            "-> (f16[96, 3, 4, 4]) inputs [\"x\", \"y\"] outputs [\"r\"] {\n"
            "%x = graph.transpose %x_ {perm = [0, 3, 1, 2]} : f16[4, 3, 128, 128]\n"
            "%r = graph.conv_filter_gradient %x, %y {kernel = [4, 4], strides = [4, 4]} "
            ": f16[96, 3, 4, 4]\nstrata.return %r } }")
    module = parse(text, StrataContext.with_dialects())
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float16)
              for shape in ((4, 128, 128, 3), (4, 96, 32, 32))]
    x, y = (a.astype(np.float64) for a in arrays)
    patches = x.reshape(4, 32, 4, 32, 4, 3)
    wanted = np.einsum("npuqvc,nopq->ocuv", patches, y)
    kernels = lowered(module)
    [found] = interpret_host(module, arrays, WeightStore())
    np.testing.assert_allclose(found / 64, wanted / 64, rtol=0, atol=4e-3)
    assert any(k.sym_name.data.startswith("reduce") for k in kernels), "which adds the parts"


@pytest.mark.parametrize(("last", "channels"), [(True, 128), (False, 118), (False, 45)])
def test_taps_of_a_chunk_of_channels_are_summed_together(
    last: bool, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all data that programs read at a time would leave the L2 cache before the next tap."""
    monkeypatch.setattr(convolution_layouts, "_near", lambda options: 0)
    [product] = products(check(Drawn(2, channels, 24, (5, 6), (3, 3), last=last), gradient=False))
    assert bool(re.search(r"floordiv 64\) mod 3", str(product))) == (channels > 64)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("channels", [64, 45])
def test_a_gradient_is_one_product_in_parts(channels: int, last: bool) -> None:
    """Of all taps; its sum, over many positions, is cut into parts of any length."""
    kernels = check(Drawn(7, channels, 32, (17, 17), (3, 3), last=last), gradient=True)
    assert len(products(kernels)) == 1
    assert any(k.sym_name.data.startswith("reduce") for k in kernels), "which adds the parts"


@pytest.mark.parametrize("last", [True, False])
def test_a_gradient_of_single_taps_is_a_product_in_parts(last: bool) -> None:
    """Parts of positions begin at aligned addresses, whatever their number."""
    kernels = check(Drawn(6, 32, 32, (15, 15), (1, 1), last=last), gradient=True)
    [product] = products(kernels)
    assert len(kernels) == 2 and re.search(r"f32\[\d+, 32, 32\]", str(product))


@pytest.mark.parametrize("last", [True, False])
def test_strips_of_rows_in_both_layouts(last: bool) -> None:
    """A program computes several rows of windows by channel, whichever dim runs along memory."""
    kernels = check(Drawn(264, 9, 9, (6, 5), (3, 3), group=9, last=last), gradient=False)
    assert any("tile 6 unroll 6" in str(k.schedule) for k in kernels)
    assert len(kernels) == 1 + last, "channels of the filter are packed only if they lie last"


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("patch", "places"), [(4, (3, 4)), (16, (2, 1))])
def test_images_of_patches_lie_one_by_one(patch: int, places: tuple[int, int], last: bool) -> None:
    """Though a patch has more elements than an image has patches, as in a filter's gradient."""
    drawn = Drawn(8, 3, 24, places, (patch, patch), patch, last=last)
    [product] = products(check(drawn, gradient=False))
    images = product.buffers[0].type
    assert isinstance(images, BufferType) and images.shape[0].constant == drawn.n


@needs_triton
@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_rows_of_any_length_are_read_in_words(last: bool, gradient: bool) -> None:
    """Lanes copy words of 8 or 16 bytes into shared memory, although rows of x are no words."""
    module, _ = Drawn(8, 45, 37, (20, 20), (3, 3), last=last).module(gradient)
    [product] = products(lowered(module))
    job = Job(emit_kernel(product), tuple(range(len(product.buffers))))
    [binary] = compile_kernels([job], CompileOptions("sm_90"))
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global [^;]*?, (0x\w+|\d+),", binary.ptx)
    assert copies and {int(size, 0) for size in copies} <= {8, 16}
    assert "wgmma.mma_async" in binary.ptx and "ld.global.b16" not in binary.ptx
    found = resources(binary)
    assert found is None or found.local == 0

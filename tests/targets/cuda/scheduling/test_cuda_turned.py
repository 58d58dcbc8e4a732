"""Copies whose source and result run along different axes: tiles of fused axes, full and right."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from math import prod
from random import Random

import numpy as np
import pytest
from xdsl.parser import Parser

from dialects.block import KernelOp, LoadOp, StoreOp
from dialects.context import make_context
from dialects.host.interpret import interpret_host
from dialects.strata.types import buffer_type
from dialects.strata.weights import WeightStore
from dialects.symbolic.digits import recomposed
from dialects.symbolic.expr import Expr
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.cuda.prediction.accesses import access_of
from targets.cuda.prediction.work import Work
from tests.counts.predicted import H100
from tests.lowering import lower

OPTIONS = TargetOptions(features="sm_90")


def kernels_of(text: str) -> list[KernelOp]:
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, TARGET.bind(OPTIONS).context(WeightStore())):
        pass
    return [op for op in module.walk() if isinstance(op, KernelOp)]


def transposed(shape: tuple[int, ...], perm: tuple[int, ...], element: str = "f16") -> str:
    result = [shape[p] for p in perm]
    return f"""
strata.func @main(%x: {element}{[*shape]}) -> ({element}{result}) inputs ["x"] outputs ["y"] {{
  %y = graph.transpose %x {{perm = {[*perm]}}} : {element}{result}
  strata.return %y
}}"""


def slots(kernel: KernelOp) -> int:
    """The elements of the tiles of all programs."""
    assert kernel.schedule is not None
    grid = prod(int(e.evaluate({})) for e in kernel.grid.data)
    return grid * prod(level.tile for level in kernel.schedule.data.levels)


TURNED = [
    ((7, 465, 27, 67), (3, 2, 1, 0)), ((5, 33, 3, 37), (3, 2, 1, 0)), ((6, 19, 5, 3), (1, 3, 2, 0)),
    ((2, 5, 9, 11, 13), (4, 3, 0, 2, 1)), ((544, 160, 5, 5), (2, 3, 1, 0)),
    ((40, 24, 3), (2, 1, 0)), ((3, 7, 11), (2, 1, 0))]


@pytest.mark.parametrize(("shape", "perm"), TURNED)
@pytest.mark.parametrize("element", ["f16", "f32"])
def test_tiles_are_full_and_elements_in_place(
    shape: tuple[int, ...], perm: tuple[int, ...], element: str
) -> None:
    [kernel] = kernels_of(transposed(shape, perm, element))
    if prod(shape) > 1 << 17:  # of few elements, tiles may be emptier
        assert slots(kernel) < 1.3 * prod(shape)
    x = (np.arange(prod(shape)) % 2039).reshape(shape).astype(
        np.float16 if element == "f16" else np.float32)
    module = Parser(make_context(), transposed(shape, perm, element)).parse_module()
    for _ in lower(module, TARGET.bind(OPTIONS).context(WeightStore())):
        pass
    [y] = interpret_host(module, [x], WeightStore())
    np.testing.assert_array_equal(y, x.transpose(perm))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize(("shape", "perm"), [x for x in TURNED if prod(x[0]) < 1 << 17])
def test_emitted_addresses(
    interpreter: Interpreter, shape: tuple[int, ...], perm: tuple[int, ...]
) -> None:
    [kernel] = kernels_of(transposed(shape, perm))
    x = (np.arange(prod(shape)) % 2039).reshape(shape).astype(np.float16)
    shapes = [[int(s.evaluate({})) for s in buffer_type(b).shape] for b in kernel.buffers]
    buffers = [x.reshape(shapes[0]), np.zeros(shapes[1], np.float16)]
    interpreter.run(kernel, buffers, {})
    np.testing.assert_array_equal(buffers[1].reshape([shape[p] for p in perm]), x.transpose(perm))


def test_sides_lie_side_by_side() -> None:
    """The copy of a filter for a convolution reads it as it lies, and divides nothing for that."""
    [kernel] = kernels_of(transposed((544, 160, 5, 5), (2, 3, 1, 0)))
    assert "//" not in next(line.split("mask")[0] for line in emit_kernel(kernel).code.splitlines()
                            if "tl.load" in line)
    work = Work(kernel, {}, H100)
    for op in kernel.walk():
        if isinstance(op, LoadOp | StoreOp):
            assert access_of(op, work.values, {}).width == 16


@pytest.mark.parametrize(("shape", "perm"), [
    ((64, 512, 64), (1, 0, 2)), ((8, 512, 16, 64), (0, 2, 1, 3)), ((512, 512), (1, 0)),
    ((32, 64, 128), (2, 1, 0))], ids=["rows", "heads", "long", "powers"])
def test_full_tiles_stay(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    [kernel] = kernels_of(transposed(shape, perm))
    lines = emit_kernel(kernel).code.splitlines()
    assert not any("//" in line for line in lines if "tl.load" in line or "tl.store" in line)


def test_digits_are_joined() -> None:
    x, y, random = Expr.axis("i0"), Expr.axis("i1"), Random(0)
    digits = (x // 1809) * 1809 + ((x // 67) % 27) * 67 + x % 67
    assert recomposed(digits * 3 + y) == 3 * x + y
    wide = 64 * x + y
    assert recomposed(wide // 196 * 196 + wide // 14 % 14 * 14 + wide % 14) == wide
    assert recomposed(x // 4 % 7 * 4 + x % 4) == x % 28
    for _ in range(200):
        a, b, c, d = (random.randint(1, 9) for _ in range(4))
        expr = random.choice([-3, 1, 2]) * ((a * x + y) // b * c + (a * x + y) % b) + (
            (d * x + y) // a % c * b + (x + b) % d)
        at = {s: random.randint(-500, 500) for s in expr.symbols}
        assert recomposed(expr).evaluate(at) == expr.evaluate(at)

"""Products of matrices whose rows begin anywhere: factors that are read again are copied first."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from xdsl.parser import Parser

from dialects.block import KernelOp, LoadOp, ValidOp
from dialects.context import make_context
from dialects.host.interpret import interpret_host
from dialects.strata.types import buffer_type
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower


def text_of(m: int, k: int, n: int, element: str) -> str:
    return f"""
strata.func @main(%a: {element}[{m}, {k}], %b: {element}[{k}, {n}], %c: {element}[{n}])
    -> ({element}[{m}, {n}]) inputs ["a", "b", "c"] outputs ["y"] {{
  %p = graph.matmul %a, %b : {element}[{m}, {n}]
  %y = graph.add %p, %c : {element}[{m}, {n}]
  strata.return %y
}}"""


def filled(size: int) -> int:
    """The pitch of a copy: whole cache lines or sectors, if that adds at most an eighth; or words.
    """
    return next(-(-size // step) * step for step in (64, 16, 8)
                if step == 8 or -size % step <= size / 8)


@pytest.mark.parametrize(("m", "k", "n", "element", "copied"), [
    (1040, 32, 71, "f16", {"b"}), (40, 32, 71, "f16", set()), (1040, 33, 72, "f16", set()),
    (70, 33, 1031, "f16", {"a"}), (1030, 33, 1027, "f16", {"a", "b"}),
    (1040, 32, 70, "f16", set()), (1040, 32, 71, "f32", set()), (70, 1025, 264, "f16", {"a"}),
    (70, 1025, 72, "f16", set())],
    ids=["right", "read once", "even", "left", "both", "pairs", "f32", "long",
         "long, read once"])
def test_factors_in_whole_words(m: int, k: int, n: int, element: str, copied: set[str]) -> None:
    module = Parser(make_context(), text_of(m, k, n, element)).parse_module()
    store = WeightStore()
    for _ in lower(module, TARGET.bind(TargetOptions(features="sm_90")).context(store)):
        pass
    kernels = {op.sym_name.data: op for op in module.walk() if isinstance(op, KernelOp)}
    assert any("pack" in name or "join" in name for name in kernels) == bool(copied)
    loads = [op for op in kernels["contract_0"].walk() if isinstance(op, LoadOp)]
    widths = {buffer_type(op.buffer).shape[-1].constant for op in loads
              if buffer_type(op.buffer).rank == 2}
    assert ({filled(k) if k % 8 else k} <= widths) == ("a" in copied or k % 8 == 0)
    assert ({filled(n) if n % 8 else n} <= widths) == ("b" in copied or n % 8 == 0)
    masks = [op for op in kernels["contract_0"].walk() if isinstance(op, ValidOp)]
    assert not (copied and masks), "zeros that fill up rows need no mask"

    rng = np.random.default_rng(n)
    kind = np.float16 if element == "f16" else np.float32
    given = [rng.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n), (n,))]
    [found] = interpret_host(module, given, store)
    a, b, c = (v.astype(np.float64) for v in given)
    atol = 0.05 * max(1, k / 64) ** 0.5
    np.testing.assert_allclose(found.astype(np.float64), a @ b + c, rtol=0, atol=atol)


@pytest.mark.parametrize("k", [961, 968])
def test_a_matrix_of_a_stack_is_copied_alone(k: int) -> None:
    """As the weights of an expert; what lies behind its rows is never multiplied with them."""
    m, n = 2100, 1032
    text = f"""
strata.func @main(%a: f16[{m}, {k}], %b: f16[3, {n}, {k}]) -> (f16[{m}, {n}])
    inputs ["a", "b"] outputs ["y"] {{
  %c = graph.slice %b {{starts = [1, 0, 0], sizes = [1, {n}, {k}],
                       steps = [1, 1, 1]}} : f16[1, {n}, {k}]
  %d = graph.reshape %c {{shape = [{n}, {k}]}} : f16[{n}, {k}]
  %e = graph.transpose %d {{perm = [1, 0]}} : f16[{k}, {n}]
  %y = graph.matmul %a, %e : f16[{m}, {n}]
  strata.return %y
}}"""
    module = Parser(make_context(), text).parse_module()
    store = WeightStore()
    for _ in lower(module, TARGET.bind(TargetOptions(features="sm_90")).context(store)):
        pass
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)
                and op.sym_name.data == "contract_0"]
    shapes = [[s.constant for s in buffer_type(op.buffer).shape] for op in kernel.walk()
              if isinstance(op, LoadOp)]
    assert ([n, filled(k)] if k % 2 else [3, n, k]) in shapes
    assert "specialize = 1" in str(kernel.schedule), "TMA copies tiles of such factors"

    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (3, n, k)))
    b[0], b[2] = np.inf, np.nan
    [found] = interpret_host(module, [a, b], store)
    wanted = a.astype(np.float64) @ b[1].T.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=0.1)


@pytest.mark.parametrize(("m", "k", "n"), [(37, 4609, 1407), (33, 3001, 641)])
def test_sums_of_any_length_are_split(m: int, k: int, n: int) -> None:
    """Without asynchronous loads, only other programs hide the latency of a step."""
    module = Parser(make_context(), text_of(m, k, n, "f16")).parse_module()
    for _ in lower(module, TARGET.bind(TargetOptions(features="sm_90")).context(WeightStore())):
        pass
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)
                and op.sym_name.data == "contract_0"]
    programs = [int(e.evaluate({})) for e in kernel.grid.data]
    assert programs[0] > 1 and prod(programs) > 100, programs
    loads = [op for op in kernel.walk() if isinstance(op, LoadOp)]
    assert any((buffer_type(op.buffer).shape[-1].constant or 0) % 2 for op in loads)  # in place


@pytest.mark.parametrize(("m", "k", "n"), [(300, 2863, 376), (2128, 2865, 376)])
def test_sums_in_parts_count_whole(m: int, k: int, n: int) -> None:
    """How long a program waits is that of the whole sum, also if a part of it is short."""
    text = f"""
strata.func @main(%a: f16[{m}, {k}], %b: f16[{n}, {k}]) -> (f16[{m}, {n}])
    inputs ["a", "b"] outputs ["y"] {{
  %c = graph.transpose %b {{perm = [1, 0]}} : f16[{k}, {n}]
  %y = graph.matmul %a, %c : f16[{m}, {n}]
  strata.return %y
}}"""
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, TARGET.bind(TargetOptions(features="sm_90")).context(WeightStore())):
        pass
    [kernel] = [op for op in module.walk() if isinstance(op, KernelOp)
                and op.sym_name.data == "contract_0"]
    assert int(kernel.grid.data[0].evaluate({})) > 1, "not split"
    pitches = {buffer_type(op.buffer).shape[-1].constant for op in kernel.walk()
               if isinstance(op, LoadOp)}
    assert pitches == {filled(k)}


@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize(("batch", "size", "channels", "outputs", "copied"), [
    (1, 33, 72, 64, True), (1, 33, 71, 131, True), (1, 16, 72, 64, False),
    (1, 33, 24, 40, False)], ids=["words", "odd", "few rows", "few elements"])
def test_a_tap_that_many_rows_read_lies_together(
    batch: int, size: int, channels: int, outputs: int, copied: bool, element: str
) -> None:
    """A product with one place of a filter, as in a phase of a transposed convolution."""
    module = Parser(make_context(), f"""
strata.func @main(%x: {element}[{batch}, {channels}, {size}, {size}],
    %w: {element}[{channels}, {outputs}, 3, 3]) -> ({element}[{batch}, {outputs}, {size}, {size}])
    inputs ["x", "w"] outputs ["y"] {{
  %t = graph.slice %w {{starts = [0, 0, 1, 2], sizes = [{channels}, {outputs}, 1, 1],
      steps = [1, 1, 1, 1]}} : {element}[{channels}, {outputs}, 1, 1]
  %f = graph.transpose %t {{perm = [1, 0, 2, 3]}} : {element}[{outputs}, {channels}, 1, 1]
  %y = graph.conv %x, %f {{pads = [0, 0, 0, 0]}} : {element}[{batch}, {outputs}, {size}, {size}]
  strata.return %y
}}""").parse_module()
    store = WeightStore()
    for _ in lower(module, TARGET.bind(TargetOptions(features="sm_90")).context(store)):
        pass
    names = [op.sym_name.data for op in module.walk() if isinstance(op, KernelOp)]
    assert any("pack" in name for name in names) == copied
    rng = np.random.default_rng(outputs)
    kind = np.float16 if element == "f16" else np.float32
    x = rng.standard_normal((batch, channels, size, size)).astype(kind)
    w = rng.standard_normal((channels, outputs, 3, 3)).astype(kind)
    [found] = interpret_host(module, [x, w], store)
    exact = np.einsum("nchw,co->nohw", x.astype(np.float64), w[:, :, 1, 2].astype(np.float64))
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0, atol=0.02)

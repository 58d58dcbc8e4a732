"""Scans: nests whose result is indexed by their reduce axis, by their meaning and in code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from dialects.block import KernelOp
from dialects.context import make_context
from dialects.host.interpret import interpret_host
from dialects.strata.types import Array
from dialects.strata.weights import WeightStore
from passes.base import PassError
from targets.base import TargetOptions, find_target
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.reference.interpret import interpret
from tests.lowering import STEPS, lower

CUDA = TargetOptions(features="sm_90")


def parse(text: str) -> ModuleOp:
    return Parser(make_context(), text).parse_module()


def lowered(text: str, target: str, options: TargetOptions, first: str = STEPS[0]) -> ModuleOp:
    module, context = parse(text), find_target(target).bind(options).context()
    for _ in lower(module, context, STEPS[STEPS.index(first):]):
        pass
    return module


def nests(result: str = "i0, i1", store: str = "add f32[7, 19]") -> str:
    """Twice the sums of squares up to each element of a row."""
    return f"""
strata.func @main(%x: f32[7, 19]) -> (f32[7, 19]) inputs ["x"] outputs ["y"] {{
  %s = loop.nest (i0: 7, reduce i1: 19) ins(%x[i0, i1]) outs({store}[{result}]) {{
  ^bb0(%a: f32):
    %b = arith.mulf %a, %a : f32
    loop.yield %b
  }}
  %y = loop.nest (i0: 7, i1: 19) ins(%s[i0, i1]) outs(f32[7, 19][i0, i1]) {{
  ^bb0(%a: f32):
    %b = arith.addf %a, %a : f32
    loop.yield %b
  }}
  strata.return %y
}}"""


def cumulative(shape: tuple[int, ...], axis: int, flags: str = "", element: str = "f32") -> str:
    type_ = f"{element}{list(shape)}"
    return f"""
strata.func @main(%x: {type_}) -> ({type_}) inputs ["x"] outputs ["y"] {{
  %y = graph.cumulative_sum %x {{axis = {axis}{flags}}} : {type_}
  strata.return %y
}}"""


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


# ---------------------------------------------------------------------- nests
def test_a_scan_combines_in_the_order_of_its_axis() -> None:
    x = random(7, 19)
    expected = 2 * np.add.accumulate(x * x, 1)
    [forward] = interpret(parse(nests()), WeightStore(), [x])
    np.testing.assert_allclose(forward, expected, rtol=1e-6)
    [backward] = interpret(parse(nests("i0, -i1 + 18")), WeightStore(), [x])
    np.testing.assert_allclose(backward, expected[:, ::-1], rtol=1e-6)


def test_one_axis_is_scanned() -> None:
    text = nests().replace("i0: 7, reduce i1: 19) ins(%x[i0, i1]) outs(add",
                           "reduce i0: 7, reduce i1: 19) ins(%x[i0, i1]) outs(add")
    with pytest.raises(VerifyException, match=r"C2: .* reduce axis, neither the only one"):
        parse(text).verify()


@pytest.mark.parametrize("result", ["i0, i1", "i0, -i1 + 18"], ids=["forward", "backward"])
def test_scans_on_the_cpu(result: str) -> None:
    """In a loop, with what reads the result at the same place in the same kernel."""
    x, target = random(7, 19), find_target("cpu")
    options = TargetOptions(cache=None)
    module = lowered(nests(result), "cpu", options, "loop-outline")
    assert str(module).count("block.kernel") == (1 if result == "i0, i1" else 2)
    [found] = target.bind(options).running.load(module, WeightStore()).run([x])
    expected = 2 * np.add.accumulate(x * x, 1)
    np.testing.assert_allclose(found, expected if result == "i0, i1" else expected[:, ::-1],
                               rtol=1e-6)


def read_along_more_axes(rows: str = "i0: 7, ", row: str = "i0, ", dims: str = "7, ") -> str:
    """A scan, and two nests that read it at each of 4 and of 3 x 4 places."""
    return f"""
strata.func @main(%x: f32[{dims}19], %a: f32[4], %b: f32[3, 19]) -> (f32[{dims}4, 3, 19])
    inputs ["x", "a", "b"] outputs ["y"] {{
  %s = loop.nest ({rows}reduce i1: 19) ins(%x[{row}i1]) outs(add f32[{dims}19][{row}i1]) {{
  ^bb0(%c: f32):
    loop.yield %c
  }}
  %t = loop.nest ({rows}i2: 4, i1: 19) ins(%s[{row}i1], %a[i2])
      outs(f32[{dims}4, 19][{row}i2, i1]) {{
  ^bb0(%c: f32, %d: f32):
    %e = arith.mulf %c, %d : f32
    loop.yield %e
  }}
  %y = loop.nest ({rows}i2: 4, i3: 3, i1: 19) ins(%t[{row}i2, i1], %b[i3, i1])
      outs(f32[{dims}4, 3, 19][{row}i2, i3, i1]) {{
  ^bb0(%c: f32, %d: f32):
    %e = arith.addf %c, %d : f32
    loop.yield %e
  }}
  strata.return %y
}}"""


@pytest.mark.parametrize("shape", [(7, 19), (19,)], ids=str)
def test_what_reads_a_scan_may_have_more_axes(shape: tuple[int, ...]) -> None:
    """The scan's axis is the outer loop: its tile is computed once, and read at all others."""
    x, a, b = random(*shape), random(4), random(3, 19)
    text = read_along_more_axes() if len(shape) == 2 else read_along_more_axes("", "", "")
    module = lowered(text, "cpu", TargetOptions(cache=None), "loop-outline")
    running = find_target("cpu").bind(TargetOptions(cache=None)).running
    [found] = running.load(module, WeightStore()).run([x, a, b])
    sums = np.add.accumulate(x, -1)[..., None, None, :]
    np.testing.assert_allclose(found, sums * a[:, None, None] + b, rtol=1e-5, atol=1e-6)


def test_a_scan_is_not_inside_the_loops_of_its_readers() -> None:
    module, context = parse(read_along_more_axes()), find_target("cpu").bind(
        TargetOptions(cache=None)).context()
    steps = STEPS[STEPS.index("loop-outline"):]
    for _ in lower(module, context, steps[:steps.index("loop-to-block")]):
        pass
    text = re.sub("schedule<[^>]*>", "schedule<grid i0 tile 7, loop i2 tile 1, loop i3 tile 1, "
                  "loop i1 tile 1>", str(module))
    with pytest.raises(PassError, match="i1 is scanned inside the loop over i2"):
        for _ in lower(parse(text), context, ["loop-to-block"]):
            pass


def test_lanes_are_beside_what_is_scanned() -> None:
    text = nests().replace("(i0: 7, reduce i1: 19) ins(%x[i0, i1]) outs(add f32[7, 19][i0, i1])",
                           "(i1: 19, reduce i0: 7) ins(%x[i0, i1]) outs(add f32[7, 19][i0, i1])")
    module = lowered(text, "cpu", TargetOptions(cache=None), "loop-outline")
    assert "lanes" in str(module)
    assert "block.scan" not in str(module)


@pytest.mark.parametrize(("levels", "fault"), [
    ("grid i, loop j tile 8 lanes", "axis j is scanned, so it cannot lie in lanes"),
    ("grid i, loop j tile 8, loop j tile 1", "axis j is scanned, so it cannot have several levels"),
    ("grid i, grid j", "axis j is summed over, so it cannot be a grid level"),
])
def test_schedules_that_cannot_scan(levels: str, fault: str) -> None:
    module = parse(nests())
    context = find_target("cuda").bind(CUDA).context()
    steps = STEPS[STEPS.index("loop-outline"):]
    schedule = levels.replace("i,", "i0 tile 1,").replace("j", "i1").replace(
        "grid i1", "grid i1 tile 1")
    before = steps[:steps.index("loop-to-block")]
    for _ in lower(module, context, before):
        pass
    text = str(module)
    first, last = text.index("schedule<") + 9, text.index(" | tails")
    with pytest.raises(PassError, match=fault.replace("j", "i1")):
        for _ in lower(parse(text[:first] + schedule + text[last:]), context, ["loop-to-block"]):
            pass


# ---------------------------------------------------------------------- kernels of CUDA
def test_rows_are_scanned_by_one_kernel_with_what_follows() -> None:
    text = str(lowered(cumulative((4096, 4096), 1, element="bf16"), "cuda", CUDA))
    assert text.count("block.kernel") == text.count("block.scan add") == 1
    assert "whole i1 tile 4096" in text
    assert "pad" not in text


def test_a_scan_and_sums_of_it_are_kernels_of_their_own() -> None:
    text = cumulative((4096, 4096), 1).replace("-> (f32[4096, 4096])", "-> (f32[4096])").replace(
        "  strata.return %y", "  %z = graph.reduce_max %y {axes = [1], keepdims = false} : "
        "f32[4096]\n  strata.return %z")
    assert str(lowered(text, "cuda", CUDA)).count("block.kernel") == 2


@pytest.mark.parametrize("flags", ["", ", exclusive = true", ", reverse = true",
                                   ", exclusive = true, reverse = true"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 9001), 1), ((300, 70), 0), ((9001,), 0)], ids=str)
def test_few_long_rows_are_scanned_in_chunks(
    shape: tuple[int, ...], axis: int, flags: str
) -> None:
    x = random(*shape)
    text = cumulative(shape, axis, flags)
    module = lowered(text, "cuda", CUDA)
    assert str(module).count("block.kernel") == 3 and 2 <= str(module).count("block.scan add") <= 3
    [expected] = interpret(parse(text), WeightStore(), [x])
    [found] = interpret_host(module, [x], WeightStore())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-4)


def test_few_short_rows_are_scanned_at_once() -> None:
    assert str(lowered(cumulative((2, 4000), 1), "cuda", CUDA)).count("block.kernel") == 1


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("shape", [(80, 130), (70, 16500), (70, 16501)], ids=str)
def test_scans_in_triton(shape: tuple[int, int], interpreter: Interpreter) -> None:
    """Held whole; walked; walked from whole words on."""
    x = random(*shape)
    module = lowered(cumulative(shape, 1), "cuda", TargetOptions(features="sm_90", interpret=True))
    [found] = interpret_host(module, [x], WeightStore(), interpreter.run)
    np.testing.assert_allclose(found, np.add.accumulate(x.astype(np.float64), 1), atol=2e-3)


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_what_is_scanned_and_summed_in_a_loop_hides_that_it_is_a_load(element: str) -> None:
    """Triton 3.6 could not compile it."""
    module = lowered(cumulative((8192, 4096), 0, element=element), "cuda", CUDA)
    text = "\n".join(emit_kernel(k).code for k in module.body.block.ops if isinstance(k, KernelOp))
    integer = element.replace("f", "int")
    assert f".to(tl.{integer}, bitcast=True).to(tl.{element.replace('f', 'float')}, bitcast" in text


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_scans_on_a_gpu(element: str, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((3001, 517)).astype(element.replace("f", "float"))
    module = lowered(cumulative((3001, 517), axis, element=element), "cuda", TargetOptions())
    model = find_target("cuda").bind(TargetOptions()).running.load(module, WeightStore())
    [found] = model.run([x])
    np.testing.assert_allclose(found, np.add.accumulate(x.astype(np.float64), axis), atol=2e-3)

"""Chains of launches that are computed block by block: random programs over rows of tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from dialects.block import KernelOp, ScratchOp
from dialects.host import AllocOp, LaunchOp, host_functions
from dialects.host.interpret import interpret_host
from dialects.strata.func import main_function
from dialects.strata.weights import WeightStore
from passes.base import StrataContext
from passes.block.chain_launches import LEAST_BLOCKS
from targets.base import TargetOptions, find_target
from targets.cpu import TARGET
from tests.lowering import lower
from tests.passes.harness import Run, assert_same, check_locations, parse, run_passes

PASSES = "host-bufferize,host-plan-buffers,loop-to-block"
ROWS = 3 * LEAST_BLOCKS

BODY = """    ^bb0(%p: f32, %q: f32):
      %r = arith.{op} %p, %q : f32
      loop.yield %r
    }}
    loop.yield %0
  }}
"""


def kernel(name: str, read: str, op: str, sizes: str, schedule: str = "grid i0 tile 1, ") -> str:
    """A kernel that combines two tensors of rows; the first is read at other places."""
    rows = f"n, {ROWS}" if sizes else f"{ROWS}"
    at, grid = ("i1, i0" if sizes else "i0"), ("grid i1 tile 1, " if sizes else "")
    read = f"i1, {read}" if sizes else read
    axes = f"i1: n, i0: {ROWS}" if sizes else f"i0: {ROWS}"
    type_ = f"f32[{rows}, 8]"
    return (f"  loop.kernel @{name}(%x: {type_}, %y: {type_}) -> ({type_}) sizes({sizes}) "
            f"schedule<{grid}{schedule}loop i2 tile 8 lanes> {{\n"
            f"    %0 = loop.nest ({axes}, i2: 8) ins(%x[{read}], %y[{at}, i2]) "
            f"outs({type_}[{at}, i2]) {{\n" + BODY.format(op=op))


def kernels(sizes: str) -> str:
    return "".join([
        kernel("add", "i0, i2", "addf", sizes), kernel("turn", "i0, 7 - i2", "subf", sizes),
        kernel("last", f"{ROWS - 1} - i0, i2", "addf", sizes),
        kernel("pairs", "i0, i2", "subf", sizes, "grid i0 tile 2, ")])


def program(calls: list[tuple[str, str, str]], results: list[str], sizes: str) -> str:
    """The text of a program of calls on %x and %y."""
    type_ = f"f32[n, {ROWS}, 8]" if sizes else f"f32[{ROWS}, 8]"
    types = ", ".join([type_] * len(results))
    lines = [f"    %v{k} = loop.call @{name}({a}, {b}) sizes({sizes}) : {type_}"
             for k, (name, a, b) in enumerate(calls)]
    names = ", ".join(f'"{k}"' for k in range(len(results)))
    return "\n".join([
        "builtin.module {",
        f'  strata.func @main(%x: {type_}, %y: {type_}) -> ({types}) inputs ["x", "y"] '
        f"outputs [{names}] {{", *lines, f"    strata.return {', '.join(results)}", "  }",
        kernels(sizes), "}"])


def context_with(room: int) -> StrataContext:
    context = find_target("cpu").bind(TargetOptions()).context()
    return replace(context, facts=replace(context.facts, chained_bytes=room))


def check(text: str, room: int = 1 << 9) -> ModuleOp:
    """Run the pass, and compare what the program computes, in places in memory that it planned."""
    context = context_with(room)
    module = parse(text, context)
    function = main_function(module)
    run = Run.of(function)
    expected = run.results(function, context)
    run_passes(module, f"{PASSES},block-chain-launches", context)
    check_locations(module)
    for a, b in zip(interpret_host(module, run.inputs, WeightStore()), expected, strict=True):
        assert_same(a, b)
    after = str(module)
    assert run_passes(module, "block-chain-launches", context) == after
    return module


def launches(module: ModuleOp) -> list[str]:
    return [op.kernel.data for f in host_functions(module) for op in f.walk()
            if isinstance(op, LaunchOp)]


@pytest.mark.parametrize("sizes", ["", "n"], ids=["fixed", "open"])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_compute_the_same(seed: int, sizes: str) -> None:
    random = np.random.default_rng(seed)
    known, calls = ["%x", "%y"], list[tuple[str, str, str]]()
    for k in range(int(random.integers(2, 12))):
        name = str(random.choice(["add", "add", "turn", "turn", "last", "pairs"]))
        recent = known if random.random() < 0.3 else known[-2:]
        a, b = (str(v) for v in random.choice(recent, 2))
        calls.append((name, a, b))
        known.append(f"%v{k}")
    results = [*dict.fromkeys([known[-1], str(random.choice(known[2:]))])]
    check(program(calls, results, sizes))


@pytest.mark.parametrize("sizes", ["", "n"], ids=["fixed", "open"])
def test_a_chain_is_one_launch_and_needs_no_arena(sizes: str) -> None:
    module = check(program(
        [("turn", "%x", "%y"), ("turn", "%v0", "%x"), ("add", "%v1", "%y")], ["%v2"], sizes))
    assert launches(module) == ["chain_0"]
    assert sum(isinstance(op, ScratchOp) for op in module.walk()) == 2
    assert not any(isinstance(op, AllocOp) and op.offset is not None for op in module.walk())
    [chained] = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    blocks = chained.grid.data[-1].constant
    assert blocks is not None and LEAST_BLOCKS <= blocks < ROWS


@pytest.mark.parametrize(("calls", "results", "why"), [
    ([("turn", "%x", "%y"), ("last", "%v0", "%x")], ["%v1"], "other rows are read"),
    ([("turn", "%x", "%y"), ("turn", "%v0", "%v0")], ["%v1"], "the buffer is read twice"),
    ([("turn", "%x", "%y"), ("turn", "%v0", "%x")], ["%v0", "%v1"], "it is a result"),
    ([("pairs", "%x", "%y"), ("turn", "%v0", "%x")], ["%v1"], "a program writes two rows")])
def test_what_needs_more_than_its_own_block_stays_apart(
    calls: list[tuple[str, str, str]], results: list[str], why: str
) -> None:
    assert launches(check(program(calls, results, ""))) == [n for n, _, _ in calls], why


def test_what_stays_in_cache_anyway_stays_apart() -> None:
    calls = [("turn", "%x", "%y"), ("turn", "%v0", "%x")]
    assert launches(check(program(calls, ["%v1"], ""), room=ROWS * 8 * 4)) == ["turn", "turn"]
    assert launches(check(program(calls, ["%v1"], ""), room=0)) == ["turn", "turn"]


def test_what_is_read_at_other_rows_is_never_computed_over() -> None:
    """The first kernel reads rows of %v0 that belong to other programs, while the last one could
    write its result over %v0."""
    module = check(program(
        [("add", "%x", "%y"), ("last", "%v0", "%x"), ("turn", "%v1", "%v0"),
         ("last", "%v2", "%x")], ["%v3"], ""))
    [function] = host_functions(module)
    places = [op.offset.data.constant for op in function.walk()
              if isinstance(op, AllocOp) and op.offset is not None]
    assert "chain_0" in launches(module) and len({*places}) == len(places) == 2


def convolution(batch: str, height: int, width: int, channels: int) -> str:
    """A program that adds its input to its convolution, with a constant filter."""
    count = channels * channels * 9
    return f"""builtin.module {{
  strata.func @main(%x: f32[{batch}, {channels}, {height}, {width}]) -> \
(f32[{batch}, {channels}, {height}, {width}]) inputs ["x"] outputs ["y"] {{
    %r = graph.range {{start = 0, step = 1, count = {count}, to = f32}} : f32[{count}]
    %s = graph.sin %r : f32[{count}]
    %w = graph.reshape %s {{shape = [{channels}, {channels}, 3, 3]}} \
: f32[{channels}, {channels}, 3, 3]
    %h = graph.conv %x, %w {{pads = [1, 1, 1, 1]}} : f32[{batch}, {channels}, {height}, {width}]
    %y = graph.add %h, %x : f32[{batch}, {channels}, {height}, {width}]
    strata.return %y
  }}
}}"""


@pytest.mark.parametrize(("batch", "height", "width", "channels"), [
    ("n", 258, 37, 24), ("1", 261, 31, 33), ("2", 263, 23, 16)])
def test_convolutions_with_fewer_products_are_chained(
    batch: str, height: int, width: int, channels: int
) -> None:
    """Machine code computes, bit by bit, what it computes in launches apart."""
    text = convolution(batch, height, width, channels)
    x = np.random.default_rng(0).standard_normal(
        (int(batch) if batch.isdigit() else 3, channels, height, width)).astype(np.float32)
    one, other = (run_on_cpu(text, room, x) for room in (1 << 18, 0))
    assert one[1] < other[1]
    np.testing.assert_array_equal(one[0], other[0])


def run_on_cpu(text: str, room: int, x: np.ndarray) -> tuple[np.ndarray, int]:
    """What machine code computes, and how many launches it has."""
    here = TARGET.bind(TargetOptions(threads=2))
    context = here.context()
    context.facts = replace(context.facts, chained_bytes=room)
    module = parse(text, context)
    for _ in lower(module, context):
        pass
    return here.running.load(module, context.weights).run([x])[0], len(launches(module))


@pytest.mark.parametrize(("triple", "features"), [
    ("aarch64-linux-gnu", "i8mm"), ("riscv64-linux-gnu", "v"), ("wasm32", "simd128")])
def test_other_machines_chain_as_well(triple: str, features: str) -> None:
    context = TARGET.bind(TargetOptions(triple=triple, features=features)).context()
    module = parse(convolution("n", 517, 75, 24), context)
    for _ in lower(module, context):
        pass
    assert "chain_0" in launches(module)

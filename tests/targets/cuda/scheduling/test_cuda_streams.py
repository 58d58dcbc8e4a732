"""Kernels that memory bounds: their schedules, and which loads leave the caches first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.context import make_context
from dialects.host.interpret import interpret_host
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.build.interpreter import Interpreter
from targets.cuda.emit import emit_kernel
from targets.cuda.scheduling.tiles import even_power
from tests.lowering import STEPS, lower

OPTIONS = TargetOptions(features="sm_90")


def lowered(
    text: str, options: TargetOptions = OPTIONS, steps: Sequence[str] = STEPS
) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, TARGET.bind(options).context(), steps):
        pass
    return module


def kernels(text: str, options: TargetOptions = OPTIONS) -> list[KernelOp]:
    return [op for op in lowered(text, options).walk() if isinstance(op, KernelOp)]


def sources(text: str, options: TargetOptions = OPTIONS) -> str:
    return "\n".join(emit_kernel(k).code for k in kernels(text, options))


def squares(rows: int | str, columns: int) -> str:
    """Of each row, the sum of the squared distances from its sum."""
    shape = f"f32[{rows}, {columns}]"
    return f"""
strata.func @main(%x: {shape}) -> (f32[{rows}]) inputs ["x"] outputs ["y"] {{
  %s = graph.reduce_sum %x {{axes = [1], keepdims = true}} : f32[{rows}, 1]
  %d = graph.sub %x, %s : {shape}
  %q = graph.mul %d, %d : {shape}
  %y = graph.reduce_sum %q {{axes = [1], keepdims = false}} : f32[{rows}]
  strata.return %y
}}"""


def loads(text: str) -> dict[str, list[bool]]:
    """By buffer, which of its loads leave the caches first, in their order."""
    found: dict[str, list[bool]] = {}
    for line in text.splitlines():
        if "tl.load(" in line:
            name = line.partition("tl.load(")[2].partition(" ")[0]
            found.setdefault(name, []).append("evict_first" in line)
    return found


def test_what_no_program_reads_again_leaves_first() -> None:
    text = """
strata.func @main(%x: f32[8192, 4096], %v: f32[4096]) -> (i8[8192, 4096])
    inputs ["x", "v"] outputs ["y"] {
  %p = graph.mul %x, %v : f32[8192, 4096]
  %y = graph.cast %p {to = i8} : i8[8192, 4096]
  strata.return %y
}"""
    assert loads(sources(text)) == {"x": [True], "v": [False]}
    assert loads(sources(squares(8192, 4096))) == {"x": [True]}


def test_a_row_that_is_walked_twice_leaves_with_the_second_walk() -> None:
    assert loads(sources(squares(4096, 40000))) == {"x": [False, True]}


@pytest.mark.parametrize("rows", [512, "n"])
def test_what_caches_hold_or_what_is_not_known_stays(rows: int | str) -> None:
    assert "evict" not in sources(squares(rows, 4096))


def test_the_cache_is_that_of_the_machine() -> None:
    text = squares(1024, 4096)  # 32 MB
    assert "evict" not in sources(text)
    assert "evict" in sources(text, TargetOptions(features="sm_86"))


@pytest.mark.parametrize(("columns", "leaves"), [(2048, False), (4096, True), ("n", False)])
def test_a_large_matrix_leaves_first_but_not_its_vector(columns: int | str, leaves: bool) -> None:
    text = sources(f"""
strata.func @main(%x: f16[1, 2048], %w: f16[2048, {columns}]) -> (f16[1, {columns}])
    inputs ["x", "w"] outputs ["y"] {{
  %y = graph.matmul %x, %w : f16[1, {columns}]
  strata.return %y
}}""")  # 8 and 16 MB, and what is not known; the cache has 50
    assert set(map(tuple, loads(text).values())) == {(leaves,), (False,)}


def scaled(columns: int) -> str:
    """Rows, times their sums, times a vector."""
    shape = f"bf16[16384, {columns}]"
    return f"""
strata.func @main(%x: {shape}, %v: bf16[{columns}]) -> ({shape}) inputs ["x", "v"] outputs ["y"] {{
  %s = graph.reduce_sum %x {{axes = [1], keepdims = true}} : bf16[16384, 1]
  %p = graph.mul %x, %s : {shape}
  %y = graph.mul %p, %v : {shape}
  strata.return %y
}}"""


@pytest.mark.parametrize(("columns", "tile"), [(4096, 2), (8192, 1), (4095, 1)],
                         ids=["long", "very long", "of parts of words"])
def test_rows_share_a_program_that_loads_long_operands_of_all_rows(columns: int, tile: int
                                                                   ) -> None:
    text = sources(scaled(columns))
    assert f"grid i0 tile {tile}, whole" in text
    assert ("warps = 16" in text) == (columns % 8 == 0)


def test_rows_share_no_program_that_holds_too_much_for_all() -> None:
    text = scaled(8192).replace("%v: bf16[8192])", "%v: bf16[8192], %u: bf16[8192])")
    text = text.replace('"v"]', '"v", "u"]').replace("graph.mul %p, %v", "graph.add %q, %u")
    text = text.replace("  %y =", "  %q = graph.mul %p, %v : bf16[16384, 8192]\n  %y =")
    assert "grid i0 tile 1, whole i1 tile 8192 | tails = mask, warps = 8>" in sources(text)


@pytest.mark.parametrize(("count", "tile"), [
    (100, 128), (30_000, 256), (60_000, 256), (100_000, 512), (140_000, 1024)])
def test_few_elements_have_shorter_programs(count: int, tile: int) -> None:
    """Programs of fewer elements where multiprocessors would have none."""
    text = sources(f"""
strata.func @main(%x: f16[{count}], %z: f16[{count}]) -> (f16[{count}])
    inputs ["x", "z"] outputs ["y"] {{
  %y = graph.add %x, %z : f16[{count}]
  strata.return %y
}}""")
    assert f"grid i0 tile {tile} |" in text


@pytest.mark.parametrize(("shape", "tiles"), [
    ((99, 1767), (16, 128)), ((99, 17670), (32, 128)), ((300, 999), (16, 256)),
    ((18, 16310), (32,)), ((18, 400), (32,)), ((18, 1 << 20), (512,))])
def test_few_columns_are_summed_by_more_programs(
    shape: tuple[int, int], tiles: tuple[int, ...]
) -> None:
    rows, columns = shape
    text = sources(f"""
strata.func @main(%x: f16[{rows}, {columns}]) -> (f16[{columns}]) inputs ["x"] outputs ["y"] {{
  %y = graph.reduce_max %x {{axes = [0], keepdims = false}} : f16[{columns}]
  strata.return %y
}}""")
    found = [int(n) for n in re.findall(r"tile (\d+)", text.partition("# schedule")[2])]
    assert tuple(found[:len(tiles)]) == tiles


def test_constants_of_halves_are_read_as_halves() -> None:
    text = sources("""
strata.func @main(%x: bf16[16384, 4096]) -> (bf16[16384, 4096]) inputs ["x"] outputs ["y"] {
  %v = graph.range {start = 0, step = 1, count = 4096, to = bf16} : bf16[4096]
  %u = graph.range {start = 0, step = 2, count = 4096, to = bf16} : bf16[4096]
  %y = graph.layer_norm %x, %v, %u {axis = 1, epsilon = 1.0e-05} : bf16[16384, 4096]
  strata.return %y
}""")
    assert "grid i0 tile 2, whole i1 tile 4096 | tails = mask, warps = 16>" in text
    assert text.count("tl.load(b") == text.count("[None, :].to(tl.float32)") == 2


def test_few_rows_share_no_program() -> None:
    text = sources(scaled(4096).replace("16384", "1024"))
    assert "grid i0 tile 1, whole i1 tile 4096 | tails = mask, warps = 8>" in text


def test_parts_of_columns_are_summed_by_the_rules_of_sums_across_memory() -> None:
    text = """
strata.func @main(%x: f32[8192, 4096]) -> (f32[4096]) inputs ["x"] outputs ["y"] {
  %y = graph.reduce_sum %x {axes = [0], keepdims = false} : f32[4096]
  strata.return %y
}"""
    parts, _ = kernels(text)
    assert parts.schedule is not None
    assert "grid i0 tile 64, loop i2 tile 32 | tails = mask, warps = 4" in str(parts.schedule)


def test_a_thread_reads_two_words_where_all_there_is_to_do_is_to_sum_up() -> None:
    text = """
strata.func @main(%x: f32[8192, 4096]) -> (f32[8192]) inputs ["x"] outputs ["y"] {
  %y = graph.reduce_sum %x {axes = [1], keepdims = false} : f32[8192]
  strata.return %y
}"""
    assert "warps = 16, stream = 1" in sources(text)
    assert "warps = 4, stream = 1" in sources(squares(8192, 4096))
    assert "warps = 4>" in sources(softmax(8192, 4096))


@pytest.mark.parametrize(("rows", "columns", "warps"), [
    (1024, 768, 1), (1024, 1536, 4), (8192, 768, 4)], ids=["short", "long", "several"])
def test_a_warp_has_a_short_row_alone(rows: int, columns: int, warps: int) -> None:
    assert f"warps = {warps}>" in sources(softmax(rows, columns))


def test_a_warp_has_whole_rows_that_begin_between_words() -> None:
    assert "grid i0 tile 8, whole i1 tile 128 | tails = mask, warps = 1>" in sources(
        softmax(65536, 77))


def softmax(rows: int, columns: int) -> str:
    shape = f"f32[{rows}, {columns}]"
    return f"""
strata.func @main(%x: {shape}) -> ({shape}) inputs ["x"] outputs ["y"] {{
  %y = graph.softmax %x {{axis = 1}} : {shape}
  strata.return %y
}}"""


def test_a_long_row_of_parts_of_words_is_walked_once_for_a_maximum_and_its_sums() -> None:
    assert sources(softmax(600, 20001)).count("for ") == 2
    assert sources(softmax(600, 20001), TargetOptions(features="sm_90", exact=True)
                   ).count("for ") == 3
    assert sources(softmax(600, 20000)).count("for ") == 3


def test_a_long_row_that_is_only_reduced_is_walked_once() -> None:
    text = """
strata.func @main(%x: f32[600, 20000]) -> (f32[600]) inputs ["x"] outputs ["y"] {
  %m = graph.reduce_max %x {axes = [1], keepdims = true} : f32[600, 1]
  %d = graph.sub %x, %m : f32[600, 20000]
  %e = graph.exp %d : f32[600, 20000]
  %y = graph.reduce_sum %e {axes = [1], keepdims = false} : f32[600]
  strata.return %y
}"""
    assert sources(text).count("for ") == 1
    assert sources(text, TargetOptions(features="sm_90", exact=True)).count("for ") == 2


@pytest.mark.parametrize("columns", [16411, 16385, 16391, 20001])
def test_long_rows_of_parts_of_words_in_whole_words(columns: int) -> None:
    """At block level: rows that begin at each place of a word, and end behind or before a tile."""
    x = np.random.default_rng(0).standard_normal((9, columns)).astype(np.float32)
    module = lowered(softmax(*x.shape), steps=[s for s in STEPS if s != "loop-split-reductions"])
    assert "words = 4" in str(module)
    [found] = interpret_host(module, [x], WeightStore())
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=2e-6)


def test_what_cancels_is_left_out_of_addresses() -> None:
    text = sources(softmax(600, 20001))
    assert text.count("tl.load(x + (i1 + 4*((20001*i0 + 3) // 4) + r8192))") == 1


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    yield Interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_softmax_of_long_rows(interpreter: Interpreter) -> None:
    """Rows that begin with -inf, are nothing else, have an infinity, or a NaN."""
    x = np.random.default_rng(0).standard_normal((5, 16411)).astype(np.float32)
    x[0, :15000], x[1], x[2, 7], x[3, 9] = -np.inf, -np.inf, np.inf, np.nan
    module = lowered(softmax(*x.shape), TargetOptions(features="sm_90", interpret=True),
                     [s for s in STEPS if s != "loop-split-reductions"])
    assert "online = 1" in str(module)
    with np.errstate(all="ignore"):
        [found] = interpret_host(module, [x], WeightStore(), interpreter.run)
        powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        exact = powers / powers.sum(1, keepdims=True)
    assert np.isnan(exact).any(1)[:5].tolist() == [False, True, True, True, False]
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=1e-30)


UPDATE = """
strata.func @main(%x: f32[N], %g: f32[N], %m: f32[N], %v: f32[N]) -> (f32[N], f32[N], f32[N])
    inputs ["x", "g", "m", "v"] outputs ["w", "n", "u"] {
  %n = graph.add %m, %g : f32[N]
  %s = graph.mul %g, %g : f32[N]
  %u = graph.add %v, %s : f32[N]
  %d = graph.div %n, %u : f32[N]
  %w = graph.sub %x, %d : f32[N]
  strata.return %w, %n, %u
}"""


@pytest.mark.parametrize("size", ["1000", "n"])
def test_all_is_loaded_before_anything_is_stored(size: str) -> None:
    """No load waits for a store of another tensor, and results are as they were."""
    text = sources(UPDATE.replace("N", size))
    assert text.count("tl.load") == 4 and text.count("tl.store") == 3
    assert text.rindex("tl.load") < text.index("tl.store")


@pytest.mark.parametrize("shape, order", [
    ((5, 157, 49, 32), (3, 2, 1, 0)), ((29, 36, 17, 41), (0, 2, 3, 1)),
    ((2, 22, 59, 51), (3, 2, 1, 0)), ((6, 3, 100, 100), (0, 2, 3, 1)), ((1500, 7), (1, 0)),
    ((64, 85, 90), (0, 2, 1)), ((3, 130, 200), (2, 0, 1)), ((2, 3, 5, 7), (3, 2, 1, 0))])
def test_a_tile_in_two_directions_is_wide_in_both(
    shape: Sequence[int], order: Sequence[int]
) -> None:
    """Rows of a tile are of at least 16 elements where a tensor has so many, in each tensor."""
    dims, made = ", ".join(map(str, shape)), ", ".join(str(shape[k]) for k in order)
    text = f"""
strata.func @main(%x: bf16[{dims}]) -> (bf16[{made}]) inputs ["x"] outputs ["y"] {{
  %y = graph.transpose %x {{perm = [{", ".join(map(str, order))}]}} : bf16[{made}]
  strata.return %y
}}"""
    [kernel] = kernels(text)
    assert kernel.schedule is not None
    tiles = [level.tile for level in kernel.schedule.data.levels]
    assert 64 <= math.prod(tiles) <= 8192
    wide = [k for k, tile in enumerate(tiles) if tile >= 16]
    assert len(wide) >= 2 or math.prod(tiles) >= 256


@pytest.mark.parametrize("most", [256, 1024])
def test_tiles_waste_little_beyond_the_end(most: int) -> None:
    """At most a third of all lanes are idle, and no longer part would leave clearly fewer."""
    for size in range(1, 1500):
        tile = even_power(Expr.of(size), most)
        idle = -size % tile
        assert tile <= most and tile & (tile - 1) == 0
        assert size < 128 or idle <= size / 2
        assert size <= most or all(  # whole rows are read faster than parts, see `_even_part`
            8 * (idle - -size % part) <= size for part in (64, 128, 256) if part <= tile)


@pytest.mark.parametrize("rows, columns", [(611, 1105), (99, 1767), (728, 40), (8192, 4096)])
@pytest.mark.parametrize("batch", [1, 59])
def test_sums_across_memory_load_enough_at_a_time(batch: int, rows: int, columns: int) -> None:
    """What a multiprocessor loads in a step covers the latency of memory, or the step is deep."""
    text = f"""
strata.func @main(%x: bf16[{batch}, {rows}, {columns}]) -> (bf16[{batch}, {columns}])
    inputs ["x"] outputs ["y"] {{
  %y = graph.reduce_max %x {{axes = [1], keepdims = false}} : bf16[{batch}, {columns}]
  strata.return %y
}}"""
    first = kernels(text)[0]
    assert first.schedule is not None
    tiles = {x.kind: x.tile for x in first.schedule.data.levels if x.tile > 1}
    deep = tiles.get("loop", rows)
    programs = math.prod(extent.constant or 1 for extent in first.grid.data)
    at_once = min(16, -(-programs // 132))
    loaded = at_once * tiles["grid"] * deep * 2
    assert loaded >= 24000 or deep >= 64 or deep >= rows // 2, first.schedule


@pytest.mark.parametrize("rows, step", [(6, 4096), (528, 4096), (529, 1024), ("n", 1024)])
def test_few_long_rows_are_read_in_long_steps(rows: int | str, step: int) -> None:
    """Products of a prime number of elements, which are not split."""
    text = f"""
strata.func @main(%x: bf16[{rows}, 16493]) -> (bf16[{rows}]) inputs ["x"] outputs ["y"] {{
  %y = graph.reduce_prod %x {{axes = [1], keepdims = false}} : bf16[{rows}]
  strata.return %y
}}"""
    [kernel] = kernels(text)
    assert kernel.schedule is not None and f"loop i1 tile {step} |" in str(kernel.schedule)


@pytest.mark.parametrize("rows, warps", [(12, 4), (997, 4), (1056, 2), (8192, 1)])
def test_threads_sort_many_elements_where_others_fill_the_machine(rows: int, warps: int) -> None:
    """Stages between warps cost most, but a program that is alone has nothing to wait for."""
    text = f"""
strata.func @main(%x: bf16[{rows}, 1000]) -> (bf16[{rows}, 1000], i64[{rows}, 1000])
    inputs ["x"] outputs ["y", "i"] {{
  %y, %i = graph.top_k %x {{k = 1000, axis = 1, largest = true}} :
      bf16[{rows}, 1000], i64[{rows}, 1000]
  strata.return %y, %i
}}"""
    first = kernels(text)[0]
    assert first.schedule is not None
    assert f"warps = {warps}" in str(first.schedule)

"""Kernels that memory bounds: their schedules, and which loads leave the caches first."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from dialects.block import KernelOp
from dialects.context import make_context
from dialects.weights import WeightStore
from passes.base import StrataContext
from targets.base import TargetOptions
from targets.cuda import TARGET
from targets.cuda.emit import emit_kernel
from tests.lowering import lower

OPTIONS = TargetOptions(features="sm_90")


def lowered(text: str, options: TargetOptions = OPTIONS) -> ModuleOp:
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, StrataContext.with_dialects(WeightStore(), TARGET, options)):
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


def test_what_results_replace_in_the_cache_needs_no_hint() -> None:
    copy = """
strata.func @main(%x: f32[8192, 4096]) -> (f32[4096, 8192]) inputs ["x"] outputs ["y"] {
  %y = graph.transpose %x {perm = [1, 0]} : f32[4096, 8192]
  strata.return %y
}"""
    assert "evict" not in sources(copy)

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


def scaled_sum(rows: int | str, columns: int) -> str:
    """Rows times their sums times a vector."""
    shape = f"f32[{rows}, {columns}]"
    return f"""
strata.func @main(%x: {shape}, %v: f32[{columns}]) -> ({shape}) inputs ["x", "v"] outputs ["y"] {{
  %s = graph.reduce_sum %x {{axes = [1], keepdims = true}} : f32[{rows}, 1]
  %p = graph.mul %x, %s : {shape}
  %y = graph.mul %p, %v : {shape}
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
    assert loads(sources(scaled_sum(8192, 4096))) == {"x": [True], "v": [False]}


def test_a_row_that_is_walked_twice_leaves_with_the_second_walk() -> None:
    assert loads(sources(scaled_sum(4096, 40000))) == {"x": [False, True], "v": [False]}


@pytest.mark.parametrize("rows", [512, "n"])
def test_what_caches_hold_or_what_is_not_known_stays(rows: int | str) -> None:
    assert "evict" not in sources(scaled_sum(rows, 4096))


def test_the_cache_is_that_of_the_machine() -> None:
    text = scaled_sum(1024, 4096)  # 32 MB
    assert "evict" not in sources(text)
    assert "evict" in sources(text, TargetOptions(features="sm_86"))

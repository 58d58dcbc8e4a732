"""Parts of a concatenation: schedules along memory, and one launch for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from xdsl.parser import Parser

from dialects.block import KernelOp, StoreOp
from dialects.context import make_context
from dialects.host import LaunchOp
from dialects.strata.types import TileType
from dialects.strata.weights import WeightStore
from targets.base import TargetOptions
from targets.cuda import TARGET
from tests.lowering import lower

OPTIONS = TargetOptions(features="sm_90")
LOOKED_UP = """
builtin.module {
  strata.func @main(%a: bf16[5000, 64], %b: bf16[5000, 64], %x: bf16[1021, 64], %i: i64[1021, 2]) -> (bf16[1021, 3, 64]) inputs ["a", "b", "x", "i"] outputs ["y"] {
    %0 = graph.slice %i {starts = [0, 0], sizes = [1021, 1], steps = [1, 1]} : i64[1021, 1]
    %1 = graph.slice %i {starts = [0, 1], sizes = [1021, 1], steps = [1, 1]} : i64[1021, 1]
    strata.require 0 <= %i < 5000 of "i"
    %2 = graph.gather %a, %0 {axis = 0} : bf16[1021, 1, 64]
    %3 = graph.gather %b, %1 {axis = 0} : bf16[1021, 1, 64]
    %4 = graph.reshape %x {shape = [1021, 1, 64]} : bf16[1021, 1, 64]
    %y = graph.concat %4, %2, %3 {axis = 1} : bf16[1021, 3, 64]
    strata.return %y
  }
}
"""  # noqa: E501
ROWS = """
builtin.module {
  strata.func @main(%x: f16[301, 96], %y: f16[77, 96], %z: f16[150, 96]) -> (f16[528, 96]) inputs ["x", "y", "z"] outputs ["w"] {
    %w = graph.concat %x, %y, %z {axis = 0} : f16[528, 96]
    strata.return %w
  }
}
"""  # noqa: E501


def lowered(text: str) -> Iterator[KernelOp | LaunchOp]:
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, TARGET.bind(OPTIONS).context(WeightStore())):
        pass
    return (op for op in module.walk() if isinstance(op, KernelOp | LaunchOp))


@pytest.mark.parametrize("text", [LOOKED_UP, ROWS], ids=["looked-up", "rows"])
def test_parts_of_a_concatenation_share_a_launch(text: str) -> None:
    assert sum(isinstance(op, LaunchOp) for op in lowered(text)) == 1


def test_rows_that_are_looked_up_move_along_memory() -> None:
    """Tiles of rows and columns, also where the rows are a part of a larger result."""
    tiles = [op.value.type for kernel in lowered(LOOKED_UP) if isinstance(kernel, KernelOp)
             for op in kernel.walk() if isinstance(op, StoreOp)]
    assert len(tiles) == 3
    for tile in tiles:
        assert isinstance(tile, TileType) and tile.shape[-1] == 64


@pytest.mark.parametrize("sizes", [(2, 3), (1, 130, 7), (65, 1, 31, 2)])
def test_parts_in_one_launch_are_all_stored(sizes: tuple[int, ...]) -> None:
    """Triton's interpreter has one memory for a buffer that several parts of a kernel write."""
    pytest.importorskip("triton")
    names = [f"x{k}" for k in range(len(sizes))]
    takes = ", ".join(f"%{name}: f32[{n}]" for name, n in zip(names, sizes, strict=True))
    parts = "".join(f"%n{name} = graph.neg %{name} : f32[{n}] "
                    for name, n in zip(names, sizes, strict=True))
    whole = f"f32[{sum(sizes)}]"
    text = f"""builtin.module {{
      strata.func @main({takes}) -> ({whole}) inputs {names} outputs ["y"] {{
        {parts}
        %y = graph.concat {", ".join(f"%n{name}" for name in names)} {{axis = 0}} : {whole}
        strata.return %y
      }}
    }}""".replace("'", '"')
    inputs = [np.random.default_rng(n).standard_normal(n).astype(np.float32) for n in sizes]
    here = TARGET.bind(TargetOptions(features="sm_90", interpret=True))
    context = here.context(WeightStore())
    module = Parser(make_context(), text).parse_module()
    for _ in lower(module, context):
        pass
    [y] = here.running.load(module, context.weights).run(inputs)
    np.testing.assert_array_equal(y, -np.concatenate(inputs))

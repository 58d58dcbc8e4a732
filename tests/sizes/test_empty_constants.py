"""An open size that must agree with a dim of size 0 is checked, though nothing is ever read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import compiler

Shape = Sequence[int | str]
CASES: list[tuple[str, Shape, Sequence[int], Shape]] = [
    ("matmul %x, %w", ["d", "n"], [0, 3], ["d", 3]),
    ("matmul %w, %x", ["n", "d"], [3, 0], [3, "d"]),
    ("matmul %x, %w", ["n"], [0, 3], [3]),
    ("matmul %x, %w", ["n"], [0], []),
    ("matmul %x, %w", [2, "d", "n"], [2, 0, 3], [2, "d", 3]),
    ("add %x, %w", ["n"], [0], [0]),
    ("add %x, %w", ["n", 3], [0, 3], [0, 3])]
"""An operation, the shapes of %x, %w and its result, which is valid where n is 0."""


def text(shape: Sequence[int | str]) -> str:
    return f"f32[{', '.join(map(str, shape))}]"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sizes_must_agree(case: tuple[str, Shape, Sequence[int], Shape], tmp_path: Path) -> None:
    operation, x, w, y = case
    path = tmp_path / "empty.mlir"
    path.write_text(f"""// strata: level=graph
builtin.module {{
  strata.func @main(%x: {text(x)}, %w: {text(w)}) -> ({text(y)}) inputs ["x", "w"] outputs ["y"] {{
    %y = graph.{operation} : {text(y)}
    strata.return %y
  }}
}}
""")
    run = compiler.compile(path, target="cpu", cache="off")
    for n in (0, 1, 5):
        arrays = [np.ones([{"n": n, "d": 4}.get(str(s), s) for s in shape], np.float32)
                  for shape in (x, w)]
        if n:
            with pytest.raises(compiler.SizeError, match=f"0 == {n}|{n} == 0"):
                run(*arrays)
        else:
            [found] = run(*arrays)
            np.testing.assert_array_equal(found, np.zeros([
                4 if s == "d" else int(s) for s in y], np.float32))

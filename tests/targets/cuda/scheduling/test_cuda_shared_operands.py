"""Elementwise kernels whose rows share operands: how many rows a program computes."""

from __future__ import annotations

import pytest

from tests.targets.cuda.scheduling.test_cuda_streams import kernels


@pytest.mark.parametrize(("rows", "columns", "vectors", "tile"), [
    (25872, 360, 8, (8, 512)), (25872, 360, 4, (4, 512)), (25872, 360, 1, (2, 512)),
    (300, 360, 4, (512,)), (8192, 4096, 2, (2, 1024)), (4097, 1021, 3, (4, 1024)),
    ("n", 360, 4, (2, 512))])
def test_operands_of_all_rows_are_loaded_for_several_rows(
    rows: int | str, columns: int, vectors: int, tile: tuple[int, ...]
) -> None:
    """They are at most half of the bytes that a program moves, if rows and registers suffice."""
    names = [f"v{k}" for k in range(vectors)]
    declared = "".join(f", %{v}: bf16[{columns}]" for v in names)
    shape, value, steps = f"bf16[{rows}, {columns}]", "%x", []
    for name in names:
        steps.append(f"  %p{name} = graph.mul {value}, %{name} : {shape}")
        value = f"%p{name}"
    told = ", ".join(f'"{n}"' for n in ["x", *names])
    text = "\n".join([
        f"strata.func @main(%x: {shape}{declared}) -> ({shape}) inputs [{told}] outputs [\"y\"] {{",
        *steps, f"  %y = graph.neg {value} : {shape}", "  strata.return %y", "}"])
    [kernel] = kernels(text)
    assert kernel.schedule is not None
    assert tuple(x.tile for x in kernel.schedule.data.levels if x.tile > 1) == tuple(
        t for t in tile if t > 1)

"""Which kernels may be equal to another one, before their contents are compared."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from xdsl.dialects import arith
from xdsl.ir import Operation

from dialects.loop import KernelOp
from passes.analyses.loop.canonical import Canonical, with_equals
from passes.base import StrataContext
from tests.passes.harness import parse

FILES = [f for f in sorted((Path(__file__).parent / "loop").glob("*.mlir"))
         if f.read_text().count("loop.kernel @") > 1]


def _any_number(op: Operation) -> bool:
    return isinstance(op, arith.ConstantOp)


def _nothing(op: Operation) -> bool:
    return False


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_kernel_is_missed_that_is_equal_to_another_one(file: Path) -> None:
    """With or without the numbers in it, and they come in order."""
    module = parse(file.read_text(), StrataContext.with_dialects())
    kernels = [op for op in module.body.block.ops if isinstance(op, KernelOp)]
    near = with_equals(module)
    for holes in (_nothing, _any_number):
        keys = Counter(Canonical.of(kernel, holes).key for kernel in kernels)
        assert {k for k in kernels if keys[Canonical.of(k, holes).key] > 1} <= {*near}
    assert near == [k for k in kernels if k in near]


def test_kernels_of_other_extents_are_told_apart_at_once() -> None:
    text = "\n".join(f"""  loop.kernel @k{k}(%x: f32[{n}]) -> (f32[{n}]) sizes() {{
    %y = loop.nest (i0: {n}) ins(%x[i0]) outs(f32[{n}][i0]) {{
    ^bb0(%a: f32):
      %b = arith.{name} %a, %a : f32
      loop.yield %b
    }}
    loop.yield %y
  }}""" for k, (n, name) in enumerate([(4, "addf"), (5, "addf"), (4, "mulf"), (4, "addf")]))
    module = parse(f"builtin.module {{\n{text}\n}}", StrataContext.with_dialects())
    assert [k.sym_name.data for k in with_equals(module)] == ["k0", "k3"]

"""`verify` refuses what xDSL's own verifier refuses, also of operations equal to valid ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

from dialects.context import make_context
from dialects.verifying import verify
from dialects.walking import walked

FILES = sorted(Path(__file__).parent.glob("*.mlir"))
TEXT = """
builtin.module {
  block.kernel @k(%x: f32[8], %y: f32[8]) grid(%p: 2) sizes() {
    %a = block.load %x[4*%p + t0] : tile<[4]xf32>
    %b = block.map (%a[0], %a[0]) : tile<[4]xf32> {
    ^bb0(%s: f32, %t: f32):
      %c = arith.addf %s, %t : f32
      %d = arith.addf %c, %t : f32
      %e = arith.addf %d, %t : f32
      block.yield %e
    }
    block.store %b, %y[4*%p + t0]
    block.yield
  }
}
"""


def module_of(text: str = TEXT) -> ModuleOp:
    return Parser(make_context(), text).parse_module()


def named(module: ModuleOp, name: str) -> list[Operation]:
    return [op for op in walked(module) if op.name == name]


def other_operand(module: ModuleOp) -> None:
    """The last of three additions, two of which are equal, adds an integer."""
    named(module, "arith.addf")[-1].operands[1] = create_ssa_value(i64)


def other_result(module: ModuleOp) -> None:
    old = named(module, "arith.addf")[1]
    block = old.parent
    assert block is not None
    new = arith.AddfOp(old.operands[0], old.operands[1], result_type=i64)
    block.insert_op_before(new, old)


def other_property(module: ModuleOp) -> None:
    named(module, "arith.addf")[-1].properties["another"] = IntegerAttr(1, i64)


def value_from_outside(module: ModuleOp) -> None:
    kernel, constant = named(module, "block.kernel")[0], arith.ConstantOp(IntegerAttr(1, i64))
    module.body.block.insert_op_before(constant, kernel)
    load = named(module, "block.load")[0]
    load.operands = [*load.operands, constant.result]


def erased_value(module: ModuleOp) -> None:
    add = named(module, "arith.addf")[0]
    add.results[0].erase(safe_erase=False)


def no_terminator(module: ModuleOp) -> None:
    last = named(module, "block.map")[0].regions[0].block.last_op
    assert last is not None
    last.detach()


def empty_body(module: ModuleOp) -> None:
    region = named(module, "block.map")[0].regions[0]
    region.detach_block(region.block)
    region.add_block(Block())


def foreign_parent(module: ModuleOp) -> None:
    named(module, "arith.addf")[0].parent = module.body.block


FAULTS = [other_operand, other_result, other_property, value_from_outside, erased_value,
          no_terminator, empty_body, foreign_parent]


@pytest.mark.parametrize("spoil", FAULTS, ids=lambda f: f.__name__)
def test_faults_are_found(spoil: Callable[[ModuleOp], None]) -> None:
    module = module_of()
    verify(module)
    spoil(module)
    with pytest.raises((VerifyException, ValueError)):
        module.verify()
    with pytest.raises((VerifyException, ValueError)):
        verify(module)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_valid_modules_are_accepted(file: Path) -> None:
    verify(module_of(file.read_text()))

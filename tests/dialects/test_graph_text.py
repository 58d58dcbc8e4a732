"""The text of the graph level: it prints back exactly, and errors in it are reported."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from dialects.context import make_context
from dialects.strata.types import LiteralAttr

FILE = Path(__file__).with_name("graph.mlir")


def module_text(line: str) -> str:
    return (f'builtin.module {{ strata.func @main(%x: f32[n, 3]) -> (f32[n, 3]) inputs ["x"] '
            f'outputs ["y"] {{\n{line}\nstrata.return %y }} }}')


def test_file_prints_back():
    text = FILE.read_text()
    module = Parser(make_context(), text).parse_module()
    module.verify()
    without_comments = [line for line in text.splitlines() if not line.startswith("//")]
    assert str(module).splitlines() == without_comments


def test_generic_form_is_read_too():
    text = module_text('%y = "graph.add"(%x, %x) : (!strata.tensor<f32[n, 3]>, '
                       '!strata.tensor<f32[n, 3]>) -> !strata.tensor<f32[n, 3]>')
    module = Parser(make_context(), text).parse_module()
    module.verify()
    assert "%y = graph.add %x, %x : f32[n, 3]" in str(module)


def test_locations_survive():
    text = module_text('%y = graph.exp %x : f32[n, 3] loc("layer1/Exp")')
    module = Parser(make_context(), text).parse_module()
    out = StringIO()
    Printer(out, print_debuginfo=True).print_op(module)
    assert '%y = graph.exp %x : f32[n, 3] loc("layer1/Exp")' in out.getvalue()


@pytest.mark.parametrize(("line", "message"), [
    ("%y = graph.exp %z : f32[n, 3]", "%z is used before it is defined"),
    ("%y = graph.expo %x : f32[n, 3]", "graph.expo"),
    ("%y = graph.exp %x : f32[n, ]", "unexpected"),
])
def test_malformed_text_is_rejected(line: str, message: str):
    with pytest.raises(ParseError) as caught:
        Parser(make_context(), module_text(line)).parse_module()
    assert message in str(caught.value)


@pytest.mark.parametrize(("line", "message"), [
    ("%y = graph.exp %x : f32[n, 4]", "graph.exp: result is"),
    ("%z = graph.range {start = 0, step = 1, count = m} : i64[m]\n%y = graph.exp %x : f32[n, 3]",
     "C3: nothing defines the size m of graph.range"),
    ("%y = graph.transpose %x {perm = [1, 1]} : f32[n, 3]", "C1: perm [1, 1]"),
    ("%y = graph.transpose %x : f32[n, 3]", "perm"),
    ("%y = graph.add %x : f32[n, 3]", "Expected 2 operand"),
    ("%y = graph.leaky_relu %x {alpha = 1} : f32[n, 3]", "should be of base attribute float"),
])
def test_invalid_operations_fail_verification(line: str, message: str):
    module = Parser(make_context(), module_text(line)).parse_module()
    with pytest.raises(VerifyException) as caught:
        module.verify()
    assert message in str(caught.value)


def test_literals_are_equal_by_text():
    assert LiteralAttr((float("nan"),)) == LiteralAttr((-float("nan"),))
    assert LiteralAttr((0.0,)) != LiteralAttr((-0.0,))
    assert LiteralAttr((1,)) != LiteralAttr((True,))
    assert len({LiteralAttr((2.0,)), LiteralAttr((2.0,))}) == 1

"""xDSL's classes behave as they do when xDSL is imported plainly, and make less on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

LOADINGS = {"plainly": "", "quickly": "from dialects.xdsl_loading import load_xdsl; load_xdsl()"}

BEHAVIOUR = """
import dataclasses, pickle
from typing import Protocol, runtime_checkable
from xdsl.dialects import arith, builtin
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute, core
from xdsl.context import Context
from xdsl.dialects.arith import Arith, AddiOp, ConstantOp, FastMathFlagsAttr
from xdsl.dialects.builtin import Builtin, IntegerAttr, IntegerType, StringAttr
from xdsl.dialects.math import Math, ExpOp
from xdsl.irdl import OpDef
from xdsl.parser import Parser

byte, word = IntegerType(8), IntegerType(32)
print(byte == IntegerType(8), byte == word, byte != word, byte == "i8")
print(hash(byte) == hash(IntegerType(8)), len({byte, word, IntegerType(8)}))
print(repr(byte), repr(StringAttr("x")), byte, IntegerAttr(3, word))
print(pickle.loads(pickle.dumps(word)) == word)
print(dataclasses.replace(OpDef("a.b"), name="a.c").name, OpDef("a.b") == OpDef("a.b"))
for change in (lambda: setattr(byte, "width", 3), lambda: delattr(byte, "width"),
               lambda: IntegerType(8, word, 3, 4), lambda: IntegerType()):
    try:
        print(change())
    except (dataclasses.FrozenInstanceError, TypeError) as error:
        print(type(error).__name__, error)
one = ConstantOp(IntegerAttr(1, word))
total = AddiOp(one, one)
print(total, total == total, total == AddiOp(one, one), hash(total) == hash(total))
print(total.is_structurally_equivalent(total.clone()))
context = Context()
for dialect in (Arith, Builtin, Math):
    context.load_dialect(dialect)
text = '''%a = arith.constant 2.0 : f32
%b = arith.addf %a, %a fastmath<fast> : f32
%c = math.exp %b : f32
%d = arith.cmpf olt, %b, %c : f32
%e = arith.select %d, %b, %c : f32'''
module = Parser(context, text).parse_module()
module.verify()
print(module)

class Wide(Protocol):
    width: int

@runtime_checkable
class Sized(Protocol):
    def size(self) -> int: ...

class Both(ParametrizedAttribute, TypeAttribute, Wide):
    pass

class Length(ParametrizedAttribute, TypeAttribute):
    def size(self) -> int:
        return 1

print(issubclass(Both, Attribute), isinstance(object.__new__(Both), TypeAttribute))
print(isinstance(object.__new__(Length), Sized), isinstance(byte, Sized), isinstance(byte, Both))
kinds = [kind for module in (arith, builtin, core) for kind in vars(module).values()
         if isinstance(kind, type) and kind.__module__.startswith("xdsl")]
kinds = [kind for kind in kinds if type(kind).__name__ != "_ProtocolMeta"]
print(len(kinds), [[issubclass(a, b) for a in kinds] for b in kinds])
values = [byte, one, total, total.results[0], module, module.body, module.body.block]
print([[isinstance(value, kind) for kind in kinds] for value in values])
for wrong in (lambda: core.Attribute(), lambda: core.SSAValue()):
    try:
        print(wrong())
    except TypeError as error:
        print(error)
print({name: sorted(vars(kind)) for kind in (IntegerType, OpDef, ExpOp, FastMathFlagsAttr)
       for name in [kind.__name__]})
"""

COUNT = """
import builtins, sys
made = [0]
run = builtins.exec
def counted(*given):
    made[0] += isinstance(given[0], str) and "__create_fn__" in given[0]
    return run(*given)
import numpy, typing_extensions
builtins.exec = counted
{loading}
import xdsl.dialects.arith, xdsl.dialects.builtin, xdsl.dialects.math, xdsl.parser, xdsl.printer
print(made[0])
"""


def told(program: str) -> str:
    """What a new process prints."""
    return processes.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE,
                         text=True).stdout


def test_classes_behave_as_plainly_imported_ones() -> None:
    plainly, quickly = (told(f"{loading}\n{BEHAVIOUR}") for loading in LOADINGS.values())
    assert "FrozenInstanceError cannot assign to field 'width'" in plainly
    assert quickly == plainly


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="compiles all methods of a class at once")
def test_methods_that_are_not_called_are_not_compiled() -> None:
    plainly, quickly = (int(told(COUNT.format(loading=loading))) for loading in LOADINGS.values())
    assert quickly < plainly / 4


def test_the_standard_decorator_is_as_before() -> None:
    assert told("import dataclasses\nfrom dialects.xdsl_loading import load_xdsl\n"
                "before = vars(dataclasses).copy(); load_xdsl()\n"
                "from xdsl.irdl.declarative_assembly_format import FormatProgram\n"
                "print(before == vars(dataclasses), FormatProgram.from_str.__qualname__)"
                ) == "True FormatProgram.from_str\n"



@pytest.mark.skipif(sys.version_info >= (3, 13), reason="compiles all methods of a class at once")
def test_compiling_a_model_loads_it_so(tmp_path: Path) -> None:
    model = tmp_path / "relu.mlir"
    model.write_text("""strata.func @main(%x: f32[4]) -> (f32[4]) inputs ["x"] outputs ["y"] {
  %y = graph.relu %x : f32[4]
  strata.return %y
}""")
    assert told(f"import compiler; compiler.compile({str(model)!r}, target='reference')\n"
                "from xdsl.dialects.builtin import UnitAttr\n"
                "print(UnitAttr.__delattr__.__module__)") == "dialects.xdsl_loading\n"

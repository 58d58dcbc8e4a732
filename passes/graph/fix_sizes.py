"""graph-fix-sizes: replace sizes of the model's inputs by fixed values.

    graph-fix-sizes{names="batch","seq" values=8,128}

    strata.func @main(%x: f32[batch, seq]) ...           strata.func @main(%x: f32[8, 128]) ...
      strata.assume seq <= 512                    -->
      %y = graph.exp %x : f32[batch, seq]                  %y = graph.exp %x : f32[8, 128]

Functions that the model's function calls receive the values of the sizes that they take from it.
Names that are not sizes of the inputs have no effect. No default pipeline contains this pass.
Specialization begins with it when it compiles a model again for frequent sizes
(`compiler/specialization.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, SSAValue
from xdsl.rewriter import Rewriter

from dialects.records import dataclass
from dialects.strata.control import LoopOp
from dialects.strata.func import FuncOp, main_function
from dialects.strata.sizes import AssumeOp, defined_sizes
from dialects.strata.types import ExprAttr, SizesAttr, SymbolsAttr, TensorType, tensor
from dialects.symbolic.expr import Size
from dialects.symbolic.symbol import Symbol
from passes.base import PassError, StrataContext, StrataPass
from passes.rewriting import erase, functions

Sizes = Mapping[Symbol, Size]


@dataclass(frozen=True)
class GraphFixSizes(StrataPass):
    """Replace the sizes `names` by `values`, everywhere."""

    name = "graph-fix-sizes"
    names: tuple[str, ...]
    values: tuple[int, ...]

    def run(self, context: StrataContext, module: ModuleOp) -> None:
        if len(self.names) != len(self.values):
            raise PassError(self.name, [("", f"there are {len(self.names)} names for "
                                             f"{len(self.values)} values")])
        main = main_function(module)
        given = zip(map(Symbol.size, self.names), self.values, strict=True)
        bound = _bound(main)
        sizes: Sizes = {symbol: value for symbol, value in given if symbol in bound}
        others = [f for f in functions(module) if f is not main]
        _check_meaning(others, sizes)
        for func in others:
            replace_sizes(func, {n: sizes[n] for n in func.caller_sizes if n in sizes})
        replace_sizes(main, sizes)


def _bound(func: FuncOp) -> set[Symbol]:
    """The symbols that the shapes of a function's arguments bind."""
    types = [a.type for a in func.body.block.args]
    named = {s for t in types if isinstance(t, TensorType) for e in t.shape for s in e.symbols}
    return named - {*func.caller_sizes}


def _check_meaning(others: list[FuncOp], sizes: Sizes) -> None:
    """Raises PassError if a size name may mean different sizes in different functions.

    A function may be called by another function that uses the same name for a size of its own.
    """
    wanted = {n for func in others for n in func.caller_sizes if n in sizes}
    for func in others:
        own = _bound(func).union(*map(defined_sizes, func.body.block.ops))
        own |= {op.step_symbol for op in func.body.block.ops if isinstance(op, LoopOp)}
        if twice := sorted(wanted & own):
            raise PassError(GraphFixSizes.name, [("", f"the size {twice[0]} of the model's inputs "
                                                      "names a different size in "
                                                      f"@{func.sym_name.data}")])


def replace_sizes(func: FuncOp, sizes: Sizes) -> None:
    """Write other expressions for sizes, everywhere in a function."""
    if not sizes:
        return
    for argument in func.body.block.args:
        _retype(argument, sizes)
    for op in [func, *func.body.block.ops]:
        for name, attribute in op.properties.items():
            op.properties[name] = with_sizes(attribute, sizes)
        for result in op.results:
            _retype(result, sizes)
        if isinstance(op, AssumeOp) and _holds(op):
            erase(op)
    if func.sizes is not None:
        func.sizes = SymbolsAttr(tuple(s for s in func.caller_sizes if s not in sizes))


def _retype(value: SSAValue, sizes: Sizes) -> None:
    type_ = with_sizes(value.type, sizes)
    if type_ is not value.type:
        Rewriter.replace_value_with_new_type(value, type_)


def with_sizes(attribute: Attribute, sizes: Sizes) -> Attribute:
    """An attribute with sizes replaced by their values; the attribute itself if it uses none."""
    match attribute:
        case ExprAttr() if attribute.data.symbols & sizes.keys():
            return ExprAttr(attribute.data.substitute(sizes))
        case SizesAttr() if any(e.symbols & sizes.keys() for e in attribute.data):
            return SizesAttr(tuple(e.substitute(sizes) for e in attribute.data))
        case TensorType() if any(e.symbols & sizes.keys() for e in attribute.shape):
            return tensor(attribute.element, [e.substitute(sizes) for e in attribute.shape])
        case ArrayAttr():
            return ArrayAttr([with_sizes(a, sizes) for a in attribute.data])
        case _:
            return attribute


def _holds(op: AssumeOp) -> bool:
    left, right = op.left.data.constant, op.right.data.constant
    if left is None or right is None:
        return False
    return left == right or (op.relation.data == "<=" and left < right)

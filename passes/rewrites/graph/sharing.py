"""Equal parts of a function become one function that is called for each.

    %a = graph.matmul %x, %w0                 %b = strata.call @layer number 0 of ["m0", "e0"] (%x)
    %b = graph.exp %a                         %d = strata.call @layer number 1 of ["m1", "e1"] (%b)
    %c = graph.matmul %b, %w1        -->
    %d = graph.exp %c                         strata.func @layer(%x: f32[n, 8]) -> (f32[n, 8]) ... {
                                                %w = graph.constant {value = #strata.weights<...>}
                                                %a = graph.matmul %x, %w
                                                %b = graph.exp %a
                                                strata.return %b
                                              }

Constants of the parts become constants of the function: the same in all calls, or one weight per
call. `passes/rewrites/calls.py` is the inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from dialects.graph.base import GraphOp
from dialects.graph.constant import ConstantOp
from dialects.graph.convolution import ConvOp, ConvTransposeOp
from dialects.graph.pooling import AvgPoolOp, MaxPoolIndicesOp, MaxPoolOp
from dialects.graph.resize import ResizeOp
from dialects.strata.control import CallOp
from dialects.strata.func import FuncOp
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import Shaped, SymbolsAttr, WeightAttr, WeightsAttr
from dialects.strata.weights import WeightStore
from dialects.text.syntax import distinct_identifiers, location_names, merge_locations, set_location
from passes.analyses.graph.repetition import attribute_key
from passes.rewriting import erase, erase_unused, functions, used_sizes

WINDOWS = (ConvOp, ConvTransposeOp, MaxPoolOp, MaxPoolIndicesOp, AvgPoolOp, ResizeOp)
"""Operators around which `loop-assign-layouts` chooses how tensors lie in memory."""


def is_movable(op: Operation) -> bool:
    """Whether an operation may be part of a shared function."""
    return isinstance(op, GraphOp) and not op.regions and not defined_sizes(op)


class Sharing:
    """Equal parts of a function that become another function and its calls."""

    def __init__(
        self, module: ModuleOp, func: FuncOp, parts: Sequence[Sequence[Operation]],
        store: WeightStore,
    ):
        self.module, self.block, self.store = module, func.body.block, store
        self.parts = parts
        self.outside = [outside_of(part) for part in self.parts]
        """What each part uses from outside, in the same order."""
        self.arguments = [k for k, value in enumerate(self.outside[0])
                          if not isinstance(value.owner, ConstantOp)]
        self.differing = [k for k, values in enumerate(zip(*self.outside, strict=True))
                          if any(value is not values[0] for value in values)]
        """The places of what is not the same value in all parts."""

    def run(self) -> None:
        results = self._results()
        function = self._function(results)
        self.module.body.block.add_op(function)
        for number, part in enumerate(self.parts):
            values = outside_of(part)  # by now results of the calls before
            call = CallOp.of(function.sym_name.data, number, self._nodes(number),
                             [values[k] for k in self.arguments], _types(part, results))
            merge_locations(call, self._located(number))
            self.block.insert_op_before(call, part[0])
            _replace(part, results, call)
        erase_unused(self.block)

    def _results(self) -> list[tuple[int, int]]:
        """The numbers of operation and result of what is used outside of its part, in any part."""
        found: dict[tuple[int, int], None] = {}
        for part in self.parts:
            own = set(part)
            found |= {(k, r.index): None for k, op in enumerate(part) for r in op.results
                      if any(use.operation not in own for use in r.uses)}
        return sorted(found)

    # ------------------------------------------------------------------ the function
    def _function(self, results: Sequence[tuple[int, int]]) -> FuncOp:
        """The function of the first part, with constants for all of them."""
        first = self.outside[0]
        names = distinct_identifiers(first[k].name_hint or "x" for k in self.arguments)
        func = FuncOp.of(self._fresh_name(), names, [first[k].type for k in self.arguments])
        block = func.body.block
        values: dict[SSAValue, SSAValue] = dict(
            zip((first[k] for k in self.arguments), block.args, strict=True))
        for name, argument in zip(names, block.args, strict=True):
            argument.name_hint = name
        for k, value in enumerate(first):
            if isinstance(value.owner, ConstantOp):
                values[value] = self._constant(k, block)
        copies = [op.clone(values) for op in self.parts[0]]  # adds their results to `values`
        block.add_ops(copies)
        func.finish([str(k) for k in range(len(results))],
                    [copies[k].results[r] for k, r in results])
        func.properties["sizes"] = SymbolsAttr(tuple(sorted(used_sizes(func))))
        set_location(func, self.parts[0][0])
        return func

    def _constant(self, number: int, block: Block) -> SSAValue:
        """A constant of the function: the same in all parts, or another one in each."""
        owners = [values[number].owner for values in self.outside]
        constants = [owner for owner in owners if isinstance(owner, ConstantOp)]
        value: Attribute = constants[0].value
        if len({attribute_key(constant.value) for constant in constants}) > 1:
            value = WeightsAttr(ArrayAttr(map(self._weight, constants)))
        copy = ConstantOp.of_value(value, constants[0].type)
        copy.location = constants[0].location
        copy.result.name_hint = constants[0].result.name_hint
        block.add_op(copy)
        return copy.result

    def _weight(self, constant: ConstantOp) -> WeightAttr:
        """The handle of a constant, whose few elements may not be in the store yet."""
        return constant.handle(self.store)

    def _fresh_name(self) -> str:
        taken = {f.sym_name.data for f in functions(self.module)}
        names = (f"layer_{k}" for k in count())
        return next(name for name in names if name not in taken)

    # ------------------------------------------------------------------ the calls
    def _nodes(self, number: int) -> list[str]:
        """The model's nodes of a part, one for each that is named in the first part.

        An operation may stand for more or for fewer nodes than that of the first part. The call
        itself stands for all nodes of its part.
        """
        places: dict[str, str] = {}
        for first, own in zip(self._located(0), self._located(number), strict=True):
            theirs = location_names(own)
            for k, name in enumerate(location_names(first)):
                places.setdefault(name, theirs[min(k, len(theirs) - 1)] if theirs else "")
        return list(places.values())

    def _located(self, number: int) -> list[Operation]:
        """The operations of a part and the constants that are its own, in the same order for all.
        """
        owners = [self.outside[number][k].owner for k in self.differing]
        return [*self.parts[number], *(o for o in owners if isinstance(o, ConstantOp))]


def outside_of(part: Sequence[Operation]) -> list[SSAValue]:
    """What a part uses from outside, in the order of first use."""
    own = set(part)
    return list(dict.fromkeys(v for op in part for v in op.operands if v.owner not in own))


def _types(part: Sequence[Operation], results: Sequence[tuple[int, int]]) -> list[Shaped]:
    types = [part[k].results[r].type for k, r in results]
    return [type_ for type_ in types if isinstance(type_, Shaped)]


def _replace(part: Sequence[Operation], results: Sequence[tuple[int, int]], call: CallOp) -> None:
    """Use the results of a call instead of those of the part, which is erased."""
    for (k, r), new in zip(results, call.results, strict=True):
        part[k].results[r].replace_all_uses_with(new)
        new.name_hint = part[k].results[r].name_hint
    for op in reversed(part):
        erase(op)

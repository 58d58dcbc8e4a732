"""Imports a module of StableHLO as `strata.func @main` over graph operations.

Functions that `main` calls are imported in the place of each call. Every operation has its name and
its line in the text as location. Problems are collected and raised together; operations that depend
on a bad one are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import AnyFloat, ComplexType, DictionaryAttr, ModuleOp, StringAttr

from compiler.diagnostics import Problem, StrataError
from compiler.frontend import ImportedModel, ImportOptions
from compiler.frontend.builder import Builder
from compiler.frontend.faults import LEVEL, Fault, Faults, Skip
from compiler.frontend.stablehlo.forms import parse
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.operations import Function, Op, Region
from compiler.frontend.stablehlo.ops import complex_importers, importers
from compiler.frontend.stablehlo.parts import (
    Either,
    is_complex,
    joined,
    part_type,
    parts_of,
    view_type,
)
from compiler.frontend.stablehlo.verify import RETURNS, check
from compiler.frontend.torch.complex.values import Complex
from compiler.frontend.values import Value
from compiler.io import structures
from compiler.suggestions import hint_for
from dialects.graph.base import ShapeError
from dialects.strata import types as t
from dialects.strata.func import FuncOp
from dialects.strata.types import TensorType
from dialects.strata.weights import WeightStore
from dialects.symbolic.expr import Expr
from dialects.text.syntax import identifier

_UNVERIFIED = ("does the program verify? stablehlo-opt says so; if it does, its form is not "
               "supported")
_UNFIT = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, StopIteration)
"""What importers raise for operands, attributes and regions of other kinds and numbers."""
CALLS = {"call": "callee", "func.call": "callee", "stablehlo.composite": "decomposition"}
"""Operation -> the attribute that names the function which it calls."""
PASSED_ON = ("stablehlo.while", "stablehlo.if", "stablehlo.case", "stablehlo.optimization_barrier",
             "stablehlo.custom_call", "sdy.sharding_constraint")
"""Operations that take complex numbers as two values of reals."""


def import_text(text: str, name: str, file: str, options: ImportOptions) -> ImportedModel:
    """Import a module's text. Raises StrataError with every problem found."""
    return _imported(parse(text, file), name, file, options)


def import_bytecode(data: bytes, name: str, file: str, options: ImportOptions) -> ImportedModel:
    """Import a portable artifact. Raises StrataError with every problem found."""
    from compiler.frontend.stablehlo.bytecode.program import functions

    return _imported(functions(data, file), name, file, options)


def _imported(
    functions: dict[str, Function], name: str, file: str, options: ImportOptions
) -> ImportedModel:
    check(functions.values(), Faults(file))
    main = functions.get("main") or next(iter(functions.values()))
    importer = Importer(functions, main, options, Faults(file))
    return ImportedModel(importer.run(), importer.build.weights, name)


@dataclass
class Importer:
    """The walk over the operations of one program."""

    functions: dict[str, Function]
    main: Function
    options: ImportOptions
    faults: Faults
    depth: int = 0
    elementwise: bool = False
    """Whether a region of numbers is imported with tensors in their place."""
    unsupported: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])

    def __post_init__(self) -> None:
        arguments = self.main.body.arguments
        self.names = [name.lstrip("%") for name, _ in arguments]
        sizes = {size: Expr.of(value) for size, value in self.options.dims.items()}
        self.sized = [self._sized(name, type_, sizes) for name, (_, type_) in zip(
            self.names, arguments, strict=True)]
        types = [view_type(type_) for type_ in self.sized]
        self.function = FuncOp.of("main", self.names, types)
        self.module = ModuleOp([self.function])
        self.build = Builder(self.function.body.block, WeightStore())

    def _sized(self, name: str, type_: TensorType, sizes: dict[str, Expr]) -> TensorType:
        """The type of an argument with the sizes that the user gives."""
        given = self.options.shapes.get(name)
        shape = type_.shape if given is None else [
            Expr.of(s) if isinstance(s, int) else Expr.size(s) for s in given]
        if len(shape) != type_.rank or any(
                own.constant not in (None, new.constant)
                for own, new in zip(type_.shape, shape, strict=True)):
            raise StrataError(f"input {name} is {type_.short}", [
                Problem(f"the shape {list(map(str, shape))} does not fit")])
        fixed = {symbol: sizes[symbol.name] for size in shape for symbol in size.symbols
                 if symbol.name in sizes}
        return t.tensor(type_.element, [size.substitute(fixed) for size in shape])

    def run(self) -> ModuleOp:
        values: dict[str, Either] = {}
        for (name, _), type_, argument in zip(
                self.main.body.arguments, self.sized, self.function.body.block.args, strict=True):
            argument.name_hint = identifier(name.lstrip("%"))
            value = self.build.value(argument)
            values[name] = Complex.of_view(value) if is_complex(type_) else value
        outputs: list[Either] = []
        with suppress(Skip):
            outputs = self.walk(self.main.body, values)
        for op, places in sorted(self.unsupported.items()):
            self.faults.add(f"operation {op} is not supported ({len(places)} uses)",
                            places[0], LEVEL)
        for k, (value, declared) in enumerate(zip(outputs, self.main.types or (), strict=False)):
            if not _fits(value, declared):
                self.faults.add(f"result {k} is {_type_of(value)}, and the function declares "
                                f"{declared.short}", self.main.body.operations[-1].where, LEVEL)
        self.faults.raise_any()
        names = [f"result_{k}" for k in range(len(outputs))]
        self.function.finish(names, [self.build.ssa(v.view() if isinstance(v, Complex) else v)
                                     for v in outputs])
        self.build.finish()
        whole = [*(name for name, type_ in zip(self.names, self.sized, strict=True)
                   if is_complex(type_)),
                 *(name for name, v in zip(names, outputs, strict=True) if isinstance(v, Complex))]
        if whole:
            self.module.attributes[structures.ATTRIBUTE] = DictionaryAttr(
                {name: StringAttr(structures.COMPLEX) for name in whole})
        return self.module

    # ------------------------------------------------------------------ operations
    def region(self, region: Region, given: Sequence[Either], outer: dict[str, Either]
               ) -> list[Either]:
        """What a region returns for these arguments; it sees the values around it."""
        own = {name: value for (name, _), value in zip(region.arguments, given, strict=True)}
        return self.walk(region, {**outer, **own})

    def _of_parts(self, region: Region, given: Sequence[Value], outer: dict[str, Either]
                  ) -> list[Value]:
        """The same for values of reals, of which two are one complex number."""
        types = [type_ for _, type_ in region.arguments]
        return parts_of(self.region(region, joined(given, types), outer))

    def walk(self, region: Region, values: dict[str, Either]) -> list[Either]:
        """Import operations. Returns what the last one returns. Raises Skip if that is missing."""
        for op in region.operations:
            if op.name in RETURNS:
                return [self._value(values, name) for name in op.operands]
            try:
                made = self._import(op, values)
            except (Fault, ShapeError) as error:
                what, hint = (error.what, error.hint) if isinstance(error, Fault) else (
                    str(error), "")
                self.faults.add(f"{op.name}: {what}", op.where, LEVEL, hint)
                continue
            except Skip:
                continue
            values.update(zip(op.results, made, strict=False))
        return []

    def _value(self, values: dict[str, Either], name: str) -> Either:
        found = values.get(name)
        found = values.get(f"{name}#0") if found is None else found
        if found is None:
            raise Skip
        return found

    def _import(self, op: Op, values: dict[str, Either]) -> list[Either]:
        operands = [self._value(values, name) for name in op.operands]
        self.build.node = f"{op.name.rpartition('.')[2]}:{op.line}"
        if op.name in CALLS:
            return self._call(op, operands)
        function, given = self._importer(op, operands)
        node = Node(self.build.node, self.build, op,
                    lambda region, given: self._of_parts(region, given, values),
                    lambda region, given: self._each(region, given, values))
        try:
            made = function(node, *given)
        except _UNFIT as error:
            raise Fault(f"its operands, attributes or regions are not those of this operation: "
                        f"{type(error).__name__}: {error}", _UNVERIFIED) from error
        listed = [made] if isinstance(made, Value | Complex) else joined(made, op.types)
        return listed if self.elementwise else [
            _as_declared(op, value, k) for k, value in enumerate(listed)]

    def _importer(self, op: Op, operands: Sequence[Either]) -> tuple[Any, Sequence[Either]]:
        """What imports an operation, and the operands that it takes."""
        function = importers().get(op.name)
        if any(isinstance(v, Complex) for v in operands) or any(map(is_complex, op.types)) or (
                getattr(op.attributes.get("value"), "dtype", np.dtype(bool)).kind == "c"):
            own = complex_importers().get(op.name)
            if own is not None:
                return own, operands
            if function is not None and op.name not in PASSED_ON:
                raise Fault("complex numbers are not supported")
            operands = parts_of(operands)
        if function is None:
            self.unsupported.setdefault(op.name, []).append(op.where)
            raise Skip
        return function, operands

    def _each(self, region: Region, given: Sequence[Value], outer: dict[str, Either]
              ) -> list[Value]:
        """What a region of numbers returns for the elements of tensors."""
        before, self.elementwise = self.elementwise, True
        try:
            return self._of_parts(region, given, outer)
        finally:
            self.elementwise = before

    def _call(self, op: Op, operands: Sequence[Either]) -> list[Either]:
        name = str(op.attributes.get(CALLS[op.name]))
        callee = self.functions.get(name)
        if callee is None:
            raise Fault(f"there is no function {name}", hint_for(name, self.functions).strip())
        if len(callee.body.arguments) != len(operands):
            raise Fault(f"{name} takes {len(callee.body.arguments)} arguments, not {len(operands)}")
        if self.depth > 100:
            raise Fault("functions call themselves")
        self.depth += 1
        try:
            return self.region(callee.body, operands, {})
        finally:
            self.depth -= 1


def _as_declared(op: Op, value: Either, k: int) -> Either:
    """A result. Raises Fault for one whose type is not what the text says."""
    if len(op.types) != len(op.results) or k >= len(op.types):
        return value
    if not _fits(value, op.types[k]):
        raise Fault(f"its result is {_type_of(value)}, and the text says {op.types[k].short}")
    return value


def _type_of(value: Either) -> str:
    if isinstance(value, Value):
        return value.type.short
    return t.tensor(ComplexType(cast("AnyFloat", value.re.element)), value.shape).short


def _fits(value: Either, declared: TensorType) -> bool:
    """Whether a value has a type, as far as its sizes are known."""
    whole, part = isinstance(value, Complex), part_type(declared)
    element = value.re.element if isinstance(value, Complex) else value.element
    return declared.rank == value.rank and is_complex(declared) == whole and (
        part.element == element) and all(
        a.constant is None or b.constant is None or a == b
        for a, b in zip(declared.shape, value.shape, strict=True))

"""The functions of a portable artifact, as those of a text.

Values are numbered in the order in which they are defined. Regions see the values around them, and
functions see their own only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.faults import Fault
from compiler.frontend.stablehlo.bytecode.attributes import Attributes, Type
from compiler.frontend.stablehlo.bytecode.cursor import Cursor
from compiler.frontend.stablehlo.bytecode.sections import (
    COUNTED,
    LAZY,
    ORDERS,
    PROGRAM,
    section,
    sections,
)
from compiler.frontend.stablehlo.bytecode.versions import attributes_of, name_of, properties_of
from compiler.frontend.stablehlo.operations import Function, Op, Region
from dialects.strata.types import TensorType

DEEPEST = 64
MODULE, FUNCTION = "builtin.module", "stablehlo.func"
ATTRIBUTES, RESULTS, OPERANDS, SUCCESSORS, REGIONS, ORDER, PROPERTIES = (1 << k for k in range(7))
"""What an operation has, as bits of a byte."""
_PORTABLE = ("write a portable artifact, which any version reads: jax.export.export(f)(*args)"
             ".mlir_module_serialized, or stablehlo-translate --serialize --target=1.0.0")


def functions(data: bytes, name: str) -> dict[str, Function]:
    """The functions of a file. Raises StrataError with the byte of what cannot be read."""
    reader = _Reader(data, name)
    top = reader.parts.program
    reader.block(top, _Scope(), 0)
    if top.left:
        raise top.error(f"{top.left} bytes follow the program")
    if not reader.found:
        raise top.error("the module has no function")
    return reader.found


@dataclass
class _Scope:
    """The names of the values that operations see. `next`: the number of the next one, which is
    below `end`."""

    names: dict[int, str] = field(default_factory=dict[int, str])
    next: int = 0
    end: int = 0

    def define(self, at: Cursor, name: str) -> str:
        if self.next >= self.end:
            raise at.error("a region has more values than it announces")
        self.names[self.next] = name or f"%{self.next}"
        self.next += 1
        return self.names[self.next - 1]


class _Reader:
    """The walk over a file's operations, which collects functions."""

    def __init__(self, data: bytes, name: str):
        self.parts = sections(data, name)
        self.attributes = Attributes(data, name, self.parts)
        self.found: dict[str, Function] = {}
        self.name, self.count = name, 0

    def block(self, at: Cursor, scope: _Scope, depth: int, of_function: bool = False) -> Region:
        """A block: its arguments and operations."""
        count, has_arguments = at.flagged()
        at.checked(count, "operations")
        arguments: list[tuple[str, TensorType]] = []
        if has_arguments:
            arguments = self._arguments(at, scope, of_function)
            if self.parts.version >= ORDERS and at.byte():
                _skip_orders(at, len(arguments))
        made = [self._operation(at, scope, depth) for _ in range(count)]
        return Region(arguments, [op for op in made if op is not None])

    def _arguments(self, at: Cursor, scope: _Scope, of_function: bool
                   ) -> list[tuple[str, TensorType]]:
        """Those of a function are named as in a text: %arg0, %arg1 ..."""
        found: list[tuple[str, TensorType]] = []
        for k in range(at.count("arguments")):
            number, located = at.flagged() if self.parts.version >= COUNTED else (
                at.number(), True)
            type_ = self.attributes.type_of(number, at)
            if located:
                self.attributes.attribute(at)
            name = scope.define(at, f"%arg{k}" if of_function else "")
            found.append((name, self._tensor(type_, f"argument {k}", name.lstrip("%"))))
        return found

    def _tensor(self, type_: Type, where: str, owner: str = "") -> TensorType:
        if type_.problem:
            raise StrataError(f"{self.name} has values that cannot be compiled", [
                Problem(type_.problem, where)])
        return type_.tensor(owner)

    # ------------------------------------------------------------------ operations
    def _operation(self, at: Cursor, scope: _Scope, depth: int) -> Op | None:
        """An operation. None for modules and for functions, which are collected."""
        names = self.parts.operations
        name, known = names[at.index(len(names), "operation")]
        op, has = Op(name_of(name), [], {}, [], [], [], self.count), at.byte()
        self.count += 1
        note: Any = self.attributes.attribute(at)
        op.place = f"operation {op.line}" + (f", {note}" if isinstance(note, str) and note else "")
        given = self._named(at) if has & ATTRIBUTES else {}
        if has & PROPERTIES:
            given = {**given, **(self._properties(name, at) if known else self._named(at))}
        op.types = [self._tensor(self.attributes.type(at), op.place)
                    for _ in range(at.count("results"))] if has & RESULTS else []
        if has & OPERANDS:
            op.operands = [self._operand(at, scope) for _ in range(at.count("operands"))]
        if has & SUCCESSORS:
            raise at.error(f"{name} jumps to another block", "")
        if has & ORDER and self.parts.version >= ORDERS:
            _skip_orders(at, len(op.types))
        op.results = [scope.define(at, "") for _ in op.types]
        if has & REGIONS:
            op.regions = self._regions(at, scope, depth + 1, op.name == FUNCTION)
        return self._finished(op, given, at)

    def _named(self, at: Cursor) -> dict[str, Any]:
        found = self.attributes.attribute(at)
        if not isinstance(found, dict):
            raise at.error("an operation's attributes have no names")
        return cast("dict[str, Any]", found)

    def _properties(self, name: str, at: Cursor) -> dict[str, Any]:
        """The attributes of an operation, one after another in the order of their names."""
        stored = self.parts.properties
        found = stored[at.index(len(stored), "property")]
        names = properties_of(name)
        if names is None:
            if name.startswith(("stablehlo.", "func.", "mhlo.", "chlo.")):
                raise at.error(f"{name} is an operation of one version of StableHLO", _PORTABLE)
            return {}
        own = Cursor(found.data, found.name, found.at, found.end)
        made = {key: self.attributes.attribute(own) for key in names}
        if own.left:
            raise own.error(f"{name} has more attributes than {len(names)}")
        return made

    def _operand(self, at: Cursor, scope: _Scope) -> str:
        number = at.number()
        if number not in scope.names:
            raise at.error(f"value {number} is used where it is not known")
        return scope.names[number]

    def _finished(self, op: Op, given: dict[str, Any], at: Cursor) -> Op | None:
        if op.name == MODULE:
            return None
        if op.name == FUNCTION:
            name = str(given.get("sym_name"))
            if len(op.regions) != 1 or name in self.found:
                raise at.error(f"the function {name} has no body, or has several")
            self.found[name] = Function(name, op.regions[0], None)
            return None
        try:
            op.attributes = attributes_of(op.name, given)
        except Fault as fault:
            raise StrataError(f"{self.name} does not verify", [
                Problem(f"{op.name}: {fault.what}", op.place)]) from None
        return op

    # ------------------------------------------------------------------ regions
    def _regions(self, at: Cursor, scope: _Scope, depth: int, of_function: bool) -> list[Region]:
        count, isolated = at.flagged()
        at.checked(count, "regions")
        if depth > DEEPEST:
            raise at.error(f"regions are nested more than {DEEPEST} times")
        if isolated and self.parts.version >= LAZY:
            number, at = section(at)
            if number != PROGRAM:
                raise at.error(f"section {number} stands where a region should")
        outer = _Scope() if isolated else scope
        return [self._region(at, outer, depth, of_function) for _ in range(count)]

    def _region(self, at: Cursor, outer: _Scope, depth: int, of_function: bool) -> Region:
        """A region of one block. Its values have the numbers behind those around it."""
        blocks = at.number()
        if blocks == 0:
            return Region([], [])
        if blocks > 1:
            raise at.error(f"a region has {blocks} blocks, and StableHLO's have one", "")
        inner = _Scope(dict(outer.names), outer.end, outer.end + at.number())
        return self.block(at, inner, depth, of_function)


def _skip_orders(at: Cursor, values: int) -> None:
    """The order of the uses of values says nothing about results."""
    for _ in range(at.count("orders") if values > 1 else 1):
        if values > 1:
            at.number()
        for _ in range(at.checked(at.flagged()[0], "uses")):
            at.number()

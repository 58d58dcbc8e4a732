"""Finds the operations of a module that others call by name, and checks calls.

A kernel has `sym_name`, `size_names` and `taken`: the types of what it reads, then of what it
writes. Kernels of all levels are called in the same way, by values (`loop.call`) or on buffers
(`host.launch`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary, ref

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.irdl import prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from dialects.classes import StrataOperation
from dialects.strata import types as t
from dialects.strata.func import FuncOp
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import Array, BufferType, Shaped, SymbolsAttr
from dialects.symbolic.symbol import Symbol

_TABLES: WeakKeyDictionary[Block, dict[str, ref[Operation]]] = WeakKeyDictionary()
"""For each module's block the operations with names, as last seen. An entry counts only while its
operation is still in the block and still has the name. An operation refers to its block, which a
table of operations themselves would therefore keep for as long as the process lives."""


class Kernel(Protocol):
    """What a call needs to know of a kernel."""

    @property
    def size_names(self) -> list[Symbol]: ...

    @property
    def taken(self) -> Sequence[Attribute]: ...


def callee_of(op: Operation, name: str) -> Operation | None:
    """The operation with a name in the module around `op`; None if there is none."""
    module = _module_of(op)
    if module is None:
        return None
    block = module.body.block
    found = _found(_TABLES.get(block, {}), name)
    if found is None or found.parent is not block or _name_of(found) != name:
        table = {_name_of(other): ref(other) for other in reversed(list(block.ops))}
        _TABLES[block] = table
        found = _found(table, name)
    return found


def _found(table: Mapping[str, ref[Operation]], name: str) -> Operation | None:
    known = table.get(name)
    return known and known()


def _module_of(op: Operation) -> ModuleOp | None:
    root = op
    while (parent := root.parent_op()) is not None:
        root = parent
    return root if isinstance(root, ModuleOp) else None


def _name_of(op: Operation) -> str:
    name = op.properties.get("sym_name")
    return name.data if isinstance(name, StringAttr) else ""


def check_kernel_call(
    op: Operation, name: str, sizes: int, values: Sequence[Attribute]
) -> None:
    """C1 to C3 of calls and launches. Raises VerifyException.

    `sizes`: how many are passed. `values`: the types of what is passed, then of what is returned.
    An operation outside a module is not checked. Sizes are compared as far as they are constant,
    because caller and kernel name the others differently.
    """
    kernel = callee_of(op, name)
    if kernel is None:
        if _module_of(op) is None:
            return
        raise VerifyException(f"C1: {op.name} calls @{name}, and the module has no such kernel")
    if not hasattr(kernel, "taken"):
        raise VerifyException(f"C1: {op.name} calls @{name}, which is a {kernel.name}")
    about = cast(Kernel, kernel)
    if sizes != len(about.size_names):
        raise VerifyException(f"C2: {op.name} passes {sizes} sizes to @{name}, which takes "
                              f"{len(about.size_names)}")
    if not _fit(values, about.taken):
        raise VerifyException(f"C3: {op.name} calls @{name} with {_short(values)}, and it is "
                              f"defined for {_short(about.taken)}")


def _fit(given: Sequence[Attribute], wanted: Sequence[Attribute]) -> bool:
    return len(given) == len(wanted) and all(map(_fits, given, wanted))


def _fits(a: Attribute, b: Attribute) -> bool:
    """Whether two types have the same element, rank, and constant sizes."""
    if not (isinstance(a, Shaped) and isinstance(b, Shaped)) or a.element != b.element:
        return False
    return a.rank == b.rank and all(
        x.constant == y.constant or None in (x.constant, y.constant)
        for x, y in zip(a.shape, b.shape, strict=True))


def _short(types: Sequence[Any]) -> str:
    return ", ".join(getattr(type_, "short", str(type_)) for type_ in types) or "nothing"


# ---------------------------------------------------------------------- functions
def function_of(op: Operation, name: str) -> FuncOp:
    """A function of the module that holds `op`. Raises KeyError when there is none of that name."""
    found = callee_of(op, name)
    if isinstance(found, FuncOp):
        return found
    raise KeyError(f"the module has no strata.func @{name}")


class ControlOp(StrataOperation):
    """An operation that calls functions. Its result types may use sizes that it defines.

    Constraints: (C1) the functions' arguments match the operands in element type and rank; (C2)
    the functions' results match the operation's results in element type and rank; (C3) each size
    that the operation defines is a dim of a result.
    """

    defines = prop_def(SymbolsAttr)

    @property
    def result_types(self) -> list[Shaped]:
        return [r.type for r in self.results if isinstance(r.type, Shaped)]

    @property
    def callees(self) -> list[str]:
        """The names of the functions that it may call."""
        raise NotImplementedError(self.name)

    def check_call(self, name: str, inputs: Sequence[SSAValue], results: Sequence[Any]) -> None:
        """Check a function's signature against operands and results, if the module defines it."""
        try:
            function = function_of(self, name)
        except KeyError:  # on buffers, or outside a module
            return
        given = [_kind(v.type) for v in inputs]
        if [_kind(a.type) for a in function.body.block.args] != given:
            raise VerifyException(f"C1: the operands do not fit the arguments of @{name}")
        if [_kind(r) for r in function.result_types_.data] != [_kind(r) for r in results]:
            raise VerifyException(f"C2: @{name} does not return the results of {self.name}")

    def check_defines(self) -> None:
        dims = {s.as_symbol for type_ in self.result_types for s in type_.shape}
        for name in defined_sizes(self):
            if name not in dims:
                raise VerifyException(f"C3: the size {name} is not a dim of a result")

    def bind(self, context: Any, arrays: Sequence[Array]) -> None:
        """Bind the defined sizes to the dims of the results."""
        names = set(defined_sizes(self))
        for type_, array in zip(self.result_types, arrays, strict=True):
            for size, found in zip(type_.shape, array.shape, strict=True):
                if size.as_symbol in names:
                    context.sizes[size.as_symbol] = found

    def print_tail(self, printer: Printer) -> None:
        names = defined_sizes(self)
        if names:
            printer.print_string(f" defines({t.format_symbols(names)})")
        printer.print_string(" buffers" if self.is_on_buffers else " :")
        printer.print_string(f" {', '.join(type_.short for type_ in self.result_types)}")

    @property
    def is_on_buffers(self) -> bool:
        return any(isinstance(v.type, BufferType) for v in (*self.results, *self.operands))

    @staticmethod
    def parse_tail(parser: Parser) -> tuple[list[Symbol], list[Shaped]]:
        names: list[Symbol] = []
        if parser.parse_optional_keyword("defines"):
            names = t.parse_symbols(parser)
        parse = t.parse_tensor_type
        if parser.parse_optional_keyword("buffers"):
            parse = t.parse_buffer_type
        else:
            parser.parse_punctuation(":")
        types = parser.parse_optional_undelimited_comma_separated_list(
            lambda: _parse_optional(parser, parse), lambda: parse(parser))
        return names, types or []


def _parse_optional(parser: Parser, parse: Callable[[Parser], Shaped]) -> Shaped | None:
    """Parse a type if one follows; a control operation may have no results."""
    text = parser._current_token.text  # pyright: ignore[reportPrivateUsage]
    return parse(parser) if re.fullmatch(r"[a-z]+\d\w*", text) else None


def _kind(type_: Any) -> tuple[Any, int] | None:
    """The parts of a type on which caller and callee must agree; names of sizes may differ."""
    return (type_.element, type_.rank) if isinstance(type_, Shaped) else None

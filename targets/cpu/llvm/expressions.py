"""The expressions of native functions as LLVM instructions (see `translate.py`).

A value knows its kind, and an operation takes values of one kind. A plain integer has the kind of
the other operand, or of the variable, field, parameter or result that it becomes. Addresses may
replace one another; everything else must have exactly the expected kind.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from targets.cpu.llvm import native
from targets.cpu.llvm.layout import (
    BOOL,
    Elements,
    Function,
    Integer,
    Kind,
    Pointer,
    Shared,
    Struct,
    fields,
    kind_of,
    size_of,
    stride,
)
from targets.cpu.llvm.native import Callee, Native, call_text, is_address

_BINARY: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("add", "add"), ast.Sub: ("sub", "sub"), ast.Mult: ("mul", "mul"),
    ast.FloorDiv: ("sdiv", "udiv"), ast.Mod: ("srem", "urem"), ast.LShift: ("shl", "shl"),
    ast.RShift: ("ashr", "lshr"), ast.BitAnd: ("and", "and"), ast.BitOr: ("or", "or"),
    ast.BitXor: ("xor", "xor")}
"""For each operator, the instruction for signed and for unsigned numbers."""
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.Is: "eq", ast.IsNot: "ne"}
_FOLDED: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.LShift: lambda a, b: a << b}
_WIDTHS: Mapping[Any, Integer] = {
    native.u8: Integer(8), native.u32: Integer(32), native.u64: Integer(64)}
_EXTREMES: Mapping[Any, tuple[str, str]] = {min: ("smin", "umin"), max: ("smax", "umax")}
_BUILTINS: dict[str, Any] = {"min": min, "max": max, "bool": bool, "tuple": tuple}


class NativeError(TypeError):
    """Python that native code cannot have."""

    def __init__(self, function: Callee[..., Any], node: ast.AST, message: str):
        line = getattr(node, "lineno", 0)
        super().__init__(f"{function.function.__module__}:{line}: {message}")


class Value(NamedTuple):
    """A value with its kind."""

    kind: Kind
    name: str

    @property
    def typed(self) -> str:
        return f"{self.kind.llvm} {self.name}"


class Place(NamedTuple):
    """Where a field or an element lies. Its value is the address if it lies there itself."""

    address: str
    kind: Kind
    is_inside: bool


class Expressions:
    """Writes the instructions of one function, block by block."""

    def __init__(self, function: Native[..., Any]):
        self.function = function
        self.lines: list[str] = []
        self.locals: list[str] = []
        self.label = "entry"
        self.count = 0
        self.calls: dict[str, Callee[..., Any]] = {}
        self.variables = {name: Value(kind, f"%{name}")
                          for name, kind in function.signature[0].items()}

    def error(self, node: ast.AST, message: str) -> NativeError:
        return NativeError(self.function, node, message)

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def assign(self, text: str) -> str:
        name = self.fresh()
        self.emit(f"{name} = {text}")
        return name

    def named(self, name: str) -> Any:
        """What a name of the function's module stands for."""
        return self.function.function.__globals__.get(name, _BUILTINS.get(name))

    def annotated(self, node: ast.expr) -> Kind:
        """The kind of an annotation inside the function."""
        kind = kind_of(self._meaning(node))
        if kind is None:
            raise self.error(node, "a variable cannot be None")
        return kind

    def _meaning(self, node: ast.expr) -> Any:
        """The object that an annotation stands for."""
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Name(id=name) if (found := self.named(name)) is not None:
                return found
            case ast.Subscript(value=value, slice=part):
                return self._meaning(value)[self._meaning(part)]
            case ast.Tuple(elts=parts):
                return tuple(map(self._meaning, parts))
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._meaning(left) | self._meaning(right)
            case _:
                raise self.error(node, f"{ast.unparse(node)} is not the type of a variable")

    # ------------------------------------------------------------------ expressions
    def expression(self, node: ast.expr, wanted: Kind | None = None) -> Value:
        """The value of an expression; `wanted`: what it must be."""
        number = self._constant(node)
        if number is not None:
            if not isinstance(wanted, Integer):
                raise self.error(node, f"the type of {number} is not known here")
            return Value(wanted, str(number))
        found = self._computed(node, wanted)
        if wanted is not None and not _fits(found.kind, wanted):
            raise self.error(node, f"expected {wanted}, not {found.kind}")
        return found if wanted is None else Value(wanted, found.name)

    def _computed(self, node: ast.expr, wanted: Kind | None) -> Value:
        match node:
            case ast.Constant(value=None) if wanted is not None:
                return Value(wanted, "null")
            case ast.Constant(value=bool() as flag):
                return Value(BOOL, str(flag).lower())
            case ast.Name():
                return self._name(node)
            case ast.Attribute() | ast.Subscript():
                return self._load(self.place(node))
            case ast.BinOp():
                return self._binary(node, wanted)
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                return self._compare(operation, left, right)
            case ast.IfExp():
                return self._select(node, wanted)
            case ast.Call():
                found = self.call(node)
                if found is not None:
                    return found
                raise self.error(node, "this call has no result")
            case _:
                raise self.error(node, f"native code has no {type(node).__name__} here")

    def _constant(self, node: ast.expr) -> int | None:
        """The integer that an expression is at compile time, if it is one."""
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return number
            case ast.Name() if node.id not in self.variables:
                found = self.named(node.id)
                return found if isinstance(found, int) else None
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = self._constant(operand)
                return None if found is None else -found
            case ast.BinOp() if type(node.op) in _FOLDED:
                left, right = self._constant(node.left), self._constant(node.right)
                return None if left is None or right is None else (
                    _FOLDED[type(node.op)](left, right))
            case _:
                return None

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.variables:
            return self.variables[node.id]
        found = self.named(node.id)
        if isinstance(found, Callee):
            self.calls[found.name] = found
            return Value(found.kind, f"@{found.name}")
        raise self.error(node, f"{node.id} has no value on every path to here")

    def _binary(self, node: ast.BinOp, wanted: Kind | None) -> Value:
        left, right = self._pair(node.left, node.right, wanted)
        if not isinstance(left.kind, Integer) or type(node.op) not in _BINARY:
            raise self.error(node, f"{left.kind} has no {type(node.op).__name__}")
        name = _BINARY[type(node.op)][not left.kind.signed]
        return Value(left.kind, self.assign(f"{name} {left.typed}, {right.name}"))

    def _pair(
        self, left: ast.expr, right: ast.expr, wanted: Kind | None = None
    ) -> tuple[Value, Value]:
        """Two values of one kind: that of the one which is not a plain number or None."""
        if self._constant(left) is not None or _is_none(left):
            second = self.expression(right, None if _is_none(left) else wanted)
            return self.expression(left, second.kind), second
        first = self.expression(left, None if _is_none(right) else wanted)
        return first, self.expression(right, first.kind)

    def _compare(self, operation: ast.cmpop, left: ast.expr, right: ast.expr) -> Value:
        first, second = self._pair(left, right)
        test = _COMPARISONS.get(type(operation))
        if test is None:
            raise self.error(left, f"native code has no {type(operation).__name__}")
        if test not in ("eq", "ne"):
            test = f"{'s' if isinstance(first.kind, Integer) and first.kind.signed else 'u'}{test}"
        return Value(BOOL, self.assign(f"icmp {test} {first.typed}, {second.name}"))

    def _select(self, node: ast.IfExp, wanted: Kind | None) -> Value:
        test = self.expression(node.test, BOOL)
        first, second = self._pair(node.body, node.orelse, wanted)
        return Value(first.kind, self.assign(
            f"select {test.typed}, {first.typed}, {second.typed}"))

    # ------------------------------------------------------------------ memory
    def place(self, node: ast.expr) -> Place:
        match node:
            case ast.Attribute():
                return self._field(node)
            case ast.Subscript():
                return self._element(node)
            case _:
                raise self.error(node, f"native code cannot assign to {type(node).__name__}")

    def _field(self, node: ast.Attribute) -> Place:
        base = self.expression(node.value)
        found = fields(base.kind.to).get(node.attr) if isinstance(base.kind, Pointer) else None
        if found is None:
            raise self.error(node, f"{base.kind} has no field {node.attr}")
        address = base.name if found.byte == 0 else self.assign(
            f"getelementptr i8, ptr {base.name}, i64 {found.byte}")
        return Place(address, found.kind, found.is_inside)

    def _element(self, node: ast.Subscript) -> Place:
        base = self.expression(node.value)
        if not isinstance(base.kind, Elements):
            raise self.error(node, f"{base.kind} has no elements")
        plain = self._constant(node.slice) is not None
        number = self.expression(node.slice, Integer(64) if plain else None)
        of = base.kind.of
        address = self.assign(f"getelementptr [{stride(base.kind)} x i8], ptr {base.name}, "
                              f"{number.typed}")
        return Place(address, of, isinstance(of, Pointer | Shared))

    def _load(self, place: Place) -> Value:
        if place.is_inside:
            return Value(place.kind, place.address)
        return Value(place.kind, self.assign(f"load {place.kind.llvm}, ptr {place.address}"))

    def store(self, node: ast.expr, place: Place) -> None:
        """Write the value of an expression."""
        if place.is_inside:
            raise self.error(node, f"{place.kind} cannot be replaced as a whole")
        self.emit(f"store {self.expression(node, place.kind).typed}, ptr {place.address}")

    # ------------------------------------------------------------------ calls
    def call(self, node: ast.Call) -> Value | None:
        """A call of a function by its name, or of one whose address is in a variable or a field."""
        found = self.named(node.func.id) if isinstance(node.func, ast.Name) and (
            node.func.id not in self.variables) else None
        if found in _WIDTHS:
            return self._resize(node.args[0], _WIDTHS[found])
        if found in _EXTREMES:
            return self._extreme(node, _EXTREMES[found])
        if found in (native.local, native.local_array, native.moved):
            return self._memory(node, found)
        if isinstance(node.func, ast.Attribute):
            shared = self.expression(node.func.value)
            if isinstance(shared.kind, Shared):
                return self._atomic(node, shared.name, shared.kind.of, node.func.attr)
        target = self.expression(node.func)
        if not isinstance(target.kind, Function) or (
                len(target.kind.parameters) != len(node.args) or node.keywords):
            raise self.error(node, f"{target.kind} is not called like this")
        return self._called(target, target.kind, node.args)

    def _called(self, target: Value, kind: Function, nodes: Sequence[ast.expr]) -> Value | None:
        arguments = [self.expression(each, want).name
                     for want, each in zip(kind.parameters, nodes, strict=True)]
        text = call_text(kind, target.name, arguments)
        if kind.result is None:
            self.emit(text)
            return None
        return Value(kind.result, self.assign(text))

    def _resize(self, node: ast.expr, kind: Integer) -> Value:
        value = self.expression(node)
        if not isinstance(value.kind, Integer):
            raise self.error(node, f"{value.kind} is not an integer")
        if value.kind.bits == kind.bits:
            return Value(kind, value.name)
        name = "trunc" if value.kind.bits > kind.bits else "zext"
        return Value(kind, self.assign(f"{name} {value.typed} to {kind.llvm}"))

    def _extreme(self, node: ast.Call, names: tuple[str, str]) -> Value:
        left, right = self._pair(node.args[0], node.args[1])
        if not isinstance(left.kind, Integer):
            raise self.error(node, f"{left.kind} is not an integer")
        kind = Function((left.kind, left.kind), left.kind)
        name = f"llvm.{names[not left.kind.signed]}.{left.kind.llvm}"
        self.calls[name] = Intrinsic(name, kind)
        return Value(left.kind, self.assign(call_text(kind, f"@{name}", [left.name, right.name])))

    def _atomic(self, node: ast.Call, address: str, kind: Integer, name: str) -> Value | None:
        align = f"monotonic, align {kind.size}"
        if name == "load":
            return Value(kind, self.assign(f"load atomic {kind.llvm}, ptr {address} {align}"))
        value = self.expression(node.args[0], kind)
        if name == "store":
            self.emit(f"store atomic {value.typed}, ptr {address} {align}")
            return None
        return Value(kind, self.assign(f"atomicrmw {name} ptr {address}, {value.typed} monotonic"))

    def _memory(self, node: ast.Call, function: Any) -> Value:
        """`local`, `local_array` and `moved`."""
        if function is native.moved:
            base = self.expression(node.args[0])
            distance = self.expression(node.args[1], Integer(64))
            return Value(self._struct(node.args[2]), self.assign(
                f"getelementptr i8, ptr {base.name}, {distance.typed}"))
        kind = self._struct(node.args[0])
        bytes_ = size_of(kind.to)
        if function is native.local:
            name = self.fresh()
            self.locals.append(f"  {name} = alloca [{bytes_} x i8], align 8")
            return Value(kind, name)
        count = self.expression(node.args[1], Integer(64))
        align = self._constant(node.args[2])
        return Value(Elements(kind), self.assign(
            f"alloca [{bytes_} x i8], {count.typed}, align {align}"))

    def _struct(self, node: ast.expr) -> Pointer:
        found = self.named(node.id) if isinstance(node, ast.Name) else None
        if not (isinstance(found, type) and issubclass(found, Struct)):
            raise self.error(node, "only structures have memory")
        return Pointer(found)


class Intrinsic(Callee[..., Any]):
    """A function of LLVM that is named for the type of its operands."""

    def __init__(self, name: str, kind: Function):
        super().__init__(min, name)
        self._kind = kind

    @property
    def signature(self) -> tuple[dict[str, Kind], Kind | None]:  # type: ignore[override]
        return {f"a{k}": kind for k, kind in enumerate(self._kind.parameters)}, self._kind.result


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _fits(found: Kind, wanted: Kind) -> bool:
    """Whether a value may be used where another kind is expected."""
    if isinstance(found, Integer) and isinstance(wanted, Integer):
        return found.bits == wanted.bits
    return found == wanted or (is_address(found) and is_address(wanted))

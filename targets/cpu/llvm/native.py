"""Native functions: Python with typed parameters that becomes LLVM IR.

    @native
    def release(table: Table, memory: Memory, thread: U64) -> None:
        if thread == 0:
            drop(table.heap, memory)

The function is never run. `translate.py` reads its source, so it has only assignments, `if`,
`while`, `return` and the expressions that are listed there. `layout.py` has the types. A name of
the module is another native function, an `external` one, a `Setting` or an integer.

Only what is used is compiled: `modules.py` follows calls from the functions that it is given.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import Any, Generic, ParamSpec, TypeVar

from targets.cpu.llvm.layout import Elements, Function, Kind, Pointer, Struct, parameters

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Struct)


class Setting:
    """Decided when functions are put into a module: `if SETTING:` keeps one of the branches."""


Settings = Mapping[Setting, bool]


class Callee(Generic[P, R]):
    """What native functions call by name."""

    def __init__(self, function: Callable[P, R], name: str):
        self.function, self.name = function, name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        raise TypeError(f"{self.name} is called by native code only")

    @cached_property
    def signature(self) -> tuple[dict[str, Kind], Kind | None]:
        """The kinds of the parameters and of the result."""
        return parameters(self.function)

    @property
    def kind(self) -> Function:
        kinds, result = self.signature
        return Function(tuple(kinds.values()), result)

    def call(self, *arguments: str) -> str:
        """The text of a call. Raises TypeError for a wrong number of arguments."""
        return call_text(self.kind, f"@{self.name}", arguments)

    @property
    def header(self) -> str:
        """The first line of a definition, which other modules of the same image may call."""
        return self._header("hidden ")

    def _header(self, linkage: str) -> str:
        kinds, result = self.signature
        arguments = ", ".join(f"{kind.llvm} %{name}" for name, kind in kinds.items())
        return f"define {linkage}{_result(result)} @{self.name}({arguments}) nounwind {{"

    @property
    def declaration(self) -> str:
        kinds, result = self.signature
        types = ", ".join(k.llvm for k in kinds.values())
        return f"declare {_result(result)} @{self.name}({types})"


class External(Callee[P, R]):
    """A function that is defined elsewhere: an intrinsic, or one of the module's."""


class Native(Callee[P, R]):
    """A function that is written in Python."""

    def __init__(self, function: Callable[P, R], name: str, linkage: str):
        """`linkage`: `hidden ` for the modules of one image, `internal ` for one module, or empty.
        """
        super().__init__(function, name)
        self.linkage = linkage

    @property
    def header(self) -> str:
        return self._header(self.linkage)

    @property
    def definition(self) -> ast.FunctionDef:
        return _definitions(self.function.__module__)[self.function.__name__]


@cache
def _definitions(module: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


# ---------------------------------------------------------------------- declaring functions
def native(function: Callable[P, R]) -> Native[P, R]:
    """A function of the module: `f` becomes `@strata_f`."""
    return Native(function, f"strata_{function.__name__}", "hidden ")


def exported(name: str) -> Callable[[Callable[P, R]], Native[P, R]]:
    """A function that is called from outside the module, under a name of its own."""
    return lambda function: Native(function, name, "")


def external(name: str) -> Callable[[Callable[P, R]], External[P, R]]:
    """The declaration of a function that native functions call."""
    return lambda function: External(function, name)


# ---------------------------------------------------------------------- what only they can do
def local(struct: type[S]) -> S:
    """Memory on the stack for a structure, until the function returns."""
    raise TypeError("only native functions have a stack")


def local_array(struct: type[S], count: int, align: int) -> Any:
    """Memory on the stack for an `Array` of structures, of a size known at run time."""
    raise TypeError("only native functions have a stack")


def moved(base: Struct, count: int, struct: type[S]) -> S:
    """The structure that lies some bytes after another."""
    raise TypeError("only native functions have addresses")


def u8(number: int) -> int:
    """The number as U8, of which the low bits are kept."""
    return number & 0xFF


def u32(number: int) -> int:
    """The number as U32, of which the low bits are kept, or which is filled up with zeros."""
    return number & 0xFFFFFFFF


def u64(number: int) -> int:
    """The number as U64, filled up with zeros."""
    return number


# ---------------------------------------------------------------------- spelling
def call_text(kind: Function, target: str, arguments: Iterable[str]) -> str:
    """A call of a function by its name or address."""
    pairs = zip(kind.parameters, arguments, strict=True)
    values = ", ".join(f"{k.llvm} {value}" for k, value in pairs)
    return f"call {_result(kind.result)} {target}({values})"


def _result(kind: Kind | None) -> str:
    return "void" if kind is None else kind.llvm


def is_address(kind: Kind) -> bool:
    """Whether values of a kind are addresses of memory, any of which may stand for another."""
    return isinstance(kind, Pointer | Elements)

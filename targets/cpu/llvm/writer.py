"""Writes LLVM text with scopes, so that each value is computed as far out as its operands allow.

A scope is one loop body. The code of an inner loop is collected separately, and joined to the outer
scope when the loop ends. Until then, a pure instruction whose operands all come from an outer scope
is appended to that scope, and so comes just before the loop. Thus loop-invariant code is hoisted
and common subexpressions are shared while writing, and LLVM only has to generate code.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import field

from dialects.records import dataclass
from dialects.symbolic.symbol import Symbol
from dialects.text.syntax import distinct_identifiers


@dataclass
class Scope:
    """The text of one loop body: a chain of basic blocks, the last of which is `label`."""

    label: str
    lines: list[str] = field(default_factory=list[str])
    known: dict[str, str] = field(default_factory=dict[str, str])


def size_arguments(sizes: Sequence[Symbol]) -> list[str]:
    """The names of a function's sizes: legal and distinct, whatever their names in the model."""
    return [f"%size.{name}" for name in distinct_identifiers(s.name for s in sizes)]


class Writer:
    """The text of one function, with the declarations and constants that it needs."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.scopes = [Scope("entry")]
        self.depths: dict[str, int] = {}
        self.declarations: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self.computed: dict[Hashable, str] = {}
        """The names of what others have computed with this writer, by their own keys."""
        self.mark = ""
        """What ends each line from now on, such as a place in the model."""
        self._count = 0
        self._hoisted: dict[str, str] = {}

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    # ------------------------------------------------------------------ instructions
    def emit(self, line: str) -> None:
        """Append a line to the current scope."""
        self.scopes[-1].lines.append(f"  {line}{self.mark}")

    def assign(self, text: str) -> str:
        """Append `%v = text` to the current scope; returns the name."""
        self._count += 1
        name = f"%v{self._count}"
        self.scopes[-1].lines.append(f"  {name} = {text}{self.mark}")
        self.depths[name] = len(self.scopes) - 1
        return name

    def local(self, text: str) -> str:
        """Like `assign`, but reuses an equal instruction of this scope. For pure instructions."""
        known = self.scopes[-1].known
        if text not in known:
            known[text] = self.assign(text)
        return known[text]

    def hoist(self, text: str, *operands: str) -> str:
        """Like `local`, in the outermost scope in which all `operands` are defined."""
        name = self._hoisted.get(text)
        if name is not None:
            return name
        depth, depths = 0, self.depths
        for operand in operands:
            if operand in depths and depths[operand] > depth:
                depth = depths[operand]
        self._count += 1
        name = f"%v{self._count}"
        self.scopes[depth].lines.append(f"  {name} = {text}{self.mark}")
        self.depths[name] = depth
        self._hoisted[text] = name
        return name

    def at_entry(self, text: str) -> str:
        """Append `%v = text` at the function's start; returns the name."""
        name = "%" + self.fresh()
        self.scopes[0].lines.append(f"  {name} = {text}{self.mark}")
        self.depths[name] = 0
        return name

    def argument(self, name: str) -> str:
        """Register a function argument."""
        self.depths[name] = 0
        return name

    def size_arguments(self, sizes: Sequence[Symbol]) -> list[str]:
        """Register the arguments for a function's sizes; returns their names."""
        return [self.argument(name) for name in size_arguments(sizes)]

    # ------------------------------------------------------------------ blocks and scopes
    @property
    def label(self) -> str:
        """The basic block that the current scope is writing."""
        return self.scopes[-1].label

    def start_block(self, label: str) -> None:
        self.scopes[-1].lines.append(f"{label}:")
        self.scopes[-1].label = label

    @contextmanager
    def block(self, label: str) -> Generator[None]:
        """A basic block that not every path takes: its values are not reused after it."""
        self.start_block(label)
        known, hoisted = dict(self.scopes[-1].known), dict(self._hoisted)
        computed = dict(self.computed)
        yield
        self.scopes[-1].known, self._hoisted, self.computed = known, hoisted, computed

    def push(self, label: str) -> None:
        """Open the scope of a loop body whose first block is `label`."""
        self.scopes.append(Scope(label))

    def pop(self) -> Scope:
        return self.scopes.pop()

    def define(self, prefix: str, depth: int) -> str:
        """A name whose instruction the caller writes by hand, in the scope of `depth`."""
        name = "%" + self.fresh(prefix)
        self.depths[name] = depth
        return name

    # ------------------------------------------------------------------ module parts
    def declare(self, name: str, result: str, arguments: str) -> None:
        self.declarations[name] = f"declare {result} @{name}({arguments})"

    def call(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        """The text of a call of a declared function, to be assigned."""
        self.declare(name, result, ", ".join(t for t, _ in arguments))
        values = ", ".join(f"{t} {v}" for t, v in arguments)
        return f"call {result} @{name}({values})"

    def metadata(self, content: str) -> str:
        """The number of a piece of metadata in the module."""
        self.declarations["!0"] = f"!0 = !{{{content}}}"
        return "!0"

    def constant(self, type_: str, values: str) -> str:
        """The address of a private constant in the module, aligned to 64 bytes."""
        key = f"{type_} {values}"
        if key not in self.constants:
            self.constants[key] = f"@{self.function}.constant{len(self.constants)}"
        return self.constants[key]

    def constant_lines(self) -> list[str]:
        return [f"{name} = private unnamed_addr constant {value}, align 64"
                for value, name in self.constants.items()]

"""The source of a native function as LLVM IR in SSA form (see `native.py`).

Variables become values. Where paths meet, a variable that differs between them becomes a phi; a
loop has one phi for each variable that its body assigns. Statements are assignments, `if`, `while`,
`return` and calls. Conditions may use `and`, `or` and `not`, which branch. `a if c else b` computes
both values and selects one.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from dialects.records import dataclass
from targets.cpu.llvm.expressions import Expressions, NativeError, Value
from targets.cpu.llvm.layout import BOOL, Kind, Pair
from targets.cpu.llvm.native import Callee, Native, Setting, Settings

Variables = dict[str, Value]


@dataclass
class _Join:
    """A block that is about to start: from where it is reached, with which variables."""

    label: str
    edges: list[tuple[str, Variables]] = field(default_factory=list[tuple[str, Variables]])


def translate(
    function: Native[..., Any], settings: Settings
) -> tuple[list[str], Sequence[Callee[..., Any]]]:
    """The definition of a function, and the functions that it calls.

    Raises NativeError for Python that native code cannot have, with its place in the file.
    """
    body = _Body(function, settings)
    body.statements(function.definition.body)
    if body.live:
        if function.signature[1] is not None:
            raise NativeError(function, function.definition, "a path ends without a result")
        body.emit("ret void")
    lines = [function.header, "entry:", *body.locals, *body.lines, "}"]
    return lines, list(body.calls.values())


class _Body(Expressions):
    """The statements of one function."""

    def __init__(self, function: Native[..., Any], settings: Settings):
        super().__init__(function)
        self.settings = settings
        self.live = True

    # ------------------------------------------------------------------ statements
    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            if self.live:
                self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()):
                pass  # the docstring
            case ast.Expr(value=ast.Call() as call):
                self.call(call)
            case ast.Assign(targets=[target]):
                self._assign(target, node.value, None)
            case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value):
                self._assign(node.target, value, self.annotated(node.annotation))
            case ast.AugAssign():
                whole = ast.BinOp(_read(node.target), node.op, node.value)
                self._assign(node.target, ast.copy_location(whole, node), None)
            case ast.If():
                self._if(node)
            case ast.While(orelse=[]):
                self._while(node)
            case ast.Return():
                self._return(node)
            case _:
                raise self.error(node, f"native code has no {type(node).__name__}")

    def _assign(self, target: ast.expr, value: ast.expr, kind: Kind | None) -> None:
        if not isinstance(target, ast.Name):
            self.store(value, self.place(target))
            return
        known = self.variables.get(target.id)
        self.variables[target.id] = self.expression(value, known.kind if known else kind)

    def _return(self, node: ast.Return) -> None:
        kind = self.function.signature[1]
        if node.value is None or kind is None:
            self.emit("ret void")
        elif isinstance(kind, Pair) and isinstance(node.value, ast.Tuple):
            whole = "poison"
            for k, (part, each) in enumerate(zip(kind.parts, node.value.elts, strict=True)):
                found = self.expression(each, part)
                whole = self.assign(f"insertvalue {kind.llvm} {whole}, {found.typed}, {k}")
            self.emit(f"ret {kind.llvm} {whole}")
        else:
            self.emit(f"ret {self.expression(node.value, kind).typed}")
        self.live = False

    def _if(self, node: ast.If) -> None:
        chosen = self._setting(node.test)
        if chosen is not None:
            self.statements(node.body if chosen else node.orelse)
            return
        then, other, after = self._join("then"), self._join("else"), self._join("after")
        self.condition(node.test, then, other if node.orelse else after)
        self._start(then)
        self.statements(node.body)
        self._jump(after)
        if node.orelse:
            self._start(other)
            self.statements(node.orelse)
            self._jump(after)
        self._start(after)

    def _setting(self, test: ast.expr) -> bool | None:
        found = self.named(test.id) if isinstance(test, ast.Name) else None
        return self.settings[found] if isinstance(found, Setting) else None

    def _while(self, node: ast.While) -> None:
        before, head = self.label, self._join("head")
        body, after = self._join("body"), self._join("after")
        varying = [n for n in _assigned(node.body) if n in self.variables]
        initial = {name: self.variables[name] for name in varying}
        self.emit(f"br label %{head.label}")
        self._block(head.label)
        for name in varying:
            self.variables[name] = Value(initial[name].kind, self.fresh())
        phis = [self.variables[name] for name in varying]
        place = len(self.lines)
        self.condition(node.test, body, after)
        self._start(body)
        self.statements(node.body)
        if self.live:
            head.edges.append((self.label, self.variables))
            self.emit(f"br label %{head.label}")
        edges = [(before, initial), *head.edges]
        self.lines[place:place] = [
            f"  {phi.name} = {_phi(phi.kind, [(v[name].name, b) for b, v in edges])}"
            for name, phi in zip(varying, phis, strict=True)]
        self._start(after)

    # ------------------------------------------------------------------ conditions and blocks
    def condition(self, test: ast.expr, then: _Join, other: _Join) -> None:
        """Go on at `then` if the test holds, and else at `other`."""
        match test:
            case ast.BoolOp(op=operation, values=[*first, last]):
                for part in first:
                    following = self._join("and" if isinstance(operation, ast.And) else "or")
                    ends = (following, other) if isinstance(operation, ast.And) else (
                        then, following)
                    self.condition(part, *ends)
                    self._start(following)
                self.condition(last, then, other)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand, other, then)
            case _:
                holds = self.expression(test, BOOL)
                for join in (then, other):
                    join.edges.append((self.label, dict(self.variables)))
                self.emit(f"br {holds.typed}, label %{then.label}, label %{other.label}")

    def _join(self, name: str) -> _Join:
        self.count += 1
        return _Join(f"{name}{self.count}")

    def _jump(self, join: _Join) -> None:
        if self.live:
            join.edges.append((self.label, self.variables))
            self.emit(f"br label %{join.label}")

    def _block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def _start(self, join: _Join) -> None:
        """Write a block's label, and its phis for variables that differ between its edges."""
        self.live = bool(join.edges)
        if not join.edges:
            return
        self._block(join.label)
        common = [name for name in join.edges[0][1]
                  if all(name in variables for _, variables in join.edges)]
        self.variables = {name: self._met(name, join.edges) for name in common}

    def _met(self, name: str, edges: Sequence[tuple[str, Variables]]) -> Value:
        values = [variables[name] for _, variables in edges]
        if len({value.name for value in values}) == 1:
            return values[0]
        pairs = [(value.name, label) for value, (label, _) in zip(values, edges, strict=True)]
        return Value(values[0].kind, self.assign(_phi(values[0].kind, pairs)))


def _phi(kind: Kind, pairs: Sequence[tuple[str, str]]) -> str:
    return f"phi {kind.llvm} " + ", ".join(f"[ {name}, %{label} ]" for name, label in pairs)


def _assigned(nodes: Sequence[ast.stmt]) -> list[str]:
    """The variables that statements assign, in order."""
    names = (n.id for node in nodes for n in ast.walk(node)
             if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return list(dict.fromkeys(names))


def _read(target: ast.expr) -> ast.expr:
    """The target of an assignment as an expression, which reads it."""
    match target:
        case ast.Name():
            found: ast.expr = ast.Name(target.id, ast.Load())
        case ast.Attribute():
            found = ast.Attribute(target.value, target.attr, ast.Load())
        case ast.Subscript():
            found = ast.Subscript(target.value, target.slice, ast.Load())
        case _:
            return target
    return ast.copy_location(found, target)

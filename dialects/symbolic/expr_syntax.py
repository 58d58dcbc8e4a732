"""The text form of size expressions: `2*h + w - 1`, `(h - 1) floordiv 2 + 1`, `max(a, b)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from dialects.symbolic.expr import Expr, apply_call
from dialects.symbolic.symbol import Symbol, bare_symbol, is_prefix, quoted_symbol


class TokenSource(Protocol):
    """A source of tokens: the scanner of this module, or xDSL's parser."""

    def peek(self) -> str | None: ...

    def take(self) -> str: ...


def expr_of(text: str) -> Expr:
    """Parse an expression. Raises ValueError for malformed text."""
    tokens = _Tokens(text)
    expr = parse_expr(tokens)
    if tokens.peek() is not None:
        raise ValueError(f"unexpected {tokens.peek()!r} in size expression {text!r}")
    return expr


def symbol_of(text: str) -> Symbol:
    """Parse a symbol. Raises ValueError for any other text."""
    symbol = expr_of(text).as_symbol
    if symbol is None:
        raise ValueError(f"{text!r} is not a symbol")
    return symbol


_TOKEN = re.compile(
    r"""\s*(?:(\d+)|([A-Za-z_][\w.$]*)|([%@$][\w.$-]+)|("(?:[^"\\\n\v\f]|\\.)*")|(\S))""", re.ASCII)


class _Tokens:
    """The tokens of a standalone text, as a token source for `parse_expr`."""

    def __init__(self, text: str):
        self.tokens = [m.group(0).strip() for m in _TOKEN.finditer(text)]
        self.position = 0

    def peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise ValueError("a size expression ends too early")
        self.position += 1
        return token


_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "floordiv": 2, "ceildiv": 2, "mod": 2}
_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "ceildiv": lambda a, b: a.ceildiv(b),
    "mod": lambda a, b: a % b,
}


def parse_expr(tokens: TokenSource, precedence: int = 1) -> Expr:
    """Parse an expression by precedence climbing. Raises ValueError for malformed text."""
    left = _parse_primary(tokens)
    while (operator := tokens.peek()) in _PRECEDENCE and _PRECEDENCE[operator] >= precedence:
        tokens.take()
        left = _BINARY[operator](left, parse_expr(tokens, _PRECEDENCE[operator] + 1))
    return left


def _parse_primary(tokens: TokenSource) -> Expr:
    token = tokens.take()
    if token == "-":
        return -_parse_primary(tokens)
    if token == "(":
        inner = parse_expr(tokens)
        _expect(tokens, ")")
        return inner
    if token.isdigit() and token.isascii():
        return Expr.of(int(token))
    if token in ("max", "min") and tokens.peek() == "(":
        tokens.take()
        left = parse_expr(tokens)
        _expect(tokens, ",")
        right = parse_expr(tokens)
        _expect(tokens, ")")
        return apply_call(token, [left, right])
    return Expr.symbol(_symbol(token, tokens))


def parse_symbol(tokens: TokenSource) -> Symbol:
    """Parse one symbol. Raises ValueError for malformed text."""
    return _symbol(tokens.take(), tokens)


def _symbol(token: str, tokens: TokenSource) -> Symbol:
    if token.startswith('"'):
        return quoted_symbol("", token)
    following = tokens.peek() if is_prefix(token) else None
    if following is not None and following.startswith('"'):
        return quoted_symbol(token, tokens.take())
    return bare_symbol(token)


def _expect(tokens: TokenSource, token: str) -> None:
    if tokens.take() != token:
        raise ValueError(f"expected {token!r} in a size expression")

"""Modules as text: printing, reading, and the line that says where in the pipeline a text stands.

    // strata: level=loop after=loop-fuse
    builtin.module { ...

The first line is a comment to every other reader. `after` is the last pass of the default pipeline
and what ran behind it, so that a dump goes on where it was written; without the line a text starts
at the beginning of its level.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

from compiler.diagnostics import Problem, StrataError

_HEADER = re.compile(r"// strata: level=([\w-]+) after=([\w,@-]+)[ \t]*$", re.MULTILINE)


def format_module(module: Operation, locations: bool = True) -> str:
    """The module's text; with `locations`, every operation's model node too."""
    stream = StringIO()
    Printer(stream, print_debuginfo=locations).print_op(module)
    return stream.getvalue() + "\n"


def format_header(level: str, after: Sequence[str]) -> str:
    return f"// strata: level={level} after={','.join(after)}\n"


def read_header(text: str) -> tuple[str, ...]:
    """The passes that a text says it stands behind; none when it does not say."""
    found = _HEADER.match(text)
    return tuple(found[2].split(",")) if found else ()


class _Lexer(MLIRLexer):
    """xDSL's, which takes a string that has escapes and any text but ASCII for bytes."""

    def _lex_string_literal(self, start_pos: int) -> MLIRToken:
        token = super()._lex_string_literal(start_pos)
        if token.kind is not MLIRTokenKind.BYTES_LIT:
            return token
        span = token.span
        try:
            StringLiteral(span.start, span.end, span.input).bytes_contents.decode()
        except UnicodeDecodeError:
            return token
        return Token(MLIRTokenKind.STRING_LIT, span)


class _Parser(Parser):
    """A parser whose names may be any text."""

    def __init__(self, context: Context, text: str, name: str):
        super().__init__(context, "", name)
        self._parser_state = ParserState(_Lexer(Input(text, name)))


def parse_module(text: str, context: Context, file: Path) -> ModuleOp:
    """Read and verify a module. Raises StrataError with line and column."""
    try:
        module = _Parser(context, text, str(file)).parse_module()
        module.verify()
    except ParseError as error:
        raise _unreadable(file, _at(error), error.msg) from error
    except VerifyException as error:
        raise _unreadable(file, "", first_line(error)) from error
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(file, "", f"it is malformed: {error}") from error
    return module


def first_line(error: Exception) -> str:
    """An error in one line: xDSL appends the whole module to some."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


def _unreadable(file: Path, place: str, what: str) -> StrataError:
    return StrataError(f"cannot read {file}", [Problem(what, file=f"{file}{place}")])


def _at(error: ParseError) -> str:
    text = error.span.input.content
    before = text[: error.span.start]
    if not isinstance(before, str):
        return ""
    line, column = before.count("\n") + 1, error.span.start - (before.rfind("\n") + 1) + 1
    return f", line {line}, column {column}"

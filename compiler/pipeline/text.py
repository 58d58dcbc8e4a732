"""Modules as text: printing, parsing, and the header line with the place in the pipeline.

    // strata: level=loop after=loop-fuse
    builtin.module { ...

The first line is a comment for other readers. `after` is the last pass of the default pipeline and
the passes that ran after it, so that compilation of a dump resumes where it was written. A text
without this line starts at the beginning of its level.

    %y = graph.relu %x : f32[n, 8] loc(#loc3)
    ...
    #loc1 = loc("conv1")
    #loc3 = loc(fused[#loc1, #loc2])

Locations are aliases, as in MLIR, whose definitions follow the module. An operation that stands for
several nodes of the model, because they were fused, folded or merged, names all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import FusedLoc, LocationAttr, ModuleOp, NameLoc, UnknownLoc
from xdsl.ir import Attribute, Operation
from xdsl.parser import Parser
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

from compiler.diagnostics import Problem, StrataError
from compiler.excerpts import Place, problem_at
from compiler.suggestions import hint_for, nearest
from dialects.text.syntax import location, names_in

_HEADER = re.compile(r"// strata: level=([\w-]+) after=([\w,@-]+)[ \t]*$", re.MULTILINE)
_ALIAS = re.compile(r"^(#[A-Za-z_]\w*) = (loc\(.*\))[ \t]*$", re.MULTILINE)
_UNKNOWN = re.compile(r"Operation ([\w.]+) is not registered")


_ESCAPES = {code: "\\\\" if code == 0x5C else f"\\{code:02X}" for code in range(256)
            if not 0x20 <= code <= 0x7E or code in (0x22, 0x5C)}
"""How a string writes the bytes that do not stand for themselves."""


class _Printer(Printer):
    """Prints locations as aliases, and strings as a whole; xDSL's prints each character by itself.
    """

    def __init__(self, stream: StringIO, locations: bool):
        super().__init__(stream, print_debuginfo=locations)
        self._aliases: dict[tuple[str, ...], str] = {}

    def print_attribute(self, attribute: Attribute) -> None:
        if isinstance(attribute, NameLoc | FusedLoc):
            self.print_string(f"loc({self._alias(names_in(attribute))})")
        else:
            super().print_attribute(attribute)

    def _alias(self, names: tuple[str, ...]) -> str:
        known = self._aliases.get(names)
        if known is None:
            if len(names) > 1:
                for name in names:
                    self._alias((name,))
            known = self._aliases[names] = f"#loc{len(self._aliases)}"
        return known

    def print_aliases(self) -> None:
        """Print the definitions of the aliases that were used."""
        for names, alias in self._aliases.items():
            self.print_string(f"\n{alias} = loc(")
            if len(names) == 1:
                self.print_string_literal(names[0])
            else:
                parts = ", ".join(self._aliases[name,] for name in names)
                self.print_string(f"fused[{parts}]")
            self.print_string(")")

    def print_bytes_literal(self, bytestring: bytes) -> None:
        self.print_string(f'"{bytestring.decode("latin-1").translate(_ESCAPES)}"')


def format_module(module: Operation, locations: bool = True) -> str:
    """The module's text, with the model node of every operation if `locations`."""
    stream = StringIO()
    printer = _Printer(stream, locations)
    printer.print_op(module)
    printer.print_aliases()
    return stream.getvalue() + "\n"


def format_header(level: str, after: Sequence[str]) -> str:
    return f"// strata: level={level} after={','.join(after)}\n"


def read_header(text: str) -> tuple[str, ...]:
    """The passes in a text's header; none if it has no header."""
    found = _HEADER.match(text)
    return tuple(found[2].split(",")) if found else ()


class _Lexer(MLIRLexer):
    """A lexer that reads strings with escapes and non-ASCII text as strings; xDSL's reads bytes."""

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


def parse_module(text: str, context: Context, file: Path) -> ModuleOp:
    """Parse and verify a module. Raises StrataError with line and column of every problem."""
    parser = _Parser(context, text, str(file))
    try:
        module = parser.parse_module()
    except ParseError as error:
        raise _unreadable(file, [_syntax_problem(error, text, file, context)]) from error
    except RecursionError:
        raise _unreadable(file, [problem_at(parser.place, "it is nested too deeply", file)]
                          ) from None
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError,
            VerifyException) as error:
        raise _unreadable(file, [problem_at(parser.place, f"it is malformed: {first_line(error)}",
                                            file)]) from error
    try:
        module.verify()
    except VerifyException as error:
        raise _unreadable(file, _invalid(module, parser, file, error)) from error
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError,
            RecursionError) as error:
        what = f"it is malformed: {first_line(error)}"
        raise _unreadable(file, [Problem(what, file=str(file))]) from error
    return module


class _Parser(Parser):
    """A parser that accepts any text in names, and records the position of each operation.

    `aliases`: the definitions of locations, wherever they stand in the text.
    """

    def __init__(
        self, context: Context, text: str, name: str, aliases: Mapping[str, str] | None = None
    ):
        super().__init__(context, "", name)
        self._parser_state = ParserState(_Lexer(Input(text, name)))
        self.text, self.starts = text, dict[Operation, int]()
        self.definitions = dict(_ALIAS.findall(text)) if aliases is None else aliases
        self.places: dict[str, LocationAttr] = {}

    def _parse_location(self) -> LocationAttr:
        name = self._current_token.text
        if name not in self.definitions:
            return location(*names_in(super()._parse_location()))
        self._consume_token()
        if name not in self.places:
            inner = _Parser(Context(), self.definitions[name], name, self.definitions)
            inner.places = self.places
            self.places[name] = inner.parse_optional_location() or UnknownLoc()
        return self.places[name]

    def _parse_alias_def(self) -> None:
        if self._current_token.text not in self.definitions:
            super()._parse_alias_def()
            return
        self._consume_token()
        self.parse_punctuation("=")
        self.parse_optional_location()

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        op = super().parse_operation()
        self.starts[op] = start
        return op

    @property
    def place(self) -> Place:
        """The place of the next token."""
        span = self._current_token.span
        return Place(self.text, span.start, span.end)

    def place_of(self, op: Operation) -> Place | None:
        """The place of an operation's name in the text."""
        start = self.starts.get(op)
        if start is None:
            return None
        at = self.text.find(op.name, start)
        return Place(self.text, start, start + 1) if at < 0 else (
            Place(self.text, at, at + len(op.name)))


def _invalid(module: ModuleOp, parser: _Parser, file: Path, error: Exception) -> list[Problem]:
    """A problem for each operation that does not verify, with its line."""
    problems: list[Problem] = []
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as fault:
            place = parser.place_of(op)
            what = first_line(fault)
            problems.append(Problem(what, file=str(file)) if place is None else
                            problem_at(place, what, file))
        except (AssertionError, KeyError, TypeError, ValueError):  # caused by one of the others
            continue
    return problems or [Problem(first_line(error), file=str(file))]


def _syntax_problem(error: ParseError, text: str, file: Path, context: Context) -> Problem:
    """A syntax error at its place."""
    place, what = Place(text, error.span.start, error.span.end), error.msg.strip()
    unknown = _UNKNOWN.search(what)
    if unknown is not None:  # the parser is already after the name
        at = max(text.rfind(unknown[1], 0, place.start), 0)
        return problem_at(Place(text, at, at + len(unknown[1])), what, file,
                          _near_operations(unknown[1], context))
    ended = place.start >= len(text.rstrip())
    return problem_at(place, f"the text ends too early: {what}" if ended else what, file)


def _near_operations(name: str, context: Context) -> str:
    """A hint with the operations, or dialects, most similar to an unknown name."""
    prefix = name.partition(".")[0]
    dialect = context.get_optional_dialect(prefix)
    if dialect is None:
        return hint_for(prefix, sorted(context.registered_dialect_names))
    near = nearest(name, [op.name for op in dialect.operations])
    return f"did you mean {' or '.join(near)}?" if near else ""


def first_line(error: Exception) -> str:
    """The first line of an error, since xDSL appends the whole module to some."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


def _unreadable(file: Path, problems: Sequence[Problem]) -> StrataError:
    return StrataError(f"cannot read {file}", problems)


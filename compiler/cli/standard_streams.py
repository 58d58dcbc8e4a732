"""`-` in place of a file: standard input and standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics import Problem, StrataError

if TYPE_CHECKING:
    from compiler.frontend import MemoryModel

NAME = "-"
_OUTPUTS = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_TEXT_STARTS = (b"//", b"builtin.", b'"builtin.', b"strata.", b"host.", b"loop.", b"block.", b"#",
                b"module")
_ARCHIVE = b"PK\x03\x04"


def is_standard(path: object) -> bool:
    """Whether a file name denotes standard input."""
    return str(path) == NAME


def is_standard_output(path: Path | None) -> bool:
    """Whether a path denotes standard output. None means that no file is written."""
    return str(path) in _OUTPUTS


def read_standard(what: str) -> bytes:
    """All of standard input. `what` names it in messages. Raises StrataError if it is empty."""
    if sys.stdin is None or sys.stdin.isatty():
        raise StrataError(f"{what} is to come on standard input, which is a terminal", [Problem(
            "nothing is piped in", hint="write `... | python -m compiler ...`, or `< FILE`")])
    data = sys.stdin.buffer.read()
    if not data:
        raise StrataError(f"{what} is to come on standard input, which is empty")
    return data


def write_standard(data: bytes) -> None:
    """Write all data to standard output. Raises BrokenPipeError if the reader has gone."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def standard_model() -> MemoryModel:
    """The model on standard input: Strata's text, a `.pt2` archive, or otherwise an ONNX model."""
    from compiler.frontend import MemoryModel

    data = read_standard("the model")
    if data.lstrip().startswith(_TEXT_STARTS):
        return MemoryModel("stdin.mlir", data)
    return MemoryModel("stdin.pt2" if data.startswith(_ARCHIVE) else "stdin.onnx", data)


def check_one_reader(names: list[str]) -> None:
    """Raise StrataError if more than one of `names` is to be read from standard input."""
    if len(names) > 1:
        raise StrataError(f"{' and '.join(names)} cannot both come on standard input",
                          exit_status=2)

"""Reads a model for editing its graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import onnx

from compiler.diagnostics import Problem, StrataError
from compiler.io.array_files import FILE_ERRORS
from compiler.reduction.inlining import inlined


def read_onnx(path: Path) -> onnx.ModelProto:
    """The model with its weights in it, and its functions inlined. Raises StrataError."""
    if not path.is_file():
        raise StrataError(f"there is no file {path}")
    try:
        model: onnx.ModelProto = cast(Any, onnx).load(str(path))
    except FILE_ERRORS as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # protobuf's own, and those of external data
        raise _unreadable(path, error) from error
    return inlined(model)


def _unreadable(path: Path, error: Exception) -> StrataError:
    return StrataError(f"cannot read {path}", [Problem(f"{type(error).__name__}: {error}")])

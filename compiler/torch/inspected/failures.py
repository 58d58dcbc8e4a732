"""Programs that PyTorch does not run or export, as errors that say for which inputs.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from compiler.diagnostics import Problem, StrataError
from compiler.faults import CompilerFault


@contextmanager
def refused(task: str, fn: Any, args: Sequence[Any]) -> Generator[None]:
    """Raise StrataError for what PyTorch raises meanwhile. `task`: as in "export"; `fn`, `args`:
    the program and its inputs, which the message names."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError, IndexError) as error:  # as PyTorch raises them
        own = _own(error)
        if own is not None:
            raise own from None
        first = _first_line(error)
        shapes = ", ".join(str(list(a.shape)) if hasattr(a, "shape") else repr(a) for a in args)
        raise StrataError(
            f"PyTorch does not {task} {_name(fn)} for inputs ({shapes})",
            [Problem(f"{first} Check that the program runs on these inputs, and use torch.cond "
                     "for branches that depend on data")]) from error


def _own(error: BaseException | None) -> StrataError | CompilerFault | None:
    """The error of ours that PyTorch has wrapped; None if the error is PyTorch's or the user's."""
    while error is not None and not isinstance(error, (StrataError, CompilerFault)):
        error = error.__cause__ or getattr(error, "inner_exception", None)
    return error


def _first_line(error: BaseException) -> str:
    """What was raised at first, of which PyTorch's own errors only say where."""
    while (before := error.__cause__ or error.__context__) is not None and str(before).strip():
        error = before
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)

"""Watches the operations and targets of plugins: wrong results are reported where they arise.

Without this, the compiler would trip over a wrong result later, in its own code, and the message
would name that. What is watched: `infer` and `evaluate` of graph operations, `schedule`, `emit` and
`load` of the parts of targets, and `run` of the executables that they make. Strata's own classes
are left alone, also where a plugin's class is derived from one.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.diagnostics import Problem, StrataError
from compiler.plugins.plugin_faults import all_of, frames_of, wrong_type

if TYPE_CHECKING:
    from targets.base import Target

_OURS = ("compiler", "dialects", "passes", "targets")
_WATCHED = "is_watched"


def watch_operations(operations: Iterable[type]) -> None:
    """Watch the graph operations among those of a plugin's dialect."""
    from dialects.graph.base import GraphOp

    for operation in operations:
        if issubclass(operation, GraphOp):
            _replace(operation, "infer", _inferring)
            _replace(operation, "evaluate", _evaluating)


def watch_target(target: Target) -> None:
    """Watch the parts of a plugin's target."""
    _replace(target.scheduling, "schedule", _scheduling)
    _replace(target.emission, "emit", _emitting)
    _replace(target.running, "load", _loading)


def _replace(class_: type, name: str, maker: Callable[[Any], Any]) -> None:
    """Replace a method in the class that defines it, unless that is one of Strata's."""
    for owner in class_.__mro__:
        found = vars(owner).get(name)
        if found is None:
            continue
        function: Any = getattr(found, "__func__", found)
        is_class_method = function is not found
        ours = owner.__module__.partition(".")[0] in _OURS
        if not ours and callable(function) and not getattr(function, _WATCHED, False):
            watched = maker(function)
            setattr(watched, _WATCHED, True)
            setattr(owner, name, classmethod(watched) if is_class_method else watched)
        return


# ---------------------------------------------------------------------- operations
def _inferring(function: Callable[..., Any]) -> Callable[..., Any]:
    from dialects.graph.base import ShapeError
    from dialects.strata.types import TensorType

    @wraps(function)
    def infer(cls: Any, types: Any, attributes: Any) -> Any:
        try:
            found = cast("Sequence[object]", function(cls, types, attributes))
        except (ShapeError, StrataError):
            raise
        except Exception as error:  # of the plugin's own code
            raise failure(f"infer of {cls.name}", function, error) from error
        if not _is_list(found) or not all_of(found, (TensorType,)):
            raise wrong_type(f"what infer of {cls.name} returns", found, "a list of tensor types",
                             function)
        return found

    return infer


def _evaluating(function: Callable[..., Any]) -> Callable[..., Any]:
    from dialects.graph.interpret import check_results
    from dialects.strata.assumptions import IndexRangeError, SizeError
    from dialects.strata.binding import EvaluationError

    @wraps(function)
    def evaluate(op: Any, context: Any, *operands: Any) -> Any:
        try:
            found = function(op, context, *operands)
            check_results(op, found, context)
        except (IndexRangeError, SizeError, StrataError):
            raise
        except EvaluationError as error:
            raise failure("evaluate", function, error) from error
        except Exception as error:  # of the plugin's own code
            raise failure(f"evaluate of {op.name}", function, error) from error
        return found

    return evaluate


# ---------------------------------------------------------------------- targets
def _scheduling(function: Callable[..., Any]) -> Callable[..., Any]:
    from dialects.strata.schedule import Schedule

    return _returning(function, "Scheduling.schedule", Schedule, "a Schedule")


def _emitting(function: Callable[..., Any]) -> Callable[..., Any]:
    return _returning(function, "Emission.emit", str, "text")


def _loading(function: Callable[..., Any]) -> Callable[..., Any]:
    from targets.interface import Executable

    checked = _returning(function, "Running.load", Executable, "an Executable")

    @wraps(function)
    def load(*arguments: Any, **named: Any) -> Any:
        made: object = checked(*arguments, **named)
        _replace(type(made), "run", _running)
        return made

    return load


def _running(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(executable: Any, inputs: Any) -> Any:
        outputs = cast("Sequence[object]", function(executable, inputs))
        count = len(executable.output_names)
        if not _is_list(outputs):
            raise wrong_type("what Executable.run returns", outputs, "a list of arrays", function)
        if len(outputs) != count:
            raise StrataError("a plugin cannot be used", [Problem(
                f"what Executable.run returns has {len(outputs)} arrays, and the model has {count} "
                "outputs", file=_line_of(function))])
        return outputs

    return run


def _returning(
    function: Callable[..., Any], what: str, kind: type, wanted: str
) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        found = function(*arguments, **named)
        if not isinstance(found, kind):
            raise wrong_type(f"what {what} returns", found, wanted, function)
        return found

    return call


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _line_of(function: Callable[..., Any]) -> str:
    return f"{function.__code__.co_filename}, line {function.__code__.co_firstlineno}"


def failure(what: str, function: Callable[..., Any], error: Exception) -> StrataError:
    """The error for an exception of a plugin's function, with the line that it comes from."""
    code = function.__code__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == code.co_filename]
    line = lines[-1] if lines else code.co_firstlineno
    return StrataError("a plugin failed", [Problem(
        f"{what}: {type(error).__name__}: {error}", file=f"{code.co_filename}, line {line}",
        excerpt=frames_of(error, Path(code.co_filename)))])

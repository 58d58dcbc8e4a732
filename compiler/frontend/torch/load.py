"""Loads a MODEL as a program of `torch.export`: a `.pt2` file, or `file.py:function`.

`file.py:function` deliberately runs the user's own code. The function has no parameters, and
returns an ExportedProgram, or `(module, inputs)`, `(module, inputs, dynamic_shapes)` or `(module,
inputs, kwargs, dynamic_shapes)`, as `torch.export.export` takes them. A `.pt2` file is data, and
nothing in it is executed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.torch.capture import Captured
from compiler.frontend.torch.library import torch_module


def load_program(model: str) -> tuple[Any, str]:
    """The program of a MODEL, and its name. Raises StrataError."""
    found = capture(model)
    return found.program, found.name


def capture(model: str) -> Captured:
    """The program of a MODEL, with the module that it was exported from. Raises StrataError."""
    require_torch(model)
    path, _, function = model.rpartition(".py:")
    if not path:
        from compiler.frontend.torch.files.archive import read_archive

        return Captured(Path(model).stem, read_archive(Path(model)))
    return _captured(_find(Path(f"{path}.py"), function), model, function)


def module_of(model: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The module of `file.py:function`, in the mode in which the function returns it, its inputs
    and named inputs. Raises StrataError."""
    require_torch(model)
    path, _, function = model.rpartition(".py:")
    if not path:
        raise StrataError(f"{model} has no gradients", [Problem(
            "they need a module", hint="give file.py:function, which returns (module, inputs)")])
    try:
        made = _find(Path(f"{path}.py"), function)()
    except StrataError:
        raise
    except Exception as error:
        raise _failed(f"calling {model}", error) from error
    return _parts(made, model)[:3]


def load_bytes(name: str, data: bytes) -> Any:
    """The program in the bytes of a `.pt2` file. Raises StrataError."""
    from compiler.frontend.torch.files.archive import read_archive_bytes

    require_torch(name)
    return read_archive_bytes(name, data)


def require_torch(model: str) -> None:
    """Raise StrataError if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise StrataError(f"reading {model} needs PyTorch", [Problem(
            "torch is not installed", hint="pip install 'strata-compiler[torch]'")])


# ---------------------------------------------------------------------- file.py:function
def _find(path: Path, function: str) -> Callable[[], Any]:
    """Run a file and return its function of that name. Raises StrataError."""
    if not path.is_file():
        raise StrataError(f"there is no file {path}")
    name = f"strata_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(f"running {path}", error) from error
    finally:
        sys.path.pop(0)
    found = getattr(module, function, None)
    if not callable(found):
        raise StrataError(f"{path} has no function '{function}'")
    return found


def _captured(function: Callable[[], Any], model: str, name: str) -> Captured:
    """Call the function, and export the module that it returns. Raises StrataError."""
    torch = torch_module()
    try:
        made = function()
    except Exception as error:
        raise _failed(f"calling {model}", error) from error
    if isinstance(made, torch.export.ExportedProgram):
        return Captured(name, made)
    module, inputs, kwargs, dynamic = _parts(made, model)
    try:
        with torch.no_grad():
            program = torch.export.export(module.eval(), inputs, kwargs, dynamic_shapes=dynamic)
            return Captured(name, program, module)
    except Exception as error:
        raise _failed(f"torch.export of {model}", error) from error


def _parts(made: Any, model: str) -> tuple[Any, tuple[Any, ...], dict[str, Any], Any]:
    """(module, inputs, kwargs, dynamic_shapes). Raises StrataError."""
    parts = list(cast(tuple[Any, ...], made)) if isinstance(made, tuple) else list[Any]()
    if not 2 <= len(parts) <= 4 or not isinstance(parts[0], torch_module().nn.Module):
        kind = type(cast(object, made)).__name__
        raise StrataError(f"{model} must return (module, inputs[, dynamic_shapes]) or an "
                          "ExportedProgram", [Problem(f"it returned {kind}")])
    module, inputs, *rest = parts
    kwargs: dict[str, Any] = rest[0] if len(rest) == 2 else {}
    return module, tuple(inputs), dict(kwargs or {}), rest[-1] if rest else None


def _failed(what: str, error: Exception) -> StrataError:
    """The error for an exception in the user's code, or in torch when it runs that code."""
    last = str(error).strip() or type(error).__name__
    return StrataError(f"{what} failed", [Problem(f"{type(error).__name__}: {last}")])

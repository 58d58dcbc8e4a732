"""PyTorch modules and functions as arguments of `compile`: they are exported with example inputs.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from compiler.diagnostics import Problem, StrataError


def exported(
    model: object, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> object:
    """The program of a module, a GraphModule, a function or TorchScript with these inputs; any
    other model as it is. Raises StrataError for inputs without a module, a module without, and one
    that PyTorch cannot export."""
    args = None if args is None else _operands(args)
    kwargs = None if kwargs is None else _named(kwargs)
    if _is_script(model) or (args is not None and _is_script_file(model)):
        return _of_script(model, args, kwargs, dynamic_shapes)
    is_model = _is_module(model) or (callable(model) and not isinstance(model, type))
    if args is None and kwargs is None:
        if dynamic_shapes is not None:
            raise StrataError("dynamic_shapes needs args", [Problem(
                "a module is exported with example inputs", hint="give args=(x,) as well")])
        if _is_module(model):
            raise StrataError(f"{type(model).__name__} is a module, and needs example inputs", [
                Problem("PyTorch exports it by running it", hint="give args=(x,), and "
                        "dynamic_shapes for sizes that stay open")])
        return model
    if not is_model:
        raise StrataError(f"args and kwargs are for a module or a function, and "
                          f"{type(model).__name__} is none")
    return _program(model, tuple(args or ()), dict(kwargs or {}), dynamic_shapes)


def _operands(args: object) -> Sequence[Any]:
    """Check `args`: a list or tuple of inputs. Raises StrataError, also for a single tensor."""
    if isinstance(args, list | tuple):
        return cast("Sequence[Any]", args)
    raise StrataError("the options cannot be used", [Problem(
        f"args: an object of type {type(args).__name__} is no list of inputs",
        hint="give args=(x,)")])


def _named(kwargs: object) -> Mapping[str, Any]:
    """Check `kwargs`: input name -> input. Raises StrataError."""
    kind = type(kwargs).__name__
    if isinstance(kwargs, Mapping):
        named = cast("Mapping[str, Any]", kwargs)
        if all(type(name) is str for name in named):
            return named
    raise StrataError("the options cannot be used", [Problem(
        f"kwargs: an object of type {kind} is no mapping from names to inputs",
        hint="give kwargs={'x': x}")])


def _of_script(
    model: object, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None,
    dynamic_shapes: object,
) -> Any:
    """The program of TorchScript. Raises StrataError."""
    from compiler.frontend.torch.files.script import program_of

    if args is None and kwargs is None:
        raise StrataError(f"{type(model).__name__} is TorchScript, and needs example inputs", [
            Problem("it does not say their sizes", hint="give args=(x,)")])
    return program_of(model, tuple(args or ()), dict(kwargs or {}), dynamic_shapes)


def _is_module(model: object) -> bool:
    return _is_a(model, "torch.nn.modules.module", "Module")


def _is_script(model: object) -> bool:
    """Whether an object is a scripted or traced module."""
    return _is_a(model, "torch.jit._script", "ScriptModule")


def _is_a(model: object, module: str, name: str) -> bool:
    """Whether an object is of a class, without importing torch."""
    return (module, name) in {(c.__module__, c.__name__) for c in type(model).__mro__}


def _is_script_file(model: object) -> bool:
    """Whether a model is the path of an archive of TorchScript."""
    from compiler.frontend.torch.files.script import is_script_file  # not needed to load programs

    return is_script_file(model)


def _program(
    model: object, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> Any:
    from compiler.frontend.torch.library import torch_module

    torch = torch_module()
    module = model if _is_module(model) else _as_module(torch, cast("Callable[..., Any]", model))
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise StrataError(f"torch.export of {type(model).__name__} failed", [Problem(
            f"{type(error).__name__}: {first[0]}")]) from error


def _as_module(torch: Any, function: Callable[..., Any]) -> Any:
    """A function as a module whose forward has the same parameters."""
    module = torch.nn.Module()
    module.forward = function
    return module

"""TorchScript: scripted and traced modules, as objects and in archives of `torch.jit.save`.

    compiler.compile(torch.jit.script(net), args=(x,))    compiler.compile("net.pt", args=(x,))

TorchScript says neither the sizes of inputs nor which of its branches are taken, so example inputs
are needed. PyTorch converts the graph to a program of `torch.export`; what it cannot convert, or
converts to something that computes other numbers, is refused. An archive holds TorchScript and
tensors, and no Python is run when it is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.torch.library import quiet, torch_module

SUFFIXES = (".pt", ".pth", ".ts", ".torchscript")
"""How files of TorchScript are named, and also files of weights."""
EXPORT = ("export the module that it was made from: torch.export.save(torch.export.export(module, "
          "args), \"model.pt2\")")


def is_script_file(model: object) -> bool:
    """Whether a model is the path of an archive of TorchScript."""
    if not isinstance(model, str | Path) or not str(model).lower().endswith(SUFFIXES):
        return False
    import zipfile

    try:
        with zipfile.ZipFile(model) as file:
            return holds_script(file.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def holds_script(entries: Collection[str]) -> bool:
    """Whether an archive with these entries is one of `torch.jit.save`."""
    return any(name.endswith("/constants.pkl") for name in entries) and any(
        "/code/" in name for name in entries)


def refused_archive(name: str, entries: Collection[str]) -> StrataError:
    """Why an archive that `torch.export.save` has not written is no model, and what to do."""
    if holds_script(entries):
        return StrataError(f"{name} is TorchScript, which does not say the sizes of its inputs", [
            Problem("an archive of torch.jit.save", hint="give example inputs: "
                    f"compiler.compile({name!r}, args=(x,)); or {EXPORT}")])
    if any(entry.endswith("data.pkl") for entry in entries):
        return StrataError(f"{name} holds pickled objects, such as weights, and no program", [
            Problem("an archive of torch.save", hint="load it into its module, and "
                    f"{EXPORT.replace('that it was made from', 'then')}")])
    return StrataError(f"{name} is not an archive of torch.export.save", [
        Problem("it has no entry 'archive_format'", hint="older files must be written again")])


def program_of(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: object
) -> Any:
    """The ExportedProgram of a TorchScript module or of the archive of one.

    Raises StrataError for one that is not plain, and for sizes that are to stay open.
    """
    torch = torch_module()
    name = str(model) if isinstance(model, str | Path) else type(model).__name__
    if dynamic_shapes is not None:
        raise _refused(name, "dynamic_shapes is for programs of torch.export")
    try:
        with torch.no_grad(), quiet():
            module = torch.jit.load(str(model), "cpu") if isinstance(model, str | Path) else model
            want = module(*args, **kwargs)
            module, ordered = _by_position(module, args, kwargs)
            program = torch_module("torch._export.converter").TS2EPConverter(
                module, ordered, {}).convert()
            got = program.module()(*ordered)
    except Exception as error:  # whatever PyTorch raises for a graph that it cannot convert
        first = str(error).strip().splitlines()[:1] or [""]
        raise _refused(name, f"{type(error).__name__}: {first[0]}") from error
    leaves = torch.utils._pytree.tree_leaves
    try:
        torch.testing.assert_close(leaves(got), leaves(want), equal_nan=True)
    except AssertionError:
        raise _refused(name, "what PyTorch converts it to computes other numbers") from None
    return program


def _by_position(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...]]:
    """A module that takes what is given, and that in order. It calls the model, whose other
    parameters keep their defaults: PyTorch converts neither names nor defaults, nor branches on
    whether something is given."""
    parameters = model._c._get_method("forward").schema.arguments[1:]
    given = [p for k, p in enumerate(parameters) if k < len(args) or p.name in kwargs]
    ordered = (*args, *(kwargs[p.name] for p in given[len(args):]))
    types = [_given_type(p.type, value) for p, value in zip(given, ordered, strict=True)]
    if types == [p.type for p in parameters]:
        return model, ordered
    torch = torch_module()
    plain = type("Outer", (torch.nn.Module,), {})()  # PyTorch keeps one `forward` of each class
    plain.inner = model
    outer: Any = torch.jit.script(plain)
    listed = ", ".join(f"{p.name}: {type_.annotation_str}"
                       for p, type_ in zip(given, types, strict=True))
    passed = ", ".join(f"{p.name}={p.name}" for p in given)
    outer.define(f"def forward(self, {listed}):\n    return self.inner({passed})\n")
    return outer, ordered


def _given_type(declared: Any, value: object) -> Any:
    """The type of a parameter, which is not optional where there is a value."""
    is_optional = declared.kind() == "OptionalType" and value is not None
    return declared.getElementType() if is_optional else declared


def _refused(name: str, why: str) -> StrataError:
    return StrataError(f"{name} is TorchScript that cannot be imported", [
        Problem(why, hint=EXPORT)])

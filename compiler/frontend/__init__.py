"""Frontends: import model files and objects into modules at graph level.

A frontend is a folder here, or a package outside that the entry point group `strata.frontends`
names. Nothing lists them. It provides

    DESCRIPTION: str                                   one line for `list frontends`
    def accepts(model: str) -> bool                    decides by the name; reads nothing
    def load_model(model: str, options: ImportOptions) -> ImportedModel
    def load_bytes(name: str, data: bytes, options: ImportOptions) -> ImportedModel
    def in_memory(model: object) -> MemoryModel | None
    def describe(name: str, data: Any) -> dict[str, Any]

and imports its dependencies inside the two loading functions, so that queries are cheap.
`load_bytes` takes the contents of a file of that name; a frontend whose models are not files may
omit it. The optional `in_memory` wraps another library's model object in a MemoryModel, whose
`data` is then passed to `load_bytes`. The optional `describe` describes a model in a file (if
`data` is None) or in memory without importing it, in the form of `compiler/cli/inspection.py`.

Shared modules, which a new frontend may use:

    builder.py     builds graph operations, and evaluates shape computations meanwhile
    values.py      what a value is during import: a tensor, its known contents, its operators
    formulas.py    functions of values: exp, where, sums, reductions
    node.py        what the importer of an operator knows about its node, in all frontends
    faults.py      faults of a model, collected while the import goes on
    choices.py     choices between ways to compile a node, which depend on sizes
    stretching.py  operands that broadcast
    slices.py      bounds of slices, in sizes
    elements.py    single elements of small tensors: known, or where a run has them
    frames.py      functions while they are built: what bodies know of the functions around them
    branches.py    two bodies become a strata.if
    loops.py       a body becomes a strata.loop: its types, counters, number of iterations
    origins.py     the nodes of a model, and why some have no operation
    peeling.py     loops whose first iteration changes the rank of a value
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from compiler.diagnostics import Problem, StrataError
from compiler.option_values import shown
from compiler.plugins.plugin_faults import wrong_type
from dialects.records import dataclass
from passes.installed import entry_points

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from compiler.frontend.origins import ModelNode
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore

ENTRY_POINTS = "strata.frontends"
_PARTS = ("DESCRIPTION", "accepts", "load_model")


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class MemoryModel:
    """A model in memory: the contents of a file called `name`, or a model object of another
    library that a frontend supports.
    """

    name: str
    data: Any = field(repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ImportOptions:
    """The user's options for a model's inputs.

    `shapes`: input name -> its sizes, an integer or a size name each (`--shape x=1x3x224x224`).
    `dims`: size name -> value (`--dim batch=8`). `constants`: input name -> its contents, for
    inputs that become constants of the model. `plugins`: modules with importers of operators, or
    that are frontends. `outcomes`: the outcomes of choices that depend on sizes, by site
    (`choices.py`). `layers`: whether a frontend may make a function of layers that are equal.
    """

    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=_nothing)
    dims: Mapping[str, int] = field(default_factory=_nothing)
    constants: Mapping[str, Array] = field(default_factory=_nothing)
    plugins: tuple[ModuleType, ...] = ()
    outcomes: Mapping[str, tuple[str, ...]] = field(default_factory=_nothing)
    layers: bool = False


@dataclass(frozen=True)
class ImportedModel:
    """A module with `strata.func @main` over graph operations, the weights it names, its name.

    `files`: all files from which it was read, the model's own first. Only models with known files
    can be cached. `nodes`: the model's nodes, if the frontend tells.
    """

    module: ModuleOp
    weights: WeightStore
    name: str
    files: tuple[str, ...] = ()
    nodes: tuple[ModelNode, ...] = ()


class UnknownContents(StrataError):
    """Importing needs the contents of `inputs`, which are only known at run time.

    They can be given as `ImportOptions.constants`.
    """

    def __init__(self, message: str, problems: Sequence[Problem], inputs: frozenset[str]):
        super().__init__(message, problems)
        self.inputs = inputs


class Frontend(Protocol):
    """The parts of a frontend module; the last three may be missing."""

    DESCRIPTION: str

    def accepts(self, model: str) -> bool: ...

    def load_model(self, model: str, options: ImportOptions) -> ImportedModel: ...

    def load_bytes(self, name: str, data: Any, options: ImportOptions) -> ImportedModel: ...

    def in_memory(self, model: object) -> MemoryModel | None: ...

    def describe(self, name: str, data: Any) -> dict[str, Any]: ...


def frontends(plugins: Sequence[ModuleType] = ()) -> dict[str, Frontend]:
    """All frontends by name: the folders here, those of installed packages, and plugins that are
    frontends.
    """
    found: dict[str, Frontend] = {}
    for name, frontend in _found(plugins):
        found.setdefault(name, frontend)
    return found


def _found(plugins: Sequence[ModuleType]) -> Iterator[tuple[str, Frontend]]:
    """Frontends with their names, ours first. Each is imported when it is asked for."""
    for name in _own_frontends():
        yield name, cast(Frontend, importlib.import_module(f"{__name__}.{name}"))
    for entry in entry_points(ENTRY_POINTS):
        yield entry.name, _checked(entry.name, entry.load())
    for plugin in plugins:
        if all(hasattr(plugin, part) for part in _PARTS):
            yield Path(str(plugin.__file__)).stem, cast(Frontend, plugin)


@cache
def _own_frontends() -> tuple[str, ...]:
    return tuple(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)


def _checked(name: str, found: Any) -> Frontend:
    if all(hasattr(found, part) for part in _PARTS):
        return cast(Frontend, found)
    raise wrong_type(f"the entry point '{name}' of {ENTRY_POINTS}", found,
                     f"a module with {', '.join(_PARTS)}")


def load_model(
    model: str | Path | MemoryModel, options: ImportOptions | None = None
) -> ImportedModel:
    """Import a model through the frontend that accepts its name.

    Raises StrataError if none does, and for every error in the model or the options.
    """
    options = options or ImportOptions()
    frontend = _frontend_of(str(model), options.plugins)
    if isinstance(model, MemoryModel):
        return _model(frontend, frontend.load_bytes(model.name, model.data, options))
    return _model(frontend, frontend.load_model(str(model), options))


def _model(frontend: Frontend, found: Any) -> ImportedModel:
    if isinstance(found, ImportedModel):
        return found
    raise wrong_type("what load_model returns", found, "an ImportedModel", frontend.load_model)


def model_of(model: object) -> str | MemoryModel:
    """Convert a model as callers give it: a path, a MemoryModel, or an object that a frontend
    accepts.

    Raises StrataError for anything else.
    """
    if isinstance(model, MemoryModel) and (not isinstance(cast(object, model.name), str)
                                           or model.data is None):
        raise StrataError(f"the model {shown(model)} needs a name, which is a text, and contents")
    if isinstance(model, (str, MemoryModel)):
        return model
    if isinstance(model, Path):
        return str(model)
    for frontend in frontends().values():
        found = frontend.in_memory(model) if hasattr(frontend, "in_memory") else None
        if found is not None:
            return found
    raise StrataError(f"{type(model).__name__} is not a model: give a path, a MemoryModel, an "
                      "onnx.ModelProto, or an ExportedProgram of torch.export")


def describe(model: str | MemoryModel) -> dict[str, Any]:
    """Describe a model without importing it. Raises StrataError."""
    frontend = _frontend_of(str(model))
    data = model.data if isinstance(model, MemoryModel) else None
    return frontend.describe(str(model), data) if hasattr(frontend, "describe") else {}


def _frontend_of(name: str, plugins: Sequence[ModuleType] = ()) -> Frontend:
    for _, frontend in _found(plugins):
        if frontend.accepts(name):
            return frontend
    hint = "; ".join(f"{name}: {f.DESCRIPTION}" for name, f in frontends(plugins).items())
    raise StrataError(f"cannot tell what kind of model '{name}' is",
                      [Problem("no frontend accepts this name", hint=f"frontends: {hint}")])

"""Reads a MODEL of the command line: an `.onnx` file and the like, or a `.mlir` text.

The input is the name and the options. The result is a module with its weights, its level, and, for
the text of a dump, the passes that it was written after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from xdsl.utils.exceptions import VerifyException

from compiler.diagnostics import Problem, StrataError
from compiler.options import TEXT_SUFFIX, CompileOptions
from compiler.plugins.loading import Plugins
from dialects.records import dataclass
from dialects.strata.types import WeightAttr, WeightsAttr
from dialects.strata.weights import WeightStore
from dialects.verifying import verify
from dialects.walking import walked
from passes.base import PassError, StrataContext

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from compiler.frontend import MemoryModel
    from compiler.frontend.origins import ModelNode
    from dialects.strata.types import Array

WEIGHTS_FILE = "weights.npz"
WeightsOf: TypeAlias = "Callable[[Path, CompileOptions], WeightStore]"
"""Returns the weights of a model, and the arrays that the pipeline computes from them."""


@dataclass(frozen=True)
class Source:
    """A model that was read. `after`: for a dump, the last passes that ran, or empty.

    `files`: the files from which it was read, its own first; empty if unknown. `nodes`: the
    model's nodes; empty for a text.
    """

    module: ModuleOp
    weights: WeightStore
    name: str
    level: str
    after: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    nodes: tuple[ModelNode, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """A model as it was read, to be compiled any number of times, perhaps with sizes fixed.

    Each read creates a new module and weight store. The arrays are shared, and those in `known`
    are reused wherever a pass computes equal ones. `model`: its name in messages.
    """

    model: str
    source: Source
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    known: Mapping[str, Array] = field(default_factory=dict[str, "Array"])

    def __str__(self) -> str:
        return self.model

    def read(self) -> Source:
        """The model with `sizes` fixed. Raises StrataError if they cannot be fixed."""
        from passes.graph.fix_sizes import GraphFixSizes

        module = self.source.module.clone()
        context = StrataContext.with_dialects()
        try:
            GraphFixSizes(tuple(self.sizes), tuple(self.sizes.values())).apply(context, module)
            verify(module)
        except (PassError, VerifyException) as error:
            raise StrataError(f"{self.model} cannot have these sizes fixed",
                              [Problem(str(error).strip().split("\n")[0])]) from error
        weights = self.source.weights.copy()
        weights.arrays |= self.known
        return replace(self.source, module=module, weights=weights)


def is_text(model: str) -> bool:
    """Whether a MODEL is a `.mlir` text."""
    return model.endswith(TEXT_SUFFIX)


def read_model(
    model: str | MemoryModel | Snapshot, options: CompileOptions, plugins: Plugins,
    weights_of: WeightsOf,
) -> Source:
    """Read a MODEL and verify it. Raises StrataError for errors in the file or the options.

    `weights_of` lowers the model that `options.weights` names, if it is one.
    """
    if isinstance(model, Snapshot):
        return model.read()
    if is_text(str(model)) and not _is_bytecode(model):
        text = _contents(Path(model)) if isinstance(model, str) else _decoded(model)
        if not _is_stablehlo(text):
            return _read_text(text, Path(str(model)), options, plugins, weights_of)
        model = _of_stablehlo(str(model), text)
    elif is_text(str(model)):
        model = _of_stablehlo(str(model), Path(model).read_bytes() if isinstance(model, str)
                              else model.data)
    from compiler.frontend import ImportOptions, load_model

    if options.weights is not None:
        raise StrataError(f"--weights names the weights of a {TEXT_SUFFIX} text; {model} brings "
                          "its own", exit_status=2)
    found = load_model(model, ImportOptions(
        options.shapes, options.dims, options.constants, plugins.modules, options.outcomes,
        layers=options.shares_layers))
    verify(found.module)
    return Source(found.module, found.weights, found.name, "graph", files=found.files,
                  nodes=found.nodes)


def _is_stablehlo(text: str) -> bool:
    from compiler.frontend.stablehlo import is_stablehlo

    return is_stablehlo(text)


def _is_bytecode(model: str | MemoryModel) -> bool:
    """Whether a `.mlir` file holds MLIR's bytecode, which some exporters call so, too."""
    from compiler.frontend.stablehlo.bytecode import MAGIC

    if not isinstance(model, str):
        return isinstance(model.data, bytes) and model.data.startswith(MAGIC)
    try:
        with Path(model).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False  # the reader says so


def _of_stablehlo(name: str, text: str | bytes) -> MemoryModel:
    from compiler.frontend import MemoryModel
    from compiler.frontend.stablehlo import SUFFIX

    return MemoryModel(f"{name}{SUFFIX}", text)


def _read_text(
    text: str, path: Path, options: CompileOptions, plugins: Plugins, weights_of: WeightsOf
) -> Source:
    from compiler.pipeline.levels import detect_level
    from compiler.pipeline.text import parse_module, read_header

    context = StrataContext.with_dialects()
    context.schedule_options = plugins.schedule_options()
    plugins.register_dialects(context)
    module = parse_module(text, context, path)
    level = detect_level(module, plugins.all_levels())
    if level is None:
        raise _no_level(module, path, plugins)
    weights = _find_weights(path, module, options, weights_of)
    return Source(module, weights, _model_name(path), level.name, read_header(text))


def _contents(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StrataError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StrataError(f"cannot read {path}", [Problem(str(error))]) from None
    except ValueError:  # for instance a name with a NUL character
        raise StrataError(f"there is no file {str(path)!r}") from None


def _decoded(model: MemoryModel) -> str:
    try:
        return bytes(model.data).decode()
    except UnicodeDecodeError as error:
        raise StrataError(f"cannot read {model}", [Problem(str(error))]) from None


def _model_name(path: Path) -> str:
    return path.stem


def _no_level(module: ModuleOp, path: Path, plugins: Plugins) -> StrataError:
    from compiler.pipeline.levels import strangers

    problems: list[Problem] = []
    for level in plugins.all_levels():
        names = ", ".join(sorted(strangers(module, level)))
        problems.append(Problem(f"not {level.name} level, which does not allow {names}"))
    return StrataError(f"{path} is not at any level", problems)


# ---------------------------------------------------------------------- weights
def _find_weights(
    path: Path, module: ModuleOp, options: CompileOptions, weights_of: WeightsOf
) -> WeightStore:
    """The weights that a text refers to. Raises StrataError naming the missing ones."""
    needed = dict(weight_labels(module))
    place = options.weights or path.with_name(WEIGHTS_FILE)
    if not needed:
        return WeightStore()
    if options.weights is not None and not place.exists():
        raise StrataError(f"there is no file {place}, which --weights names")
    weights = _load_weights(place, options, weights_of) if place.exists() else WeightStore()
    missing = [label for key, label in needed.items() if key not in weights.arrays]
    if missing:
        raise _missing(path, place, missing)
    return weights


def _load_weights(place: Path, options: CompileOptions, weights_of: WeightsOf) -> WeightStore:
    if place.suffix != ".npz":
        return weights_of(place, options)
    from compiler.io.array_files import FILE_ERRORS

    try:
        return WeightStore.load(place)
    except (*FILE_ERRORS, AttributeError) as error:
        raise StrataError(f"cannot read the weights {place}", [Problem(str(error))]) from None


def weight_labels(module: ModuleOp) -> Iterator[tuple[str, str]]:
    """The key and label of every weight that a module refers to."""
    for op in walked(module):
        for attribute in op.properties.values():
            if type(attribute) is WeightAttr:
                yield _key_and_label(attribute)
            elif type(attribute) is WeightsAttr:
                yield from map(_key_and_label, attribute.members)


def _key_and_label(handle: WeightAttr) -> tuple[str, str]:
    strings: Any = handle
    return strings.key.data, strings.label.data


def _missing(path: Path, place: Path, labels: list[str]) -> StrataError:
    from compiler.diagnostics import some_of

    hint = (f"put {WEIGHTS_FILE} of the same dump beside it, or name one, or the model that the "
            "text comes from, with --weights")
    return StrataError(f"weights of {path} are missing", [Problem(
        f"{some_of(labels)} not in {place}", hint=hint)])

"""The StableHLO frontend: the text of `jax.jit(f).lower(*args)`, and of exporters of TensorFlow.

    operations.py functions, operations and regions
    parser.py     the text as such
    forms.py      operations whose pretty form is their own
    literals.py   arrays of dense constants
    importer.py   the walk over a function's operations
    node.py       the view of an operation that its importer gets
    ops/          one small function per operation, a file per family

A `.mlir` file with operations of `stablehlo` is one, and so is any file `.stablehlo`. Sizes `?` of
arguments stay open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compiler.diagnostics import StrataError
from compiler.frontend import ImportedModel, ImportOptions, MemoryModel

DESCRIPTION = "StableHLO text: a .mlir or .stablehlo file, or what jax.jit(f).lower(*args) returns"
SUFFIX = ".stablehlo"
PREFIXES = ("stablehlo.", "chlo.")


def is_stablehlo(text: str) -> bool:
    """Whether a text has operations of StableHLO."""
    return any(prefix in text for prefix in PREFIXES) and "strata." not in text


def accepts(model: str) -> bool:
    """Whether a name ends in `.stablehlo`."""
    return model.lower().endswith(SUFFIX)


def load_model(model: str, options: ImportOptions) -> ImportedModel:
    """Import a file. Raises StrataError with every problem found."""
    from compiler.frontend.stablehlo.importer import import_text

    try:
        text = Path(model).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StrataError(f"cannot read {model}: {error}") from error
    return import_text(text, Path(model).stem, model, options)


def load_bytes(name: str, data: Any, options: ImportOptions) -> ImportedModel:
    """Import a text."""
    from compiler.frontend.stablehlo.importer import import_text

    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
    return import_text(text, Path(name).stem, name, options)


def in_memory(model: object) -> MemoryModel | None:
    """A program that JAX has lowered or exported; None for any other object."""
    if type(model).__module__.partition(".")[0] != "jax":
        return None
    for method in ("as_text", "mlir_module"):
        function = getattr(model, method, None)
        if callable(function):
            return MemoryModel(f"program{SUFFIX}", str(function()))
    return None

"""The StableHLO frontend: the text of `jax.jit(f).lower(*args)` and of exporters of TensorFlow,
and portable artifacts in MLIR's bytecode.

    operations.py functions, operations and regions
    parser.py     the text as such
    forms.py      operations whose pretty form is their own
    literals.py   arrays of dense constants
    importer.py   the walk over a function's operations
    parts.py      complex numbers, which are two values of reals
    node.py       the view of an operation that its importer gets
    bytecode/     portable artifacts
    ops/          one small function per operation, a file per family

A `.mlir` file with operations of `stablehlo`, or in bytecode, is one, and so is any file `.mlirbc`
or `.stablehlo`. Sizes `?` of arguments stay open. Complex numbers of arguments and results are
reals [..., 2] in the module, which says so (`compiler/io/structures.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compiler.diagnostics import Problem, StrataError
from compiler.frontend import ImportedModel, ImportOptions, MemoryModel

DESCRIPTION = ("StableHLO as text or as a portable artifact: a .mlir, .mlirbc or .stablehlo file, "
               "or what jax.jit(f).lower(*args) and jax.export.export(f)(*args) return")
SUFFIX = ".stablehlo"
BYTECODE_SUFFIXES = (".mlirbc", ".mlir.bc")
PREFIXES = ("stablehlo.", "chlo.")


def is_stablehlo(text: str) -> bool:
    """Whether a text has operations of StableHLO."""
    return any(prefix in text for prefix in PREFIXES) and "strata." not in text


def accepts(model: str) -> bool:
    """Whether a name ends in `.stablehlo`, or as MLIR's bytecode does."""
    return model.lower().endswith((SUFFIX, *BYTECODE_SUFFIXES))


def load_model(model: str, options: ImportOptions) -> ImportedModel:
    """Import a file. Raises StrataError with every problem found."""
    try:
        data = Path(model).read_bytes()
    except OSError as error:
        raise StrataError(f"cannot read {model}: {error}") from error
    return load_bytes(model, data, options)


def load_bytes(name: str, data: Any, options: ImportOptions) -> ImportedModel:
    """Import a text, or a portable artifact. A file of MLIR is known by its name and `SUFFIX`."""
    if name.endswith(f".mlir{SUFFIX}"):
        name = name.removesuffix(SUFFIX)
    from compiler.frontend.stablehlo.bytecode import is_bytecode
    from compiler.frontend.stablehlo.importer import import_bytecode, import_text

    if isinstance(data, bytes) and is_bytecode(data):
        return import_bytecode(data, Path(name).stem, name, options)
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else str(data)
    except UnicodeDecodeError as error:
        raise StrataError(f"{name} is neither text nor MLIR bytecode", [
            Problem(str(error))]) from error
    return import_text(text, Path(name).stem, name, options)


def in_memory(model: object) -> MemoryModel | None:
    """A program that JAX has lowered or exported; None for any other object."""
    if type(model).__module__.partition(".")[0] != "jax":
        return None
    if isinstance(data := getattr(model, "mlir_module_serialized", None), bytes):
        return MemoryModel(f"program{SUFFIX}", data)
    function = getattr(model, "as_text", None)
    return MemoryModel(f"program{SUFFIX}", str(function())) if callable(function) else None

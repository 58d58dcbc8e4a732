"""StableHLO's portable artifacts: MLIR bytecode with operations of VHLO, its versioned form.

    cursor.py      numbers and bytes, read one after another, inside bounds
    sections.py    the sections of a file: strings, names of operations, offsets
    attributes.py  attributes and types, decoded when they are used
    program.py     functions, operations and regions
    versions.py    operations of VHLO as those of StableHLO

`jax.export.export(f)(*args).mlir_module_serialized` is such a file, and so is what
`stablehlo-translate --serialize` and exporters of TensorFlow and PyTorch/XLA write. Nothing in a
file is trusted: each count, index and size is compared with what the file has left before it is
used, and nesting is limited.
Source: MLIR's bytecode format (mlir/docs/BytecodeFormat.md), versions 0 to 6, and StableHLO's
compatibility (docs/bytecode.md, docs/vhlo.md).
"""

from __future__ import annotations

MAGIC = b"ML\xefR"


def is_bytecode(data: bytes) -> bool:
    """Whether a file begins as MLIR bytecode does."""
    return data.startswith(MAGIC)

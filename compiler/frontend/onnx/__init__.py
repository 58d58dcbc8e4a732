"""The ONNX frontend: `.onnx` files of opset 7 and later.

    load.py            the file, checked and memory-mapped; weights stay in it
    wire.py            finds the weights' bytes in the file without reading them
    external.py        weights in files beside the model
    validate.py        the checks before an import: names, operators, attributes
    schema.py          ONNX's own schemas of operators
    inputs.py          the model's inputs, and the sizes of their dims
    importer.py        the walk over the nodes
    scope.py           what names mean in a graph or a call of a function
    layers.py          equal layers, of which a few are imported
    declared.py        compares the declared types of values with the inferred ones
    sequences.py       sequences and optionals as tensors
    node.py            the view of a node that an operator's importer gets
    element_types.py   ONNX's element types and those of Strata; their elements in files
    coverage.py        the supported operators, for lists and documentation
    functions.py       model-local functions, and operators that ONNX defines by others
    ops/               one small function per operator, a file per family

To support an operator, write its function in `ops/`; nothing else needs to change. The modules that
all frontends share, beside this folder, build the graph operations.
"""

from __future__ import annotations

from typing import Any, cast

from compiler.diagnostics import Problem, StrataError
from compiler.frontend import ImportedModel, ImportOptions, MemoryModel
from compiler.io.uninterrupted import uninterrupted

DESCRIPTION = ("an .onnx file, of any opset that the installed onnx knows (`list ops` tells the "
               "opsets of each operator)")


def accepts(model: str) -> bool:
    """Whether a name ends in `.onnx`."""
    return model.lower().endswith(".onnx")


def load_model(model: str, options: ImportOptions) -> ImportedModel:
    """Import a file. Raises StrataError with every problem that was found."""
    with uninterrupted():
        from compiler.frontend.onnx.importer import import_file

    return import_file(model, options)


def load_bytes(name: str, data: bytes, options: ImportOptions) -> ImportedModel:
    """Import a serialized ModelProto. Files of weights are expected beside `name`.

    Raises StrataError for contents that are no bytes.
    """
    if not isinstance(cast(object, data), bytes | bytearray | memoryview):
        raise StrataError(f"the contents of {name} must be the bytes of an ONNX file, not "
                          f"{type(data).__name__}")
    with uninterrupted():
        from compiler.frontend.onnx.importer import import_bytes

    return import_bytes(name, data, options)


def in_memory(model: object) -> MemoryModel | None:
    """A ModelProto as a model in memory; None for any other object. Imports nothing.

    Files of weights are expected in the working directory. Raises StrataError if the model is
    larger than 2 GiB, the limit of Protocol Buffers.
    """
    kinds = {(c.__module__.partition(".")[0], c.__name__) for c in type(model).__mro__}
    if ("onnx", "ModelProto") not in kinds:
        return None
    proto: Any = model
    try:
        data = proto.SerializeToString()
    except Exception as error:  # protobuf's implementations raise errors of different types
        hint = "save it with its weights in another file (onnx.save_model, save_as_external_data)"
        raise StrataError("the onnx.ModelProto cannot be serialized",
                          [Problem(str(error), hint=f"{hint}, and compile that file")]) from error
    return MemoryModel(f"{proto.graph.name or 'model'}.onnx", data)


def describe(name: str, data: bytes | None) -> dict[str, Any]:
    """Describe a file, or `data`, even if it cannot be imported. Raises StrataError."""
    from compiler.frontend.onnx.contents import describe_file

    return describe_file(name, data)


def operators() -> list[str]:
    """The supported operators, sorted. Operators that ONNX defines by these work as well."""
    from compiler.frontend.onnx.ops import importers

    return sorted(f"{domain}.{name}" if domain else name for domain, name in importers())


def operator_summaries() -> dict[str, str]:
    """Operator -> its opsets and element types, including operators that ONNX defines by others."""
    from compiler.frontend.onnx.coverage import covered

    return {c.name: c.summary for c in covered()}

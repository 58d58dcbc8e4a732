"""The PyTorch frontend: `torch.export` programs in memory and as `.pt2`, and `file.py:function`.

    load.py       from a MODEL to an ExportedProgram
    capture.py    a program together with the module that PyTorch itself runs
    archive.py    reads `.pt2` files; executes nothing that is in them
    checks.py     what the graph of a `.pt2` file may contain
    core/         programs in Core ATen, except for operators with an importer
    importer.py   the walk over a program's nodes
    inputs.py     a program's inputs: arguments, weights, constants, and the sizes of their dims
    sizes.py      PyTorch's symbolic integers as size expressions
    tensors.py    PyTorch's element types and tensors as ours
    contents.py   the contents of tensors as arrays
    memory_order.py  arguments and results whose memory has channels last, or another order
    node.py       the view of a node that an operator's importer gets
    ops/          one small function per operator, a file per family

To support an operator, write its function in `ops/`; nothing else needs to change. The modules that
all frontends share, beside this folder, build the graph operations.

The functions of this module import torch when they are called; importing the module does not.
"""

from __future__ import annotations

import re
from typing import Any

from compiler.frontend import ImportedModel, ImportOptions, MemoryModel
from compiler.frontend.torch.files.script import SUFFIXES

DESCRIPTION = ("a torch.export program: in memory, as .pt2, or made by file.py:function, which is "
               "your own code and is run")

ARCHIVE_SUFFIX = ".pt2"


def accepts(model: str) -> bool:
    """Whether a name ends in `.pt2` or as TorchScript's, or has the form `file.py:function`."""
    return model.lower().endswith((ARCHIVE_SUFFIX, *SUFFIXES)) or bool(
        re.search(r"\.py:\w+$", model))


def load_model(model: str, options: ImportOptions) -> ImportedModel:
    """Import a file or the model that a function returns. Raises StrataError with every problem
    found.
    """
    from compiler.frontend.torch.importer import import_program
    from compiler.frontend.torch.load import load_program

    program, name = load_program(model)
    return import_program(program, name, model, options)


def load_bytes(name: str, data: Any, options: ImportOptions) -> ImportedModel:
    """Import a program in memory, the bytes of a `.pt2` file, or a graph of `torch.compile`."""
    from compiler.frontend.torch.captured_graph import CapturedGraph
    from compiler.frontend.torch.importer import import_captured, import_program
    from compiler.frontend.torch.load import load_bytes

    short = name.removesuffix(ARCHIVE_SUFFIX)
    if isinstance(data, CapturedGraph):
        return import_captured(data, short, name, options)
    if isinstance(data, bytes):
        return import_program(load_bytes(name, data), short, name, options)
    return import_program(data, short, name, options, in_order=not options.shapes)


def in_memory(model: object) -> MemoryModel | None:
    """An ExportedProgram as a model in memory; None for any other object. Imports nothing."""
    kinds = {(c.__module__, c.__name__) for c in type(model).__mro__}
    if ("torch.export.exported_program", "ExportedProgram") not in kinds:
        return None
    return MemoryModel(f"{program_name(model)}{ARCHIVE_SUFFIX}", model)


def program_name(program: Any) -> str:
    """The class of the exported module, if the program records it."""
    for node in program.graph.nodes:
        stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
        for path, kind in stack.values():
            if not path:
                return str(getattr(kind, "__name__", kind)).rpartition(".")[2]
    return "program"


def operators() -> list[str]:
    """The supported operators, sorted. Operators that PyTorch decomposes into these work as well.
    """
    from compiler.frontend.torch.ops import importers

    return sorted(importers())

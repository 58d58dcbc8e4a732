"""Writes a compiled model as a library with a C interface, which runs without Python."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compiler.diagnostics import Problem, StrataError, disk_error
from compiler.instrument.kept import MAKING_CODE
from compiler.io.signature import signature_of
from compiler.io.structures import structures_of
from compiler.programs.saved import system_name
from compiler.version import __version__
from targets.shipping import FORMS, Cargo, Shipment

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.pipeline.driver import Compiler

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PIECE = 1 << 22
_SAID = ("precision", "exact", "denormals", "strategy", "passes", "check")
"""The options that a library names as those that it was compiled with."""


def form_of(path: Path) -> str:
    """The form of a library by the name of its file. Raises StrataError for none of them."""
    if path.suffix in FORMS and not (path.suffix and path.is_dir()):
        return path.suffix
    raise StrataError(f"cannot write {path}: no library is named so", [Problem(
        f"its suffix is '{path.suffix}'", hint="a path that ends in .so, .a or .o, or a folder")],
        exit_status=2)


def name_of(path: Path, name: str | None) -> str:
    """What the functions start with: `name`, or the stem of the path as a C identifier."""
    if name is None:
        stem = re.sub(r"[^A-Za-z0-9_]", "_", path.name.removesuffix(path.suffix))
        return stem if _NAME.fullmatch(stem) else f"model_{stem.strip('_')}".rstrip("_")
    if _NAME.fullmatch(name) is None:
        raise StrataError(f"--name {name}: functions of C cannot start with that",
                          [Problem("it must be letters, digits and _, a letter first")],
                          exit_status=2)
    return name


def write_library(
    compilations: Sequence[Compiler], path: Path, name: str, weights: Path | None,
    sized: Sequence[Sequence[tuple[Mapping[str, int], Compiler]]] = (),
    labels: Sequence[str] | None = None,
) -> list[str]:
    """Compile a model and write it. Returns what was compiled for each processor, if it is counted.
    Raises StrataError, also for a disk that cannot be written.

    `compilations`: of the same model for different processors; the library chooses when it is used.
    `sized`: for each of them, compilations with some sizes fixed, which answer calls of these.
    `labels`: as in Shipment, for a page.
    """
    made = list(map(_cargo, compilations))
    first, facts = compilations[0], made[0][1]
    shipment = Shipment(name, os.path.abspath(path), form_of(path), __version__,
                        None if weights is None else os.path.abspath(weights), facts, labels)
    fitting = [[(sizes, _fitting(sizes, one, facts)) for sizes, one in group]
               for group in sized or [()] * len(made)]
    first.count(0, 0)
    first.report(f"{first.model}: writing {path}")
    with first.guard("load"):
        try:
            cargos = [cargo.beside(others) for (cargo, _), others in zip(
                made, fitting, strict=True)]
            cargos[0].write(shipment, cargos[1:])
        except OSError as error:
            raise disk_error(error) or StrataError(
                f"cannot write {error.filename or path}: {error.strerror}") from error
    return [cargo.contents for cargo in cargos if cargo.contents]


def _fitting(sizes: Mapping[str, int], one: Compiler, facts: Mapping[str, Any]) -> Cargo:
    """A compilation for some sizes. Raises StrataError if its inputs or outputs are others."""
    cargo, own = _cargo(one)
    if _ports(own) == _ports(facts):
        return cargo
    named = ",".join(f"{name}={size}" for name, size in sizes.items())
    raise StrataError(
        f"--also {named}: with these sizes the model has other inputs or outputs",
        [Problem("their names and dtypes must be those of the model with open sizes")])


def _ports(facts: Mapping[str, Any]) -> list[Any]:
    """The names and dtypes of inputs and outputs."""
    signature = facts["signature"]
    return [signature["input_names"], signature["output_names"],
            *([type_[1] for type_ in signature[f"{what}_types"]] for what in ("input", "output"))]


def _cargo(compilation: Compiler) -> tuple[Cargo, dict[str, Any]]:
    """A compiled model, and what its library says of it."""
    state = compilation.prepare()
    if compilation.target.lowers:
        compilation.require_final(state)
    facts: dict[str, Any] = {
        "system": compilation.options.triple or system_name(), "target": compilation.options.target,
        "signature": signature_of(state.module).facts(),
        "structures": dict(structures_of(state.module)), "model": os.path.basename(state.name),
        "model_files": {os.path.basename(f): _hash(f) for f in compilation.files},
        "options": {option: getattr(compilation.options, option) for option in _SAID}}
    compilation.count(0, 0)
    compilation.report(f"{state.name}: {MAKING_CODE}")
    with compilation.guard("load", state=state):
        return compilation.parts.building.ship(state.module, state.context.weights,
                                               compilation.count), facts


def _hash(path: str) -> str:
    """The hash of a file's contents."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()

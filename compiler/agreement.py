"""What must be equal on all ranks of a program, or they would wait for each other for ever."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from compiler.diagnostics import Problem, StrataError, some_of
from compiler.instrument import Instrument
from compiler.ranks import distributed, own_rank
from compiler.version import __version__
from targets.communication import all_of

if TYPE_CHECKING:
    from compiler.io.signature import Signature
    from compiler.options import CompileOptions
    from compiler.pipeline.state import State
    from dialects.strata.types import Array

_SAMPLE = 1 << 20
"""The bytes at both ends of a model's file by which files are compared."""


class Agreement(NamedTuple):
    """What must be equal on all ranks. `exchanges`: facts of collective operations; `weights`: a
    hash of all weights of the undivided model."""

    model: str
    options: CompileOptions
    signature: Signature
    exchanges: Sequence[Any]
    weights: str

    def digest(self) -> dict[str, str]:
        """A hash of everything, by its name for messages."""
        s, options = self.signature, self.options
        said = {"the version": __version__, "the mesh": options.mesh,
                "the target": options.target, "the precision": options.precision,
                "inputs and outputs": f"{s.input_names} {[*map(str, s.input_types)]} "
                                      f"{s.output_names}",
                "collective operations": str(self.exchanges), "weights": self.weights,
                "the model's file": _file_text(self.model)}
        return {name: _hash(text.encode()) for name, text in said.items()}


class WeightsDigest(Instrument):
    """Hashes the weights of a model as it is read. `wanted`: whether anyone asks for that."""

    wants_passes = False

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.text = wanted, ""

    def start(self, state: State) -> None:
        if self.wanted:
            store = state.context.weights
            contents = {key if key not in store.parameters else f"{key} {_sampled(array)}"
                        for key, array in store.arrays.items()}
            self.text = _hash("\n".join(sorted(contents)).encode())


def check_agreement(exe: Any) -> None:
    """Compare an executable with those of other ranks; without a mesh or ranks, do nothing.

    Raises StrataError if they differ, since the ranks would wait for each other for ever."""
    if own_rank(exe.options.mesh) is not None:
        agree(Agreement(str(exe.model), exe.options, exe.signature,
                        [e.facts() for e in exe.loaded.general.exchanges], exe.weights))


def agree(own: Agreement) -> None:
    """Compare with other ranks. Raises StrataError if they differ, or do not come."""
    if own_rank(own.options.mesh) is None:
        return
    dist, _ = distributed()
    try:
        found: list[dict[str, str]] = all_of(own.digest())
    except RuntimeError as error:
        raise StrataError("the other ranks did not compile the model", [Problem(
            f"rank {dist.get_rank()} waited for them: {str(error).strip().splitlines()[0]}",
            hint="the message of the rank that failed says why")]) from error
    names = sorted({name for said in found for name in said})
    differing = [name for name in names if len({said.get(name) for said in found}) > 1]
    if differing:
        raise StrataError("the ranks have different programs", [Problem(
            f"rank {dist.get_rank()} and others differ in {some_of(differing)}",
            hint="start all ranks with the same model, weights, options and version of Strata")])


def _file_text(model: str) -> str:
    """The size of a model's file, and a hash of both its ends; empty if there is none."""
    path = model.partition(".py:")[0] + ".py" if ".py:" in model else model
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            ends = file.read(_SAMPLE)
            file.seek(max(size - _SAMPLE, 0))
            ends += file.read()
    except OSError:
        return ""
    return f"{size} {_hash(ends)}"


def _sampled(array: Array) -> str:
    """A hash of a thousand elements of an array."""
    step = max(array.size // 1000, 1)
    return f"{array.dtype.name}{array.shape} {_hash(array.reshape(-1)[::step].tobytes())}"


def _hash(data: bytes) -> str:
    import hashlib  # only ranks need it

    return hashlib.sha256(data).hexdigest()

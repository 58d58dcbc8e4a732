"""Writes a CUDA program as a library: cubins, launches, constants, and the C interface.

What the functions check, and how, is that of libraries for processors (`targets/cpu/artifact`); the
sources of one architecture are a variant, and a state is of the one that its device runs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialects.symbolic.expr import Expr
from targets.cpu.artifact.dispatch import dispatch_text, variant_names
from targets.cpu.artifact.header import header_text
from targets.cpu.artifact.link import Tools, weights_assembly
from targets.cpu.artifact.pieces import INTERFACE, place_file, write_constants
from targets.cpu.artifact.ports import Ports
from targets.cpu.artifact.tables import Constants, Source, source_text
from targets.cpu.runtime.plan import RunPlan
from targets.cuda.artifact.launches import (
    ALIGNMENT,
    DECLARATIONS,
    FUNCTIONS,
    Code,
    runtime_of,
)
from targets.cuda.runtime.planned import HostPlan
from targets.cuda.runtime.program import Signature
from targets.interface import TargetError
from targets.library_file import API, MARK, trailer
from targets.shipping import ARCHIVE, OBJECT, SHARED, Cargo, Shipment

if TYPE_CHECKING:
    from dialects.strata.types import Array


@dataclass(frozen=True)
class CudaParts(Cargo):
    """A compiled model for GPUs of one architecture. `constants`: in the order of the plan."""

    signature: Signature
    plan: HostPlan
    code: Code
    constants: Sequence[Array]
    arch: str
    facts: Mapping[str, Any]

    @property
    def contents(self) -> str:
        return f"{len(self.code.variants)} kernels for {self.arch}"

    @property
    def run_plan(self) -> RunPlan:
        """Inputs, outputs and assumptions, as libraries for processors describe them."""
        outputs = tuple(self.plan.outputs)
        return RunPlan(self.signature.input_names, self.signature.output_names,
                       self.signature.inputs, outputs, (None,) * len(outputs), (),
                       self.plan.arena or Expr.of(0), self.signature.assumptions, ())

    def write(self, shipment: Shipment, others: Sequence[Cargo] = ()) -> None:
        if shipment.form not in (SHARED, ARCHIVE, OBJECT):
            raise TargetError("a library for GPUs is a file that ends in .so, .a or .o")
        variants = [self, *(o for o in others if isinstance(o, CudaParts))]
        with tempfile.TemporaryDirectory(prefix="strata-") as folder:
            _Writer(Tools(folder), shipment, sorted(variants, key=lambda v: v.arch)).write()


class _Writer:
    """Writes the variants of one model, that of the oldest architecture first."""

    def __init__(self, tools: Tools, shipment: Shipment, variants: Sequence[CudaParts]):
        self.tools, self.shipment, self.variants = tools, shipment, variants
        self.name, self.ports = shipment.name, Ports.of(variants[0].run_plan)
        self.names = variant_names(self.name, len(variants))
        self.weights = os.path.basename(shipment.weights) if shipment.weights else None

    def write(self) -> None:
        tools, name = self.tools, self.name
        constants = write_constants(
            tools, [v.constants for v in self.variants], self.shipment, ALIGNMENT)
        about = self._about(tools, constants[0])
        parts = [self._variant(k, about if k == 0 else {}, constants[k])
                 for k, _ in enumerate(self.variants)]
        if len(self.variants) > 1:
            self._header(name)
            tools.write(f"{name}.c", dispatch_text(name, self.names, self.ports, ON_DEVICES))
            tools.compile(f"{name}.c", "dispatch.o")
            parts.append("dispatch.o")
        tools.join(parts, f"{name}_code.o", self._visible(name))
        inside = [] if self.weights else [self._section(f"{name}_constants")]
        self._deliver([f"{name}_code.o", *inside], about)

    def _visible(self, name: str) -> list[str]:
        return [f"{name}_{function}" for function in (*INTERFACE, *FUNCTIONS)]

    def _header(self, name: str) -> None:
        self.tools.write(f"{name}.h", header_text(
            name, self.shipment.version, self.ports, self.weights, DECLARATIONS.splitlines()))

    def _variant(self, k: int, about: Mapping[str, Any], constants: Constants) -> str:
        """The object of a variant, of which only its functions are visible."""
        tools, name, parts = self.tools, self.names[k], self.variants[k]
        ports, cubins = Ports.of(parts.run_plan), f"{name}_cubins"
        self._header(name)
        tools.write(f"{name}.c", source_text(Source(
            name, k, self.shipment.version, json.dumps(about), ports, constants,
            f"{self.name}_constants", (), "x86_64"),
            runtime_of(parts.plan, parts.code, ports.symbols, parts.arch, cubins)))
        tools.write(f"{cubins}.bin", parts.code.packed)
        tools.compile(f"{name}.c", f"{name}_runtime.o")
        tools.join([f"{name}_runtime.o", self._section(cubins)], f"{name}_variant.o",
                   self._visible(name))
        return f"{name}_variant.o"

    def _section(self, symbol: str) -> str:
        """The object of a file's contents."""
        self.tools.write(f"{symbol}.S", weights_assembly(symbol, f"{symbol}.bin"))
        self.tools.compile(f"{symbol}.S", f"{symbol}.o")
        return f"{symbol}.o"

    def _about(self, tools: Tools, constants: Constants) -> dict[str, Any]:
        first, weights = self.variants[0], None
        if constants.identity is not None:
            weights = {"file": self.weights, "bytes": constants.size,
                       "sha256": constants.identity.hex()}
        return {MARK: API, "name": self.name, "strata": self.shipment.version,
                "needs": [v.arch for v in self.variants], "weights": weights,
                "constants": {"count": len(first.constants), "bytes": constants.size},
                "kernels": {v.arch: len(v.code.variants) for v in self.variants},
                "cubins": sum(len(v.code.packed) for v in self.variants),
                "c_compiler": tools.version(), **first.facts,
                "variants": [v.arch for v in self.variants], **self.shipment.facts}

    def _deliver(self, linked: Sequence[str], about: Mapping[str, Any]) -> None:
        tools, path = self.tools, self.shipment.path
        made = f"library{self.shipment.form}"
        if self.shipment.form == ARCHIVE:
            tools.archive(linked, made)
        elif self.shipment.form == OBJECT:
            tools.join(linked, made, None)
        else:
            tools.share(linked, made, os.path.basename(path))
            with open(tools.path(made), "r+b") as file:
                tail = trailer(file, about)
                file.seek(0, os.SEEK_END)
                file.write(tail)
        place_file(tools.path(made), path)
        place_file(tools.path(f"{self.name}.h"),
                   os.path.join(os.path.dirname(path), f"{self.name}.h"))
        if self.shipment.weights is not None:
            place_file(tools.path("weights"), self.shipment.weights)


ON_DEVICES = {
    "set_stream": ("int", "void *stream", "stream", "STRATA_BAD_ARGUMENT"),
    "synchronize": ("int", "", "", "STRATA_BAD_ARGUMENT"),
    "allocate": ("int", "size_t bytes, void **memory", "bytes, memory", "STRATA_BAD_ARGUMENT"),
    "release": ("void", "void *memory", "memory", ""),
    "upload": ("int", "void *device, const void *host, size_t bytes", "device, host, bytes",
               "STRATA_BAD_ARGUMENT"),
    "download": ("int", "void *host, const void *device, size_t bytes", "host, device, bytes",
                 "STRATA_BAD_ARGUMENT")}
"""The functions of states on GPUs: result, further parameters, their names, result without a state.
"""

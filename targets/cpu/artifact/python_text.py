"""A file of Python for one library, which needs nothing else, and NumPy only for its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dialects.strata.array_type import ArrayType
from targets.cpu.artifact.c_text import DTYPES
from targets.cpu.artifact.ports import MOST_DIMS, Ports
from targets.library_file import API, MARK

_NUMPY = {"f32": "float32", "f64": "float64", "f16": "float16", "i1": "bool", "index": "int64",
          **{f"{sign}i{bits}": f"{'uint' if sign else 'int'}{bits}"
             for sign in ("", "u") for bits in (8, 16, 32, 64)}}
"""The dtypes that NumPy has itself. Others are passed as the integers of their bits."""
_FILES = [Path(__file__).parent / name for name in ("model.py.txt", "tensor.py.txt")]


def python_text(name: str, version: str, library: str, ports: Ports, weights: str | None) -> str:
    """`name_numpy.py`, for the library of this file name beside it."""
    values = {"@NAME@": name, "@VERSION@": version, "@LIBRARY@": repr(library),
              "@WEIGHTS@": repr(weights), "@DIMS@": str(MOST_DIMS),
              "@MARK@": MARK, "@API@": str(API),
              "@BFLOAT16@": str(DTYPES["bf16"][0]),
              "@INPUTS@": _ports(ports.plan.input_names, ports.plan.inputs, has_sizes=True),
              "@OUTPUTS@": _ports(ports.plan.output_names, ports.outputs)}
    text = "".join(file.read_text(encoding="utf-8") for file in _FILES)
    for place, value in values.items():
        text = text.replace(place, value)
    return text


def _ports(names: Sequence[str], types: Sequence[ArrayType], has_sizes: bool = False) -> str:
    rows: list[str] = []
    for name, type_ in zip(names, types, strict=True):
        facts = [repr(name), repr(_numpy(type_.element)), str(DTYPES[type_.element][0])]
        if has_sizes:
            facts.append(repr(tuple(size.constant for size in type_.shape)))
        rows.append(f"    ({', '.join(facts)}),\n")
    return f"[\n{''.join(rows)}]"


def _numpy(element: str) -> str:
    return _NUMPY.get(element) or ("uint16" if DTYPES[element][2] == 2 else "uint8")


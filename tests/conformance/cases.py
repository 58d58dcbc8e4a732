"""The test suites of the onnx package, case by case.

    core, newest, other          node tests; together all of them, named in onnx_node_tests*.txt
    light                        nine image models, with made-up weights
    simple, pytorch-operator, pytorch-converted        small models in files

Models, inputs, expected outputs and tolerances are the package's own.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from compiler.onnx_backend import StrataBackend

FOLDER = Path(__file__).parent
DATA = Path(onnx.__file__).parent / "backend/test/data"

NODE_LISTS = {"core": "onnx_node_tests.txt", "newest": "onnx_node_tests_newest.txt",
              "other": "onnx_node_tests_other.txt"}
FILE_SUITES = ("simple", "pytorch-operator", "pytorch-converted")
SUITES = (*NODE_LISTS, "light", *FILE_SUITES)

DataSet = tuple[Sequence[Any], Sequence[Any]]
"""Inputs and expected outputs: arrays; lists of them for sequences; None for an empty optional."""


@dataclass(frozen=True)
class Content:
    """A test: a model, and what it must compute, within tolerances."""

    model: ModelProto
    data_sets: Sequence[DataSet]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Case:
    """A test by its name; what it holds is made when it is asked for."""

    suite: str
    name: str

    @property
    def key(self) -> str:
        """Its name among all suites: `node/test_abs`, `simple/test_shrink`."""
        return f"{'node' if self.suite in NODE_LISTS else self.suite}/{self.name}"

    def load(self) -> Content:
        if self.suite in NODE_LISTS:
            return _node_test(self.name)
        return _light_model(self.name) if self.suite == "light" else _files(self.suite, self.name)


# ---------------------------------------------------------------------- names
def lines(file: str) -> list[str]:
    """The lines of a file of this folder that are neither empty nor comments."""
    text = (FOLDER / file).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def suite(name: str) -> list[Case]:
    """The cases of a suite."""
    if name in NODE_LISTS:
        found: Iterable[str] = lines(NODE_LISTS[name])
    else:
        folder = DATA / ("real" if name == "light" else name)
        found = sorted(p.name for p in folder.iterdir() if p.name.startswith("test_"))
    return [Case(name, test) for test in found]


# ---------------------------------------------------------------------- node tests
@cache
def node_tests() -> Mapping[str, TestCase]:
    """All node tests of the onnx package; making them takes seconds.

    Their examples for documents, which onnx reads out of its own source code, are left out.
    """
    from onnx.backend.test.case import base

    with warnings.catch_warnings(), patch.object(base, "process_snippet", lambda *_: ("", "")):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)}


def _node_test(name: str) -> Content:
    case = node_tests()[name]
    assert case.model is not None and case.data_sets is not None
    sets = [(_values(inputs), _values(outputs)) for inputs, outputs in case.data_sets]
    return Content(case.model, sets, case.rtol, case.atol)


def _values(values: Iterable[Any]) -> list[Any]:
    return [_value(v) for v in values]


def _value(value: Any) -> Any:
    """What a protobuf message holds, as NumPy arrays."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return _values(numpy_helper.to_list(value))
    if isinstance(value, onnx.OptionalProto):
        return _value(numpy_helper.to_optional(value))
    if isinstance(value, list):
        return _values(value)
    return None if value is None else np.asarray(value)


# ---------------------------------------------------------------------- models in files
def _light_model(name: str) -> Content:
    """The input counts from 0 to 1, as ONNX's runner makes it."""
    about = json.loads((DATA / "real" / name / "data.json").read_text(encoding="utf-8"))
    path = DATA / "light" / Path(about["url"]).name
    model = onnx.load(path)
    weights = {t.name for t in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(i) for i in model.graph.input if i.name not in weights]
    outputs = [_read(path.with_name(f"{path.stem}_output_{k}.pb"), o.type)
               for k, o in enumerate(model.graph.output)]
    return Content(model, [(inputs, outputs)], about["rtol"], about["atol"])


def _files(suite: str, name: str) -> Content:
    folder = DATA / suite / name
    model = onnx.load(folder / "model.onnx")
    sets = [(_read_all(path, "input", model.graph.input), _read_all(path, "output",
                                                                    model.graph.output))
            for path in sorted(folder.glob("test_data_set_*"))]
    return Content(model, sets, 1e-3, 1e-7)  # as ONNX's loader sets them


def _read_all(folder: Path, kind: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    count = len(list(folder.glob(f"{kind}_*.pb")))
    return [_read(folder / f"{kind}_{k}.pb", infos[k].type) for k in range(count)]


def _read(path: Path, type_: onnx.TypeProto) -> Any:
    messages: dict[str, Callable[[], Any]] = {
        "tensor_type": onnx.TensorProto, "sequence_type": onnx.SequenceProto,
        "optional_type": onnx.OptionalProto}
    message = messages[type_.WhichOneof("value") or "tensor_type"]()
    message.ParseFromString(path.read_bytes())
    return _value(message)


# ---------------------------------------------------------------------- run
def run_case(case: Case, target: str, cache: Path | str) -> None:
    """Compile and run a test; compare as ONNX's runner does. Raises AssertionError."""
    content = case.load()
    prepared = StrataBackend.prepare(content.model, "CPU", target=target, threads=1, cache=cache)
    check(content, prepared.run)


def check(content: Content, run: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
    """Compare what `run` makes of each set of inputs. Raises AssertionError."""
    assert content.data_sets
    for inputs, outputs in content.data_sets:
        Runner.assert_similar_outputs(outputs, run(inputs), content.rtol, content.atol)

"""What a compilation imports: a third of a small model's time is spent in imports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parents[2]
OF_OTHERS = ("compiler.frontend.torch", "compiler.frontend.stablehlo", "compiler.io.array_files",
             "passes.scripts", "passes.rewrites.handing_over", "targets.cpu.single",
             "targets.cuda", "targets.origins", "logging", "torch", "triton")
"""Other frontends and targets, and what only files of schedules and single commands need."""
STANDARD = {"Facts", "Linear", "Part", "Target"}
"""Dataclasses of the standard library: bases of plugins' frozen classes, and one with slots."""

SCRIPT = """
import dataclasses, sys
import xdsl.ir
from xdsl.irdl import declarative_assembly_format
import numpy as np, onnx
from onnx import TensorProto, helper
import compiler

x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "xy")
graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "exp", [x], [y])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), sys.argv[1])
result = compiler.compile(sys.argv[1], target="cpu", cache="off")(np.zeros((2, 3), np.float32))
assert np.all(np.asarray(result) == 1), result
"""


def _after_compiling(tmp_path: Path, question: str) -> str:
    """What a question prints in a process that has compiled a model."""
    done = processes.run([sys.executable, "-c", SCRIPT + question, tmp_path / "exp.onnx"],
                         capture_output=True, text=True,
                         env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_others_need_is_not_imported(tmp_path: Path) -> None:
    found = _after_compiling(tmp_path, f"print({set(OF_OTHERS)!r} & set(sys.modules))")
    assert found.strip() == "set()"


def test_classes_are_records(tmp_path: Path) -> None:
    """The standard library's decorator compiles up to six methods for each class, and
    `dialects.records.dataclass` one at the first record. What xDSL defines is not ours to choose.
    """
    found = _after_compiling(tmp_path, """
ours = {v for name, module in list(sys.modules.items())
        if name.split(".")[0] in ("dialects", "passes", "targets", "compiler")
        for v in vars(module).values()
        if isinstance(v, type) and v.__module__ == name and dataclasses.is_dataclass(v)}
compiled = [v for v in ours if (equal := vars(v).get("__eq__"))
            and equal.__code__.co_filename == "<string>"]
print(*sorted(v.__name__ for v in compiled if not issubclass(v, (
    xdsl.ir.Attribute, xdsl.ir.Operation, declarative_assembly_format.CustomDirective))))
""")
    assert set(found.split()) == STANDARD

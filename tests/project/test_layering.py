"""Imports go one way: dialects <- passes <- targets <- compiler; and asking costs little."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx.parser
import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
LAYERS = ("dialects", "passes", "targets", "compiler")


def imported_packages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import in a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_one_way(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1:]) | {"tests", "examples", "benchmarks"}
    wrong = [f"{path.relative_to(ROOT)}:{line} imports {package}"
             for path in sorted((ROOT / layer).rglob("*.py"))
             for line, package in imported_packages(path) if package in above]
    assert not wrong, "\n".join(wrong)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a statement loads in a fresh interpreter."""
    code = f"import sys; {statement}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = processes.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True,
                         text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", [
    "import compiler",
    "from compiler.cli.parser import make_parser; from compiler.cli.commands import commands; "
    "make_parser('', '', commands()).format_help()",
])
def test_help_loads_no_library(statement: str) -> None:
    assert not loaded_by(statement) & {"numpy", "xdsl", "onnx", "torch", "triton", "llvmlite"}


def test_the_graph_level_needs_no_code_generator() -> None:
    loaded = loaded_by("import compiler.pipeline.driver, compiler.api, compiler.frontend")
    assert not loaded & {"torch", "triton", "llvmlite", "onnxruntime"}


def test_compiling_for_the_processor_loads_no_interpreter_and_no_other_frontend(
    tmp_path: Path
) -> None:
    model = tmp_path / "relu.onnx"
    onnx.save(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 8] x) => (y) { y = Relu(x) }"""), model)
    code = f"""import sys, compiler
compiler.compile({str(model)!r}, target="cpu", threads=1, cache="off")
print(*sys.modules)"""
    done = processes.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True,
                         text=True)
    loaded = set(done.stdout.split())
    assert "targets.cpu.target" in loaded
    unneeded = {f"dialects.{level}.interpret" for level in ("loop", "host", "block")} | {
        "targets.cuda.target", "targets.reference.interpret",
        "compiler.frontend.stablehlo.importer", "compiler.frontend.torch.captured_graph",
        "compiler.frontend.torch.importer"}
    assert sorted(loaded & unneeded) == []

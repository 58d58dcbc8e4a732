"""The lines of the README that make libraries, as they are printed there."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

from targets.cpu.artifact.cross import zig_command
from tests import processes
from tests.targets.cpu.artifact.shipped import needs_tools

pytestmark = needs_tools
README = Path(__file__).parents[4] / "README.md"
MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
small (float[batch, 4] x) => (float[batch, 2] y)
<float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { a = MatMul(x, w)  y = Softmax(a) }
"""


def lines() -> list[str]:
    """The commands of the block that compiles `model.so`, without what they are said to do."""
    blocks = README.read_text(encoding="utf-8").split("```")[1::2]
    [block] = [b for b in blocks if "$ python -m compiler compile model.onnx -o model.so" in b]
    return [line.removeprefix("$ ").split("   #")[0].strip() for line in block.split("\n")
            if line.startswith("$ ")]


def can_run(line: str) -> bool:
    """Whether this machine has what a command needs."""
    if "--target cuda" in line:
        return importlib.util.find_spec("triton") is not None
    return "--triple" not in line or bool(zig_command())


def test_the_lines_of_the_readme_run(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    commands = lines()
    assert len(commands) == 6 and "./a.out" in commands
    for line in filter(can_run, commands):
        if not shutil.which(line.split()[0]) and not line.startswith(("python", "./")):
            pytest.skip(f"there is no program {line.split()[0]}")
        words = line.replace("python ", f"{sys.executable} ", 1)
        done = processes.run(["sh", "-c", words], cwd=tmp_path, text=True, capture_output=True,
                             limit=300)
        assert done.returncode == 0, (line, done.stderr)
        if line == "./a.out":
            assert done.stdout.startswith("y: 4 elements, sum ")
            assert float(done.stdout.split()[-1]) == pytest.approx(2)  # two rows of a softmax

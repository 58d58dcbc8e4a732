"""What `import compiler` offers: its names, their types, and models of other libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import compiler
from tests import processes

ROOT = Path(__file__).parents[2]
PACKAGES = ("compiler", "dialects", "passes", "targets")

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
twice (float[n, 3] x) => (float[n, 3] y) { y = Add(x, x) }
"""

PROGRAM = """
import numpy as np
import compiler

def run(path: str, x: np.ndarray) -> list[str]:
    try:
        exe: compiler.Executable = compiler.compile(
            path, target="cpu", dims={"n": 2}, specialize=compiler.Specialize(after=2))
    except compiler.StrataError as error:
        return [str(error)]
    known: dict[compiler.Executable, str] = {exe: path}
    try:
        outputs = exe(x)
    except (compiler.IndexRangeError, compiler.SizeError, compiler.AccessError):
        return []
    print(len(outputs), known[exe])
    return exe.input_names
"""

MISTAKES = """
import compiler

compiler.compile("model.onnx", targt="cpu")
compiler.compil("model.onnx")
compiler.compile("model.onnx").input_names + 1
"""


def test_every_public_name_is_there() -> None:
    assert {name: getattr(compiler, name) for name in compiler.__all__}
    assert set(compiler.__all__) <= set(dir(compiler))
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        _ = compiler.compil  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_say_that_they_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def checked(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("pyright")
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "pyrightconfig.json").write_text(
        '{"typeCheckingMode": "basic", "extraPaths": ["' + str(ROOT) + '"]}')
    return processes.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", "."],
        cwd=tmp_path, capture_output=True, text=True, limit=120)


def test_a_users_program_passes_the_type_checker(tmp_path: Path) -> None:
    done = checked(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout


def test_a_users_mistakes_are_found(tmp_path: Path) -> None:
    done = checked(tmp_path, MISTAKES)
    for line, word in ((4, "targt"), (5, "compil"), (6, "+")):
        assert any(f"program.py:{line}:" in row and word in row
                   for row in done.stdout.splitlines()), done.stdout


def test_a_model_proto_is_compiled_and_executables_are_keys() -> None:
    proto = onnx.parser.parse_model(TEXT)
    first, second = compiler.compile(proto), compiler.compile(proto)
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    np.testing.assert_array_equal(first(x)[0], x + x)
    assert {first: 1, second: 2}[second] == 2
    assert first != second


def test_what_is_no_model_is_refused() -> None:
    message = r"GraphProto is not a model: .* onnx\.ModelProto"
    with pytest.raises(compiler.StrataError, match=message):
        compiler.compile(onnx.parser.parse_model(TEXT).graph)


@pytest.mark.parametrize("name", PACKAGES[1:])
@pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py"])
def test_a_users_module_of_our_name_is_told(tmp_path: Path, name: str, form: str) -> None:
    hiding = tmp_path / form.format(name)
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("")
    (tmp_path / "mine.py").write_text("import compiler\ncompiler.compile('model.onnx')\n")
    done = processes.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True,
                         text=True, env={"PYTHONPATH": str(ROOT)}, limit=60)
    assert done.returncode == 1
    assert f"{hiding} hides the package '{name}'" in done.stderr
    assert "rename it" in done.stderr


def test_a_proto_that_is_too_large_says_what_to_do() -> None:
    def refuse(self: object) -> bytes:
        raise ValueError("message onnx.ModelProto exceeds maximum protobuf size of 2GB")

    large = type("ModelProto", (), {"__module__": "onnx.onnx_ml_pb2", "SerializeToString": refuse})
    with pytest.raises(compiler.StrataError, match="exceeds maximum protobuf size") as caught:
        compiler.compile(large())
    assert "save_as_external_data" in str(caught.value)

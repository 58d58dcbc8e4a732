"""A program in C computes a model where there is nothing but that program, the C library, and the
model's library: no Python, no framework, no other file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import compiler
from tests import processes
from tests.targets.cpu.artifact.abroad import HERE, pack, unpack, write_headers
from tests.targets.cpu.artifact.shipped import needs_tools, ship
from tests.targets.cpu.artifact.test_c_programs import MLP

FOLDER = os.environ.get("STRATA_ZOO")
pytestmark = [needs_tools, pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ldd") is None, reason="only root may change the root")]
ZOO: Mapping[str, Mapping[str, Any]] = {
    "ppocr_v4_det": {"x": ((1, 3, 96, 160), np.float32)},
    "bert_base": {"input_ids": ((1, 128), np.int64), "token_type_ids": ((1, 128), np.int64),
                  "attention_mask": ((1, 128), np.int64)}}
"""Models of the folder $STRATA_ZOO, with shapes for sizes that they leave open."""


def made_root(program: Path, library: Path, root: Path) -> None:
    """A folder with a program and a library, and what the system's loader needs for them."""
    done = processes.run(["ldd", str(program), str(library)], capture_output=True, text=True)
    needed = {Path(p) for p in re.findall(r"(/\S+\.so\S*) \(0x", done.stdout)} - {library}
    for file in (program, library):
        shutil.copy(file, root / file.name)
    for file in needed:
        target = root / file.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def outputs_in(root: Path, program: str, inputs: list[Any]) -> list[Any]:
    """What the program computes when that folder is all there is."""
    done = processes.run(
        [f"/{program}"], input=pack(inputs), capture_output=True, limit=120,
        env={"LD_LIBRARY_PATH": "/"}, preexec_fn=lambda: (os.chroot(root), os.chdir("/")))
    assert done.returncode == 0, done.stderr.decode()
    return unpack(done.stdout)


def check(model: Any, inputs: list[Any], tmp_path: Path) -> None:
    library = ship(model, tmp_path / "libnet.so", "net")
    write_headers(tmp_path, "net")
    program = tmp_path / "program"
    done = processes.run(
        ["cc", "-std=c11", "-O1", f"-I{tmp_path}", '-DHEADER="own.h"', "-DCALL(f)=net_##f",
         str(HERE / "feed.c"), str(library), "-o", str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    root = tmp_path / "root"
    root.mkdir()
    made_root(program, library, root)
    names = {file.name for file in root.rglob("*") if file.is_file()}
    assert not [name for name in names if "python" in name or "gomp" in name]
    found = outputs_in(root, "program", inputs)
    expected = compiler.compile(model)(*inputs)
    for one, wanted in zip(found, expected, strict=True):
        assert one.shape == wanted.shape and one.tobytes() == np.asarray(wanted).tobytes()


def test_a_model_runs_where_nothing_else_is(tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((5, 8)).astype(np.float32)
    check(onnx.parser.parse_model(MLP), [x], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_public_models_run_where_nothing_else_is(name: str, tmp_path: Path) -> None:
    path = Path(FOLDER or "") / f"{name}.onnx"
    if not FOLDER or not path.exists():
        pytest.skip(f"STRATA_ZOO names no folder with {name}.onnx")
    random = np.random.default_rng(3)
    inputs = [random.integers(0, 2, shape).astype(dtype) if dtype == np.int64 else
              random.standard_normal(shape).astype(dtype)
              for shape, dtype in (ZOO[name][k] for k in _input_names(path))]
    check(str(path), inputs, tmp_path)


def _input_names(path: Path) -> list[str]:
    model = onnx.load(path, load_external_data=False)
    weights = {w.name for w in model.graph.initializer}
    return [i.name for i in model.graph.input if i.name not in weights]

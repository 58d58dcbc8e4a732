"""Every `tests/passes/<level>/<pass>[.<part>].mlir`: structure, meaning, locations, idempotence."""

from pathlib import Path

import pytest

from passes.registry import find_pass
from tests.passes.harness import check_file

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.mlir"))


@pytest.mark.parametrize("file", FILES, ids=[f"{f.parent.name}-{f.stem}" for f in FILES])
def test_file(file: Path) -> None:
    pass_name = f"{file.parent.name}-{file.stem.partition('.')[0]}".replace("_", "-")
    assert find_pass(pass_name).name == pass_name
    check_file(file.read_text())

"""The process of a command ends without looking for garbage, which takes as long as a small model's
passes; `main` in a process that goes on leaves the collector alone.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from compiler.__main__ import main
from tests import processes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("words", "status"), [
    (["list", "passes"], 0), (["lower", "missing.onnx", "--target", "cpu"], 1)])
def test_the_process_of_a_command_leaves_its_objects(words: list[str], status: int) -> None:
    code = f"""import gc, sys
from compiler.__main__ import main
sys.argv[1:] = {words!r}
before = gc.get_freeze_count()
status = main()
print()
print(status, before, gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000)"""
    done = processes.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True,
                         text=True)
    assert done.stdout.splitlines()[-1] == f"{status} 0 True True"


def test_a_call_of_main_freezes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = gc.get_freeze_count()
    assert main(["list", "passes"]) == 0
    assert gc.get_freeze_count() <= before  # some may have gone
    capsys.readouterr()

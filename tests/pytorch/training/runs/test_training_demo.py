"""The demo that trains: `python -m examples.training`."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.training import __main__ as demo


@pytest.mark.slow
def test_the_demo_follows_eager_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["training", "--steps", "3", "--dumps", str(tmp_path)])
    assert demo.main() == 0
    said = capsys.readouterr().out
    assert f"backward graph: {len(list((tmp_path / 'graph-1').glob('[0-9][0-9]-*')))} texts" in said

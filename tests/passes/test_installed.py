"""Entry points of installed packages: those that the standard library finds, of every layout."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from passes.installed import entry_points

LAYOUTS = ["site/plugin-1.dist-info", "site/plugin-1.egg-info", "plugin-1-py3.egg/EGG-INFO"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_entry_points_of_each_layout_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    info = tmp_path / layout
    info.mkdir(parents=True)
    for name in ("METADATA", "PKG-INFO"):
        (info / name).write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[strata.sheets]\nmine = json:dumps\n")
    assert not entry_points("strata.sheets")
    monkeypatch.setattr(sys, "path", [str(info.parent), *sys.path])
    assert [e.name for e in entry_points("strata.sheets")] == ["mine"]

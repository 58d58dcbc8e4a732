"""Modes, options and debug variables of PyTorch's compiler: ours, without effect, or refused."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from compiler.diagnostics import StrataError
from compiler.pipeline.strategies import GROUPS
from compiler.torch.vocabulary import OPTIONS, translated
from docs.vocabulary import PAGE, page
from tests import processes

TABLE = {
    "max_autotune": (True, {"mode": "max-autotune"}),
    "epilogue_fusion": (False, {"without_groups": ("fuse",)}),
    "triton.cudagraphs": (False, {"without_groups": ("one-launch",)}),
    "layout_optimization": (False, {"without_groups": ("layout",)}),
    "cpp.threads": (3, {"threads": 3}),
    "force_disable_caches": (True, {"cache": "off"}),
    "shape_padding": (True, {}), "fallback_random": (True, {}), "freezing": (True, {}),
    "threads": (2, {"threads": 2}), "strategy": ("block", {"strategy": "block"}),
}


@pytest.mark.parametrize("name", TABLE)
def test_options_are_ours_or_have_no_effect(name: str) -> None:
    value, ours = TABLE[name]
    assert translated(None, {name: value}) == ours


def test_defaults_change_nothing() -> None:
    """The value that each option of PyTorch's compiler has by default is never refused."""
    from torch._inductor import config

    for name in OPTIONS:
        target: Any = config
        for part in name.split("."):
            target = getattr(target, part, None)
        if isinstance(target, bool):
            assert translated(None, {name: target}).get("mode") is None, name


def test_groups_that_are_left_out_exist() -> None:
    """They add up with those of the user."""
    names = [n for n, m in OPTIONS.items() if m.ours is not None and "leaves out" in m.note]
    found = translated("max-autotune-no-cudagraphs",
                       {"without_groups": ("split",), **dict.fromkeys(names, False)})
    assert found["mode"] == "max-autotune"
    assert {"one-launch", "split", "fuse", "memory"} <= set(found["without_groups"]) <= set(GROUPS)


def test_what_is_refused_says_what_to_do(caplog: Any) -> None:
    """All at once; options of PyTorch's compiler that are not in the table are named."""
    with pytest.raises(StrataError) as error:
        translated(None, {"cpp_wrapper": True, "trace.graph_diagram": True, "epilog_fusion": 1})
    for text in ("python -m compiler compile", "python -m compiler report", "epilogue_fusion"):
        assert text in str(error.value)
    with caplog.at_level(logging.INFO, logger="strata"):
        assert translated(None, {"triton.unique_kernel_names": True}) == {}
    assert "unique_kernel_names" in caplog.text
    with pytest.raises(Exception, match="no mode 'lite'"):
        torch.compile(lambda x: x + 1, backend="strata", mode="lite")(torch.ones(2))


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == page()


PROGRAM = """
import torch
f = torch.compile(lambda x: torch.relu(x) + 1, backend="strata")
assert f(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
"""


def test_debug_variables_show_code_and_levels(tmp_path: Path) -> None:
    """Our code in PyTorch's log, and our levels in its debug folder."""
    done = processes.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True,
                         text=True, env={**os.environ, "TORCH_LOGS": "output_code",
                                         "TORCH_COMPILE_DEBUG": "1", "STRATA_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "Output code of Strata (llvm)" in done.stderr and "define" in done.stderr
    assert list(tmp_path.glob("torch_compile_debug/*/strata/**/*.mlir"))

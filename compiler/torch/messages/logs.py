"""Debug variables of PyTorch: `TORCH_LOGS=output_code` shows our code, `graph_breaks` what to write
instead of what broke a graph (`breaks.py`), `recompiles` also why code is made again for the same
graph, and `TORCH_COMPILE_DEBUG=1` writes every level and pass to PyTorch's folder of debug files.

The module can be imported without torch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from compiler.frontend.torch.library import torch_module
from compiler.torch.vocabulary.options import debug_folder

if TYPE_CHECKING:
    from compiler.executable import Executable

log = logging.getLogger("strata")

CODE = ("output_code", "kernel_code")
"""What shows code; the first that is asked for counts."""


@cache
def artifact_log(name: str) -> Any:
    """PyTorch's logger of an artifact that `TORCH_LOGS` names, for us."""
    return torch_module("torch._logging").getArtifactLogger("torch._strata", name)


def show_code(executable: Executable) -> None:
    """Log the code of a program, if PyTorch is asked to show code."""
    asked = (log for log in map(artifact_log, CODE) if log.isEnabledFor(logging.DEBUG))
    for logger in islice(asked, 1):
        from targets.base import find_target

        level = find_target(executable.options.target).levels[0]
        logger.debug("Output code of Strata (%s):\n%s", level, executable.text(level))


def count_recompilation(why: str) -> None:
    """Log why a graph is compiled again, and count it where Dynamo counts."""
    told = f"strata: compiling a graph again, for {why}"
    log.info(told)
    artifact_log("recompiles").debug(told)
    torch_module("torch._dynamo.utils").counters["strata"]["recompilations"] += 1


def with_dumps(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with a folder of dumps if PyTorch is asked to keep debug files."""
    found = dict(options)
    if os.environ.get("TORCH_COMPILE_DEBUG") == "1":
        found.setdefault("dump_dir", debug_folder())
    return found

"""Checks the options of `torch.compile`, before any graph is compiled.

Later, an error would only say why a part of a graph runs eagerly.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from compiler.api import compile as compile_model
from compiler.diagnostics import Problem, StrataError
from compiler.option_values import paths_of
from compiler.options import CompileOptions
from compiler.suggestions import hint_for

OF_MODELS = frozenset(("model", "args", "kwargs", "dynamic_shapes"))
"""What `compiler.compile` exports, which torch.compile does itself."""
PLAIN = frozenset((
    "target", "threads", "passes", "strategy", "features", "precision", "exact", "denormals",
    "check", "interpret", "library"))
"""Options of `compiler.compile` that become those of a compilation as they are."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raises StrataError for a name that `compiler.compile` does not have, and for bad values."""
    known = [name for name in signature(compile_model).parameters if name not in OF_MODELS]
    problems = [Problem(f"there is no option {name!r}", hint=hint_for(str(name), known))
                for name in options if name not in known]
    if problems:
        raise StrataError("the options of torch.compile cannot be used", problems)
    CompileOptions(**{name: options[name] for name in options.keys() & PLAIN})
    if "target" in options:
        from compiler.plugins.plugin_files import load_plugins

        plugins = load_plugins(paths_of("plugins", options.get("plugins", ())))
        plugins.find_target(options["target"])

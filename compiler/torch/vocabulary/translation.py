"""The options of `compiler.compile` for what a user tells PyTorch's compiler.

    mode, options of torch.compile, torch._inductor.config    ->    options of compiler.compile

Switches of `torch._inductor.config`, and so the `TORCHINDUCTOR_` variables that set them, count as
the options of their names do, which override them. Where such an option would be refused, a switch
is named in a warning, since it may be meant for other programs.

The module can be imported without torch.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_origin

from compiler.diagnostics import Problem, StrataError
from compiler.frontend.torch.library import torch_module
from compiler.suggestions import guess
from compiler.torch.vocabulary.options import MODES, OPTIONS, meaning_of

log = logging.getLogger("strata")

OF_PIPELINE = frozenset((
    "passes", "strategy", "with_groups", "without_groups", "schedule", "features"))
"""Options of `compiler.compile` that only the pipeline and the target can judge."""
SWITCHES, VARIABLES = "torch._inductor.config", "TORCHINDUCTOR_"
OF_PROCESS = {"TORCHINDUCTOR_CACHE_DIR"}
"""Variables that PyTorch sets itself."""
OF_ALL_COMPILERS = ("force_disable_caches",)
"""Switches of `torch.compiler.config` that are others' by name only."""


def translated(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of `compiler.compile` for those of `torch.compile`.

    Raises StrataError for those that are refused, for values of other types than PyTorch's, and for
    names that are none.
    """
    found = switched()
    if mode in MODES:
        mode, group = MODES[mode]
        _merge(found, {"without_groups": (group,)})
    if mode not in (None, "default"):
        found["mode"] = mode
    problems: list[Problem] = []
    own = own_options()
    for given, value in (options or {}).items():
        name = given.replace("-", "_")
        if name in own:
            _merge(found, {name: value})
            continue
        meaning = meaning_of(name)
        if name not in OPTIONS and name not in _of_pytorch():
            there = (*own, *OPTIONS)
            problems.append(Problem(f"there is no option {name!r}",
                                    hint=f"{guess(name, there)}docs/vocabulary.md lists them"))
        elif wanted := _wrong_type(name, value):
            problems.append(Problem(f"{name} is {value!r}, and must be of type {wanted}"))
        elif meaning is not None and meaning.refused(value):
            problems.append(Problem(f"{name}={value!r} is not done here", hint=meaning.note))
        elif meaning is not None and meaning.ours is not None:
            _merge(found, meaning.ours(value))
        elif name not in OPTIONS:
            log.info("strata: the option %s of PyTorch's compiler has no effect%s", name,
                     f": {meaning.note}" if meaning else "")
    if problems:
        raise StrataError("torch.compile(backend=\"strata\") has wrong options", problems)
    return found


def switched() -> dict[str, Any]:
    """Our options for the switches of PyTorch's compiler. Those that are refused are named in a
    warning, once."""
    by_variables = any(name.startswith(VARIABLES) for name in os.environ.keys() - OF_PROCESS)
    if SWITCHES not in sys.modules and not by_variables:
        return {}
    module = torch_module(SWITCHES)
    # a variable changes what is a switch's default
    switches = module._get_dict(skip_default=not by_variables)
    others = {name: getattr(module, name) for name in OF_ALL_COMPILERS if hasattr(module, name)}
    found: dict[str, Any] = {}
    for name, value in {**others, **switches}.items():
        meaning = meaning_of(name)
        if meaning is None or not meaning.is_switch:
            continue
        if meaning.refused(value):
            _name_refused(name, repr(value), meaning.note)
        elif meaning.ours is not None:
            _merge(found, meaning.ours(value))
    return found


@cache
def _name_refused(name: str, value: str, note: str) -> None:
    log.warning("strata: %s.%s = %s has no effect here: %s", SWITCHES, name, value, note)


def _merge(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Groups that are left out add up."""
    for name, value in more.items():
        if name == "without_groups" and name in found:
            value = tuple(dict.fromkeys((*found[name], *value)))
        found[name] = value


def target_of(inputs: Sequence[Any]) -> str:
    """The target for arguments, unless an option chooses one."""
    return "cuda" if any(getattr(v, "is_cuda", False) for v in inputs) else "cpu"


def own_options() -> list[str]:
    """The options of `compiler.compile` but for its model and what describes that. A graph of
    PyTorch brings its weights."""
    from compiler.api import compile as compile_model

    names = list(inspect.signature(compile_model).parameters)
    return [n for n in names if n not in ("model", "weights", "args", "kwargs", "dynamic_shapes")]


def _of_pytorch() -> frozenset[str]:
    """All options of PyTorch's compiler."""
    return frozenset(torch_module("torch._inductor").list_options())


def _wrong_type(name: str, value: Any) -> str | None:
    """The type of an option of PyTorch's compiler, where a value has another; types with
    parameters are not checked, as PyTorch does not."""
    if name not in _of_pytorch():
        return None
    wanted = torch_module(SWITCHES).get_type(name)
    if get_origin(wanted) is not None or isinstance(value, wanted):
        return None
    return getattr(wanted, "__name__", str(wanted))


def check_values(options: Mapping[str, Any], target: str) -> None:
    """Raises StrataError for bad values of options, before any graph is compiled: later, it would
    only say why a part of a graph runs eagerly. `target`: the one that is used if none is given.
    """
    from compiler.api import options_of

    chosen = options_of({"target": target, **{n: v for n, v in options.items() if n != "mode"}})
    if options.keys() & OF_PIPELINE:
        from compiler.pipeline.driver import Compiler

        Compiler("a graph", chosen).check_passes(None)
    elif options.keys() & {"target", "plugins"}:
        from compiler.plugins.plugin_files import load_plugins

        load_plugins(chosen.plugins).find_target(chosen.target)

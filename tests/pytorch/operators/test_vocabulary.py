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
from compiler.torch.vocabulary.families import FAMILIES
from compiler.torch.vocabulary.options import OPTIONS, meaning_of
from compiler.torch.vocabulary.switches import ARTIFACTS, DYNAMO, meaning_in
from compiler.torch.vocabulary.translation import own_options, switched, translated
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


def options_of_pytorch() -> dict[str, Any]:
    """All options of PyTorch's compiler, with the values that they have by default."""
    from torch._inductor import config, list_options

    values = config.get_config_copy()
    return {name: values.get(name) for name in list_options()}


def test_every_option_of_pytorch_has_a_meaning() -> None:
    """None is left to chance, and no line of the table is about nothing."""
    names = options_of_pytorch()
    assert len(names) > 400 and not [n for n in names if meaning_of(n) is None]
    found = [meaning_of(n) for n in names]
    assert all(meaning in found for _, meaning in FAMILIES)


def test_defaults_change_nothing() -> None:
    """The value that an option has by default is never refused, nor are they all switched."""
    for name, value in options_of_pytorch().items():
        meaning = meaning_of(name)
        assert meaning is not None and not meaning.refused(value), (name, value)
        if meaning.ours is not None and meaning.is_switch and name != "trace.debug_dir":
            assert not meaning.ours(value), name
    assert switched() == {}


ASKED: dict[str, tuple[Any, str]] = {
    "post_grad_custom_pre_pass": (print, "plugins"), "nan_asserts": (True, "verify"),
    "cpp.simdlen": (256, "features"), "cpu_backend": ("halide", "target"),
    "implicit_fallbacks": (False, "explain"), "profile_bandwidth": (True, "profile"),
    "lookup_table.table": ({"mm": []}, "schedule"), "batch_invariant": (True, "order of sums"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_program_would_lack_is_refused(name: str) -> None:
    """As an option; as a switch, which may be meant for others, it is named in a warning."""
    value, told = ASKED[name]
    with pytest.raises(StrataError, match=told):
        translated(None, {name: value})


def test_switches_count_as_options(caplog: Any) -> None:
    """Those of a program override them."""
    from torch._inductor import config

    changed = {"max_autotune": True, "epilogue_fusion": False, "cpp.threads": 2,
               "triton.cudagraphs": True, "save_args": True}
    with config.patch(changed), caplog.at_level(logging.WARNING, logger="strata"):
        assert translated("default", None) == {
            "mode": "max-autotune", "without_groups": ("fuse",), "threads": 2}
        assert translated("reduce-overhead", {"threads": 1}) == {
            "mode": "reduce-overhead", "without_groups": ("fuse",), "threads": 1}
    assert "torch._inductor.config.save_args = True has no effect" in caplog.text


def test_variables_of_switches_count(tmp_path: Path) -> None:
    code = ("from compiler.torch.vocabulary.translation import translated\n"
            "print(translated(None, None))")
    done = processes.run([sys.executable, "-c", code], capture_output=True, text=True, env={
        **os.environ, "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING": "1",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"})
    assert done.stdout.strip() == "{'cache': 'off', 'mode': 'max-autotune'}", done.stderr


def test_every_switch_of_capture_and_artifact_of_logs_has_a_meaning() -> None:
    from torch._dynamo import config
    from torch._logging._internal import log_registry

    assert not [n for n in config.get_config_copy() if meaning_in(DYNAMO, n) is None]
    assert not [n for n in log_registry.artifact_names if meaning_in(ARTIFACTS, n) is None]


HOLDING = ("specialize_int", "specialize_float", "dynamic_shapes", "assume_static_by_default",
           "automatic_dynamic_shapes", "capture_scalar_outputs",
           "inline_inbuilt_nn_modules", "use_graph_deduplication", "nested_graph_breaks",
           "install_free_tensors", "trace_autograd_ops", "enable_cpp_symbolic_shape_guards",
           "prefer_deferred_runtime_asserts_over_guards", "do_not_emit_runtime_asserts",
           "fake_tensor_cache_enabled", "caching_precompile", "use_lazy_graph_module")


@pytest.mark.parametrize("name", HOLDING)
def test_switches_of_capture_hold(name: str) -> None:
    """With the other value of a switch, our numbers and errors are those of another backend."""
    from torch._dynamo import config

    def program(x: torch.Tensor, k: int, f: float) -> Any:
        y = torch.relu(x) * f + k
        return y, y.sum(0).view(2, 2)

    def outcome(backend: str) -> Any:
        torch._dynamo.reset()
        fast = torch.compile(program, backend=backend)
        try:
            with torch.no_grad():
                return [fast(torch.ones(n, 4) * n, n, 0.5 * n) for n in (3, 5)]
        except Exception as error:
            return type(error)

    if not hasattr(config, name):
        pytest.skip(f"this PyTorch has no switch {name}")
    with config.patch({name: not getattr(config, name)}):
        ours, theirs = outcome("strata"), outcome("aot_eager")
    torch.testing.assert_close(ours, theirs)


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
    assert "unique_kernel_names" in caplog.text and "tiles, stages and warps" in caplog.text
    with pytest.raises(Exception, match="no mode 'lite'"):
        torch.compile(lambda x: x + 1, backend="strata", mode="lite")(torch.ones(2))


@pytest.mark.parametrize("name, value", [
    ("max_autotune", "yes"), ("epilogue_fusion", 0), ("cpp.threads", "two"), ("freezing", None),
    ("coordinate-descent-tuning", 1), ("max_autotune_gemm_backends", 3)])
def test_values_have_the_types_that_pytorch_declares(name: str, value: object) -> None:
    """PyTorch's own compiler refuses others, too."""
    kind = {"cpp.threads": "int", "max_autotune_gemm_backends": "str"}.get(name, "bool")
    with pytest.raises(StrataError, match=f"must be of type {kind}"):
        translated(None, {name: value})
    assert translated(None, {"coordinate-descent-tuning": True}) == {"mode": "max-autotune"}


@pytest.mark.parametrize("wrong, meant", [
    ("max-autotun", "max-autotune"), ("reduce_overhead", "reduce-overhead"),
    ("max-autotune-no-cudagraph", "max-autotune-no-cudagraphs")])
def test_the_nearest_mode_is_offered(wrong: str, meant: str) -> None:
    with pytest.raises(Exception, match=f"no mode '{wrong}'; did you mean '{meant}'"):
        torch.compile(lambda x: x + 1, backend="strata", mode=wrong)(torch.ones(2))


WRONG: dict[str, Any] = {
    "target": "gpu", "threads": "two", "dump_dir": 3, "shapes": [1], "dims": {"n": "x"},
    "constants": 1, "passes": "default,graph-simplfy", "strategy": "whole", "with_groups": ["fus"],
    "without_groups": "fuse", "plugins": ["missing.py"], "schedule": "missing.txt",
    "features": "avx1024", "cache": 5, "precision": "f33", "exact": "a",
    "denormals": "q", "check": "sometimes", "interpret": "a", "specialize": 3, "tuned": "missing",
    "mode": "fast", "library": "q", "mesh": "x"}


def test_no_option_is_left_out() -> None:
    assert set(WRONG) == set(own_options())


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_ends_in_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than in a graph that runs eagerly, or in a folder that is named after it."""
    monkeypatch.chdir(tmp_path)
    fast = torch.compile(lambda x: x + 1, backend="strata", options={name: WRONG[name]})
    with pytest.raises(Exception, match="StrataError: "):
        fast(torch.ones(2))
    assert list(tmp_path.iterdir()) == []


class Folder(os.PathLike[bytes]):
    """A path as bytes, which `str` does not make a path of."""

    def __init__(self, path: Path):
        self.path = path

    def __fspath__(self) -> bytes:
        return os.fsencode(self.path)


@pytest.mark.parametrize("cache", [None, "off", "text", Path, Folder])
def test_a_cache_is_where_the_option_says(
    cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = cache(tmp_path / "code") if isinstance(cache, type) else "code" if cache else None
    options = {"cache": cache if cache == "off" else given}
    fast = torch.compile(lambda x: x + 1, backend="strata", options=options)
    assert fast(torch.ones(2)).tolist() == [2, 2]
    expected = [] if cache in (None, "off") else ["code"]
    assert [path.name for path in tmp_path.iterdir()] == expected


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

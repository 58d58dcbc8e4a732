"""Users' own kernels in Triton as launches of our programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

import compiler
from compiler.diagnostics import StrataError
from compiler.frontend import MemoryModel
from compiler.frontend.torch.captured_graph import CapturedGraph, output_nodes
from compiler.frontend.torch.core.foreign import source_of
from compiler.options import CompileOptions
from compiler.pipeline.driver import Compiler
from compiler.pipeline.text import format_header, format_module
from compiler.torch.identity import identity_of
from tests.pytorch.kernels import written_kernels as w


def model_of(graph: Any) -> MemoryModel:
    return MemoryModel("graph.pt2", CapturedGraph(graph, {}, range(len(output_nodes(graph)))))


def compiled(graph: Any, **options: Any) -> Any:
    return compiler.compile(model_of(graph), cache="off", **{
        "target": "cuda", "interpret": True, **options})


def drawn(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def grown(x: Any) -> Any:
    """What two launches add."""
    x = x.copy()
    x[1:] += 1
    x[1:70] += 1
    return x


def test_a_kernel_between_ours() -> None:
    x, y = drawn(1000), drawn(1000)[::-1].copy()
    np.testing.assert_allclose(compiled(w.sums())(x, y)[0], np.sin(x) * 3 + y, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 128, 1000])
def test_open_sizes(n: int) -> None:
    x, y = drawn(n), drawn(n)[::-1].copy()
    exe = compiled(w.open_sums())
    np.testing.assert_allclose(exe(x, y)[0], (x * 3 + y) * 2, rtol=1e-6)


@pytest.mark.parametrize("argument", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_what_a_kernel_changes(argument: bool, again: bool) -> None:
    """Arguments, and values that are read again, keep their elements."""
    x = drawn(77)
    value, before = (x if argument else x * 2), x.copy()
    results = compiled(w.changes(argument, again))(x)
    np.testing.assert_allclose(results[0], grown(value), rtol=1e-6)
    if again:
        np.testing.assert_allclose(results[1], -value, rtol=1e-6)
    np.testing.assert_array_equal(x, before)


def test_a_grid_of_two_axes() -> None:
    x = np.arange(150, dtype=np.int32).reshape(3, 50)
    want = x + 100 * np.arange(3)[:, None] + np.arange(50)
    np.testing.assert_array_equal(compiled(w.places())(x)[0], want)


@pytest.mark.parametrize("name", ["open sums", "a value changes, and is read", "two axes"])
def test_graphs_become_code_and_text(name: str, tmp_path: Path) -> None:
    """Kernels compile to PTX without a GPU, and every level is text that can be read again."""
    options = CompileOptions("cuda", cache="off", features="sm_90", interpret=False)
    made = Compiler(model_of(w.GRAPHS[name]()), options)
    path = tmp_path / "graph.mlir"
    path.write_text(format_header("graph", ()) + format_module(made.lower("graph").module))
    state = Compiler(str(path), options).lower()
    ptx = made.parts.emission.emit(state.module, "ptx")
    kernels = [k for k in ("add_kernel", "grow_kernel", "place_kernel")
               if f".entry launch_{k}(" in ptx]
    assert len(kernels) == 1


def test_a_kernel_of_another_target_is_refused() -> None:
    """Graphs on the CPU keep such a launch outside (`compiler/torch`)."""
    with pytest.raises(StrataError, match="add_kernel is written in the language of another"):
        compiled(w.sums(), target="cpu", interpret=False)


def test_the_source_is_a_module_of_its_own() -> None:
    """With the functions and constants that a kernel refers to."""
    text = source_of(w.add_kernel)
    assert text.index("FACTOR = tl.constexpr(3.0)") < text.index("def scaled_sum")
    assert text.index("def scaled_sum") < text.index("def add_kernel")


def test_identity_says_what_a_kernel_computes() -> None:
    """A number of PyTorch's table may be another kernel in the next process."""
    first, second = w.sums(), w.sums()
    assert identity_of(first, {}) == identity_of(second, {}) != ""
    for node in second.graph.nodes:
        if "kernel_idx" in node.kwargs:
            table = w.wrap.kernel_side_table
            node.kwargs = {**node.kwargs, "constant_args_idx": table.add_constant_args(
                {"BLOCK": 256})}
    assert identity_of(first, {}) != identity_of(second, {})


@pytest.mark.gpu
@pytest.mark.parametrize("dynamic", [False, True])
def test_on_a_gpu(dynamic: bool, caplog: pytest.LogCaptureFixture) -> None:
    """As users write it; nothing runs eagerly."""
    import triton

    def model(x: Any, y: Any) -> Any:
        out = torch.empty_like(x)
        n = out.numel()
        w.add_kernel[(triton.cdiv(n, 128),)](x.sin(), y, out, n, 0.5, BLOCK=128)
        w.grow_kernel[(triton.cdiv(n, 64),)](out, n, BLOCK=64)
        return out * 2

    fast = torch.compile(model, backend="strata", fullgraph=True, dynamic=dynamic)
    for n in (1000, 1001, 4096):
        x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        torch.testing.assert_close(fast(x, y), model(x, y))
    assert not [r for r in caplog.records if "eagerly" in r.getMessage()]

"""Tensors whose memory has another order of dims, such as channels last: right, and not copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import compiler  # noqa: E402
from compiler.frontend.torch.memory.memory_order import order_of  # noqa: E402
from compiler.torch.backend import strata  # noqa: E402

functional, LAST = torch.nn.functional, torch.channels_last


def image(*shape: int, seed: int = 0):
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return torch.from_numpy(values).to(memory_format=LAST)


def conv(x, w):
    return functional.conv2d(x, w, padding=w.shape[-1] // 2)


FUNCTIONS: dict[str, tuple[Callable, list]] = {
    "3x3": (conv, [image(2, 5, 9, 7), image(4, 5, 3, 3, seed=1)]),
    "1x1": (conv, [image(2, 16, 9, 7), image(8, 16, 1, 1, seed=1)]),
    "each channel": (lambda x, w: functional.conv2d(x, w, groups=6),
                     [image(2, 6, 9, 7), image(6, 1, 3, 3, seed=1)]),
    "transposed": (lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1),
                   [image(2, 6, 5, 7), image(6, 3, 4, 4, seed=1)]),
    "a chain": (lambda x, w: torch.relu(conv(conv(x, w), w)) + x,
                [image(2, 5, 9, 7), image(5, 5, 3, 3, seed=1)]),
    "pooling": (lambda x: functional.max_pool2d(x, 2), [image(2, 5, 8, 6)]),
    "mixed": (lambda x, y: (x + y, x.sum(1), y * 2),
              [image(2, 5, 3, 4), image(2, 5, 3, 4, seed=1).contiguous()]),
    "a transposed matrix": (lambda x, y: (x @ y, x + 1), [torch.rand(5, 7).t(), torch.rand(5, 4)]),
    "a number per channel": (lambda x: x * 2, [image(1, 16, 1, 7)]),
    "no rows": (lambda x: x + 1, [image(0, 5, 3, 4)]),
    "a view of a result": (lambda x: (x * 2, (x * 2)[:, 1:]), [image(2, 5, 3, 4)]),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_compile_keeps_orders(name: str, dynamic: bool) -> None:
    function, inputs = FUNCTIONS[name]
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(function, backend=strata, dynamic=dynamic)(*inputs)
        want = function(*inputs)
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for mine, eager in pairs:
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)
        # PyTorch itself predicts other strides for no elements at open sizes
        assert mine.stride() == eager.stride() or (dynamic and not eager.numel())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_exported_programs_keep_orders(name: str) -> None:
    function, inputs = FUNCTIONS[name]

    class Module(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    with torch.no_grad():
        want = function(*inputs)
        exe = compiler.compile(torch.export.export(Module(), tuple(inputs)))
    wanted = want if isinstance(want, tuple) else (want,)
    for given in (inputs, [x.contiguous() for x in inputs], [x.numpy() for x in inputs]):
        for mine, eager in zip(exe(*given), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(mine), eager.numpy(), rtol=1e-4, atol=1e-5)
    named = dict(zip(exe.input_names, inputs, strict=True))
    for mine, eager in zip(exe(**named), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(mine), eager.numpy(), rtol=1e-4, atol=1e-5)
    shapes = [list(x.shape) for x in inputs]
    assert exe.input_types == [f"f32{shape}" for shape in shapes]


def test_a_convolution_with_channels_last_is_one_kernel(tmp_path: Path) -> None:
    """The filter is an argument, and no tensor is copied into another order."""
    torch._dynamo.reset()
    function, inputs = FUNCTIONS["1x1"]
    with torch.no_grad():
        torch.compile(function, backend=strata, options={"dump_dir": str(tmp_path)})(*inputs)
    text = next(tmp_path.rglob("*loop-outline.mlir")).read_text()
    assert text.count("loop.call") == 1, text


def test_a_saved_program_keeps_orders(tmp_path: Path) -> None:
    function, inputs = FUNCTIONS["3x3"]

    class Module(torch.nn.Module):
        def forward(self, x, w):
            return function(x, w)

    compiler.compile(torch.export.export(Module(), tuple(inputs))).save(tmp_path / "m.strata")
    [got] = compiler.load(tmp_path / "m.strata")(*inputs)
    torch.testing.assert_close(got, function(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tensor, order", [
    (torch.empty(2, 3, 4, 5), None),
    (torch.empty(2, 3, 4, 5).to(memory_format=LAST), (0, 2, 3, 1)),
    (torch.empty(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d), (0, 2, 3, 4, 1)),
    (torch.empty(4, 5).t(), (1, 0)),
    (torch.empty(4, 1, 5).permute(2, 1, 0), (2, 0, 1)),
    (torch.empty(4, 1, 1).permute(2, 1, 0), None),
    (torch.empty(4, 6)[:, ::2], None),
    (torch.empty(4, 6)[:, :3].t(), None),
    (torch.empty(3, 1).expand(3, 4), None),
    (torch.empty(()), None),
    (torch.empty(4, 0).t(), None),
])
def test_orders(tensor, order) -> None:
    assert order_of(tensor) == order
    if order is not None:
        assert tensor.permute(order).is_contiguous()


DECOMPOSED: dict[str, tuple[Callable, list]] = {
    "addbmm": (torch.addbmm, [torch.rand(10, 5).t(), torch.rand(2, 5, 3), torch.rand(2, 3, 10)]),
    "kthvalue": (lambda x: torch.kthvalue(x, 2, 1, keepdim=True)[0],
                 [torch.rand(5, 5)]),
    "put": (torch.put, [torch.rand(3, 4).t(), torch.tensor([1, 5]), torch.rand(2)]),
    "as_strided_copy": (lambda x: torch.as_strided_copy(x, (2, 2), (1, 2)), [torch.rand(2, 3)]),
}


@pytest.mark.parametrize("name", DECOMPOSED)
def test_decompositions_keep_orders(name: str) -> None:
    """`as_strided` shows the memory of a result within a graph."""
    function, inputs = DECOMPOSED[name]

    def call(*values):
        found = function(*values)
        return found, found.as_strided((found.numel(),), (1,)) + 1

    torch._dynamo.reset()
    with torch.no_grad():
        for got, want in zip(torch.compile(call, backend=strata)(*inputs), call(*inputs),
                             strict=True):
            torch.testing.assert_close(got, want, check_stride=True)

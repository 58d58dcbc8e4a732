"""Tensor subclasses that become plain tensors in graphs: quantized weights, pairs, DTensor."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

OPTIONS = {"threads": 1, "cache": "off"}
pytestmark = pytest.mark.usefixtures("natively")
KEEPING = (torch.ops.aten.detach.default, torch.ops.aten.alias.default,
           torch.ops.aten.clone.default)


class Wrapped(Tensor):
    """A subclass of several inner tensors. Operators see what `plain` makes of them."""

    inner: Sequence[str] = ()

    @staticmethod
    def __new__(cls: Any, **parts: Tensor) -> Any:
        found = cls.shown(**parts)
        return Tensor._make_wrapper_subclass(cls, found.shape, dtype=found.dtype)

    def __init__(self, **parts: Tensor) -> None:
        self.__dict__.update(parts)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return list(self.inner), None

    @classmethod
    def __tensor_unflatten__(
        cls, parts: Mapping[str, Tensor], meta: None, size: Any, stride: Any
    ) -> Any:
        return cls(**parts)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in KEEPING:
            parts = {n: func(getattr(args[0], n), *args[1:], **kwargs) for n in cls.inner}
            return return_and_correct_aliasing(func, args, kwargs, cls(**parts))
        args, kwargs = pytree.tree_map_only(cls, lambda t: t.plain(), (args, kwargs))
        return func(*args, **kwargs)


class Int8(Wrapped):
    """Codes of 8 bits with a scale for each row, as weights of quantized layers are kept."""

    inner = ("codes", "scale")

    @staticmethod
    def shown(codes: Tensor, scale: Tensor) -> Tensor:
        return codes.to(scale.dtype)

    @classmethod
    def of(cls, weight: Tensor) -> Any:
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls(codes=(weight / scale).round().to(torch.int8), scale=scale)

    def plain(self) -> Tensor:
        return self.codes.to(self.scale.dtype) * self.scale


class Int4(Wrapped):
    """Two codes of 4 bits in a byte, with a scale and a zero point for each group of 8."""

    inner = ("packed", "scale", "zero")

    @staticmethod
    def shown(packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        return torch.empty(packed.shape[0], packed.shape[1] * 2, dtype=scale.dtype)

    @classmethod
    def of(cls, weight: Tensor) -> Any:
        groups = weight.reshape(weight.shape[0], -1, 8)
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scale = (high - low) / 15
        codes = ((groups - low) / scale).round().clamp(0, 15).to(torch.uint8).reshape(weight.shape)
        return cls(packed=codes[:, ::2] | (codes[:, 1::2] << 4), scale=scale, zero=low)

    def plain(self) -> Tensor:
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1)
        groups = codes.reshape(codes.shape[0], -1, 8).to(self.scale.dtype)
        return (groups * self.scale + self.zero).reshape(codes.shape[0], -1)


class Scaled(Wrapped):
    """A sum of two tensors, as an adapter beside a weight is."""

    inner = ("one", "two")

    @staticmethod
    def shown(one: Tensor, two: Tensor) -> Tensor:
        return one

    @classmethod
    def of(cls, weight: Tensor) -> Any:
        return cls(one=weight * 0.5, two=weight * 0.25)

    def plain(self) -> Tensor:
        return self.one + self.two


KINDS = {"int8": Int8, "int4": Int4, "sum": Scaled}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_a_subclass(kind: str) -> None:
    net = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    for layer in (net[0], net[2]):
        layer.weight = nn.Parameter(KINDS[kind].of(layer.weight.detach()), requires_grad=False)
    fast = torch.compile(net, backend="strata", fullgraph=True, options=OPTIONS)
    for rows in (1, 3, 5):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_and_results_of_a_subclass(kind: str) -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        return x.detach(), x + y

    fast = torch.compile(function, backend="strata", fullgraph=True, options=OPTIONS)
    x, y = KINDS[kind].of(torch.randn(4, 16)), torch.randn(4, 16)
    mine, total = fast(x, y)
    assert type(mine) is KINDS[kind] and type(total) is Tensor
    torch.testing.assert_close(total, x.plain() + y)
    torch.testing.assert_close(mine.plain(), x.plain())


def test_a_subclass_that_only_has_a_name() -> None:
    class Tagged(Tensor):
        pass

    fast = torch.compile(lambda x: x.sin() * 2, backend="strata", options=OPTIONS)
    x = torch.randn(3).as_subclass(Tagged)
    found = fast(x)
    assert type(found) is Tagged
    torch.testing.assert_close(found.as_subclass(Tensor), x.as_subclass(Tensor).sin() * 2)



def test_nested_tensors_through_attention() -> None:
    """Of which a graph returns the parts, views of its arguments among them."""
    def function(x: Any) -> Any:
        parts = x.unflatten(-1, (2, 4)).transpose(1, 2)
        mixed = torch.nn.functional.scaled_dot_product_attention(parts, parts, parts)
        return mixed.transpose(1, 2).flatten(-2).values()

    fast = torch.compile(function, backend="strata", options=OPTIONS)
    for rows in ([3, 5, 2], [4, 1, 6]):
        x = torch.nested.nested_tensor([torch.randn(r, 8) for r in rows], layout=torch.jagged)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), function(x))

@pytest.fixture
def mesh() -> Iterator[Any]:
    """One rank, without a network."""
    from torch import distributed
    from torch.distributed.tensor import DeviceMesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    distributed.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    yield DeviceMesh("cpu", [0])
    distributed.destroy_process_group()


def test_dtensor(mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    def function(x: Any, w: Any) -> Any:
        return (x @ w).relu().softmax(-1)

    fast = torch.compile(function, backend="strata", fullgraph=True, options=OPTIONS)
    x, w = torch.randn(4, 6), torch.randn(6, 3)
    for placed in (Replicate(), Shard(1)):
        found = fast(*(distribute_tensor(t, mesh, [p]) for t, p in ((x, Replicate()), (w, placed))))
        assert isinstance(found, DTensor)
        torch.testing.assert_close(found.full_tensor(), function(x, w))

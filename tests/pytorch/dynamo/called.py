"""Functions and modules with the arguments and results that PyTorch's users pass through graphs."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

Pair = namedtuple("Pair", "left right")


class Named(NamedTuple):
    value: Tensor
    count: int


@dataclasses.dataclass
class Record:
    value: Tensor
    rest: list[Tensor]


def nested(x: Tensor) -> Any:
    return {"a": [x.sin(), (x + 1, None)], "b": Pair(x * 2, 3), "c": "text"}


def ordered(x: Tensor) -> Any:
    return OrderedDict([("last", x.exp()), ("first", x.abs())])


def same_twice(x: Tensor) -> Any:
    y = x.cos()
    return y, [y, x], y


def nothing(x: Tensor) -> None:
    x.add_(1)


def no_tensors(x: Tensor) -> Any:
    return x.shape[0] * 2, x.dtype, x.dim() == 2


def of_records(x: Tensor) -> Any:
    record = Record(x.exp(), [x, x * 2])
    record.rest.append(record.value + 1)
    return record.value, record.rest


def named_results(x: Tensor) -> Any:
    return Named(x.mean(0), len(x)), torch.max(x, 1)


def with_defaults(x: Tensor, *more: Tensor, scale: float = 2.0, **named: Tensor) -> Any:
    return sum((v * scale for v in (*more, *named.values())), x)


def dictionary(x: Tensor) -> Any:
    state = {"x": x, 3: x + 1}
    state["y"] = state.pop("x") * state[3]
    return {k: v.sum() for k, v in state.items()}


def comprehension(x: Tensor) -> Any:
    return [row * k for k, row in enumerate(x.unbind(0)) if k % 2 == 0]


def closure(x: Tensor) -> Any:
    def scaled(y: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return y * x.sum() * count

    count = 0
    return scaled(x), scaled(x), count


def exception(x: Tensor) -> Any:
    try:
        if x.dim() == 2:
            raise ValueError(x.shape[1])
    except ValueError as error:
        return x * error.args[0]
    return x


def modes(x: Tensor) -> Any:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = x @ x.mT
    return y, y.float().softmax(-1)


def chunked(x: Tensor) -> Any:
    first, second = x.chunk(2, 1)
    return first.contiguous(), second.t(), x[..., None].expand(-1, -1, 3)


def strides(x: Tensor) -> Any:
    image = x.reshape(1, 1, *x.shape).contiguous(memory_format=torch.channels_last)
    return x.t().exp(), image * 2, torch.empty_like(x.t()).fill_(2), x.t().contiguous()


def overlapping_views(x: Tensor) -> Any:
    y = x.clone()
    a, b = y[:, 1:], y[:, :-1]
    a.mul_(2)
    b.add_(1)
    return y, a, b


def mutated_view(x: Tensor) -> Any:
    x.view(-1)[1:3] = 7
    x.t().mul_(2)
    return x[0]


def through_data(x: Tensor) -> Any:
    y = x.clone()
    y[y > 0] = 0
    y.index_put_((torch.tensor([0]),), x[1])
    return y, y.detach().requires_grad_(False)


def returned_argument(x: Tensor) -> Any:
    return x, x.relu_()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (
        nested, ordered, same_twice, nothing, no_tensors, of_records, named_results, with_defaults,
        dictionary, comprehension, closure, exception, modes, chunked, strides, overlapping_views,
        mutated_view, through_data, returned_argument)}


class Counting(nn.Module):
    """Keeps a number, a buffer and a list between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 4)
        self.calls = 0
        self.seen: list[int] = []
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(x.shape[0])
        self.total += x.sum(0)
        return self.out(x) * self.calls + self.total


class Hooked(nn.Module):
    """Hooks, a shared submodule, and a container of modules by name."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Linear(4, 4)
        self.layers = nn.ModuleDict({"one": shared, "two": nn.Sequential(shared, nn.ReLU())})
        shared.register_forward_hook(lambda module, given, result: result + 1)
        self.register_forward_pre_hook(lambda module, given: (given[0] * 2,))

    def forward(self, x: Tensor) -> Tensor:
        for name in ("one", "two"):
            x = self.layers[name](x)
        return x


class Parametrized(nn.Module):
    """Weights that are computed from others at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
        self.tied = nn.Linear(5, 4)
        torch.nn.utils.parametrize.register_parametrization(self.tied, "weight", Symmetric())

    def forward(self, x: Tensor) -> Tensor:
        return self.tied(self.normed(x))


class Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.tanh()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "counting": Counting, "hooked": Hooked, "parametrized": Parametrized}

"""Decompositions of random operators whose distribution depends on tensors.

They scale what an operator of a shape alone draws, as eager mode does on the CPU.
"""

from __future__ import annotations

from typing import Any

from compiler.frontend.torch.library import torch_module


def drawing_decompositions() -> dict[Any, Any]:
    """Operator -> function."""
    aten = torch_module().ops.aten
    return {aten.normal.Tensor_Tensor: normal, aten.normal.Tensor_float: normal_of_mean,
            aten.normal.float_Tensor: normal_of_deviation, aten.multinomial.default: multinomial,
            aten.normal.float_float: normal_of_numbers,
            aten.rrelu_with_noise_functional.default: rrelu}


def normal(mean: Any, deviation: Any, generator: Any = None) -> Any:
    """Normal numbers with a mean and a deviation for each."""
    if generator is not None:
        return NotImplemented
    torch = torch_module()
    shape = torch.broadcast_shapes(mean.shape, deviation.shape)
    drawn = torch.ops.aten.normal_functional(mean.new_empty(shape), 0.0, 1.0)
    return drawn * deviation + mean


def normal_of_mean(mean: Any, deviation: float = 1.0, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    drawn = torch_module().ops.aten.normal_functional(
        mean.new_empty(mean.shape), 0.0, deviation)
    return drawn + mean


def normal_of_deviation(mean: float, deviation: Any, generator: Any = None) -> Any:
    if generator is not None:
        return NotImplemented
    drawn = torch_module().ops.aten.normal_functional(
        deviation.new_empty(deviation.shape), 0.0, 1.0)
    return drawn * deviation + mean


def normal_of_numbers(
    mean: float, deviation: float, size: Any, generator: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: Any = None,
) -> Any:
    if generator is not None:
        return NotImplemented
    torch = torch_module()
    empty = torch.empty(size, dtype=dtype, device=device)
    return torch.ops.aten.normal_functional(empty, mean, deviation)


def multinomial(x: Any, count: int, replacement: bool = False, generator: Any = None) -> Any:
    """Indices drawn by weights: those of the largest quotients of weights and exponential numbers.

    With replacement, eager mode draws otherwise, unless a single index is drawn.
    """
    if generator is not None or (replacement and count != 1):
        return NotImplemented
    drawn = torch_module().ops.aten.exponential(x.new_empty(x.shape), 1.0)
    quotient = x / drawn
    if count == 1:
        return quotient.argmax(-1, keepdim=True)
    return quotient.topk(count, -1)[1]


def rrelu(
    x: Any, noise: Any, lower: float = 0.125, upper: float = 1 / 3, training: bool = False,
    generator: Any = None,
) -> Any:
    """x where it is positive, else x times the mean of the slopes that training draws, as many as
    there are such elements."""
    if training:
        return NotImplemented
    return torch_module().where(x > 0, x, x * ((lower + upper) / 2)), noise

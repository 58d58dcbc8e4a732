"""Normalization of batches: of inference, of training, and its gradients."""

from __future__ import annotations

from typing import Any

from compiler.frontend import formulas as f
from compiler.frontend.stablehlo.node import Node
from compiler.frontend.stablehlo.ops import hlo_op
from compiler.frontend.values import Value
from dialects.symbolic.size_products import product


class Features:
    """Views of one number for each feature, and sums over all else."""

    def __init__(self, n: Node, x: Value):
        self.n, self.axis, self.x = n, n.number("feature_index"), x
        self.axes = [k for k in range(x.rank) if k != self.axis]
        self.epsilon = float(n.op.attributes["epsilon"])
        self.count = n.of_size(product(x.shape[k] for k in self.axes)).cast(x.element)

    def each(self, v: Value) -> Value:
        return v.reshape([v.shape[0], *[1] * (self.x.rank - self.axis - 1)])

    def sum(self, v: Value) -> Value:
        return f.reduce_sum(v, self.axes)

    def rate(self, variance: Value) -> Value:
        return f.reciprocal(f.sqrt(variance + self.epsilon))


@hlo_op("stablehlo.batch_norm_inference")
def inference(n: Node, x: Value, scale: Value, offset: Value, mean: Value, variance: Value
              ) -> Value:
    own = Features(n, x)
    rate = own.each(own.rate(variance) * scale)
    return (x - own.each(mean)) * rate + own.each(offset)


@hlo_op("stablehlo.batch_norm_training")
def training(n: Node, x: Value, scale: Value, offset: Value) -> list[Value]:
    own = Features(n, x)
    mean = own.sum(x) / own.count
    centered: Any = x - own.each(mean)
    variance = own.sum(centered * centered) / own.count
    rate = own.each(own.rate(variance) * scale)
    return [centered * rate + own.each(offset), mean, variance]


@hlo_op("stablehlo.batch_norm_grad")
def gradients(n: Node, x: Value, scale: Value, mean: Value, variance: Value, grad: Value
              ) -> list[Value]:
    own = Features(n, x)
    centered, rate = x - own.each(mean), own.rate(variance)
    total, product_ = own.sum(grad), own.sum(grad * centered)
    rest = grad - own.each(total / own.count) - centered * own.each(
        product_ * rate * rate / own.count)
    return [rest * own.each(scale * rate), product_ * rate, total]

"""Programs with operations that few exporters write, and what they compute in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.frontend.stablehlo.programs import Program


def pooled_gradient(x: Any, u: Any) -> Any:
    """Windows of 3 with stride 2 over [6, 5], padded by one before: the first maximum receives."""
    padded = np.pad(x, ((1, 0), (1, 1)), constant_values=-np.inf)
    found = np.zeros_like(padded)
    for i, j in np.ndindex(u.shape):
        window = padded[2 * i:2 * i + 3, 2 * j:2 * j + 3]
        at = np.unravel_index(window.argmax(), window.shape)
        found[2 * i + at[0], 2 * j + at[1]] += u[i, j]
    return found[1:, 1:-1]


def grouped(x: Any, w: Any) -> Any:
    """Two groups of the batch, each with half of the turned filters."""
    halves = [[np.einsum("nct,oct->no", x[g:g + 1, :, k:k + 3], w[2 * g:2 * g + 2, :, ::-1])
               for k in range(5)] for g in (0, 1)]
    return np.concatenate([np.stack(half, 2) for half in halves], 1)


def normalized(x: Any, s: Any, o: Any, g: Any) -> Any:
    mean, var = x.mean((0, 2)), x.var((0, 2))
    rate = 1 / np.sqrt(var + 0.1)
    c = x - mean[:, None]
    count = x.shape[0] * x.shape[2]
    out = c * (rate * s)[:, None] + o[:, None]
    total, both = g.sum((0, 2)), (g * c).sum((0, 2))
    grad = (s * rate)[:, None] * (g - total[:, None] / count
                                  - c * (both * rate ** 2)[:, None] / count)
    return out, mean, var, out, grad, both * rate, total


def bits(i: Any) -> Any:
    text = [format(int(v) % 2 ** 32, "032b") for v in i]
    return (np.array([t.count("1") for t in text]),
            np.array([32 - len(t.lstrip("0")) for t in text]))


def by_two(x: Any, i: Any) -> Any:
    """By i, then by x from the largest on."""
    order = np.lexsort((-x, i))
    return i[order], x[order]


def factors(x: Any, b: Any) -> Any:
    a = x @ x.swapaxes(-1, -2) + 2 * np.eye(4)
    low = np.linalg.cholesky(a)
    return low, np.linalg.solve(low, b), np.linalg.solve(
        low.swapaxes(-1, -2), b), np.linalg.solve(low, b.swapaxes(-1, -2)).swapaxes(-1, -2)


def total_order(x: Any) -> Any:
    changed = x.copy()
    changed[1], changed[2], changed[3] = np.nan, 0.0, -0.0
    return np.sort(changed), (changed < 0) | (np.signbit(changed) & (changed == 0))


_FULL = "tensor<2x3x4xf32>"
MORE = {
    "a column": Program(
        "%x: tensor<4x9xf32>, %i: tensor<1xi32>", "tensor<4xf32>, tensor<4x9xf32>", """
    %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0],
        collapsed_slice_dims = [1], start_index_map = [1]>, indices_are_sorted = false,
        slice_sizes = array<i64: 4, 1>}> : (tensor<4x9xf32>, tensor<1xi32>) -> tensor<4xf32>
    %1 = "stablehlo.scatter"(%x, %i, %0) <{scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1],
        scatter_dims_to_operand_dims = [1]>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<4x9xf32>, tensor<1xi32>, tensor<4xf32>) -> tensor<4x9xf32>
    return %0, %1 : tensor<4xf32>, tensor<4x9xf32>""", lambda x, i: (
        x[:, i[0]], x + np.where(np.arange(9) == i[0], x[:, i], 0)), (("f", 4, 9), ("i9", 1))),
    "the first few": Program(
        "%x: tensor<4x9xf32>", "tensor<4x3xf32>, tensor<4x3xi32>", """
    %0:2 = chlo.top_k(%x, k = 3) {largest = true} : tensor<4x9xf32> ->
        (tensor<4x3xf32>, tensor<4x3xi32>)
    return %0#0, %0#1 : tensor<4x3xf32>, tensor<4x3xi32>""", lambda x: (
        -np.sort(-x)[:, :3], np.argsort(-x, kind="stable")[:, :3]), (("f", 4, 9),)),
    "gradient of a pool": Program(
        "%x: tensor<6x5xf32>, %u: tensor<3x3xf32>", "tensor<6x5xf32>", """
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.select_and_scatter"(%x, %u, %zero) <{
        padding = dense<[[1, 0], [1, 1]]> : tensor<2x2xi64>,
        window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 2, 2>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %p = stablehlo.compare GE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }, {
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<6x5xf32>, tensor<3x3xf32>, tensor<f32>) -> tensor<6x5xf32>
    return %0 : tensor<6x5xf32>""", pooled_gradient, (("f", 6, 5), ("f", 3, 3))),
    "groups of batches": Program(
        "%x: tensor<2x3x7xf32>, %w: tensor<4x3x3xf32>", "tensor<1x4x5xf32>", """
    %0 = "stablehlo.convolution"(%x, %w) <{batch_group_count = 2 : i64,
        dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>,
        feature_group_count = 1 : i64, window_reversal = array<i1: true>,
        padding = dense<0> : tensor<1x2xi64>}> :
        (tensor<2x3x7xf32>, tensor<4x3x3xf32>) -> tensor<1x4x5xf32>
    return %0 : tensor<1x4x5xf32>""", grouped, (("f", 2, 3, 7), ("f", 4, 3, 3))),
    "normalization of batches": Program(
        f"%x: {_FULL}, %s: tensor<3xf32>, %o: tensor<3xf32>, %g: {_FULL}",
        ", ".join([_FULL, "tensor<3xf32>", "tensor<3xf32>", _FULL, _FULL, "tensor<3xf32>",
                   "tensor<3xf32>"]), f"""
    %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{{epsilon = 0.1 : f32,
        feature_index = 1 : i64}}> : ({_FULL}, tensor<3xf32>, tensor<3xf32>) ->
        ({_FULL}, tensor<3xf32>, tensor<3xf32>)
    %1 = "stablehlo.batch_norm_inference"(%x, %s, %o, %0#1, %0#2) <{{epsilon = 0.1 : f32,
        feature_index = 1 : i64}}> : ({_FULL}, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>,
        tensor<3xf32>) -> {_FULL}
    %2:3 = "stablehlo.batch_norm_grad"(%x, %s, %0#1, %0#2, %g) <{{epsilon = 0.1 : f32,
        feature_index = 1 : i64}}> : ({_FULL}, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>,
        {_FULL}) -> ({_FULL}, tensor<3xf32>, tensor<3xf32>)
    return %0#0, %0#1, %0#2, %1, %2#0, %2#1, %2#2 : {_FULL}, tensor<3xf32>, tensor<3xf32>,
        {_FULL}, {_FULL}, tensor<3xf32>, tensor<3xf32>""", normalized,
        (("f", 2, 3, 4), ("f", 3), ("f", 3), ("f", 2, 3, 4))),
    "bits": Program(
        "%i: tensor<9xi32>", "tensor<9xi32>, tensor<9xi32>", """
    %c = stablehlo.constant dense<[0, -1, 1, 2, -2147483648, 2147483647, 0, 0, 0]> : tensor<9xi32>
    %0 = stablehlo.add %i, %c : tensor<9xi32>
    %1 = stablehlo.popcnt %0 : tensor<9xi32>
    %2 = stablehlo.count_leading_zeros %0 : tensor<9xi32>
    return %1, %2 : tensor<9xi32>, tensor<9xi32>""",
        lambda i: bits(i + np.array([0, -1, 1, 2, -2 ** 31, 2 ** 31 - 1, 0, 0, 0])),
        (("i40", 9),)),
    "two keys": Program(
        "%x: tensor<20xf32>, %i: tensor<20xi32>", "tensor<20xi32>, tensor<20xf32>", """
    %0:2 = "stablehlo.sort"(%i, %x) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<f32>):
      %p = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %q = stablehlo.compare EQ, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %r = stablehlo.compare GT, %c, %d, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %s = stablehlo.and %q, %r : tensor<i1>
      %t = stablehlo.or %p, %s : tensor<i1>
      stablehlo.return %t : tensor<i1>
    }) : (tensor<20xi32>, tensor<20xf32>) -> (tensor<20xi32>, tensor<20xf32>)
    return %0#0, %0#1 : tensor<20xi32>, tensor<20xf32>""", by_two, (("f", 20), ("i4", 20))),
    "total order": Program(
        "%x: tensor<9xf32>", "tensor<9xf32>, tensor<9xi1>", """
    %v = stablehlo.constant dense<[0x7FC00000, 0.0, -0.0]> : tensor<3xf32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.dynamic_update_slice %x, %v, %one : (tensor<9xf32>, tensor<3xf32>,
        tensor<i32>) -> tensor<9xf32>
    %1 = "stablehlo.sort"(%0) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %n = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      %2 = stablehlo.compare EQ, %a, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.select %2, %z, %a : tensor<i1>, tensor<f32>
      %4 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %5 = stablehlo.select %4, %n, %3 : tensor<i1>, tensor<f32>
      %6 = stablehlo.compare EQ, %b, %z, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %7 = stablehlo.select %6, %z, %b : tensor<i1>, tensor<f32>
      %8 = stablehlo.compare NE, %b, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %9 = stablehlo.select %8, %n, %7 : tensor<i1>, tensor<f32>
      %p = stablehlo.compare LT, %5, %9, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }) : (tensor<9xf32>) -> tensor<9xf32>
    %zeros = stablehlo.constant dense<0.0> : tensor<9xf32>
    %10 = stablehlo.compare LT, %0, %zeros, TOTALORDER : (tensor<9xf32>, tensor<9xf32>) ->
        tensor<9xi1>
    return %1, %10 : tensor<9xf32>, tensor<9xi1>""", total_order, (("f", 9),)),
    "factors": Program(
        "%x: tensor<2x4x4xf64>, %b: tensor<2x4x4xf64>",
        ", ".join(["tensor<2x4x4xf64>"] * 4), """
    %0 = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [2] x [2] :
        (tensor<2x4x4xf64>, tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
    %i = stablehlo.iota dim = 1 : tensor<2x4x4xi32>
    %j = stablehlo.iota dim = 2 : tensor<2x4x4xi32>
    %p = stablehlo.compare EQ, %i, %j : (tensor<2x4x4xi32>, tensor<2x4x4xi32>) -> tensor<2x4x4xi1>
    %d = stablehlo.convert %p : (tensor<2x4x4xi1>) -> tensor<2x4x4xf64>
    %1 = stablehlo.add %0, %d : tensor<2x4x4xf64>
    %2 = stablehlo.add %1, %d : tensor<2x4x4xf64>
    %low = stablehlo.cholesky %2, lower = true : tensor<2x4x4xf64>
    %up = stablehlo.cholesky %2 : tensor<2x4x4xf64>
    %upper = stablehlo.transpose %up, dims = [0, 2, 1] : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
    %3 = "stablehlo.triangular_solve"(%low, %b) <{left_side = true, lower = true,
        transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> :
        (tensor<2x4x4xf64>, tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
    %4 = "stablehlo.triangular_solve"(%upper, %b) <{left_side = true, lower = true,
        transpose_a = #stablehlo<transpose TRANSPOSE>, unit_diagonal = false}> :
        (tensor<2x4x4xf64>, tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
    %5 = "stablehlo.triangular_solve"(%low, %b) <{left_side = false, lower = true,
        transpose_a = #stablehlo<transpose TRANSPOSE>, unit_diagonal = false}> :
        (tensor<2x4x4xf64>, tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
    return %low, %3, %4, %5 : tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>,
        tensor<2x4x4xf64>""", factors, (("d", 2, 4, 4), ("d", 2, 4, 4))),
    "any reduction": Program(
        "%x: tensor<3x7xf32>, %i: tensor<3x7xi32>",
        "tensor<3xf32>, tensor<3xf32>, tensor<3xi32>, tensor<3x6xf32>, tensor<7x3xf32>", """
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %all = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.reduce(%x init: %one), (%x init: %zero) across dimensions = [1] :
        (tensor<3x7xf32>, tensor<3x7xf32>, tensor<f32>, tensor<f32>) -> (tensor<3xf32>,
            tensor<3xf32>)
     reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<f32>, %d: tensor<f32>)  {
      %p = stablehlo.multiply %a, %c : tensor<f32>
      %q = stablehlo.multiply %b, %c : tensor<f32>
      %r = stablehlo.add %q, %d : tensor<f32>
      stablehlo.return %p, %r : tensor<f32>, tensor<f32>
    }
    %1 = stablehlo.reduce(%i init: %all) applies stablehlo.xor across dimensions = [1] :
        (tensor<3x7xi32>, tensor<i32>) -> tensor<3xi32>
    %2 = "stablehlo.reduce_window"(%x, %one) <{window_dimensions = array<i64: 1, 2>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.constant dense<2.0> : tensor<f32>
      %m = stablehlo.add %a, %b : tensor<f32>
      %n = stablehlo.subtract %m, %c : tensor<f32>
      %o = stablehlo.add %n, %c : tensor<f32>
      stablehlo.return %o : tensor<f32>
    }) : (tensor<3x7xf32>, tensor<f32>) -> tensor<3x6xf32>
    %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x7xf32>) -> tensor<7x3xf32>
    %3 = "stablehlo.map"(%t, %t) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.multiply %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<7x3xf32>, tensor<7x3xf32>) -> tensor<7x3xf32>
    return %0#0, %0#1, %1, %2, %3 : tensor<3xf32>, tensor<3xf32>, tensor<3xi32>, tensor<3x6xf32>,
        tensor<7x3xf32>""",
        lambda x, i: (x.prod(1), chained(x), np.bitwise_xor.reduce(i, 1),
                      1 + x[:, 1:] + x[:, :-1], x.T ** 2), (("f", 3, 7), ("i99", 3, 7))),
    "composites, devices and pads": Program(
        "%x: tensor<3x4xf32>", "tensor<5x8xf32>, tensor<3x4xi1>, tensor<2x3x4xf32>", """
    %0 = stablehlo.composite "my.square" %x {composite_attributes = {scale = 2.0 : f32},
        decomposition = @square} : (tensor<3x4xf32>) -> tensor<3x4xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"x"}, {}]> : tensor<3x4xf32>
    %2 = stablehlo.custom_call @Sharding(%1) {mhlo.sharding = "{replicated}"} :
        (tensor<3x4xf32>) -> tensor<3x4xf32>
    %low = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
    %high = stablehlo.constant dense<[1, 1]> : tensor<2xi32>
    %between = stablehlo.constant dense<[0, 1]> : tensor<2xi32>
    %value = stablehlo.constant dense<2.5> : tensor<f32>
    %3 = stablehlo.dynamic_pad %2, %value, %low, %high, %between : (tensor<3x4xf32>, tensor<f32>,
        tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<5x8xf32>
    %4 = chlo.is_neg_inf %x : tensor<3x4xf32> -> tensor<3x4xi1>
    %5 = stablehlo.constant dense<[[1.0], [2.0]]> : tensor<2x1xf32>
    %6 = stablehlo.reshape %5 : (tensor<2x1xf32>) -> tensor<2x1x1xf32>
    %7 = chlo.broadcast_multiply %6, %x : (tensor<2x1x1xf32>, tensor<3x4xf32>) ->
        tensor<2x3x4xf32>
    return %3, %4, %7 : tensor<5x8xf32>, tensor<3x4xi1>, tensor<2x3x4xf32>""",
        lambda x: (padded(x), x < -math.inf, np.stack([x, 2 * x])), (("f", 3, 4),), """
  func.func private @square(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
    %0 = stablehlo.multiply %x, %x : tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }
  sdy.mesh @mesh = <["x"=2]>
"""),
}
"""Name -> program."""


def chained(x: Any) -> Any:
    """y = y * x + x along each row: a reduction by a region of two numbers."""
    found = np.zeros(len(x))
    for column in x.T:
        found = found * column + column
    return found


def padded(x: Any) -> Any:
    spread = np.full((5, 8), 2.5, np.float32)
    spread[1:4, 0:7:2] = x * x
    return spread

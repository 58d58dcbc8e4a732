"""Programs in StableHLO, as exporters write them, with what they compute in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = Sequence[Any]


@dataclass(frozen=True)
class Program:
    """The body of `main` after its arguments, their types, results, and the truth."""

    arguments: str
    results: str
    body: str
    truth: Callable[..., Any]
    shapes: tuple[tuple[Any, ...], ...]
    others: str = ""

    @property
    def text(self) -> str:
        return f"""module @jit_f attributes {{mhlo.num_partitions = 1 : i32}} {{
  func.func public @main({self.arguments}) -> ({self.results}) {{
    {self.body.strip()}
  }}
{self.others}}}
"""

    def inputs(self) -> list[Any]:
        rng = np.random.default_rng(len(self.body))
        return [self._input(rng, *shape) for shape in self.shapes]

    def _input(self, rng: Any, kind: str, *shape: int) -> Any:
        if kind.startswith("i"):
            return rng.integers(0, int(kind[1:]), shape).astype(np.int32)
        return rng.standard_normal(shape).astype(np.float32 if kind == "f" else np.float64)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def conv(x: Any, w: Any) -> Any:
    """NHWC and HWIO, stride 2, padded by one."""
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows = [[np.einsum("nhwc,hwco->no", x[:, r:r + 3, c:c + 3], w) for c in range(0, 6, 2)]
            for r in range(0, 6, 2)]
    return np.stack([np.stack(row, 1) for row in rows], 1)


PROGRAMS = {
    "softmax of a product": Program(
        "%arg0: tensor<4x3xf32>, %arg1: tensor<3x5xf32> {mhlo.layout_mode = \"default\"}",
        'tensor<4x5xf32> {jax.result_info = ""}', """
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT,
        DEFAULT] : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32> loc(#loc2)
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.maximum across dimensions = [1] :
        (tensor<4x5xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<4xf32>) -> tensor<4x5xf32>
    %3 = stablehlo.subtract %0, %2 : tensor<4x5xf32>
    %4 = stablehlo.exponential %3 : tensor<4x5xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.reduce(%4 init: %cst_0) applies stablehlo.add across dimensions = [1] :
        (tensor<4x5xf32>, tensor<f32>) -> tensor<4xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<4xf32>) -> tensor<4x5xf32>
    %7 = stablehlo.divide %4, %6 : tensor<4x5xf32>
    return %7 : tensor<4x5xf32>""", lambda a, b: softmax(a @ b), (("f", 4, 3), ("f", 3, 5))),
    "calls": Program(
        "%arg0: tensor<6xf32>", "tensor<6xf32>", """
    %0 = call @relu(%arg0) : (tensor<6xf32>) -> tensor<6xf32>
    %1 = func.call @relu(%0) : (tensor<6xf32>) -> tensor<6xf32>
    return %1 : tensor<6xf32>""", lambda x: np.maximum(x, 0), (("f", 6),), """
  func.func private @relu(%arg0: tensor<6xf32>) -> tensor<6xf32> {
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<6xf32>
    return %1 : tensor<6xf32>
  }
"""),
    "generic form": Program(
        "%arg0: tensor<2x3xf32>", "tensor<3x2xf32>", """
    %0 = "stablehlo.transpose"(%arg0) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) ->
        tensor<3x2xf32>
    %1 = "stablehlo.constant"() <{value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> :
        tensor<3x2xf32>}> : () -> tensor<3x2xf32>
    %2 = "stablehlo.compare"(%0, %1) <{
        comparison_direction = #stablehlo<comparison_direction LT>}> : (tensor<3x2xf32>,
            tensor<3x2xf32>) -> tensor<3x2xi1>
    %3 = "stablehlo.select"(%2, %0, %1) : (tensor<3x2xi1>, tensor<3x2xf32>, tensor<3x2xf32>) ->
        tensor<3x2xf32>
    "func.return"(%3) : (tensor<3x2xf32>) -> ()""",
        lambda x: np.minimum(x.T, np.arange(1, 7).reshape(3, 2)), (("f", 2, 3),)),
    "attention": Program(
        "%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x6x8xf32>, %v: tensor<2x4x6x8xf32>",
        "tensor<2x5x4x8xf32>", """
    %0 = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1],
        contracting_dims = [3] x [3] : (tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>)
            -> tensor<2x4x5x6xf32>
    %cst = stablehlo.constant dense<-3.0> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.maximum across dimensions = [3] :
        (tensor<2x4x5x6xf32>, tensor<f32>) -> tensor<2x4x5xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<2x4x5xf32>) ->
        tensor<2x4x5x6xf32>
    %3 = stablehlo.subtract %0, %2 : tensor<2x4x5x6xf32>
    %4 = stablehlo.exponential %3 : tensor<2x4x5x6xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %5 = stablehlo.reduce(%4 init: %zero) across dimensions = [3] : (tensor<2x4x5x6xf32>,
        tensor<f32>) -> tensor<2x4x5xf32>
     reducer(%a: tensor<f32>, %b: tensor<f32>) {
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<2x4x5xf32>) ->
        tensor<2x4x5x6xf32>
    %7 = stablehlo.divide %4, %6 : tensor<2x4x5x6xf32>
    %8 = stablehlo.dot_general %7, %v, batching_dims = [0, 1] x [0, 1],
        contracting_dims = [3] x [2] : (tensor<2x4x5x6xf32>, tensor<2x4x6x8xf32>)
            -> tensor<2x4x5x8xf32>
    %9 = stablehlo.transpose %8, dims = [0, 2, 1, 3] : (tensor<2x4x5x8xf32>) ->
        tensor<2x5x4x8xf32>
    return %9 : tensor<2x5x4x8xf32>""",
        lambda q, k, v: (softmax(q @ k.swapaxes(-1, -2)) @ v).swapaxes(1, 2),
        (("f", 2, 4, 5, 8), ("f", 2, 4, 6, 8), ("f", 2, 4, 6, 8))),
    "convolution": Program(
        "%x: tensor<2x6x6x3xf32>, %w: tensor<3x3x3x4xf32>", "tensor<2x3x3x4xf32>", """
    %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {stride = [2, 2], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1,
            1], reverse = [false, false]} {batch_group_count = 1 : i64,
                feature_group_count = 1 : i64,
                    precision_config = [#stablehlo<precision DEFAULT>,
                        #stablehlo<precision DEFAULT>]} : (tensor<2x6x6x3xf32>,
                            tensor<3x3x3x4xf32>) -> tensor<2x3x3x4xf32>
    return %0 : tensor<2x3x3x4xf32>""", conv, (("f", 2, 6, 6, 3), ("f", 3, 3, 3, 4))),
    "a loop": Program(
        "%arg0: tensor<3xf32>, %arg1: tensor<i32>", "tensor<3xf32>, tensor<i32>", """
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0) : tensor<i32>, tensor<3xf32>
     cond {
      %1 = stablehlo.compare  LT, %iterArg, %arg1,  SIGNED : (tensor<i32>, tensor<i32>) ->
          tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.add %iterArg, %one : tensor<i32>
      %2 = stablehlo.multiply %iterArg_0, %iterArg_0 : tensor<3xf32>
      stablehlo.return %1, %2 : tensor<i32>, tensor<3xf32>
    }
    return %0#1, %0#0 : tensor<3xf32>, tensor<i32>""",
        lambda x, n: (x ** (2 ** int(n)), n), (("f", 3), ("i4",))),
    "branches": Program(
        "%p: tensor<i32>, %x: tensor<4xf32>", "tensor<4xf32>", """
    %0 = "stablehlo.case"(%p) ({
      %1 = stablehlo.negate %x : tensor<4xf32>
      stablehlo.return %1 : tensor<4xf32>
    }, {
      stablehlo.return %x : tensor<4xf32>
    }) : (tensor<i32>) -> tensor<4xf32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %c = stablehlo.compare EQ, %p, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %2 = "stablehlo.if"(%c) ({
      %3 = stablehlo.add %0, %0 : tensor<4xf32>
      stablehlo.return %3 : tensor<4xf32>
    }, {
      stablehlo.return %0 : tensor<4xf32>
    }) : (tensor<i1>) -> tensor<4xf32>
    return %2 : tensor<4xf32>""", lambda p, x: x if p else -2 * x, (("i2",), ("f", 4))),
    "four branches": Program(
        "%p: tensor<i32>, %x: tensor<4xf32>", "tensor<4xf32>", """
    %0 = "stablehlo.case"(%p) ({
      stablehlo.return %x : tensor<4xf32>
    }, {
      %1 = stablehlo.negate %x : tensor<4xf32>
      stablehlo.return %1 : tensor<4xf32>
    }, {
      %1 = stablehlo.abs %x : tensor<4xf32>
      stablehlo.return %1 : tensor<4xf32>
    }, {
      %1 = stablehlo.add %x, %x : tensor<4xf32>
      stablehlo.return %1 : tensor<4xf32>
    }) : (tensor<i32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>""",
        lambda p, x: [x, -x, abs(x), x + x][p if 0 <= p < 4 else 3], (("i6",), ("f", 4))),
    "lookup": Program(
        "%table: tensor<7x4xf32>, %i: tensor<2x3xi32>", "tensor<2x3x4xf32>", """
    %0 = stablehlo.reshape %i : (tensor<2x3xi32>) -> tensor<2x3x1xi32>
    %1 = "stablehlo.gather"(%table, %0) <{
        dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0],
            start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false,
                slice_sizes = array<i64: 1, 4>}> : (tensor<7x4xf32>,
        tensor<2x3x1xi32>) -> tensor<2x3x4xf32>
    return %1 : tensor<2x3x4xf32>""",
        lambda table, i: table[np.minimum(i, 6)], (("f", 7, 4), ("i9", 2, 3))),
    "batches": Program(
        "%x: tensor<3x7xf32>, %i: tensor<3x2x1xi32>, %u: tensor<3x2xf32>",
        "tensor<3x2xf32>, tensor<3x7xf32>", """
    %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<
        collapsed_slice_dims = [1], operand_batching_dims = [0],
        start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>,
        slice_sizes = array<i64: 1, 1>}>
        : (tensor<3x7xf32>, tensor<3x2x1xi32>) -> tensor<3x2xf32>
    %1 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [1], input_batching_dims = [0],
        scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1],
        index_vector_dim = 2>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<3x7xf32>, tensor<3x2x1xi32>, tensor<3x2xf32>) -> tensor<3x7xf32>
    return %0, %1 : tensor<3x2xf32>, tensor<3x7xf32>""",
        lambda x, i, u: batches(x, i, u), (("f", 3, 7), ("i7", 3, 2, 1), ("f", 3, 2))),
    "sums at places": Program(
        "%x: tensor<5x2xf32>, %i: tensor<6x1xi32>, %u: tensor<6x2xf32>", "tensor<5x2xf32>", """
    %0 = "stablehlo.scatter"(%x, %i, %u) <{indices_are_sorted = false,
        scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1],
            inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
                index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<5x2xf32>, tensor<6x1xi32>, tensor<6x2xf32>) -> tensor<5x2xf32>
    return %0 : tensor<5x2xf32>""", lambda x, i, u: scattered(x, i, u),
        (("f", 5, 2), ("i7", 6, 1), ("f", 6, 2))),
    "order": Program(
        "%x: tensor<3x6xf32>", "tensor<3x6xf32>, tensor<3x6xi32>, tensor<3xi32>, tensor<3xf32>", """
    %0 = stablehlo.iota dim = 1 : tensor<3x6xi32>
    %1:2 = "stablehlo.sort"(%x, %0) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
      %p = stablehlo.compare LT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }) : (tensor<3x6xf32>, tensor<3x6xi32>) -> (tensor<3x6xf32>, tensor<3x6xi32>)
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %2:2 = stablehlo.reduce(%x init: %cst), (%0 init: %z) across dimensions = [1] :
        (tensor<3x6xf32>, tensor<3x6xi32>, tensor<f32>, tensor<i32>) -> (tensor<3xf32>,
            tensor<3xi32>)
     reducer(%a: tensor<f32>, %c: tensor<f32>) (%b: tensor<i32>, %d: tensor<i32>)  {
      %3 = stablehlo.compare  GT, %a, %c,  FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.compare  NE, %a, %a,  FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %5 = stablehlo.or %3, %4 : tensor<i1>
      %6 = stablehlo.compare  EQ, %a, %c,  FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %7 = stablehlo.compare  LT, %b, %d,  SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %8 = stablehlo.and %6, %7 : tensor<i1>
      %9 = stablehlo.or %5, %8 : tensor<i1>
      %10 = stablehlo.select %5, %a, %c : tensor<i1>, tensor<f32>
      %11 = stablehlo.select %9, %b, %d : tensor<i1>, tensor<i32>
      stablehlo.return %10, %11 : tensor<f32>, tensor<i32>
    }
    return %1#0, %1#1, %2#1, %2#0 : tensor<3x6xf32>, tensor<3x6xi32>, tensor<3xi32>,
        tensor<3xf32>""",
        lambda x: (np.sort(x), np.argsort(x), x.argmax(1), x.max(1)), (("f", 3, 6),)),
    "blocks": Program(
        "%x: tensor<6x5xf32>, %u: tensor<2x3xf32>, %i: tensor<i32>, %j: tensor<i32>",
        "tensor<2x3xf32>, tensor<6x5xf32>", """
    %0 = stablehlo.dynamic_slice %x, %i, %j, sizes = [2, 3] : (tensor<6x5xf32>, tensor<i32>,
        tensor<i32>) -> tensor<2x3xf32>
    %1 = stablehlo.dynamic_update_slice %x, %u, %i, %j : (tensor<6x5xf32>, tensor<2x3xf32>,
        tensor<i32>, tensor<i32>) -> tensor<6x5xf32>
    return %0, %1 : tensor<2x3xf32>, tensor<6x5xf32>""", lambda x, u, i, j: block(x, u, i, j),
        (("f", 6, 5), ("f", 2, 3), ("i9",), ("i9",))),
    "moves": Program(
        "%x: tensor<3x4xf32>", "tensor<5x9xf32>, tensor<2x2xf32>, tensor<3x8xf32>", """
    %cst = stablehlo.constant dense<1.5> : tensor<f32>
    %0 = stablehlo.pad %x, %cst, low = [1, 0], high = [1, 2], interior = [0, 1] :
        (tensor<3x4xf32>, tensor<f32>) -> tensor<5x9xf32>
    %1 = stablehlo.slice %x [0:3:2, 1:3] : (tensor<3x4xf32>) -> tensor<2x2xf32>
    %2 = stablehlo.reverse %x, dims = [1] : tensor<3x4xf32>
    %3 = stablehlo.concatenate %x, %2, dim = 1 : (tensor<3x4xf32>, tensor<3x4xf32>) ->
        tensor<3x8xf32>
    return %0, %1, %3 : tensor<5x9xf32>, tensor<2x2xf32>, tensor<3x8xf32>""",
        lambda x: moves(x), (("f", 3, 4),)),
    "pools and running sums": Program(
        "%x: tensor<1x6x6x2xf32>, %y: tensor<5xf32>", "tensor<1x3x3x2xf32>, tensor<5xf32>", """
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = "stablehlo.reduce_window"(%x, %cst) <{window_dimensions = array<i64: 1, 2, 2, 1>,
        window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
    }) : (tensor<1x6x6x2xf32>, tensor<f32>) -> tensor<1x3x3x2xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = "stablehlo.reduce_window"(%y, %zero) <{padding = dense<[[4, 0]]> : tensor<1x2xi64>,
        window_dimensions = array<i64: 5>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<5xf32>, tensor<f32>) -> tensor<5xf32>
    return %0, %1 : tensor<1x3x3x2xf32>, tensor<5xf32>""",
        lambda x, y: (x.reshape(1, 3, 2, 3, 2, 2).max((2, 4)), np.cumsum(y)),
        (("f", 1, 6, 6, 2), ("f", 5))),
    "functions": Program(
        "%x: tensor<5xf32>, %i: tensor<5xi32>", "tensor<5xf32>, tensor<5xi32>, tensor<5xf32>", """
    %0 = stablehlo.tanh %x : tensor<5xf32>
    %1 = stablehlo.logistic %0 : tensor<5xf32>
    %2 = chlo.erf %1 : tensor<5xf32> -> tensor<5xf32>
    %3 = stablehlo.rsqrt %2 : tensor<5xf32>
    %4 = stablehlo.atan2 %x, %3 : tensor<5xf32>
    %5 = stablehlo.round_nearest_afz %x : tensor<5xf32>
    %c = stablehlo.constant dense<2> : tensor<5xi32>
    %6 = stablehlo.shift_right_logical %i, %c : tensor<5xi32>
    %7 = stablehlo.remainder %6, %c : tensor<5xi32>
    %8 = stablehlo.not %7 : tensor<5xi32>
    %9 = stablehlo.convert %8 : (tensor<5xi32>) -> tensor<5xf32>
    %10 = stablehlo.clamp %5, %x, %9 : tensor<5xf32>
    return %4, %8, %10 : tensor<5xf32>, tensor<5xi32>, tensor<5xf32>""",
        lambda x, i: functions(x, i), (("f", 5), ("i100", 5))),
    "open sizes": Program(
        "%x: tensor<?x3xf32>", "tensor<?x3xf32>", """
    %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
    %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
    %three = stablehlo.constant dense<3> : tensor<1xi32>
    %2 = stablehlo.concatenate %1, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) ->
        tensor<2xi32>
    %cst = stablehlo.constant dense<2.0> : tensor<f32>
    %3 = stablehlo.dynamic_broadcast_in_dim %cst, %2, dims = [] : (tensor<f32>,
        tensor<2xi32>) -> tensor<?x3xf32>
    %4 = stablehlo.dynamic_iota %2, dim = 0 : (tensor<2xi32>) -> tensor<?x3xf32>
    %5 = stablehlo.multiply %x, %3 : tensor<?x3xf32>
    %6 = stablehlo.add %5, %4 : tensor<?x3xf32>
    return %6 : tensor<?x3xf32>""",
        lambda x: x * 2 + np.arange(len(x))[:, None], (("f", 4, 3),)),
}
"""Name -> program."""


def scattered(x: Any, i: Any, u: Any) -> Any:
    """Rows beyond the end are left out."""
    x = x.copy()
    for place, row in zip(i[:, 0], u, strict=True):
        if place < len(x):
            x[place] += row
    return x


def batches(x: Any, i: Any, u: Any) -> Any:
    """Each row has its own places."""
    changed = x.copy()
    for row, place, value in zip(*(v.reshape(-1) for v in (np.repeat(range(3), 2), i, u)),
                                 strict=True):
        changed[row, place] = max(changed[row, place], value)
    return np.take_along_axis(x, i[..., 0], 1), changed


def block(x: Any, u: Any, i: Any, j: Any) -> Any:
    """Starts are moved inside."""
    row, column = min(int(i), 4), min(int(j), 2)
    changed = x.copy()
    changed[row:row + 2, column:column + 3] = u
    return x[row:row + 2, column:column + 3], changed


def moves(x: Any) -> Any:
    wide = np.full((5, 9), 1.5, np.float32)
    wide[1:4, 0:7:2] = x
    return wide, x[::2, 1:3], np.concatenate([x, x[:, ::-1]], 1)


def functions(x: Any, i: Any) -> Any:
    from math import erf

    inner = 1 / np.sqrt([erf(v) for v in 1 / (1 + np.exp(-np.tanh(x)))])
    away = np.where(x < 0, -np.floor(-x + 0.5), np.floor(x + 0.5))
    whole = ~((i >> 2) % 2)
    return np.arctan2(x, inner), whole, np.minimum(np.maximum(x, away), whole)

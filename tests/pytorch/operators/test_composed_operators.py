"""Operators without a kernel of ours, against eager PyTorch: each is one graph without a break.

Many functions are one compiled graph, so that the tests are cheap.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from compiler.frontend.torch.core.decompose import _fits, decompositions
from tests.pytorch.programs import flat

X = torch.randn(5, 7, generator=torch.Generator().manual_seed(3))
ODD = X.clone()
ODD[1, 2], ODD[3, 0], ODD[3, 6] = math.nan, math.inf, -math.inf
N = torch.randint(0, 4, (5, 7), generator=torch.Generator().manual_seed(4))


def check(function: Callable[..., Any], inputs: Sequence[torch.Tensor], caplog: Any) -> None:
    """Equal results, and nothing runs eagerly."""
    torch._dynamo.reset()
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="strata"):
        torch.manual_seed(0)
        want = function(*inputs)
        torch.manual_seed(0)
        got = torch.compile(function, backend="strata", fullgraph=True)(*inputs)
    assert not [r.getMessage() for r in caplog.records if r.name == "strata"]
    assert len(flat(got)) == len(flat(want))
    for a, b in zip(flat(got), flat(want), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6, equal_nan=True)


def test_order_statistics(caplog: Any) -> None:
    def call(x: Any, odd: Any, n: Any) -> Any:
        return (torch.median(x), torch.median(odd), torch.median(odd, 1), torch.median(n, 0).values,
                torch.nanmedian(odd), torch.nanmedian(odd, 0, keepdim=True),
                torch.kthvalue(x, 3, 1), torch.kthvalue(x, 5, 0, True), torch.median(x[0, 0]),
                torch.mode(n, 1).values, torch.mode(n, 0, True).values, torch.median(n[0, 0]),
                torch.mode(n[1, 1]), torch.sort(n[2:3, 2:3], 0))

    check(call, [X, ODD, N], caplog)


def test_running_values(caplog: Any) -> None:
    def call(odd: Any, n: Any, truth: Any) -> Any:
        return (torch.cummax(odd, 1), torch.cummin(odd, 0), torch.cummax(n, -1),
                torch.cummin(n, 0), torch.cummax(truth, 1), torch.logcumsumexp(odd, 1),
                torch.logcumsumexp(odd.double() * 300, 0), torch.cummax(odd[0, 0], 0))

    check(call, [ODD, N, N > 1], caplog)


def test_histograms(caplog: Any) -> None:
    """Of parts of a range that is given, or that the elements have, and between edges."""
    edges, few = torch.tensor([-1.0, 0.0, 0.5, 2.0]), torch.tensor([-2.0, 0.0, 2.0])

    def call(x: Any, weight: Any, odd: Any) -> Any:
        return (torch.histogram(x, 8), torch.histogram(odd, 5, range=(-1.0, 1.0)),
                torch.histogram(x, 5, range=(-1.0, 1.0), weight=weight, density=True),
                torch.histogram(odd, edges), torch.histogram(x[:0], 4), torch.histogram(x * 0, 4),
                torch.histogram(edges, 2, range=(-1.0, 2.0)), torch.histogramdd(x[:, :2], [3, 4]),
                torch.histogramdd(x[:, :2], [3, 2], range=[-1.0, 1.0, -2.0, 2.0], density=True),
                torch.histogramdd(x[:, 2:4], (edges, few), weight=weight[:, 0]))

    check(call, [X, X.abs(), ODD], caplog)


def test_largest_rows_of_bags(caplog: Any) -> None:
    """With empty bags, and rows that do not count."""
    indices, starts = torch.tensor([1, 2, 2, 4, 3, 0, 4, 4]), torch.tensor([0, 2, 2, 6])

    def call(x: Any) -> Any:
        bag = torch.nn.functional.embedding_bag
        return (bag(indices, x, starts, mode="max"), bag(indices, x, starts, mode="max",
                                                         padding_idx=2),
                bag(indices.view(4, 2), x, mode="max"),
                bag(indices, x, starts, mode="mean", scale_grad_by_freq=True),
                torch.ops.aten._embedding_bag_forward_only(x, indices, starts, False, 2)[::3])

    check(call, [X], caplog)


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyOptions"), reason="a younger PyTorch")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_linear_layers_with_a_loss(reduction: str, caplog: Any) -> None:
    """In inference, and with gradients; some rows do not count, and classes have weights. Two rows
    at a time, so that PyTorch has an operator for it."""
    target = torch.tensor([1, 3, -100, 0, 3])
    chunked = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2, allow_retain_graph=True)

    def call(x: Any, w: Any, bias: Any, weight: Any) -> Any:
        loss = partial(torch.nn.functional.linear_cross_entropy, options=chunked)
        return (loss(x, w, target, reduction=reduction),
                loss(x, w, target, linear_bias=bias, weight=weight, reduction=reduction))

    source = torch.Generator().manual_seed(6)
    w, bias = torch.randn(4, 7, generator=source), torch.randn(4, generator=source)
    check(call, [X, w, bias, bias.abs()], caplog)
    found: list[list[torch.Tensor]] = []
    for function in (call, torch.compile(call, backend="strata", fullgraph=True)):
        given = [v.clone().requires_grad_() for v in (X, w, bias)]
        with caplog.at_level(logging.WARNING, logger="strata"):
            sum(v.sum() * k for k, v in enumerate(function(*given, bias.abs()), 2)).backward()
        found.append([v.grad for v in given])
    assert not [r.getMessage() for r in caplog.records if r.name == "strata"]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_places(caplog: Any) -> None:
    def call(x: Any, source: Any, a: Any, b: Any) -> Any:
        rows = torch.tensor([0, 2, 2])
        reduced = [torch.index_reduce(x, 0, rows, source, how, include_self=own)
                   for how in ("mean", "prod", "amax", "amin") for own in (True, False)]
        return (*reduced, torch.as_strided_copy(x, (2, 3), (1, 2), 1) + 1,
                torch.as_strided_copy(x.t() * 2, (3, 2), (7, 1)),
                torch.as_strided_scatter(x, torch.ones(2, 3), (2, 3), (1, 2), 1),
                x.take(torch.tensor([[3, -1]])), x.take(torch.tensor(-2)), x[0, 0].take(
                    torch.tensor(0)), x.take(torch.zeros(0, dtype=torch.int64)),
                x.put(torch.tensor([3, -1, 3]), torch.tensor([9.0, 8.0, 1.0]), True),
                torch.nn.functional.pdist(x), torch.nn.functional.pdist(x, 1.0), torch.angle(x),
                torch.addbmm(x[:3, :4], a, b, beta=0.5, alpha=2.0), torch.tril_indices(3, 4, 1),
                *(torch.addbmm(x[:3, :4].to(kind), a.to(kind), b.to(kind), beta=1.5, alpha=2.5)
                  for kind in (torch.uint8, torch.int32, torch.int64)),
                torch.round(x, decimals=2), torch.dist(x, x + 1), torch.diagonal_scatter(
                    x, torch.ones(5), 1))

    check(call, [X, X[:3] * 3, torch.ones(5, 3, 2), torch.ones(5, 2, 4) * 2], caplog)


def test_resampling(caplog: Any) -> None:
    resize = torch.nn.functional.interpolate

    def call(image: Any, volume: Any, grid: Any) -> Any:
        smaller = [resize(image, size=size, mode=mode, antialias=True, align_corners=corners)
                   for mode, size, corners in (("bilinear", (5, 4), False), ("bicubic", (17, 3),
                                               False), ("bilinear", (7, 3), True))]
        sampled = [torch.nn.functional.grid_sample(volume, grid, mode, padding, corners)
                   for mode, padding, corners in (
                       ("bilinear", "zeros", False), ("bilinear", "border", True),
                       ("nearest", "reflection", False), ("nearest", "zeros", True))]
        return (*smaller, *sampled, resize(image, scale_factor=0.6, mode="bilinear",
                                           antialias=True))

    check(call, [torch.randn(1, 2, 11, 13), torch.randn(2, 2, 3, 4, 5),
                 torch.randn(2, 2, 3, 2, 3)], caplog)


def test_segments(caplog: Any) -> None:
    """By lengths and by offsets, empty ones among them, with and without a number to begin with."""
    def call(x: Any, batches: Any, lengths: Any, offsets: Any, both: Any) -> Any:
        reduced = [torch.segment_reduce(x, how, initial=first, **given)
                   for how in ("sum", "mean", "prod", "max", "min") for first in (None, 2.0)
                   for given in ({"lengths": lengths}, {"offsets": offsets})]
        return (*reduced, torch.segment_reduce(batches, "max", lengths=both, axis=1),
                torch.segment_reduce(x, "sum", lengths=lengths - 1, unsafe=True),
                torch.nn.functional.rrelu(x), torch.nn.functional.rrelu(x, 0.1, 0.5))

    check(call, [X, torch.randn(2, 5, 3), torch.tensor([3, 1, 1]), torch.tensor([0, 2, 2, 5]),
                 torch.tensor([[1, 4], [3, 2]])], caplog)


def test_rows_of_embeddings(caplog: Any) -> None:
    """Those that are read are scaled in place where they are too long."""
    def call(n: Any, w: Any) -> Any:
        w = w.clone()
        return (torch.nn.functional.embedding(n, w, max_norm=1.5),
                torch.nn.functional.embedding(n, w, max_norm=0.5, norm_type=1.0), w)

    check(call, [N % 3, X], caplog)


def test_sums_of_products_of_halves() -> None:
    """They are rounded once."""
    x, a, b = (torch.randn(s).bfloat16() for s in ((5, 10), (12, 5, 5), (12, 5, 10)))
    exact = torch.addbmm(x.double(), a.double(), b.double(), beta=0.6, alpha=0.2)
    torch._dynamo.reset()
    got = torch.compile(torch.addbmm, backend="strata")(x, a, b, beta=0.6, alpha=0.2)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), exact, rtol=2 ** -8, atol=1e-6)


def test_statistics_that_stay(caplog: Any) -> None:
    def call(x: Any, mean: Any, variance: Any) -> Any:
        normal = torch._native_batch_norm_legit
        return normal(x, mean, variance, mean, variance, False, 0.1, 1e-5)

    check(call, [X, X[0].clone(), X[1] ** 2], caplog)


def test_negative_pads(caplog: Any) -> None:
    """They cut elements off, those that are copies or mirror images among them, also as many as
    the tensor has."""
    pads = ((0, 0, 2, -4), (5, -4, -4, 3), (2, -2, -3, 1), (-1, 3, 0, 0), (-2, -1, -1, -1))

    def call(x: Any) -> Any:
        return [torch.nn.functional.pad(x, pad, mode) for mode in ("replicate", "reflect")
                for pad in pads if mode == "replicate" or max(pad) < 4]

    check(call, [torch.arange(32.0).reshape(1, 2, 4, 4)], caplog)


@pytest.mark.parametrize("threshold", [0.0, 99.0, -99.0])
def test_sizes_that_depend_on_data(threshold: float, caplog: Any) -> None:
    """Some, none and all of the elements."""
    def call(x: Any, n: Any) -> Any:
        mask = x > threshold
        places = torch.nonzero(mask)
        return (places, places + 1, torch.nonzero(mask, as_tuple=True), x[mask] * 2, x[:, mask[0]],
                torch.masked_select(x, mask).sum(), torch.nonzero(x[0, 0] > threshold))

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(call, [X, N], caplog)


def test_distinct_elements(caplog: Any) -> None:
    def call(n: Any) -> Any:
        flags = {"return_inverse": True, "return_counts": True}
        return (torch.unique(n), torch.unique(n, **flags), torch.unique(n % 2, dim=0, **flags),
                torch.unique(n, dim=1, **flags), torch.unique_consecutive(n, **flags),
                torch.unique_consecutive(n % 2, dim=0, **flags), torch.bincount(n.flatten()),
                torch.bincount(n.flatten(), minlength=9), torch.repeat_interleave(n.flatten()))

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        check(call, [N], caplog)


def test_shapes_that_pytorch_gets_wrong(caplog: Any) -> None:
    """Of a dim that is counted from the end, it expects further dims; so the operator is a split,
    which says what to write."""
    function = torch.unique_consecutive
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), (
            caplog.at_level(logging.WARNING, logger="strata")):
        got = torch.compile(lambda n: function(n, dim=-1), backend="strata")(N % 2)
    assert torch.equal(got, function(N % 2, dim=-1))
    assert "PyTorch takes a result of 2 dims for one of 4" in caplog.text
    assert "reproducer" not in caplog.text


def test_numbers_read_from_tensors(caplog: Any) -> None:
    def call(x: Any, n: Any) -> Any:
        return x * x.sum().item(), torch.zeros(n[0, 0].item()) + 1, x[0, 0].item() * 2.0 + x

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(call, [X, N + 1], caplog)


def test_random_numbers_are_those_of_eager_mode(caplog: Any) -> None:
    def call(x: Any) -> Any:
        return (torch.rand(3) + 1, torch.randn_like(x) * x, torch.randperm(5) + 1,
                torch.randint(0, 9, (4,)), torch.nn.functional.dropout(x, 0.5, True),
                torch.normal(x, x.abs()), torch.normal(2.0, x.abs()), torch.normal(x, 0.5),
                torch.normal(1.0, 2.0, (3,)), torch.bernoulli(x.sigmoid()),
                torch.multinomial(x.abs(), 3), x.clone().exponential_(), x.clone().uniform_(2, 3))

    check(call, [X], caplog)


def test_decompositions_take_arguments_by_position() -> None:
    """Each argument of an operator that a function names is where the function has it."""
    wrong = {str(op) for op, function in decompositions().items()
             if hasattr(op, "_schema") and not _fits(op, function)}
    assert not wrong


def test_operators_that_cannot_be_compiled_say_why(caplog: Any) -> None:
    """Where only other results than eager mode's could be compiled."""
    def call(x: Any) -> Any:
        return torch.poisson(x.abs()), torch.linalg.eigvals(x[:, :5])

    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, logger="strata"):
        torch.compile(call, backend="strata")(X)
    for text in ("how many numbers it draws", "LAPACK's steps"):
        assert text in caplog.text

"""Large arguments that compiled code writes, such as caches, are written where they lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

ROWS, COLUMNS = 300, 128


def _scattered(row: Tensor, at: Tensor, a: Tensor, b: Tensor) -> Tensor:
    a.index_copy_(0, at, row)
    b[at] = row + 1
    return a.sum(0) + b.sum(0)


def _read_before(row: Tensor, at: Tensor, a: Tensor, b: Tensor) -> Tensor:
    before = a.sum(0)
    a.index_copy_(0, at, row)
    return before + a.amax(0)


def _read_later(row: Tensor, at: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The old contents are needed after the new ones are made."""
    new = a.index_copy(0, at, row)
    total = (new * a).sum(0)
    a.copy_(new)
    return total, b + 1


def _swapped(row: Tensor, at: Tensor, a: Tensor, b: Tensor) -> Tensor:
    kept = a.index_copy(0, at, row)
    a.copy_(b)
    b.copy_(kept)
    return row + 1


def _chained(row: Tensor, at: Tensor, a: Tensor, b: Tensor) -> Tensor:
    a.index_copy_(0, at, row)
    b.copy_(a)
    a.index_copy_(0, at + 1, row * 2)
    return b.sum(0)


def _given(*, shift: int = 0) -> list[Tensor]:
    """A row, its place, and two caches, which begin `shift` elements into their memory."""
    torch.manual_seed(0)
    caches = [torch.randn(ROWS * COLUMNS + shift)[shift:].view(ROWS, COLUMNS) for _ in range(2)]
    return [torch.randn(1, COLUMNS), torch.tensor([7]), *caches]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many arguments were written by copying what the code had computed elsewhere."""
    counts: list[int] = []
    copy: Callable[..., Any] = torch._foreach_copy_

    def counted(targets: list[Tensor], sources: list[Tensor]) -> None:
        counts.append(len(targets))
        copy(targets, sources)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    return counts


@pytest.mark.parametrize("use, copied", [
    (_scattered, 0), (_read_before, 0), (_read_later, None), (_swapped, None), (_chained, None)])
@pytest.mark.parametrize("threads", [1, 2])
def test_caches_are_written_in_place(
    use: Callable[..., Any], copied: int | None, threads: int, copies: list[int]
) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(use, backend="strata", options={"cache": "off", "threads": threads})
    ours, theirs = _given(), _given()
    for step in range(3):
        ours[1].fill_(step * 40)
        theirs[1].fill_(step * 40)
        versions = [v._version for v in ours]
        torch.testing.assert_close(compiled(*ours), use(*theirs))
        torch.testing.assert_close(ours, theirs)
        assert ours[2]._version > versions[2], "autograd must see the write"
    assert copied is None or sum(copies) == copied


def test_a_cache_that_begins_anywhere_is_written() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(_scattered, backend="strata", options={"cache": "off"})
    for shift in (0, 1, 16, 3):
        ours, theirs = _given(shift=shift), _given(shift=shift)
        torch.testing.assert_close(compiled(*ours), _scattered(*theirs))
        torch.testing.assert_close(ours, theirs)


def test_equal_code_that_returns_the_contents_does_not_write_them() -> None:
    """Two graphs with equal operations: one writes its argument, and one returns new contents."""
    torch._dynamo.reset()

    def writes(a: Tensor, at: Tensor, row: Tensor) -> Tensor:
        a.index_copy_(0, at, row)
        return a

    def returns(a: Tensor, at: Tensor, row: Tensor) -> Tensor:
        return a.index_copy(0, at, row)

    row, at, cache, _ = _given()
    compiled = [torch.compile(f, backend="strata", options={"cache": "off"})
                for f in (writes, returns)]
    for call in (compiled[0], compiled[1], compiled[0], compiled[1]):
        own, before = cache.clone(), cache.clone()
        made = call(own, at, row)
        torch.testing.assert_close(made, before.index_copy(0, at, row))
        torch.testing.assert_close(own, made if call is compiled[0] else before)


def test_a_place_beyond_the_cache_is_an_error_before_anything_is_written() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(_scattered, backend="strata", options={"cache": "off"})
    row, at, a, b = _given()
    compiled(row, at, a, b)
    kept = a.clone(), b.clone()
    with pytest.raises(Exception, match=r"index|out of"):
        compiled(row, at.fill_(ROWS), a, b)
    torch.testing.assert_close((a, b), kept)


def _inverted(cache: Tensor, matrix: Tensor, fits: Tensor) -> Tensor:
    cache[:3, :3] = torch.linalg.inv(matrix)
    return cache[0] + 1


def _asserted(cache: Tensor, matrix: Tensor, fits: Tensor) -> Tensor:
    cache.mul_(2)
    torch._assert_async(fits, "the text is too long")
    return cache[0] + 1


def _asserted_before_views(
    cache: Tensor, matrix: Tensor, fits: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    torch._assert_async(fits, "the text is too long")
    torch._assert_async(matrix.isfinite().all(), "the matrix is not finite")
    inverse = torch.linalg.inv(matrix)
    cache[:3, :3] = inverse
    return cache[1:], fits, inverse


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("use", [_inverted, _asserted, _asserted_before_views])
def test_a_check_that_pytorch_makes_is_made_before_anything_is_written(
    use: Callable[..., Any], dynamic: bool
) -> None:
    """Of a singular matrix, or what a program asserts; the same code then serves good arguments."""
    torch._dynamo.reset()
    compiled = torch.compile(use, backend="strata", dynamic=dynamic, options={"cache": "off"})
    cache, good, bad = _given()[2], torch.eye(3) * 4, torch.zeros(3, 3)
    yes, no = torch.tensor(True), torch.tensor(False)
    expected = cache.clone()
    for matrix, fits in ((good, yes), (bad, no), (good, yes)):
        if matrix is bad:
            with pytest.raises(RuntimeError, match=r"too long|linalg\.inv"):
                compiled(cache, matrix, fits)
        else:
            torch.testing.assert_close(compiled(cache, matrix, fits), use(expected, matrix, fits))
        torch.testing.assert_close(cache, expected)

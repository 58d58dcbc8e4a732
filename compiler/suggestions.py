"""Suggestions for unknown names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FEW = 6
"""Up to this number of known names, hints list all of them."""

MANY = 40
"""Hints list at most so many names."""
_SEPARATOR = re.compile(r"/|::")


def nearest(name: str, known: Iterable[str], limit: int = 3, cutoff: float = 0.5) -> list[str]:
    """The known names most similar to `name`, ignoring case; possibly none."""
    import difflib

    folded: dict[str, list[str]] = {}
    for candidate in known:
        folded.setdefault(candidate.casefold(), []).append(candidate)
    near = difflib.get_close_matches(name.casefold(), folded, n=limit, cutoff=cutoff)
    return [candidate for key in near for candidate in folded[key]][:limit]


def nearest_paths(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known paths, such as `/encoder/layer.3/MatMul`, of which the last parts are similar to
    those of `name`, the shortest first."""
    parts = _SEPARATOR.split(name.casefold())
    ends: dict[str, list[str]] = {}
    for path in known:
        end = _SEPARATOR.split(path.casefold())[-len(parts):]
        ends.setdefault("/".join(end), []).append(path)
    return [path for end in nearest("/".join(parts), ends, limit, 0.7)
            for path in sorted(ends[end], key=len)][:limit]


def guess(name: str, known: Iterable[str]) -> str:
    """The prefix `did you mean 'rows'? ` for a hint; empty if no name is similar."""
    near = nearest(name, known, limit=1)
    return f"did you mean '{near[0]}'? " if near else ""


def described_by(word: str, descriptions: Mapping[str, str]) -> list[str]:
    """The names whose descriptions contain a word: `gpu` is in `NVIDIA GPUs, through Triton`."""
    pattern = re.compile(rf"\b{re.escape(word)}s?\b", re.IGNORECASE)
    return [name for name, text in descriptions.items() if pattern.search(text)]


def hint_for(name: str, known: Iterable[str], near: Iterable[str] = ()) -> str:
    """`did you mean a or b? there are: a, b, c`; `near`: better guesses than those by spelling."""
    known = list(known)
    found = list(near) or nearest(name, known) or nearest_paths(name, known)
    guess = [f"did you mean {' or '.join(found)}?"] if found else []
    there = [f"there are: {_listed(known)}"] if known and (not found or len(known) <= FEW) else []
    return " ".join(guess + there)


def _listed(known: list[str]) -> str:
    more = len(known) - MANY
    return ", ".join(known[:MANY]) + (f" and {more} more" if more > 0 else "")

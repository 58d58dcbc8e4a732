"""Attention on the CPU under masks, beside the same attention without one.

    python benchmarks/torch/masks.py

Each form is `scaled_dot_product_attention` of f32, on one thread: without a mask, causal, with a
window of 128 keys, and of packed documents of 100 tokens, whose ids are an input. Strata's kernels
and eager mode's run in turns; the table gives milliseconds of the process at best. The page
`MASKS.md` holds the last result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as attention

import compiler

HEADS, KEYS, DEPTH, WINDOW, DOCUMENT, TURNS = 8, 1024, 64, 128, 100, 7
PAGE = Path(__file__).with_name("MASKS.md")
Form = Callable[..., Any]


def full(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v)


def causal(q: Any, k: Any, v: Any) -> Any:
    return attention(q, k, v, is_causal=True)


def window(q: Any, k: Any, v: Any) -> Any:
    distance = torch.arange(KEYS)[:, None] - torch.arange(KEYS)
    return attention(q, k, v, (distance >= 0) & (distance < WINDOW))


def documents(q: Any, k: Any, v: Any, ids: Any) -> Any:
    return attention(q, k, v, ids[:, None] == ids)


class Module(torch.nn.Module):
    def __init__(self, form: Form):
        super().__init__()
        self.form = form

    def forward(self, *inputs: Any) -> Any:
        return self.form(*inputs)


def milliseconds(call: Callable[[], Any]) -> float:
    """One call, in time of the process."""
    before = time.process_time()
    call()
    return (time.process_time() - before) * 1000


def measured(form: Form, ours: bool) -> Callable[[], Any]:
    """A call of the form on inputs of its own."""
    source = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, HEADS, KEYS, DEPTH, generator=source) for _ in range(3)]
    inputs += [torch.arange(KEYS) // DOCUMENT] if form is documents else []
    if not ours:
        return lambda: form(*inputs)
    program = compiler.compile(Module(form).eval(), args=tuple(inputs), cache="off", threads=1)
    arrays = [x.numpy() for x in inputs]
    return lambda: program(*arrays)


def main() -> None:
    torch.set_num_threads(1)
    forms: list[Form] = [full, causal, window, documents]
    calls = {(form, ours): measured(form, ours) for form in forms for ours in (True, False)}
    best = dict.fromkeys(calls, float("inf"))
    with torch.no_grad():
        for _ in range(TURNS):
            best = {key: min(best[key], milliseconds(call)) for key, call in calls.items()}
    lines = ["# Attention under masks on the CPU", "",
             "```", "python benchmarks/torch/masks.py", "```", "",
             f"{HEADS} heads, {KEYS} keys, {DEPTH} numbers each, f32, one thread; milliseconds.",
             "",
             "| mask | strata | of no mask | eager | of no mask |",
             "|---|---|---|---|---|"]
    for form in forms:
        times = [best[form, ours] for ours in (True, False)]
        cells = [f"{t:.1f} | {t / best[full, ours]:.2f}"
                 for t, ours in zip(times, (True, False), strict=True)]
        lines.append(f"| {form.__name__} | {' | '.join(cells)} |")
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""A small Llama-like model generates the same tokens for a batch that is padded on the left.

The rows of padding see nothing, so they are 0 after each attention, and nothing reads them.
"""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402

attention = nn.functional.scaled_dot_product_attention
WORDS, WIDTH, HEADS = 97, 32, 4
DEPTH = WIDTH // HEADS
PADS = (0, 3, 7)
LENGTH, STEPS = 9, 3


def rotated(x: Any, places: Any) -> Any:
    """Rotary embedding of [batch, heads, length, depth] at places [batch, length]."""
    powers = 100.0 ** (-torch.arange(0, DEPTH, 2) / DEPTH)
    angles = (places[..., None] * powers)[:, None]
    cosine, sine = angles.cos(), angles.sin()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)


class Layer(nn.Module):
    """Attention with half as many heads of keys, and a gated product."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.kv = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Any, seen: Any, places: Any) -> Any:
        normal = self.before(x)
        q, k, v = (self._heads(y) for y in (
            self.q(normal), *self.kv(normal).chunk(2, -1)))
        q, k = rotated(q, places), rotated(k, places)
        made = attention(q, k, v, seen, enable_gqa=True)
        x = x + self.out(made.transpose(1, 2).flatten(2))
        normal = self.after(x)
        return x + self.down(nn.functional.silu(self.gate(normal)) * self.up(normal))

    def _heads(self, x: Any) -> Any:
        return x.unflatten(-1, (-1, DEPTH)).transpose(1, 2)


class Model(nn.Module):
    """The logits of the next word, for words and which of them count, both [batch, length].

    `additive`: whether the mask has -inf instead of truth values.
    """

    def __init__(self, additive: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layer, self.normal, self.additive = Layer(), nn.RMSNorm(WIDTH), additive

    def forward(self, words: Any, counts: Any) -> Any:
        length = words.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        seen = causal & counts[:, None, None, :]
        if self.additive:
            seen = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
        places = (counts.long().cumsum(-1) - 1).clamp(min=0)
        x = self.layer(self.words(words), seen, places)
        return self.normal(x[:, -1]) @ self.words.weight.T


def generated(model: Any, steps: int) -> tuple[Any, Any]:
    """The words after a number of steps of greedy search, and the last logits."""
    words = torch.randint(0, WORDS, (len(PADS), LENGTH), generator=torch.Generator().manual_seed(5))
    counts = torch.arange(LENGTH) >= torch.tensor(PADS)[:, None]
    logits = None
    for _ in range(steps):
        logits = model(words, counts)
        words = torch.cat([words, logits.argmax(-1, keepdim=True)], 1)
        counts = torch.cat([counts, torch.ones(len(PADS), 1, dtype=torch.bool)], 1)
    return words, logits


@pytest.mark.parametrize(("additive", "dynamic", "steps"), [
    (False, False, 1), (True, True, STEPS),
    pytest.param(True, False, 1, marks=pytest.mark.slow),
    pytest.param(False, True, STEPS, marks=pytest.mark.slow)])
def test_same_words(
    additive: bool, dynamic: bool, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    torch._dynamo.reset()
    model = Model(additive).eval()
    options = {"cache": "off", "threads": 1}
    compiled = torch.compile(model, backend="strata", dynamic=dynamic, options=options)
    with torch.no_grad():
        words, logits = generated(model, steps)
        made, found = generated(compiled, steps)
    assert "eagerly" not in caplog.text
    assert torch.equal(made, words)
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)

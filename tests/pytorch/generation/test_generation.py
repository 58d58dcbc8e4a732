"""Left-padded batches generate eager's tokens, with every kind of cache."""

from __future__ import annotations

import logging

import pytest
import torch

from tests.pytorch.generation.decoders import CACHES, TOKENS, Decoder, generated

OPTIONS = {"cache": "off", "tuned": "off", "threads": 1}
PADS = (4, 0, 8)
MOST = 4
"""Compilations in a generation: the first tokens, then one, at a fixed size and at an open one."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)


def left_padded(rows: int = 9, tokens: int = TOKENS) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens whose first ones are 0, and how many these are."""
    found, pads = torch.randint(2, tokens, (len(PADS), rows)), torch.tensor(PADS)
    return found.where(torch.arange(rows) >= pads[:, None], 0), pads


def check_compilations(caplog: pytest.LogCaptureFixture) -> None:
    assert not caplog.messages
    assert not torch._dynamo.utils.counters["strata"]["recompilations"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= MOST


@pytest.mark.parametrize("name", CACHES)
@torch.no_grad()
def test_caches_of_our_own(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Rows of padding see no key at all; in windows, later rows see a part of the padding."""
    caplog.set_level(logging.WARNING, "strata")
    model, (tokens, pads) = Decoder().eval(), left_padded()
    fast = torch.compile(model, backend="strata", options=OPTIONS)
    assert torch.equal(generated(fast, name, tokens, pads, 10),
                       generated(model, name, tokens, pads, 10))
    check_compilations(caplog)


KINDS = {
    "Llama": {}, "Mistral": {"sliding_window": 6, "head_dim": 8},
    "Gemma2": {"sliding_window": 6, "head_dim": 8, "query_pre_attn_scalar": 8},
    "Gemma3": {"sliding_window": 6, "head_dim": 8, "query_pre_attn_scalar": 8}}
"""Classes of transformers; those with windows keep layers of two kinds in a hybrid cache."""


@pytest.mark.parametrize("cache", ["static", "dynamic", "hybrid"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_transformers(
    kind: str, attention: str, cache: str, caplog: pytest.LogCaptureFixture
) -> None:
    transformers = pytest.importorskip("transformers")
    caplog.set_level(logging.WARNING, "strata")
    config = getattr(transformers, {"Gemma3": "Gemma3TextConfig"}.get(kind, f"{kind}Config"))(
        vocab_size=TOKENS, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
        bos_token_id=1, eos_token_id=None, attn_implementation=attention, **KINDS[kind])
    if cache == "hybrid" and not KINDS[kind]:
        pytest.skip("all layers are of one kind")
    try:
        model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    except ValueError as error:
        pytest.skip(str(error).splitlines()[0])
    for parameter in model.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.3)
    tokens, pads = left_padded()
    named = {"attention_mask": (torch.arange(tokens.shape[1]) >= pads[:, None]).long(),
             "max_new_tokens": 10, "do_sample": False, "cache_implementation": cache}
    want = model.generate(tokens, **named)
    model.forward = torch.compile(model.forward, backend="strata", options=OPTIONS)
    assert torch.equal(model.generate(tokens, **named), want)
    check_compilations(caplog)

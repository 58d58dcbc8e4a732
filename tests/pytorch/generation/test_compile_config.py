"""transformers hands the fields of a CompileConfig to `torch.compile`."""

from __future__ import annotations

import logging

import pytest
import torch

from tests.pytorch.generation.decoders import TOKENS


@torch.no_grad()
def test_a_compiled_call(caplog: pytest.LogCaptureFixture) -> None:
    """Its mode, `reduce-overhead`, is one of ours; a mode that there is not is refused."""
    transformers = pytest.importorskip("transformers")
    torch._dynamo.reset()
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=TOKENS, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2)).eval()
    tokens = torch.randint(TOKENS, (2, 5))
    call = model.get_compiled_call(transformers.CompileConfig(backend="strata"))
    with caplog.at_level(logging.WARNING, "strata"):
        found = call(input_ids=tokens, use_cache=False).logits
    torch.testing.assert_close(found, model(tokens).logits, rtol=1e-4, atol=1e-4)
    assert not [r for r in caplog.records if r.name == "strata"]
    other = model.get_compiled_call(transformers.CompileConfig(backend="strata", mode="lite"))
    with pytest.raises(Exception, match="no mode 'lite'"):
        other(input_ids=tokens, use_cache=False)

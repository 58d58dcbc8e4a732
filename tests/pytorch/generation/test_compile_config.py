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


@torch.no_grad()
def test_tokens_of_a_padded_batch_with_a_large_cache() -> None:
    """Steps of `generate` are compiled; each row sees what follows its padding on the left."""
    transformers = pytest.importorskip("transformers")
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=TOKENS, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=20000)).eval()
    tokens = torch.randint(1, TOKENS, (3, 9))
    seen = torch.arange(9) >= torch.tensor([[0], [3], [7]])
    config = transformers.CompileConfig(
        backend="strata", fullgraph=False, mode=None, options={"cache": "off"})
    config._compile_all_devices = True  # else a CPU runs eagerly
    found = [model.generate(
        tokens * seen, attention_mask=seen.long(), max_new_tokens=6, do_sample=False,
        pad_token_id=0, past_key_values=transformers.StaticCache(
            config=model.config, max_cache_len=9000), **how)
        for how in ({"disable_compile": True}, {"compile_config": config})]
    assert torch.equal(*found)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0

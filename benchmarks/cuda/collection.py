"""Model classes as people run them: published sizes, random weights, nothing downloaded.

Each entry gives a module in f32 on the CPU and what it is called with; floats become f16 or bf16
with it. With `smoke` a model has few, narrow layers, so that a script can be tried on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from rows.networks import Call, DecodeStep, Network, library
from torch import nn

Tensor = torch.Tensor
Make = Callable[[bool], Network]

NARROW = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
          "intermediate_size": 96, "vocab_size": 128}
"""A small model in the words of most configurations."""
DECODER = {**NARROW, "num_key_value_heads": 1, "head_dim": 32}


def first_of(module: Any, *inputs: Tensor, **more: Any) -> Tensor:
    """The first tensor that a model of `transformers` returns."""
    return module(*inputs, return_dict=False, **more)[0]


def built(name: str, smoke: bool, sizes: Mapping[str, Any], small: Mapping[str, Any]) -> Any:
    """The model `name` with these sizes, or with `small` ones in place of them."""
    made = getattr(library(), name)
    config = made.config_class(**{**sizes, **(small if smoke else {})})
    config._attn_implementation = "sdpa"
    try:
        return made(config)
    except ValueError:  # a model that has no such attention
        config._attn_implementation = "eager"
        return made(config)


def text(
    name: str, batch: int, tokens: int, smoke: bool, small: Mapping[str, Any] = NARROW,
    padded: bool = False, **sizes: Any,
) -> Network:
    """An encoder of tokens; with `padded` of sequences whose ends are masked."""
    module, tokens = built(name, smoke, sizes, small), 16 if smoke else tokens
    ids = torch.randint(3, module.config.vocab_size, (batch, tokens))
    if not padded:
        return Network(Call(module, first_of), (ids,))
    lengths = torch.linspace(tokens // 2, tokens, batch).long()
    mask = (torch.arange(tokens) < lengths[:, None]).long()
    return Network(Call(module, first_of), (ids, mask))


def prefill(
    name: str, batch: int, tokens: int, smoke: bool, small: Mapping[str, Any] = DECODER,
    **sizes: Any,
) -> Network:
    """A causal language model over a prompt, without a cache."""
    module = built(name, smoke, sizes, small)
    ids = torch.randint(3, module.config.vocab_size, (batch, 16 if smoke else tokens))
    return Network(Call(module, partial(first_of, use_cache=False)), (ids,))


def decode(
    name: str, batch: int, tokens: int, smoke: bool, small: Mapping[str, Any] = DECODER,
    **sizes: Any,
) -> Network:
    """One token behind `tokens` others, whose keys and values are in a static cache."""
    tokens = 15 if smoke else tokens
    step = DecodeStep(built(name, smoke, sizes, small), 2 * tokens + 2, tokens, batch)
    return Network(step, (torch.randint(3, 100, (batch, 1)),
                          torch.full((batch, 1), tokens)), stateful=True)


def image(
    name: str, batch: int, smoke: bool, small: Mapping[str, Any], size: int = 224,
    last: bool = False, **sizes: Any,
) -> Network:
    """A model of images; with `last` its channels are the innermost dim in memory."""
    module = built(name, smoke, sizes, small)
    pixels = torch.randn(batch, 3, *(64 if smoke else size,) * 2)
    if last:
        module = module.to(memory_format=torch.channels_last)
        pixels = pixels.to(memory_format=torch.channels_last)
    return Network(Call(module, first_of), (pixels,))


def sound(name: str, batch: int, samples: int, smoke: bool, **sizes: Any) -> Network:
    """A model of waveforms."""
    small = {**NARROW, "conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16,
             "num_conv_pos_embedding_groups": 2}
    module = built(name, smoke, sizes, small)
    return Network(Call(module, first_of), (torch.randn(batch, 3200 if smoke else samples),))


def listener(batch: int, smoke: bool, **sizes: Any) -> Network:
    """Whisper's encoder over spectrograms of 30 seconds."""
    small = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 2,
             "encoder_ffn_dim": 96, "decoder_layers": 1, "decoder_attention_heads": 2,
             "decoder_ffn_dim": 96, "max_source_positions": 50, "vocab_size": 128,
             "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    module = built("WhisperModel", smoke, sizes, small).encoder
    return Network(Call(module, first_of), (torch.randn(batch, 80, 100 if smoke else 3000),))


def translator(
    name: str, batch: int, tokens: int, smoke: bool, small: Mapping[str, Any], **sizes: Any
) -> Network:
    """An encoder and the decoder that attends to it, both over whole sequences."""
    module, tokens = built(name, smoke, sizes, small), 16 if smoke else tokens
    ids = torch.randint(3, module.config.vocab_size, (batch, tokens))

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        return model(input_ids=source, decoder_input_ids=target, use_cache=False,
                     return_dict=False)[0]
    return Network(Call(module, call), (ids, ids[:, :tokens // 2].contiguous()))


# ---------------------------------------------------------------------- models written here
class Diffusion(nn.Module):
    """The blocks of a diffusion U-Net: group norm, SiLU, 3x3 convolutions, attention, a shortcut
    between halves, and resampling (Ho et al., 2020)."""

    def __init__(self, width: int, groups: int):
        super().__init__()
        self.start = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Residual(2 * width, groups) for _ in range(3))
        self.attention = Spatial(2 * width, groups)
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.join = Residual(2 * width, groups)
        self.end = nn.Conv2d(2 * width, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.start(x)
        y = self.down(first)
        for block in self.blocks:
            y = block(y)
        y = self.attention(y)
        y = self.up(nn.functional.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.end(self.join(torch.cat([first, y], 1)))


class Residual(nn.Module):
    def __init__(self, width: int, groups: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(groups, width) for _ in range(2))
        self.products = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for norm, product in zip(self.norms, self.products, strict=True):
            y = product(nn.functional.silu(norm(y)))
        return x + y


class Spatial(nn.Module):
    """Self-attention over the positions of an image, heads of 64 channels."""

    def __init__(self, width: int, groups: int):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(groups, width), max(1, width // 64)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(rows).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.out(mixed).transpose(1, 2).unflatten(2, x.shape[2:])


class Recommender(nn.Module):
    """Embeddings and numbers, crossed pairwise, between two perceptrons (DLRM, Naumov et al.)."""

    def __init__(self, tables: int, entries: int, width: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(entries, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(),
                                    nn.Linear(256, width), nn.ReLU())
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = nn.Sequential(nn.Linear(width + pairs.shape[1], 1024), nn.ReLU(),
                                 nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        low = self.bottom(numbers)
        found = [table(ids[:, k]) for k, table in enumerate(self.tables)]
        features = torch.stack([low, *found], 1)
        crossed = (features @ features.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([low, crossed], 1))


class Messages(nn.Module):
    """Graph convolutions: messages along edges are summed at their ends."""

    def __init__(self, width: int, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))

    def forward(self, x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        for layer in self.layers:
            summed = torch.zeros_like(x).index_add(0, ends, x[starts])
            x = nn.functional.relu(layer(torch.cat([x, summed], 1)))
        return x


def diffusion(batch: int, smoke: bool) -> Network:
    width, size = (32, 16) if smoke else (320, 64)
    return Network(Diffusion(width, width // 10 or 1 if not smoke else 4),
                   (torch.randn(batch, 4, size, size),))


def recommender(batch: int, smoke: bool) -> Network:
    entries = 50 if smoke else 100_000
    ids = torch.randint(0, entries, (batch, 26))
    return Network(Recommender(26, entries, 16 if smoke else 64), (torch.randn(batch, 13), ids))


def graph(nodes: int, edges: int, smoke: bool) -> Network:
    nodes, edges = (40, 100) if smoke else (nodes, edges)
    return Network(Messages(128, 3), (torch.randn(nodes, 128), *torch.randint(
        0, nodes, (2, edges)).unbind(0)))


# ---------------------------------------------------------------------- the classes
T5 = {"d_model": 64, "d_kv": 32, "d_ff": 96, "num_layers": 2, "num_heads": 2, "vocab_size": 128}
BART = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
        "vocab_size": 128}
PATCHES = {**NARROW, "image_size": 64}
STAGES = {"depths": [1, 1], "hidden_sizes": [16, 32]}
SWIN = {"image_size": 64, "embed_dim": 32, "depths": [1, 1], "num_heads": [1, 2],
        "window_size": 4}
SEGMENTS = {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [4, 2],
            "hidden_sizes": [16, 32], "patch_sizes": [7, 3], "strides": [4, 2],
            "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 32}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
         "intermediate_size": 4096}
LLAMA = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
         "vocab_size": 128_256, "tie_word_embeddings": True, "rope_theta": 5e5}
QWEN = {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
        "vocab_size": 151_936, "tie_word_embeddings": True}
EXPERTS = {"hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 16,
           "num_key_value_heads": 4, "intermediate_size": 2816, "num_local_experts": 8,
           "num_experts_per_tok": 2, "vocab_size": 32_000}
FEW_EXPERTS = {**DECODER, "num_local_experts": 4}

CLASSES: dict[str, Make] = {
    # encoders of text
    "BERT-base b16 s384": partial(text, "BertModel", 16, 384),
    "BERT-large b4 s512 padded": partial(text, "BertModel", 4, 512, padded=True, **LARGE),
    "RoBERTa-base b8 s256": partial(text, "RobertaModel", 8, 256),
    "DistilBERT b32 s128": partial(
        text, "DistilBertModel", 32, 128, small={
            "dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 96, "vocab_size": 128}),
    "ALBERT-base b8 s256": partial(
        text, "AlbertModel", 8, 256, hidden_size=768, num_attention_heads=12,
        intermediate_size=3072, small={**NARROW, "embedding_size": 32}),
    "ELECTRA-base b8 s200": partial(
        text, "ElectraModel", 8, 200, hidden_size=768, embedding_size=768,
        num_attention_heads=12, intermediate_size=3072, small={**NARROW, "embedding_size": 64}),
    "ModernBERT-base b8 s512": partial(
        text, "ModernBertModel", 8, 512, small={**NARROW, "pad_token_id": 0}),
    "MPNet-base b8 s128": partial(text, "MPNetModel", 8, 128),
    "DeBERTa-v2-base b4 s256": partial(
        text, "DebertaV2Model", 4, 256, hidden_size=768, num_hidden_layers=12,
        num_attention_heads=12, intermediate_size=3072, relative_attention=True,
        pos_att_type=["p2c", "c2p"], position_buckets=256, norm_rel_ebd="layer_norm",
        share_att_key=True),
    "T5-base encoder b8 s512": partial(
        text, "T5EncoderModel", 8, 512, small=T5, d_model=768, d_ff=3072, num_layers=12,
        num_heads=12),
    # encoders with decoders
    "T5-small b8 s256": partial(translator, "T5Model", 8, 256, small=T5),
    "BART-base b8 s256": partial(
        translator, "BartModel", 8, 256, small=BART, d_model=768, encoder_layers=6,
        decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072),
    "Marian b8 s128": partial(
        translator, "MarianModel", 8, 128, small={**BART, "pad_token_id": 0}, d_model=512,
        encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048),
    # language models over a prompt
    "GPT-2 medium b4 s1024": partial(
        prefill, "GPT2LMHeadModel", 4, 1024, n_embd=1024, n_layer=24, n_head=16,
        small={"n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 128}),
    "OPT-350M b2 s1024": partial(
        prefill, "OPTForCausalLM", 2, 1024, hidden_size=1024, num_hidden_layers=24,
        num_attention_heads=16, ffn_dim=4096, do_layer_norm_before=False,
        word_embed_proj_dim=512,
        small={**NARROW, "ffn_dim": 96, "word_embed_proj_dim": 32}),
    "GPT-NeoX-410M b2 s1024": partial(prefill, "GPTNeoXForCausalLM", 2, 1024, **LARGE,
                                      small=NARROW),
    "BLOOM-560M b2 s512": partial(
        prefill, "BloomForCausalLM", 2, 512, hidden_size=1024, n_layer=24, n_head=16,
        vocab_size=250_880,
        small={"hidden_size": 64, "n_layer": 2, "n_head": 2, "vocab_size": 128}),
    "Llama-1B b1 s1024": partial(prefill, "LlamaForCausalLM", 1, 1024, **LLAMA),
    "Qwen3-0.6B b2 s512": partial(prefill, "Qwen3ForCausalLM", 2, 512, **QWEN),
    "Gemma-2 of 8 layers b1 s1024": partial(
        prefill, "Gemma2ForCausalLM", 1, 1024, num_hidden_layers=8,
        small={**DECODER, "sliding_window": 8, "pad_token_id": 0}),
    "Mistral of 8 layers, window 512, b1 s2048": partial(
        prefill, "MistralForCausalLM", 1, 2048, num_hidden_layers=8, sliding_window=512,
        hidden_size=2048, intermediate_size=7168, small={**DECODER, "sliding_window": 8}),
    "Phi-3 of 8 layers b1 s1024": partial(
        prefill, "Phi3ForCausalLM", 1, 1024, num_hidden_layers=8,
        small={**NARROW, "num_key_value_heads": 1, "pad_token_id": 0}),
    "Mixtral-shaped b2 s512": partial(
        prefill, "MixtralForCausalLM", 2, 512, small=FEW_EXPERTS, **EXPERTS),
    # language models, token by token
    "Llama-1B decode b1 at 512": partial(decode, "LlamaForCausalLM", 1, 512, **LLAMA),
    "Llama-1B decode b8 at 512": partial(decode, "LlamaForCausalLM", 8, 512, **LLAMA),
    "Qwen3-0.6B decode b1 at 1024": partial(decode, "Qwen3ForCausalLM", 1, 1024, **QWEN),
    "Qwen3-0.6B decode b8 at 1024": partial(decode, "Qwen3ForCausalLM", 8, 1024, **QWEN),
    "Mixtral-shaped decode b1 at 256": partial(
        decode, "MixtralForCausalLM", 1, 256, small=FEW_EXPERTS, **EXPERTS),
    # sound
    "Whisper-base encoder b4": partial(
        listener, 4, d_model=512, encoder_layers=6, encoder_attention_heads=8,
        encoder_ffn_dim=2048, decoder_layers=1, decoder_attention_heads=8),
    "wav2vec 2.0 base b4, 4 s": partial(sound, "Wav2Vec2Model", 4, 64_000),
    "HuBERT-base b2, 8 s": partial(sound, "HubertModel", 2, 128_000),
    # images
    "ViT-B b16": partial(image, "ViTModel", 16, small=PATCHES),
    "ViT-L b8": partial(image, "ViTModel", 8, small=PATCHES, **LARGE),
    "DeiT-S b32": partial(
        image, "DeiTModel", 32, small=PATCHES, hidden_size=384, num_attention_heads=6,
        intermediate_size=1536),
    "DINOv2-S b8": partial(
        image, "Dinov2Model", 8, small={**PATCHES, "patch_size": 16}, hidden_size=384,
        num_attention_heads=6, image_size=224, patch_size=14),
    "BEiT-B b8": partial(image, "BeitModel", 8, small=PATCHES),
    "CLIP ViT-B/32 b32": partial(image, "CLIPVisionModel", 32, small=PATCHES),
    "SigLIP-B b8": partial(image, "SiglipVisionModel", 8, small=PATCHES),
    "YOLOS-S b1 512": partial(
        image, "YolosModel", 1, size=512, hidden_size=384, num_attention_heads=6,
        intermediate_size=1536, image_size=[512, 512], small={
            **NARROW, "image_size": [64, 64]}),
    "Swin-T b16": partial(image, "SwinModel", 16, small=SWIN),
    "ConvNeXt-T b16": partial(image, "ConvNextModel", 16, small={**STAGES, "num_stages": 2}),
    "ConvNeXt-T b16 channels last": partial(
        image, "ConvNextModel", 16, small={**STAGES, "num_stages": 2}, last=True),
    "ConvNeXt V2-T b8": partial(image, "ConvNextV2Model", 8, small={**STAGES, "num_stages": 2}),
    "ResNet-50 b32 channels last": partial(
        image, "ResNetModel", 32, small={**STAGES, "embedding_size": 8}, last=True),
    "ResNet-18 b16": partial(
        image, "ResNetModel", 16, small={**STAGES, "embedding_size": 8},
        layer_type="basic", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2]),
    "RegNetY b16": partial(
        image, "RegNetModel", 16, small={**STAGES, "embedding_size": 8, "groups_width": 8}),
    "MobileNetV2 b32 channels last": partial(
        image, "MobileNetV2Model", 32, small={"depth_multiplier": 0.35}, last=True),
    "EfficientNet-B0 b16": partial(
        image, "EfficientNetModel", 16, width_coefficient=1.0, depth_coefficient=1.0,
        hidden_dim=1280, small={"width_coefficient": 0.25, "depth_coefficient": 0.3,
                                "hidden_dim": 320}),
    "SegFormer-B0 b4 512": partial(
        image, "SegformerForSemanticSegmentation", 4, size=512, small=SEGMENTS),
    # others
    "diffusion U-Net b4": partial(diffusion, 4),
    "DLRM b2048": partial(recommender, 2048),
    "graph convolutions 20k nodes": partial(graph, 20_000, 200_000),
}

"""Tiny configurations of model classes, with random weights: two layers, small widths.

Each function makes (module, inputs by name, dynamic dims). Dynamic dims are `(input, dim)` pairs;
the table runs such a model at a second size, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

HIDDEN, HEADS, LAYERS, INNER, VOCABULARY = 32, 4, 2, 64, 99
TOKENS, PIXELS = 10, 32

Sizes = Sequence["tuple[str, int]"]


class Named(torch.nn.Module):
    """A model that is called by position, under the names of its inputs; returns a tuple."""

    def __init__(self, model: torch.nn.Module, **fixed: Any):
        super().__init__()
        self.model, self.fixed = model, fixed
        self.names: tuple[str, ...] = ()

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = self.model(**dict(zip(self.names, inputs, strict=True)), **self.fixed)
        values = made.to_tuple() if hasattr(made, "to_tuple") else made
        return tuple(v for v in values if isinstance(v, torch.Tensor))


class Positional(Named):
    """A model that is called with its input, not by name; returns a tensor."""

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.model(*inputs),)


@dataclass(frozen=True)
class Case:
    """A model and its inputs. `dynamic`: the dims that are exported as sizes. `gain`: how much a
    layer enlarges what it gets; deep models need less."""

    module: Named
    inputs: Mapping[str, torch.Tensor]
    dynamic: Sizes = field(default_factory=tuple)
    gain: float = 1.5

    def __post_init__(self) -> None:
        self.module.names = tuple(self.inputs)
        enliven(self.module, self.gain)


def enliven(module: torch.nn.Module, gain: float) -> None:
    """Weights as after training: no zeros, no vanishing activations, statistics of their own."""
    with torch.no_grad():
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            if not value.is_floating_point():
                continue
            if name.endswith("running_var"):
                value.uniform_(0.5, 1.5)
            elif name.endswith("running_mean"):
                value.normal_(0, 0.2)
            elif value.ndim > 1 and isinstance(value, torch.nn.Parameter):
                value.normal_(0, gain / math.sqrt(value[0].numel()))
            elif isinstance(value, torch.nn.Parameter) and "A_log" not in name:
                value.add_(torch.randn_like(value) * 0.1)


Make = Callable[[], Case]
CASES: dict[str, tuple[str, Make]] = {}
"""Name -> the library, and the function."""


def case(name: str, library: str = "transformers") -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        CASES[name] = (library, make)
        return make
    return register


def ids(batch: int = 2, tokens: int = TOKENS) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, tokens))


def picture(size: int = PIXELS) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


TEXT: Sizes = (("input_ids", 0), ("input_ids", 1))
IMAGE: Sizes = (("pixel_values", 0),)




# ---------------------------------------------------------------------- encoders of text
def _encoder(model: str, **more: Any) -> Make:
    def make() -> Case:
        import transformers as tr

        config = getattr(tr, f"{model}Config")(**{
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "intermediate_size": INNER,
            "max_position_embeddings": 64, **more})
        inputs = {"input_ids": ids(), "attention_mask": _mask()}
        dynamic = [(name, k) for name in inputs for k in (0, 1)]
        return Case(Named(getattr(tr, f"{model}Model")(config)), inputs, dynamic)
    return make


def _mask() -> torch.Tensor:
    mask = torch.ones(2, TOKENS, dtype=torch.int64)
    mask[1, -3:] = 0
    return mask


case("BERT")(_encoder("Bert"))
case("RoBERTa")(_encoder("Roberta"))
case("DistilBERT")(_encoder("DistilBert", dim=HIDDEN, n_layers=LAYERS, n_heads=HEADS,
                            hidden_dim=INNER))
case("ELECTRA")(_encoder("Electra", embedding_size=HIDDEN))
case("ALBERT")(_encoder("Albert", embedding_size=HIDDEN))
case("MPNet")(_encoder("MPNet"))
case("DeBERTa-v2")(_encoder("DebertaV2"))
case("ModernBERT")(_encoder("ModernBert", pad_token_id=0, bos_token_id=1, eos_token_id=2,
                            cls_token_id=1, sep_token_id=2))


# ---------------------------------------------------------------------- decoders of text
def _decoder(
    model: str, kind: str = "ForCausalLM", dynamic: Sizes = TEXT, **more: Any
) -> Make:
    def make() -> Case:
        import transformers as tr

        config = getattr(tr, f"{model}Config")(**{
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": 2, "intermediate_size": INNER,
            "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": 2, "use_cache": False, **more})
        module = getattr(tr, f"{model}{kind}")(config)
        return Case(Named(module, use_cache=False), {"input_ids": ids()}, dynamic)
    return make


case("GPT-2")(_decoder("GPT2", "LMHeadModel", n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS,
                       n_positions=64))
case("GPT-NeoX")(_decoder("GPTNeoX"))
case("OPT")(_decoder("OPT", ffn_dim=INNER, word_embed_proj_dim=HIDDEN))
case("BLOOM")(_decoder("Bloom", n_layer=LAYERS, n_head=HEADS))
case("Falcon")(_decoder("Falcon"))
case("Llama")(_decoder("Llama"))
case("Qwen2")(_decoder("Qwen2"))
case("Qwen3")(_decoder("Qwen3", head_dim=8))
case("Mistral")(_decoder("Mistral", sliding_window=4))
case("Mixtral")(_decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2,
                         experts_implementation="batched_mm"))
case("Gemma")(_decoder("Gemma", head_dim=8))
case("Gemma2")(_decoder("Gemma2", head_dim=8, sliding_window=4))
case("Phi")(_decoder("Phi"))
case("Phi-3")(_decoder("Phi3"))
case("StableLM")(_decoder("StableLm"))
case("OLMo")(_decoder("Olmo"))
case("Granite")(_decoder("Granite"))
case("Mamba")(_decoder("Mamba", dynamic=(("input_ids", 0),), state_size=8))


# ---------------------------------------------------------------------- encoders and decoders
@case("T5")
def t5() -> Case:
    import transformers as tr

    config = tr.T5Config(vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=8, d_ff=INNER,
                         num_layers=LAYERS, num_heads=HEADS, use_cache=False)
    inputs = {"input_ids": ids(), "decoder_input_ids": ids(2, 7)}
    dynamic = [("input_ids", 0), ("decoder_input_ids", 0), ("input_ids", 1),
               ("decoder_input_ids", 1)]
    return Case(Named(tr.T5ForConditionalGeneration(config), use_cache=False), inputs, dynamic)


@case("BART")
def bart() -> Case:
    import transformers as tr

    config = tr.BartConfig(vocab_size=VOCABULARY, d_model=HIDDEN, encoder_layers=LAYERS,
                           decoder_layers=LAYERS, encoder_attention_heads=HEADS,
                           decoder_attention_heads=HEADS, encoder_ffn_dim=INNER,
                           decoder_ffn_dim=INNER, max_position_embeddings=64, use_cache=False)
    inputs = {"input_ids": ids(), "decoder_input_ids": ids(2, 7)}
    return Case(Named(tr.BartModel(config), use_cache=False), inputs,
                [("input_ids", 0), ("decoder_input_ids", 0)])


# ---------------------------------------------------------------------- sound
@case("Whisper")
def whisper() -> Case:
    import transformers as tr

    config = tr.WhisperConfig(vocab_size=VOCABULARY, d_model=HIDDEN, encoder_layers=LAYERS,
                              decoder_layers=LAYERS, encoder_attention_heads=HEADS,
                              decoder_attention_heads=HEADS, encoder_ffn_dim=INNER,
                              decoder_ffn_dim=INNER, num_mel_bins=16, max_source_positions=20,
                              max_target_positions=30, pad_token_id=0, bos_token_id=1,
                              eos_token_id=2, decoder_start_token_id=1, use_cache=False)
    inputs = {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": ids(2, 7)}
    return Case(Named(tr.WhisperModel(config), use_cache=False), inputs,
                [("input_features", 0), ("decoder_input_ids", 0)])


def _sound(model: str, **more: Any) -> Make:
    def make() -> Case:
        import transformers as tr

        config = getattr(tr, f"{model}Config")(**{
            "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "intermediate_size": INNER, "conv_dim": (16, 16), "conv_stride": (5, 2),
            "conv_kernel": (10, 3), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0, **more})
        return Case(Named(getattr(tr, f"{model}Model")(config)),
                    {"input_values": torch.randn(2, 800)}, [("input_values", 0)])
    return make


case("wav2vec2")(_sound("Wav2Vec2"))
case("HuBERT")(_sound("Hubert"))


# ---------------------------------------------------------------------- pictures
def _vision(model: str, kind: str = "Model", size: int = PIXELS, **more: Any) -> Make:
    def make() -> Case:
        import transformers as tr

        config = getattr(tr, f"{model}Config")(**more)
        return Case(Named(getattr(tr, f"{model}{kind}")(config)), {"pixel_values": picture(size)},
                    IMAGE)
    return make


PATCHES: dict[str, Any] = {
    "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": INNER, "image_size": PIXELS, "patch_size": 8,
}
case("ViT")(_vision("ViT", "ForImageClassification", **PATCHES))
case("DeiT")(_vision("DeiT", "ForImageClassification", **PATCHES))
case("BEiT")(_vision("Beit", "ForImageClassification", **PATCHES))
case("DINOv2")(_vision("Dinov2", **{**PATCHES, "mlp_ratio": 2}))
case("Swin")(_vision("Swin", "ForImageClassification", image_size=PIXELS, patch_size=2,
                     embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4))
case("SwinV2")(_vision("Swinv2", "ForImageClassification", image_size=PIXELS, patch_size=2,
                       embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4))
STAGES: dict[str, Any] = {"hidden_sizes": [8, 16], "depths": [1, 2]}
case("ConvNeXt")(_vision("ConvNext", "ForImageClassification", num_stages=2, **STAGES))
case("ConvNeXtV2")(_vision("ConvNextV2", "ForImageClassification", num_stages=2, **STAGES))
case("ResNet")(_vision("ResNet", "ForImageClassification", embedding_size=8, **STAGES))
case("RegNet")(_vision("RegNet", "ForImageClassification", embedding_size=8, groups_width=4,
                       **STAGES))
case("BiT")(_vision("Bit", "ForImageClassification", embedding_size=8, num_groups=4, **STAGES))
case("EfficientNet")(_vision("EfficientNet", "ForImageClassification", width_coefficient=0.25,
                             depth_coefficient=0.25, image_size=PIXELS, hidden_dim=320))
case("MobileNetV1")(_vision("MobileNetV1", "ForImageClassification", depth_multiplier=0.25,
                            image_size=PIXELS))
case("MobileNetV2")(_vision("MobileNetV2", "ForImageClassification", depth_multiplier=0.25,
                            image_size=PIXELS))
case("MobileViT")(_vision("MobileViT", "ForImageClassification", image_size=64, size=64,
                          hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 24, 32, 32, 32],
                          num_attention_heads=4))
case("PoolFormer")(_vision("PoolFormer", "ForImageClassification", hidden_sizes=[8, 16, 16, 32],
                           depths=[1, 1, 1, 1]))
case("SegFormer")(_vision("Segformer", "ForSemanticSegmentation", size=64, num_encoder_blocks=2,
                          depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32],
                          patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[2, 4],
                          mlp_ratios=[2, 2], decoder_hidden_size=32))
case("DPT")(_vision("DPT", "ForDepthEstimation", **{
    **PATCHES, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
    "neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16, "is_hybrid": False,
    "reassemble_factors": [4, 2, 1, 0.5]}))


@case("CLIP")
def clip() -> Case:
    import transformers as tr

    text = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "intermediate_size": INNER,
            "max_position_embeddings": 16, "eos_token_id": 2, "projection_dim": 16}
    config = tr.CLIPConfig(text_config=text, vision_config={**PATCHES, "projection_dim": 16},
                           projection_dim=16)
    inputs = {"input_ids": ids(), "pixel_values": picture()}
    return Case(Named(tr.CLIPModel(config)), inputs, [("input_ids", 1)])


@case("DETR")
def detr() -> Case:
    import transformers as tr

    backbone = tr.ResNetConfig(embedding_size=8, out_features=["stage2"], **STAGES)
    config = tr.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False,
                           backbone_config=backbone, backbone=None, d_model=HIDDEN,
                           encoder_layers=1, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
                           decoder_attention_heads=HEADS, encoder_ffn_dim=INNER,
                           decoder_ffn_dim=INNER, num_queries=5, num_labels=4)
    inputs = {"pixel_values": picture(64), "pixel_mask": torch.ones(2, 64, 64, dtype=torch.int64)}
    return Case(Named(tr.DetrForObjectDetection(config)), inputs)


# ---------------------------------------------------------------------- diffusion
@case("UNet (diffusion)", "diffusers")
def unet() -> Case:
    import diffusers as df

    model = df.UNet2DConditionModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=16,
        attention_head_dim=4, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
    return Case(Named(model, return_dict=False), {
        "sample": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.randn(2, 5, 16)}, [("encoder_hidden_states", 1)])


@case("VAE (diffusion)", "diffusers")
def vae() -> Case:
    import diffusers as df

    model = df.AutoencoderKL(
        block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)
    return Case(Named(model, return_dict=False), {"sample": picture()}, [("sample", 0)])


@case("DiT", "diffusers")
def dit() -> Case:
    import diffusers as df

    model = df.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=4,
                                     out_channels=4, num_layers=LAYERS, norm_num_groups=4,
                                     sample_size=8, num_embeds_ada_norm=10)
    return Case(Named(model, return_dict=False), {
        "hidden_states": torch.randn(2, 4, 8, 8), "timestep": torch.tensor([3, 7]),
        "class_labels": torch.tensor([1, 2])})


# ---------------------------------------------------------------------- timm
def _timm(model: str, size: int = PIXELS, gain: float = 1.5, **more: Any) -> Make:
    def make() -> Case:
        import timm

        module = timm.create_model(model, pretrained=False, num_classes=10, **more)
        return Case(Positional(module), {"pixel_values": picture(size)}, IMAGE, gain)
    return make


case("MobileNetV3 (timm)", "timm")(_timm("mobilenetv3_small_050"))
case("GhostNet (timm)", "timm")(_timm("ghostnet_050", 64))
case("EfficientNetV2 (timm)", "timm")(_timm("efficientnetv2_rw_t", 64, gain=0.7))
case("NFNet (timm)", "timm")(_timm("dm_nfnet_f0", 64))
case("MLP-Mixer (timm)", "timm")(_timm("mixer_s32_224", 64, img_size=64))
case("CaiT (timm)", "timm")(_timm("cait_xxs24_224", 32, img_size=32, depth=2))
case("HRNet (timm)", "timm")(_timm("hrnet_w18_small", 64))
case("Inception-v3 (timm)", "timm")(_timm("inception_v3", 96))

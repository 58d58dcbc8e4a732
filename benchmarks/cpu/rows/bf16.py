"""Models whose products may be computed in bf16: `--precision fast` and OpenVINO's bf16 hint."""

from __future__ import annotations

from rows import Goal, Measure, Setting
from rows.models import model_rows

TITLE = "bf16 permitted (`--precision fast`): OpenVINO's bf16 time / ours"
GOAL = Goal(0.9, 1.1)
MEAN = False
MODELS = ("resnet50", "bert_base", "vit_b16", "gpt2_prefill", "whisper_tiny_encoder")


def rows(setting: Setting) -> dict[str, Measure]:
    return model_rows(MODELS, setting, ("openvino",), precision="fast")

"""Decode steps, which stream weights, and models of less than a millisecond, where calls cost."""

from __future__ import annotations

from rows import Goal, Measure, Setting
from rows.models import model_rows

TITLE = "decode steps and small models: onnxruntime's time / ours"
GOAL = Goal(1.1, 1.5)
MEAN = False
MODELS = ("gpt2_decode", "llama_s_decode", "silero_v6_no_if", "silero_v6_if25", "silero_v6_if12",
          "silero_v6_if1", "silero_v6_sequence", "magika", "oww_alexa", "oww_hey_marvin",
          "thai2rom_encoder", "thai2rom_decoder", "ppocr_v2_cls", "oww_melspectrogram",
          "oww_embedding", "livekit_embedding", "asr_resample_48_16", "asr_nemo80")


def rows(setting: Setting) -> dict[str, Measure]:
    return model_rows(MODELS, setting, ("onnxruntime",))

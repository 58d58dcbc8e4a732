"""Models of kinds that the zoo lacks, written here, with seeded weights (`written_models.py`)."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path

from rows import Figures, Goal, Measure, Missing, Setting
from rows.contests import duel

TITLE = "written models: the best of onnxruntime's and OpenVINO's time / ours"
GOAL = Goal(0.95, 1.25)
MEAN = False
NAMES = (
    "experts_dense", "experts_gathered", "experts_routed", "codec_decoder", "vocoder",
    "convnext_tiny", "convnext_v2_atto", "segmentation_f16", "segmentation",
    "mobile_segmentation_f16", "mobile_segmentation", "segformer_b0", "swin_small", "poolformer",
    "mobilevit", "wav2vec", "restoration", "detector", "dense_net", "volumes", "decoder_step",
    "decoder_step_f16", "vision_transformer", "vision_transformer_f16", "recommendation",
    "conformer", "recurrent")


def rows(setting: Setting) -> dict[str, Measure]:
    return {name: partial(measure, name) for name in NAMES}


def measure(name: str, setting: Setting) -> Figures:
    for package in ("torch", "transformers", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise Missing(f"{package} is not installed")
    sys.path.append(str(Path(__file__).parents[1]))
    from written_models import MODELS, write

    assert tuple(MODELS) == NAMES
    path, inputs = write(name, setting.folder)
    return duel(str(path), inputs, setting, {"onnxruntime": None, "openvino": None})

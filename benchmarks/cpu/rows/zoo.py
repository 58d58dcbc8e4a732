"""All models of the zoo that are not quantized."""

from __future__ import annotations

from rows import Goal, Measure, Setting
from rows.models import model_rows

TITLE = "f32 models of the zoo: the best of onnxruntime's and OpenVINO's time / ours"
GOAL = Goal(1.0, 1.25)
MEAN = True


def rows(setting: Setting) -> dict[str, Measure]:
    plain = [name for name, entry in setting.zoo().items() if "quantized" not in entry["flags"]]
    return model_rows(plain, setting, ("onnxruntime", "openvino"))

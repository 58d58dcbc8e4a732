"""onnxruntime-genai as a peer: one token after another on one thread of a CPU.

    python benchmarks/decode/genai.py [--model llama-1b] [--layers 2] [--kind int4]
        [--cached 512] [--steps 24] [--folder build/genai]

Needs `pip install onnxruntime-genai transformers`. Its own builder writes the model, of the shapes
in `models.py` and random weights: float32, or MatMulNBits of 4 bits with its default options. The
model is kept in the folder. Prints JSON: the milliseconds of processor time of a step after so many
cached tokens, as the median and the least, and the bytes of the weights. It runs in a process of
its own, so that its threads and allocations are not those of other contestants.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from models import SHAPES, Shape

PRECISIONS = {"f32": "fp32", "int4": "int4"}
PROMPT = 64
"""The tokens of a prompt that are computed at a time."""


def built(name: str, layers: int, kind: str, folder: Path) -> Path:
    """The folder of a model, which is written unless it is there."""
    made = folder / f"{name}-{layers}-{kind}"
    if not (made / "genai_config.json").exists():
        source = folder / f"{name}-{layers}"
        _write_source(SHAPES[name], layers, source)
        subprocess.run(
            [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", made,
             "-p", PRECISIONS[kind], "-e", "cpu", "-c", folder / "cache"],
            check=True, stdout=subprocess.DEVNULL)
    return made


def _write_source(shape: Shape, layers: int, folder: Path) -> None:
    """A model of transformers with random weights, and a tokenizer that the builder copies."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    config = (Qwen3Config if shape.norms else LlamaConfig)(
        hidden_size=shape.width, intermediate_size=shape.inner, num_hidden_layers=layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.shared, head_dim=shape.size,
        vocab_size=shape.vocabulary, tie_word_embeddings=True, max_position_embeddings=8192,
        bos_token_id=0, eos_token_id=1)
    (Qwen3ForCausalLM if shape.norms else LlamaForCausalLM)(config).save_pretrained(folder)
    words = {f"t{k}": k for k in range(8)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, "t0")), unk_token="t0",
                            bos_token="t0", eos_token="t1").save_pretrained(folder)


def with_one_thread(folder: Path) -> None:
    """Let a model's own configuration ask for one thread."""
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    options = config["model"]["decoder"]["session_options"]
    options |= {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
    path.write_text(json.dumps(config))


def steps(folder: Path, cached: int, count: int) -> list[float]:
    """The seconds of processor time of each step behind so many cached tokens."""
    import onnxruntime_genai as genai

    model: Any = genai.Model(str(folder))
    parameters: Any = genai.GeneratorParams(model)
    parameters.set_search_options(max_length=cached + count + 8, min_length=cached + count + 8)
    generator: Any = genai.Generator(model, parameters)
    for begin in range(0, cached, PROMPT):
        generator.append_tokens([[2 + k % 5 for k in range(min(PROMPT, cached - begin))]])
    found: list[float] = []
    for _ in range(count):
        started = time.process_time()
        generator.generate_next_token()
        found.append(time.process_time() - started)
    return found[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-1b", choices=sorted(SHAPES))
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--kind", default="int4", choices=sorted(PRECISIONS))
    parser.add_argument("--cached", type=int, default=512)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--folder", type=Path, default=Path("build/genai"))
    options = parser.parse_args()
    folder = built(options.model, options.layers, options.kind, options.folder)
    with_one_thread(folder)
    times = steps(folder, options.cached, options.steps)
    print(json.dumps({"ms": 1e3 * statistics.median(times), "least": 1e3 * min(times),
                      "bytes": (folder / "model.onnx.data").stat().st_size}))


if __name__ == "__main__":
    main()

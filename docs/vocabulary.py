"""Writes docs/vocabulary.md from the table of `compiler/torch/vocabulary.py`.

    python -m docs.vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compiler.torch.vocabulary import MODES, OPTIONS, Meaning

PAGE = Path(__file__).with_name("vocabulary.md")
HEAD = """\
# PyTorch's vocabulary

What the modes, options, switches and debug variables of `torch.compile` mean with
`backend="strata"`. Options of `compiler.compile` (`strategy`, `precision`, `threads`, `dump_dir`
...) may be given in `options`, too. This page is written by `python -m docs.vocabulary`.
"""
NAMED = {
    "default": "the default",
    "reduce-overhead": "the same: on a GPU, a program is one CUDA graph anyway",
    "max-autotune": "kernels are tuned by measuring before the first call; later compilations find "
                    "the schedules",
}
OTHERS = """
Other options of PyTorch's compiler choose among kernels of its own. They have no effect, and are
named in a message of level INFO. A name that PyTorch's compiler does not have either is an error.

## Switches

`torch._dynamo.config` decides what PyTorch captures, and holds as it does for any backend:
`capture_scalar_outputs`, `capture_dynamic_output_shape_ops`, `recompile_limit`,
`automatic_dynamic_shapes`, `suppress_errors`, and `allow_rnn`, without which PyTorch runs
`nn.LSTM`, `nn.GRU` and `nn.RNN` outside of what any backend compiles. So do `dynamic`,
`fullgraph` and `torch._dynamo.mark_dynamic`, and `transformers.CompileConfig(backend="strata")`
passes its fields to `torch.compile`. `torch._inductor.config` has no effect.
`torch.use_deterministic_algorithms` fixes the order in which sums of scatters are added.

## Debug variables
"""
VARIABLES = {
    "TORCH_LOGS=output_code": "our code: LLVM IR on the CPU, Triton on a GPU",
    "TORCH_LOGS=graph_breaks": "PyTorch's messages, and for each graph that ends early its line, "
                               "the reason and what is usually written instead",
    "TORCH_LOGS=recompiles,guards,graph_code,aot_graphs":
        "PyTorch's own messages, as for any backend",
    "TORCH_LOGS=fusion,schedule,ir_pre_fusion,ir_post_fusion":
        "nothing: use `compiler.explain` and dumps",
    "TORCH_COMPILE_DEBUG=1":
        "every level and pass, in the folder `strata` of PyTorch's debug folder",
    "TORCH_TRACE": "PyTorch's own trace, as for any backend",
    "TORCHINDUCTOR_CACHE_DIR": "nothing: compiled programs are kept in `$STRATA_CACHE`",
}


def page() -> str:
    modes = {**NAMED, **{name: f"`{ours}` without the group of passes `{group}`"
                         for name, (ours, group) in MODES.items()}}
    options = [f"| `{name}` | {_kind(meaning)} | {meaning.note} |"
               for name, meaning in sorted(OPTIONS.items())]
    return "\n".join([
        HEAD, "## Modes", "", *_table("mode", modes), "", "## Options", "", "| option | | here |",
        "|---|---|---|", *options, OTHERS, *_table("variable", VARIABLES), ""])


def _table(head: str, rows: Mapping[str, str]) -> list[str]:
    return [f"| {head} | here |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in rows.items())]


def _kind(meaning: Meaning) -> str:
    if meaning.refused:
        return "refused"
    return "no effect" if meaning.ours is None else "ours"


if __name__ == "__main__":
    PAGE.write_text(page())

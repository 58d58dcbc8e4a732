"""Switches of `torch._dynamo.config`, artifacts of `TORCH_LOGS`, and variables, by families.

PyTorch captures whatever the backend is, so most switches hold as for any. Each line has names, as
patterns, and what they mean; the first that matches counts.

The module can be imported without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

ANY = "as for any backend"
"""What PyTorch does before a graph comes to us, or around it."""

Families = Sequence[tuple[str, str]]

DYNAMO: Families = (
    ("prepare_freezing cudagraph_backend_* debug_inductor_config_override",
     "no effect: for other backends"),
    ("repro_*", f"{ANY}: a failure is written as a program; `python -m compiler reduce` shrinks a "
                "model"),
    ("verify_correctness same_two_models_use_fp64",
     f"{ANY}: a graph's results are compared with eager mode's, unless its numbers are open, which "
     "PyTorch then gives as symbols"),
    ("debug_backend_override disable", f"{ANY}: Strata is not called"),
    ("verbose log_* report_* cprofile dynamo_profiler record_* debug_dir_root *_log* "
     "issue_* run_gc_after_compile pt2_compile_id_prefix side_effect_replay_policy",
     f"{ANY}: what PyTorch reports"),
    ("*recompile* *guard* minimum_call_count", f"{ANY}: when graphs are captured again"),
    ("*dynamic* specialize_* assume_static_by_default capture_* *_static_shapes "
     "allow_unspec_int_on_nn_module force_unspec_int* _shapes_spec prefer_deferred_* "
     "do_not_emit_runtime_asserts", f"{ANY}: which sizes and numbers stay open"),
    ("numpy_* trace_numpy use_numpy_random_stream", f"{ANY}: NumPy's functions become PyTorch's"),
    ("*compile_pgo* *precompile* enable_aot_compile *_pgo fake_tensor_* *compiler_collectives "
     "enable_p2p_compilation", f"{ANY}: what PyTorch keeps and shares"),
    ("optimize_ddp* *fsdp* skip_torchrec *compiled_autograd* *backward*",
     f"{ANY}: where PyTorch cuts graphs of training"),
    ("*", f"{ANY}: which programs PyTorch captures, and how"),
)

ARTIFACTS: Families = (
    ("output_code", "our code: LLVM IR on the CPU, Triton on a GPU"),
    ("kernel_code", "the same as `output_code`, where that is not shown"),
    ("graph_breaks", "PyTorch's messages, and for each graph that ends early its line, the reason "
                     "and what is usually written instead"),
    ("recompiles", "PyTorch's messages, and when code is made again for other weights"),
    ("guards verbose_guards recompiles_verbose graph graph_code* graph_sizes trace_* bytecode "
     "side_effects ddp_graphs hierarchical_compile graph_region_expansion annotation sym_node "
     "not_implemented", "PyTorch's own messages, as for any backend: what it captures"),
    ("aot_graphs* aot_joint_graph compiled_autograd* cudagraph_static_inputs",
     "PyTorch's own messages, as for any backend: what AOTAutograd derives"),
    ("fusion loop_ordering loop_tiling schedule ir_pre_fusion ir_post_fusion overlap* "
     "compute_dependencies node_runtime_estimation perf_hints inductor_metrics auto_chunker",
     "nothing: use `compiler.explain` and dumps"),
    ("autotuning benchmarking", "nothing: `python -m compiler tune` tells what it measures"),
    ("pre_grad_graphs post_grad_graphs", "nothing: `aot_graphs` is what we import"),
    ("cudagraphs", "nothing: `compiler.explain` counts launches"),
    ("caching incremental onnx_diagnostics custom_format_test_artifact",
     "nothing: for other parts of PyTorch"),
)

VARIABLES: Families = (
    ("TORCH_COMPILE_DEBUG=1", "every level and pass, in the folder `strata` of PyTorch's debug "
                              "folder"),
    ("TORCH_TRACE", f"PyTorch's own trace, {ANY}"),
    ("TORCH_COMPILE_DISABLE=1 TORCH_COMPILE_OVERRIDE_BACKENDS", f"{ANY}: Strata is not called"),
    ("TORCHINDUCTOR_MAX_AUTOTUNE=1", "as the option: so do all variables that set a switch of "
                                     "`torch._inductor.config`"),
    ("TORCHINDUCTOR_CACHE_DIR", "nothing: compiled programs are kept in `$STRATA_CACHE`"),
    ("TORCHDYNAMO_VERBOSE=1 TORCHDYNAMO_REPRO_AFTER", f"{ANY}, as the switches of "
                                                      "`torch._dynamo.config`"),
)


def meaning_in(families: Families, name: str) -> str | None:
    """What a name means; None if no line has it."""
    return next((meaning for patterns, meaning in families
                 if any(fnmatchcase(name, pattern) for pattern in patterns.split())), None)

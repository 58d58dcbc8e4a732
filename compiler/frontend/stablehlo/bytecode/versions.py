"""Operations of VHLO as those of StableHLO, with the attributes that its text has.

VHLO writes the numbers of dims apart from one another, where StableHLO has one attribute.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from compiler.frontend.faults import Fault

_VERSION = re.compile(r"_v\d+$")
_NESTED = {
    "gather": "dimension_numbers", "dynamic_gather": "dimension_numbers",
    "scatter": "scatter_dimension_numbers", "dot_general": "dot_dimension_numbers"}
_NUMBERS = (
    "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims",
    "start_index_map", "index_vector_dim", "update_window_dims", "inserted_window_dims",
    "input_batching_dims", "scatter_indices_batching_dims", "scatter_dims_to_operand_dims",
    "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
    "rhs_contracting_dimensions")

_CONVOLUTION = (
    "batch_group_count feature_group_count input_batch_dimension input_feature_dimension "
    "input_spatial_dimensions kernel_input_feature_dimension kernel_output_feature_dimension "
    "kernel_spatial_dimensions lhs_dilation output_batch_dimension output_feature_dimension "
    "output_spatial_dimensions {}precision_config rhs_dilation window_reversal window_strides")
_CALL = ("api_version backend_config call_target_name called_computations has_side_effect "
         "operand_layouts output_operand_aliases result_layouts")
_DOT = "lhs_batching_dimensions lhs_contracting_dimensions precision_config " \
    "rhs_batching_dimensions rhs_contracting_dimensions"
_ACCURATE = ("cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one",
             "logistic", "rsqrt", "sine", "sqrt", "tan", "tanh")
_PROPERTIES = {
    **{f"{name}_v2": "result_accuracy" for name in _ACCURATE},
    **{f"batch_norm_{name}_v1": "epsilon feature_index"
       for name in ("grad", "inference", "training")},
    "broadcast_in_dim_v1": "broadcast_dimensions", "broadcast_v1": "broadcast_sizes",
    "call_v1": "callee", "cholesky_v1": "lower",
    "compare_v1": "compare_type comparison_direction",
    "composite_v1": "composite_attributes decomposition name version",
    "composite_v2": "composite_attributes decomposition name version",
    "concatenate_v1": "dimension", "constant_v1": "value",
    "convolution_v1": _CONVOLUTION.format("padding "),
    "custom_call_v1": _CALL, "custom_call_v2": f"{_CALL} result_tilings",
    "dot_general_v1": _DOT,
    "dot_general_v2": (
        "accumulation_type allow_imprecise_accumulation lhs_batching_dimensions "
        "lhs_component_count lhs_contracting_dimensions lhs_precision_type "
        "num_primitive_operations precision_config rhs_batching_dimensions rhs_component_count "
        "rhs_contracting_dimensions rhs_precision_type"),
    "dot_v1": "precision_config",
    "dynamic_broadcast_in_dim_v1":
        "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions",
    "dynamic_conv_v1": _CONVOLUTION.format("padding "),
    "dynamic_conv_v2": _CONVOLUTION.format(""),
    "dynamic_gather_v1": (
        "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims start_index_map"),
    "dynamic_gather_v2": (
        "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims "
        "operand_batching_dims start_index_map start_indices_batching_dims"),
    "dynamic_iota_v1": "iota_dimension", "dynamic_slice_v1": "slice_sizes",
    "fft_v1": "fft_length fft_type",
    "func_v1": "arg_attrs function_type res_attrs sym_name sym_visibility",
    "gather_v1": (
        "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims slice_sizes "
        "start_index_map"),
    "gather_v2": (
        "collapsed_slice_dims index_vector_dim indices_are_sorted offset_dims "
        "operand_batching_dims slice_sizes start_index_map start_indices_batching_dims"),
    "get_dimension_size_v1": "dimension", "get_tuple_element_v1": "index",
    "iota_v1": "iota_dimension", "map_v1": "dimensions",
    "pad_v1": "edge_padding_high edge_padding_low interior_padding",
    "reduce_v1": "dimensions", "reduce_precision_v1": "exponent_bits mantissa_bits",
    "reduce_window_v1":
        "base_dilations padding window_dilations window_dimensions window_strides",
    "reverse_v1": "dimensions", "rng_bit_generator_v1": "rng_algorithm",
    "rng_v1": "rng_distribution",
    "scatter_v1": (
        "index_vector_dim indices_are_sorted inserted_window_dims scatter_dims_to_operand_dims "
        "unique_indices update_window_dims"),
    "scatter_v2": (
        "index_vector_dim indices_are_sorted input_batching_dims inserted_window_dims "
        "scatter_dims_to_operand_dims scatter_indices_batching_dims unique_indices "
        "update_window_dims"),
    "select_and_scatter_v1": "padding window_dimensions window_strides",
    "set_dimension_size_v1": "dimension", "slice_v1": "limit_indices start_indices strides",
    "sort_v1": "dimension is_stable", "transpose_v1": "permutation",
    "triangular_solve_v1": "left_side lower transpose_a unit_diagonal",
}
"""Operation -> its attributes in the order in which a file has them, that of the alphabet."""


def properties_of(operation: str) -> list[str] | None:
    """The names of an operation's attributes in their order in a file; None if not known."""
    dialect, _, name = operation.partition(".")
    found = _PROPERTIES.get(name) if dialect == "vhlo" else None
    return None if found is None else found.split()


def name_of(operation: str) -> str:
    """`vhlo.add_v1` is `stablehlo.add`."""
    dialect, _, name = operation.partition(".")
    if dialect != "vhlo":
        return operation
    own = _VERSION.sub("", name)
    return "func.call" if own == "call" else f"stablehlo.{own}"


def attributes_of(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an operation. Raises Fault for numbers of dims that are none."""
    own = name.removeprefix("stablehlo.")
    if own in _NESTED:
        numbers = {key: _numbers(key, given[key]) for key in _NUMBERS if key in given}
        return {**{key: v for key, v in given.items() if key not in numbers},
                _NESTED[own]: numbers}
    if own in ("convolution", "dynamic_conv"):
        return {**given, "dim_numbers": [
            _order(given, side, first, second) for side, first, second in (
                ("input", ("batch", "b"), ("feature", "f")),
                ("kernel", ("output_feature", "o"), ("input_feature", "i")),
                ("output", ("batch", "b"), ("feature", "f")))]}
    return given


def _numbers(key: str, given: Any) -> Any:
    found: Any = given.reshape(-1).tolist() if hasattr(given, "reshape") else given
    listed = cast("list[Any]", found) if isinstance(found, list) else [found]
    if not all(isinstance(v, int) for v in listed):
        raise Fault(f"its {key} must be integers")
    return cast(Any, found)


def _order(
    given: dict[str, Any], side: str, first: tuple[str, str], second: tuple[str, str]
) -> Sequence[Any]:
    """The dims of an operand in their order: letters, and the numbers of spatial ones."""
    places = {given.get(f"{side}_{name}_dimension"): letter for name, letter in (first, second)}
    spatial = _numbers("spatial dimensions", given.get(f"{side}_spatial_dimensions", []))
    places |= {at: k for k, at in enumerate(spatial)}
    if sorted(map(str, places)) != sorted(map(str, range(2 + len(spatial)))):
        raise Fault(f"the numbers of its {side} dims are not those of {2 + len(spatial)} dims")
    return [places[at] for at in range(len(places))]

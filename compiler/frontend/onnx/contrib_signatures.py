"""The signatures of onnxruntime's own operators, which the onnx package does not know.

    Operator(input, optional?, any number*) -> output, optional? {attribute: type, needed: type!}

onnxruntime also writes those of the standard domain into its models. The tests compare this table
with the installed onnxruntime.
"""

STANDARD = """
Affine(X) -> Y {alpha: float, beta: float}
Crop(input) -> output {border: ints, scale: ints}
ImageScaler(input) -> output {bias: floats, scale: float}
LayerNormalization(X, Scale, B?) -> Y, Mean?, InvStdDev? {axis: int, epsilon: float, stash_type:
    int}
ParametricSoftplus(X) -> Y {alpha: float, beta: float}
Scale(input) -> output {scale: float}
ScaledTanh(input) -> output {alpha: float, beta: float}
SimplifiedLayerNormalization(X, scale) -> Y, inv_std_var? {axis: int, epsilon: float, stash_type:
    int}
ThresholdedRelu(X) -> Y {alpha: float}
"""

MICROSOFT = """
Attention(input, weights, bias?, mask_index?, past?, attention_bias?, past_sequence_length?) ->
    output, present? {do_rotary: int, mask_filter_value: float, num_heads: int!,
    past_present_share_buffer: int, qkv_hidden_sizes: ints, rotary_embedding_dim: int, scale:
    float, unidirectional: int}
BiasAdd(X, bias, skip) -> Y
BiasGelu(A, B) -> C
BiasSoftmax(data, bias) -> output {axis: int, is_inner_broadcast: int!}
BiasSplitGelu(X, bias) -> Y
CDist(A, B) -> C {metric: string}
ComplexMul(A, B) -> C
ComplexMulConj(A, B) -> C
CropAndResize(X, rois, batch_indices, crop_size) -> Y {extrapolation_value: float, mode: string}
DecoderMaskedMultiHeadAttention(query, key?, value?, mask_index?, attention_bias?, past_key?,
    past_value?, past_sequence_length?, beam_width?, cache_indirection?, bias?) -> output,
    present_key?, present_value?, qk? {mask_filter_value: float, num_heads: int!, output_qk: int,
    past_present_share_buffer: int, scale: float}
DequantizeLinear(x, x_scale, x_zero_point?) -> y {axis: int}
DynamicQuantizeLSTM(X, W, R, B?, sequence_lens?, initial_h?, initial_c?, P?, W_scale, W_zero_point,
    R_scale, R_zero_point) -> Y?, Y_h?, Y_c? {activation_alpha: floats, activation_beta: floats,
    activations: strings, clip: float, direction: string, hidden_size: int, input_forget: int}
DynamicQuantizeMatMul(A, B, b_scale, b_zero_point?, bias?) -> Y
EmbedLayerNormalization(input_ids, segment_ids?, word_embedding, position_embedding,
    segment_embedding?, gamma, beta, mask?, position_ids?) -> output, mask_index?, embedding_sum?
    {epsilon: float, mask_index_type: int}
ExpandDims(X, axis) -> Y
FastGelu(X, bias?) -> Y
FusedConv(X, W, B?, Z?) -> Y {activation: string, activation_params: floats, auto_pad: string,
    dilations: ints, group: int, kernel_shape: ints, pads: ints, strides: ints}
FusedGemm(A, B, C?) -> Y {activation: string, activation_alpha: float, activation_beta: float,
    activation_gamma: float, alpha: float, beta: float, transA: int, transB: int}
FusedMatMul(A, B) -> Y {alpha: float, transA: int, transB: int, transBatchA: int, transBatchB: int}
FusedMatMulActivation(A, B) -> Y {activation: string!, activation_alpha: float, activation_axis:
    int, activation_beta: float, activation_gamma: float, alpha: float, transA: int, transB: int,
    transBatchA: int, transBatchB: int}
GatedRMSNorm(X, scale, gate) -> Y {activation: string, epsilon: float}
GatherBlockQuantized(data, indices, scales, zero_points?) -> output {bits: int, block_size: int,
    gather_axis: int, quantize_axis: int}
GatherND(data, indices) -> output
Gelu(X) -> Y
GemmFastGelu(X, W, bias?) -> Y
GemmaRotaryEmbedding(emb, q, q_rot, k, k_rot) -> output1, output2
GridSample(X, Grid) -> Y {align_corners: int, mode: string, padding_mode: string}
GroupNorm(X, gamma, beta) -> Y {activation: int!, channels_last: int, epsilon: float, groups: int!}
GroupQueryAttention(query, key?, value?, past_key?, past_value?, seqlens_k, total_sequence_length,
    cos_cache?, sin_cache?, position_ids?, attention_bias?, head_sink?, k_scale?, v_scale?,
    q_norm_weight?, k_norm_weight?) -> output, present_key?, present_value?, output_qk? {causal:
    int, do_rotary: int, k_quant_type: string, kv_cache_bit_width: int, kv_num_heads: int!,
    local_window_size: int, num_heads: int!, qk_norm_epsilon: float, qk_output: int,
    rotary_interleaved: int, scale: float, sliding_window_cache: int, smooth_softmax: int, softcap:
    float, v_quant_type: string}
Inverse(X) -> Y
Irfft(X) -> Y {normalized: int, onesided: int, signal_ndim: int!}
IsAllFinite(input*) -> output {isinf_only: int, isnan_only: int}
MatMulBnb4(A, B, absmax) -> Y {K: int!, N: int!, block_size: int!, quant_type: int!, training_mode:
    int, transB: int}
MatMulInteger16(A, B) -> Y
MatMulIntegerToFloat(A, B, a_scale, b_scale, a_zero_point?, b_zero_point?, bias?) -> Y
MatMulNBits(A, B, scales, zero_points?, g_idx?, bias?) -> Y {K: int!, N: int!, accuracy_level: int,
    bits: int, block_size: int!, weight_prepacked: int}
MoE(input, router_probs, fc1_experts_weights, fc1_experts_bias?, fc2_experts_weights,
    fc2_experts_bias?, fc3_experts_weights?, fc3_experts_bias?) -> output {activation_alpha: float,
    activation_beta: float, activation_type: string, k: int, normalize_routing_weights: int,
    swiglu_fusion: int, swiglu_limit: float, use_sparse_mixer: int}
MulInteger(A, A_zero_point?, B, B_zero_point?) -> C
MultiHeadAttention(query, key?, value?, bias?, key_padding_mask?, attention_bias?, past_key?,
    past_value?, past_sequence_length?, cache_indirection?) -> output, present_key?,
    present_value?, qk? {mask_filter_value: float, num_heads: int!, scale: float, unidirectional:
    int}
NhwcConv(X, W, B?) -> Y {auto_pad: string, dilations: ints, group: int, kernel_shape: ints, pads:
    ints, strides: ints}
NhwcFusedConv(X, W, B?, Z?) -> Y {activation: string, activation_params: floats, auto_pad: string,
    dilations: ints, group: int, kernel_shape: ints, pads: ints, strides: ints}
NhwcMaxPool(x) -> y {auto_pad: string, ceil_mode: int, dilations: ints, kernel_shape: ints!, pads:
    ints, strides: ints}
Pad(data, pads, value?) -> output {mode: string}
QAttention(input, weight, bias, input_scale, weight_scale, mask_index?, input_zero_point?,
    weight_zero_point?, past?) -> output, present? {do_rotary: int, mask_filter_value: float,
    num_heads: int!, past_present_share_buffer: int, scale: float, unidirectional: int}
QEmbedLayerNormalization(input_ids, segment_ids?, word_embedding_quant, position_embedding_quant,
    segment_embedding?, gamma_quant, beta_quant, mask?, word_embedding_scale,
    position_embedding_scale, segment_embedding_scale?, gamma_scale, beta_scale,
    word_embedding_zero_point, position_embedding_zero_point, segment_embedding_zero_point?,
    gamma_zero_point, beta_zero_point) -> layernorm_out, mask_index_out {epsilon: float}
QGemm(A, a_scale, a_zero_point, B, b_scale, b_zero_point, C?, y_scale?, y_zero_point?) -> Y {alpha:
    float, transA: int, transB: int}
QLinearAdd(A, A_scale, A_zero_point?, B, B_scale, B_zero_point?, C_scale, C_zero_point?) -> C
QLinearAveragePool(X, x_scale, x_zero_point?, y_scale, y_zero_point?) -> Y {auto_pad: string,
    ceil_mode: int, channels_last: int, count_include_pad: int, kernel_shape: ints!, pads: ints,
    strides: ints}
QLinearConcat(Y_scale, Y_zero_point, inputs*) -> Y {axis: int!}
QLinearConv(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B?) -> y
    {auto_pad: string, channels_last: int, dilations: ints, group: int, kernel_shape: ints, pads:
    ints, strides: ints}
QLinearGlobalAveragePool(X, x_scale, x_zero_point, y_scale, y_zero_point) -> Y {channels_last: int}
QLinearLeakyRelu(X, X_scale, X_zero_point?, Y_scale, Y_zero_point?) -> Y {alpha: float}
QLinearMul(A, A_scale, A_zero_point?, B, B_scale, B_zero_point?, C_scale, C_zero_point?) -> C
QLinearReduceMean(data, data_scale, data_zero_point?, reduced_scale, reduced_zero_point?) ->
    reduced {axes: ints!, keepdims: int!}
QLinearSigmoid(X, X_scale, X_zero_point?, Y_scale, Y_zero_point?) -> Y
QLinearSoftmax(X, X_scale, x_zero_point?, y_scale, y_zero_point) -> Y {axis: int, opset: int!}
QLinearWhere(condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point)
    -> Z
QuantizeLinear(x, y_scale, y_zero_point?) -> y {axis: int}
QuickGelu(X) -> Y {alpha: float}
Range(start, limit, delta?) -> Y
ReduceSumInteger(data) -> reduced {axes: ints!, keepdims: int!}
RelativePositionBias(bias_table, query_length, key_length) -> output {is_bidirectional: int,
    max_distance: int!}
Rfft(X) -> Y {normalized: int, onesided: int, signal_ndim: int}
RotaryEmbedding(input, position_ids, cos_cache, sin_cache) -> output {interleaved: int,
    is_packed_batching: int, num_heads: int, rotary_embedding_dim: int, scale: float}
SampleOp(X) -> Y
ScaledSiLU(X, scale?) -> Y {alpha: float}
SkipGroupNorm(X, gamma, beta, skip, bias?) -> Y, S? {activation: int!, channels_last: int, epsilon:
    float, groups: int!}
SkipLayerNormalization(input, skip, gamma, beta?, bias?) -> output, mean?, inv_std_var?,
    input_skip_bias_sum? {epsilon: float}
SkipSimplifiedLayerNormalization(input, skip, gamma, bias?) -> output, mean?, inv_std_var?,
    input_skip_bias_sum? {epsilon: float}
TorchEmbedding(weight, indices, padding_idx?, scale_grad_by_freq?) -> Y
TransposeMatMul(A, B) -> Y {alpha: float, transA: int, transB: int}
Trilu(X, k?) -> Y {upper: int}
UnfoldTensor(input) -> output {dim: int, size: int!, step: int}
"""

"""The schema of TensorFlow Lite files: which tables there are, and what their fields are.

Transcribed from version 3 of the schema, with the names that ``schema.fbs`` gives
(https://github.com/tensorflow/tensorflow/blob/master/tensorflow/compiler/mlir/lite/schema/schema.fbs).
A field's number is its position. A test compares all of it with what LiteRT's package says.
"""

from __future__ import annotations

from dataclasses import dataclass

_TABLES = """
CustomQuantization custom:payload
BlockwiseQuantization scales:tensor zero_points:tensor block_size:i block_shape:[i]
MultiAxisQuantization scales:tensor zero_points:tensor block_size:i quantized_dimensions:[i]
QuantizationParameters min:[f] max:[f] scale:[f] zero_point:[q] details_type:B
    details:|QuantizationDetails quantized_dimension:i
Int32Vector values:[i]
Uint16Vector values:[H]
Uint8Vector values:[B]
DimensionMetadata format:b dense_size:i array_segments_type:B array_segments:|SparseIndexVector
    array_indices_type:B array_indices:|SparseIndexVector
SparsityParameters traversal_order:[i] block_map:[i] dim_metadata:[DimensionMetadata]
VariantSubType shape:[i] type:b has_rank:B
Tensor shape:[i] type:b buffer:buffer name:string quantization:QuantizationParameters
    is_variable:B sparsity:SparsityParameters shape_signature:[i] has_rank:B
    variant_tensors:[VariantSubType] external_buffer:I
StablehloGatherOptions offset_dims:[q] collapsed_slice_dims:[q] start_index_map:[q]
    index_vector_dim:q slice_sizes:[q] indices_are_sorted:B
StablehloTransposeOptions permutation:[q]
StablehloDotGeneralOptions lhs_batching_dimensions:[q] rhs_batching_dimensions:[q]
    lhs_contracting_dimensions:[q] rhs_contracting_dimensions:[q] precision_config:[i]
StablehloReduceWindowOptions window_dimensions:[q] window_strides:[q] base_dilations:[q]
    window_dilations:[q] padding:[q] body_subgraph_index:subgraph
StablehloWhileOptions cond_subgraph_index:subgraph body_subgraph_index:subgraph
StablehloSortOptions dimension:q is_stable:B comparator_subgraph_index:subgraph
StablehloConcatenateOptions dimension:q
StablehloBroadcastInDimOptions broadcast_dimensions:[q]
StablehloCompareOptions comparison_direction:I compare_type:I
StablehloDynamicSliceOptions slice_sizes:[q]
StablehloPadOptions edge_padding_low:[q] edge_padding_high:[q] interior_padding:[q]
StablehloIotaOptions iota_dimension:q
StablehloCustomCallOptions call_target_name:string has_side_effect:B backend_config:string
    api_version:i called_computations:[subgraph] custom_attributes:payload
StablehloReduceOptions dimensions:[q] body_subgraph_index:subgraph
StablehloSliceOptions start_indices:[q] limit_indices:[q] strides:[q]
StablehloConvolutionOptions window_strides:[q] padding:[q] lhs_dilation:[q] rhs_dilation:[q]
    window_reversal:[B] input_batch_dimension:q input_feature_dimension:q
    input_spatial_dimensions:[q] kernel_input_feature_dimension:q
    kernel_output_feature_dimension:q kernel_spatial_dimensions:[q] output_batch_dimension:q
    output_feature_dimension:q output_spatial_dimensions:[q] feature_group_count:q
    batch_group_count:q precision_config:[i]
StablehloScatterOptions indices_are_sorted:B update_window_dims:[q] inserted_window_dims:[q]
    scatter_dims_to_operand_dims:[q] index_vector_dim:q unique_indices:B
    update_computation_subgraph_index:subgraph
StablehloCaseOptions branch_subgraph_indices:[subgraph]
StablehloRngBitGeneratorOptions algorithm:b
Conv2DOptions padding:b stride_w:i stride_h:i fused_activation_function:b dilation_w_factor:i
    dilation_h_factor:i quantized_bias_type:b
Conv3DOptions padding:b stride_d:i stride_w:i stride_h:i fused_activation_function:b
    dilation_d_factor:i dilation_w_factor:i dilation_h_factor:i
Pool2DOptions padding:b stride_w:i stride_h:i filter_width:i filter_height:i
    fused_activation_function:b
DepthwiseConv2DOptions padding:b stride_w:i stride_h:i depth_multiplier:i
    fused_activation_function:b dilation_w_factor:i dilation_h_factor:i
ConcatEmbeddingsOptions num_channels:i num_columns_per_channel:[i] embedding_dim_per_channel:[i]
LSHProjectionOptions type:b
SVDFOptions rank:i fused_activation_function:b asymmetric_quantize_inputs:B
RNNOptions fused_activation_function:b asymmetric_quantize_inputs:B
SequenceRNNOptions time_major:B fused_activation_function:b asymmetric_quantize_inputs:B
BidirectionalSequenceRNNOptions time_major:B fused_activation_function:b merge_outputs:B
    asymmetric_quantize_inputs:B
FullyConnectedOptions fused_activation_function:b weights_format:b keep_num_dims:B
    asymmetric_quantize_inputs:B quantized_bias_type:b quant_spec:[B]
SoftmaxOptions beta:f
ConcatenationOptions axis:i fused_activation_function:b
AddOptions fused_activation_function:b pot_scale_int16:B
MulOptions fused_activation_function:b
L2NormOptions fused_activation_function:b
LocalResponseNormalizationOptions radius:i bias:f alpha:f beta:f
LSTMOptions fused_activation_function:b cell_clip:f proj_clip:f kernel_type:b
    asymmetric_quantize_inputs:B
UnidirectionalSequenceLSTMOptions fused_activation_function:b cell_clip:f proj_clip:f time_major:B
    asymmetric_quantize_inputs:B diagonal_recurrent_tensors:B
BidirectionalSequenceLSTMOptions fused_activation_function:b cell_clip:f proj_clip:f
    merge_outputs:B time_major:B asymmetric_quantize_inputs:B
ResizeBilinearOptions new_height:i new_width:i align_corners:B half_pixel_centers:B
ResizeNearestNeighborOptions align_corners:B half_pixel_centers:B
CallOptions subgraph:subgraph
ReshapeOptions new_shape:[i]
SkipGramOptions ngram_size:i max_skip_size:i include_all_ngrams:B
SpaceToDepthOptions block_size:i
DepthToSpaceOptions block_size:i
SubOptions fused_activation_function:b pot_scale_int16:B
DivOptions fused_activation_function:b
EmbeddingLookupSparseOptions combiner:b
GatherOptions axis:i batch_dims:i
ReducerOptions keep_dims:B
SqueezeOptions squeeze_dims:[i]
SplitOptions num_splits:i
SplitVOptions num_splits:i
StridedSliceOptions begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i
    offset:B
CastOptions in_data_type:b out_data_type:b
ArgMaxOptions output_type:b
ArgMinOptions output_type:b
TransposeConvOptions padding:b stride_w:i stride_h:i fused_activation_function:b
    quantized_bias_type:b
SparseToDenseOptions validate_indices:B
ShapeOptions out_type:b
FakeQuantOptions min:f max:f num_bits:i narrow_range:B
PackOptions values_count:i axis:i
OneHotOptions axis:i
UnpackOptions num:i axis:i
LeakyReluOptions alpha:f
MirrorPadOptions mode:b
UniqueOptions idx_out_type:b
ReverseSequenceOptions seq_dim:i batch_dim:i
IfOptions then_subgraph_index:subgraph else_subgraph_index:subgraph
CallOnceOptions init_subgraph_index:subgraph
WhileOptions cond_subgraph_index:subgraph body_subgraph_index:subgraph
BatchMatMulOptions adj_x:B adj_y:B asymmetric_quantize_inputs:B
CumsumOptions exclusive:B reverse:B
HashtableOptions table_id:i key_dtype:b value_dtype:b
VarHandleOptions container:string shared_name:string
RandomOptions seed:q seed2:q
BucketizeOptions boundaries:[f]
GeluOptions approximate:B
ReduceWindowOptions reduce_function:i
OperatorCode deprecated_builtin_code:b custom_code:string version:i builtin_code:i
StableHLOCompositeOptions name:string decomposition_subgraph_index:subgraph
    composite_attributes:payload composite_attributes_format:b version:i
Operator opcode_index:opcode inputs:[tensor] outputs:[tensor] builtin_options_type:B
    builtin_options:|BuiltinOptions custom_options:payload custom_options_format:b
    mutating_variable_inputs:[B] intermediates:[tensor] large_custom_options_offset:Q
    large_custom_options_size:Q builtin_options2_type:B builtin_options2:|BuiltinOptions2
    debug_metadata_index:i
SubGraph tensors:[Tensor] inputs:[tensor] outputs:[tensor] operators:[Operator] name:string
    debug_metadata_index:i
Buffer data:payload offset:Q size:Q
ExternalBufferGroup name:string
ExternalBuffer id:I group:I offset:Q length:Q packing:string
Metadata name:string buffer:buffer
TensorMap name:string tensor_index:I
SignatureDef inputs:[TensorMap] outputs:[TensorMap] signature_key:string deprecated_tag:string
    subgraph_index:I
Model version:I operator_codes:[OperatorCode] subgraphs:[SubGraph] description:string
    buffers:[Buffer] metadata_buffer:[i] metadata:[Metadata] signature_defs:[SignatureDef]
    external_buffer_groups:[ExternalBufferGroup] external_buffers:[ExternalBuffer]
"""
"""A table a line: its name, then its fields as ``name:type``. A type is a scalar (see
:data:`SCALARS`), ``string``, ``payload`` (bytes that are only ever copied), the name of a table,
``|`` and the name of a union whose type is the field before, or a vector in brackets."""

_EMPTY_TABLES = """
PadOptions BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions ExpOptions TopKV2Options
LogSoftmaxOptions DequantizeOptions MaximumMinimumOptions LessOptions NegOptions PadV2Options
GreaterOptions GreaterEqualOptions LessEqualOptions SelectOptions SliceOptions TileOptions
ExpandDimsOptions EqualOptions NotEqualOptions PowOptions LogicalOrOptions LogicalAndOptions
LogicalNotOptions FloorDivOptions SquareOptions ZerosLikeOptions FillOptions FloorModOptions
RangeOptions SquaredDifferenceOptions AbsOptions ReverseV2Options AddNOptions GatherNdOptions
CosOptions WhereOptions RankOptions MatrixDiagOptions QuantizeOptions MatrixSetDiagOptions
HardSwishOptions NonMaxSuppressionV4Options NonMaxSuppressionV5Options ScatterNdOptions
SelectV2Options DensifyOptions SegmentSumOptions BroadcastToOptions Rfft2dOptions
HashtableFindOptions HashtableImportOptions HashtableSizeOptions ReadVariableOptions
AssignVariableOptions DynamicUpdateSliceOptions UnsortedSegmentProdOptions
UnsortedSegmentMaxOptions UnsortedSegmentMinOptions UnsortedSegmentSumOptions ATan2Options
SignOptions BitcastOptions BitwiseXorOptions RightShiftOptions DilateOptions
StablehloShiftLeftOptions
"""

SCALARS = {
    **{code: code for code in "bBhHiIqQf"},
    "tensor": "i",
    "subgraph": "i",
    "buffer": "I",
    "opcode": "I",
}
"""Scalar types, as the ``struct`` module calls them. The words are numbers of other records: of a
tensor of the same subgraph, of a subgraph, of a buffer, of an operator code."""

_OPERATORS = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D
LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6
RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL
CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND
SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST
PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN
TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW
ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK
REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS
WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM
BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG
REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL
CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL
BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD
UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM
STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM
STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS
STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG
STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER
STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER
STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE
STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT
STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""

OPERATORS = tuple(_OPERATORS.split())
"""Names of the builtin operators, by their number."""

_DTYPES = """
float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64
resource variant uint32 uint16 int4 bfloat16 int2 uint4 float8e4m3fn float8e5m2
"""

DTYPES = tuple(_DTYPES.split())
"""numpy's names of the element types, by their number; in lower case where numpy has none."""

_UNIONS = {
    "QuantizationDetails": """
CustomQuantization BlockwiseQuantization MultiAxisQuantization
    """,
    "SparseIndexVector": """
Int32Vector Uint16Vector Uint8Vector
    """,
    "BuiltinOptions": """
Conv2DOptions DepthwiseConv2DOptions ConcatEmbeddingsOptions LSHProjectionOptions Pool2DOptions
SVDFOptions RNNOptions FullyConnectedOptions SoftmaxOptions ConcatenationOptions AddOptions
L2NormOptions LocalResponseNormalizationOptions LSTMOptions ResizeBilinearOptions CallOptions
ReshapeOptions SkipGramOptions SpaceToDepthOptions EmbeddingLookupSparseOptions MulOptions
PadOptions GatherOptions BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions
ReducerOptions SubOptions DivOptions SqueezeOptions SequenceRNNOptions StridedSliceOptions
ExpOptions TopKV2Options SplitOptions LogSoftmaxOptions CastOptions DequantizeOptions
MaximumMinimumOptions ArgMaxOptions LessOptions NegOptions PadV2Options GreaterOptions
GreaterEqualOptions LessEqualOptions SelectOptions SliceOptions TransposeConvOptions
SparseToDenseOptions TileOptions ExpandDimsOptions EqualOptions NotEqualOptions ShapeOptions
PowOptions ArgMinOptions FakeQuantOptions PackOptions LogicalOrOptions OneHotOptions
LogicalAndOptions LogicalNotOptions UnpackOptions FloorDivOptions SquareOptions ZerosLikeOptions
FillOptions BidirectionalSequenceLSTMOptions BidirectionalSequenceRNNOptions
UnidirectionalSequenceLSTMOptions FloorModOptions RangeOptions ResizeNearestNeighborOptions
LeakyReluOptions SquaredDifferenceOptions MirrorPadOptions AbsOptions SplitVOptions UniqueOptions
ReverseV2Options AddNOptions GatherNdOptions CosOptions WhereOptions RankOptions
ReverseSequenceOptions MatrixDiagOptions QuantizeOptions MatrixSetDiagOptions HardSwishOptions
IfOptions WhileOptions DepthToSpaceOptions NonMaxSuppressionV4Options NonMaxSuppressionV5Options
ScatterNdOptions SelectV2Options DensifyOptions SegmentSumOptions BatchMatMulOptions CumsumOptions
CallOnceOptions BroadcastToOptions Rfft2dOptions Conv3DOptions HashtableOptions
HashtableFindOptions HashtableImportOptions HashtableSizeOptions VarHandleOptions
ReadVariableOptions AssignVariableOptions RandomOptions BucketizeOptions GeluOptions
DynamicUpdateSliceOptions UnsortedSegmentProdOptions UnsortedSegmentMaxOptions
UnsortedSegmentMinOptions UnsortedSegmentSumOptions ATan2Options SignOptions BitcastOptions
BitwiseXorOptions RightShiftOptions
    """,
    "BuiltinOptions2": """
StablehloConcatenateOptions StablehloBroadcastInDimOptions StablehloSliceOptions
StablehloConvolutionOptions StablehloCustomCallOptions StablehloReduceOptions
StablehloScatterOptions StablehloCompareOptions StablehloDynamicSliceOptions StablehloPadOptions
StablehloIotaOptions StablehloDotGeneralOptions StablehloReduceWindowOptions StablehloSortOptions
StablehloWhileOptions StablehloGatherOptions StablehloTransposeOptions DilateOptions
StablehloRngBitGeneratorOptions ReduceWindowOptions StableHLOCompositeOptions
StablehloShiftLeftOptions StablehloCaseOptions
    """,
}

UNIONS = {name: tuple(members.split()) for name, members in _UNIONS.items()}
"""Tables that a union can hold, by its name; the first is type 1, since 0 means none."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    name: str
    type: str
    """Without brackets."""
    is_vector: bool

    @property
    def is_scalar(self) -> bool:
        return self.type in SCALARS and not self.is_vector


def _fields(text: str) -> tuple[Field, ...]:
    pairs = [field.partition(":") for field in text.split()]
    return tuple(Field(name, kind.strip("[]"), kind.startswith("[")) for name, _, kind in pairs)


TABLES: dict[str, tuple[Field, ...]] = {
    **dict.fromkeys(_EMPTY_TABLES.split(), ()),
    **{
        line.partition(" ")[0]: _fields(line.partition(" ")[2])
        for line in _TABLES.replace("\n    ", " ").strip().splitlines()
    },
}
"""Fields of each table, by its name."""

CODES: dict[str, dict[str, str]] = {
    table: {field.name: SCALARS[field.type] for field in fields if field.type in SCALARS}
    for table, fields in TABLES.items()
}
"""How the ``struct`` module calls the numbers in each field, by table and field."""

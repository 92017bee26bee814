"""Which classes a Keras file may name: those that only compute, and come with Keras.

Loading a model makes objects of the classes that its configuration names. Some of these run code
from the file (``Lambda``), read other files (``StringLookup``, ``TFSMLayer``) or unpickle
(``TorchModuleWrapper``). So what may stand there is listed, and everything else is refused.
"""

from __future__ import annotations

MODELS = frozenset({"Functional", "Model", "Sequential"})

_BY_DIMENSION = """
    AdaptiveAveragePooling AdaptiveMaxPooling AveragePooling AvgPool Conv ConvLSTM Convolution
    Cropping GlobalAveragePooling GlobalAvgPool GlobalMaxPool GlobalMaxPooling MaxPool
    MaxPooling SpatialDropout UpSampling ZeroPadding
"""
_RANDOM_CHANGES = """
    Brightness ColorDegeneration ColorJitter Contrast Crop ElasticTransform Erasing Flip
    GaussianBlur Grayscale Hue Invert Perspective Posterization Rotation Saturation Sharpness
    Shear Translation Zoom
"""
_OTHER_LAYERS = """
    DepthwiseConv1D DepthwiseConv2D SeparableConv1D SeparableConv2D SeparableConvolution1D
    SeparableConvolution2D AugMix AutoContrast Equalization RandAugment Solarization Activation
    ActivityRegularization Add AdditiveAttention AlphaDropout Attention Average
    BatchNormalization Bidirectional CategoryEncoding CenterCrop Concatenate Dense
    Discretization Dot Dropout ELU EinsumDense Embedding Flatten GRU GaussianDropout
    GaussianNoise GroupNormalization GroupQueryAttention Identity InputLayer LSTM
    LayerNormalization LeakyReLU Masking Maximum MelSpectrogram Minimum MultiHeadAttention
    Multiply Normalization PReLU Permute RMSNormalization RNN ReLU RepeatVector Rescaling
    Reshape Resizing ReversibleEmbedding STFTSpectrogram SimpleRNN Softmax SpectralNormalization
    Subtract TimeDistributed UnitNormalization
"""

LAYERS = frozenset(
    (
        *(f"{name}{axes}D" for name in _BY_DIMENSION.split() for axes in (1, 2, 3)),
        *(f"{name}{axes}DTranspose" for name in ("Conv", "Convolution") for axes in (1, 2, 3)),
        *(f"Random{change}" for change in _RANDOM_CHANGES.split()),
        *_OTHER_LAYERS.split(),
    )
)

_CONVNEXT = "keras.src.applications.convnext"

APPLICATION_LAYERS = {
    "CustomScaleLayer": "keras.src.applications.inception_resnet_v2",
    "LayerScale": _CONVNEXT,
    "StochasticDepth": _CONVNEXT,
}
"""Layers that networks of ``keras.applications`` define for themselves, and the module of each."""

CELLS = frozenset({"GRUCell", "LSTMCell", "SimpleRNNCell", "StackedRNNCells"})

_VALUES = """
    Constant GlorotNormal GlorotUniform HeNormal HeUniform IdentityInitializer LecunNormal
    LecunUniform Ones Orthogonal OrthogonalInitializer RandomNormal RandomUniform STFT
    STFTInitializer TruncatedNormal VarianceScaling Zeros L1 L1L2 L2 OrthogonalRegularizer
    MaxNorm MinMaxNorm NonNeg UnitNorm DTypePolicy DTypePolicyMap FloatDTypePolicy Policy
    __bytes__ __ellipsis__ __keras_tensor__ __numpy__ __slice__ __tensor__
"""

VALUES = frozenset(_VALUES.split())
"""Initialisers, regularisers, constraints and types of layers, and plain values."""

_FUNCTIONS = """
    celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh
    leaky_relu linear log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink
    softmax softplus softsign sparse_plus sparse_sigmoid sparsemax squareplus swish tanh
    tanh_shrink threshold
"""

FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Activations."""

OPERATION_MODULES = {
    f"keras.src.ops.{name}": frozenset(refused.split())
    for name, refused in {
        "core": "AssociativeScan Cond ForiLoop Map Scan Switch VectorizedMap WhileLoop",
        "image": "",
        "linalg": "JVP",
        "math": "",
        "nn": "",
        "numpy": "",
    }.items()
}
"""Modules of the operations that stand between layers (``x + y``), and which of them take code."""

_CODE = "holds Python code, which loading it would run"
_FILES = "reads files of its own"
_OLD = "is an operation of Keras 2, which Keras 3 cannot load: use layers, such as Add"

REASONS = {
    "Lambda": _CODE,
    "__lambda__": _CODE,
    "FlaxLayer": _CODE,
    "JaxLayer": _CODE,
    "TorchModuleWrapper": "holds pickled Python objects, which loading it would run",
    "TFSMLayer": _FILES,
    "IntegerLookup": _FILES,
    "StringLookup": _FILES,
    "TextVectorization": _FILES,
    "SlicingOpLambda": _OLD,
    "TFOpLambda": _OLD,
    "TensorFlowOpLayer": _OLD,
}
"""Why some classes are refused, as a clause; the others are just not Keras's."""

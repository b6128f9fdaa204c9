"""Read and write the modules of sentence-transformers that have weights besides the transformer: a CNN and dense layers."""

from pathlib import Path

import numpy as np

from jax_sentemb.errors import OTHER_MODEL, REPLACE_MODEL, ModelFileError
from jax_sentemb.files import quote, user_path
from jax_sentemb.formats.model_dir import read_readout
from jax_sentemb.formats.tensors import Tensors, check_finite, read_safetensors, weight_files
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.side_files.reader import read_side_file
from jax_sentemb.types import Params

# Classes of PyTorch by this package's names of the activations after a dense layer.
ACTIVATION_CLASSES = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "silu": "torch.nn.modules.activation.SiLU",
}


def module_tensors(folder: Path) -> Tensors:
    """Read the float32 tensors of the module in a folder."""
    return {name: tensor for file in weight_files(folder) for name, tensor in read_safetensors(file).items()}


def read_convolution(path: str | Path) -> tuple[Convolution, Params] | None:
    """Read the convolution between encoder and pooling of a sentence-transformers directory.

    Returns:
        The convolution and its parameters; None without a CNN.

    Raises:
        ModelFileError: The CNN is damaged or not supported.
    """
    root = user_path(path)
    readout = read_readout(root)
    if readout.cnn is None:
        return None
    file = readout.cnn / "cnn_config.json"
    settings = read_side_file(file, "CNN")
    windows, filters = settings.get("kernel_sizes"), settings.get("out_channels")
    inputs = settings.get("in_embedding_dimension", settings.get("in_word_embedding_dimension"))
    is_valid = isinstance(windows, list) and all(isinstance(n, int) and 0 < n < 1000 for n in [*windows, filters, inputs])
    is_valid = is_valid and windows and len(set(windows)) == len(windows) and all(n % 2 for n in windows)
    strides = settings.get("stride_sizes")
    if not is_valid or strides not in (None, [1] * len(windows)):
        raise ModelFileError(
            f"{file}: kernel_sizes {quote(windows)}, out_channels {quote(filters)} or stride_sizes {quote(strides)} cannot be "
            f"used; {OTHER_MODEL}"
        )
    tensors = module_tensors(readout.cnn)
    params: Params = {}
    for number, window in enumerate(windows):
        expected = {f"convs.{number}.weight": (filters, inputs, window), f"convs.{number}.bias": (filters,)}
        for name, shape in expected.items():
            if name not in tensors or tensors[name].shape != shape:
                raise ModelFileError(
                    f"{readout.cnn}: {name} is missing or lacks the shape {list(shape)} of cnn_config.json; {REPLACE_MODEL}"
                )
        kernel, bias = (tensors[name] for name in expected)
        params[f"window_{window}"] = {"kernel": np.ascontiguousarray(kernel.transpose(2, 1, 0)), "bias": bias}
    check_finite(tensors, readout.cnn)
    return Convolution(tuple(windows), filters, reference=not readout.masks_padding), params


def convolution_to_torch(convolution: Convolution, params: Params) -> Tensors:
    """Return the tensors of sentence-transformers' CNN module by name (float32)."""
    tensors = {}
    for number, window in enumerate(convolution.windows):
        kernel, bias = (np.asarray(params[f"window_{window}"][name], np.float32) for name in ("kernel", "bias"))
        tensors[f"convs.{number}.weight"] = np.ascontiguousarray(kernel.transpose(2, 1, 0))
        tensors[f"convs.{number}.bias"] = bias
    return tensors


def check_layer_mean(path: str | Path) -> None:
    """Raise ModelFileError if a directory averages any layers other than the first and the last one (first_last)."""
    folder = read_readout(user_path(path)).layers
    if folder is None:
        return
    settings, tensors = read_side_file(folder / "config.json", "WeightedLayerPooling"), module_tensors(folder)
    weights = tensors.get("layer_weights", np.zeros(0))
    count = settings.get("num_hidden_layers")
    expected = layer_mean_files(count, 0)[1]["layer_weights"] if isinstance(count, int) and 0 < count < 1000 else None
    if settings.get("layer_start") != 1 or expected is None or not np.array_equal(weights, expected):
        raise ModelFileError(
            f"{folder}: only the mean of layer 1 and the last layer is supported as a mean over layers; {OTHER_MODEL}"
        )


def layer_mean_files(layers: int, width: int) -> tuple[dict[str, object], Tensors]:
    """Return config.json and tensors (float32) of a WeightedLayerPooling that averages layer 1 and the last layer."""
    weights = np.zeros(layers, np.float32)
    weights[[0, -1]] = 1
    return {"word_embedding_dimension": width, "layer_start": 1, "num_hidden_layers": layers}, {"layer_weights": weights}


def read_dense(path: str | Path) -> tuple[tuple[str, ...], Params] | None:
    """Read the dense layers after the pooling of a sentence-transformers directory.

    Returns:
        The activations, and the parameters: "layer_n" has "kernel" [inputs, outputs] and, if the layer has it, "bias" [outputs].
        None without dense layers.

    Raises:
        ModelFileError: A layer is damaged, reads anything other than the pooled embedding, or has an unknown activation.
    """
    folders = read_readout(user_path(path)).dense
    layers = [_dense_layer(folder) for folder in folders]
    for folder, (_, previous), (_, layer) in zip(folders[1:], layers, layers[1:], strict=False):
        if previous["kernel"].shape[1] != layer["kernel"].shape[0]:
            raise ModelFileError(
                f"{folder}: in_features={layer['kernel'].shape[0]} is not the width of the layer before it; {REPLACE_MODEL}"
            )
    names = tuple(name for name, _ in layers)
    return (names, {f"layer_{number}": layer for number, (_, layer) in enumerate(layers)}) if layers else None


def _dense_layer(folder: Path) -> tuple[str, Params]:
    file = folder / "config.json"
    settings = read_side_file(file, "Dense")
    names = {torch_class: name for name, torch_class in ACTIVATION_CLASSES.items()}
    activation = settings.get("activation_function", ACTIVATION_CLASSES["tanh"])
    if not isinstance(activation, str) or activation not in names:
        raise ModelFileError(f"{file}: activation_function={quote(activation)} is not one of {', '.join(names)}; {OTHER_MODEL}")
    tensors = module_tensors(folder)
    check_finite(tensors, folder)
    shape = settings.get("out_features"), settings.get("in_features")
    biases = ["linear.bias"] if settings.get("bias", True) else []
    fits = set(tensors) == {"linear.weight", *biases} and tensors["linear.weight"].shape == shape
    if not fits or any(tensors[name].shape != shape[:1] for name in biases):
        shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
        raise ModelFileError(
            f"{folder}: tensors {quote(shapes)} do not fit {file.name}, expected {quote(list(shape))}; {REPLACE_MODEL}"
        )
    layer: Params = {"kernel": np.ascontiguousarray(tensors["linear.weight"].T)}
    return names[activation], layer | ({"bias": tensors["linear.bias"]} if biases else {})


def dense_files(activation: str, layer: Params) -> tuple[dict[str, object], Tensors]:
    """Return config.json and tensors (float32) of sentence-transformers' Dense module."""
    kernel = np.asarray(layer["kernel"], np.float32)
    tensors = {"linear.weight": np.ascontiguousarray(kernel.T)}
    if "bias" in layer:
        tensors["linear.bias"] = np.asarray(layer["bias"], np.float32)
    inputs, outputs = kernel.shape
    config: dict[str, object] = {"in_features": inputs, "out_features": outputs, "bias": "bias" in layer}
    return {**config, "activation_function": ACTIVATION_CLASSES[activation]}, tensors

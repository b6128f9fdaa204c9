"""Writes weights in half precision, for models in this repository."""

from pathlib import Path


def save_halves(source: Path, target: Path) -> None:
    """Write the tensors of a safetensors file in float16."""
    import numpy as np
    from safetensors.numpy import load_file, save_file

    tensors = {name: np.asarray(values, np.float16) for name, values in load_file(source).items()}
    save_file(tensors, target, metadata={"format": "pt"})

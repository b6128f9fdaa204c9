"""Encode probe sentences with an export and compare the results with those of the model in memory."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from jax_sentemb.errors import ModelFileError, NumericsError
from jax_sentemb.inference.load import load

Encode = Callable[[Sequence], Float[np.ndarray, "inputs outputs"]]  # sentences or pairs -> embeddings or scores

EQUAL = 1e-6  # share of the largest output: outputs that differ by less are equal but for rounding
TOLERANCE = 1e-5  # largest difference in an entry of an embedding between the model in memory and its export

# The probe sentences: texts that break tokenizers, and lengths far beyond usual limits.
ODD = [
    "", " ", "a", ".", "?!", "[CLS] [SEP] [PAD]", "<s> </s>", "ALL CAPS", "C++ != C#", "a\tb\nc", "don't won't",
    "x" * 300, "3.14 1,000", "https://example.org/?q=1#a", "na\u00efve caf\u00e9", "e" + "\u0301" * 40, "a\u2028b",
    "\u6f22\u5b57\u4eee\u540d", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05dc\u05d5\u05dd", "\u202eabc", "\u200b",
    "\ufffd", "\U0001f600\U0001f3fd",
]  # fmt: skip
LONG = "The quick brown fox jumps over the lazy dog while nobody looks. " * 60
PROBES = (*ODD, *(LONG[:length].strip() for length in range(1, 3200, 80)))


def verify_export(
    directory: str | Path,
    embed: Encode,
    inputs: Sequence,
    read: Callable[[str | Path], Encode] = load,
    known: Sequence[str] = (),
) -> float:
    """Return the largest difference of an entry between the outputs of the model in memory and those of its export.

    Args:
        directory: The export.
        embed: The model in memory.
        inputs: Sentences, or pairs of sentences for a cross-encoder.
        read: Opens the export.
        known: Further texts for `check_outputs`, which a model with a small vocabulary reads.

    Raises:
        ModelFileError: The difference is above TOLERANCE.
        NumericsError: The outputs are useless, see `check_outputs`.
    """
    in_memory, model = np.asarray(embed(inputs), np.float32), read(directory)
    exported = np.asarray(model(inputs))
    check_outputs(np.concatenate([exported, np.asarray(model(known))]) if len(known) else exported)
    if in_memory.shape != exported.shape:
        raise ModelFileError(
            f"the export encodes to {list(exported.shape)}, the model in memory to {list(in_memory.shape)}; report this as a bug"
        )
    difference = float(np.abs(in_memory - exported).max(initial=0.0))
    if not difference <= TOLERANCE:  # also refuses NaN
        raise ModelFileError(
            f"the export encodes {len(inputs)} sentences with a max abs difference of {difference:.1e} from the "
            f"model in memory, above {TOLERANCE:.0e}; nothing was exported: report this as a bug"
        )
    return difference


def check_outputs(outputs: Float[np.ndarray, "inputs outputs"]) -> None:
    """Raise NumericsError if embeddings are empty, not finite, or equal for different inputs."""
    problem = ""
    if not outputs.shape[1]:
        problem = "the model's outputs have no dimension"
    elif not np.isfinite(outputs).all():
        problem = f"{int((~np.isfinite(outputs).all(axis=1)).sum())} of {len(outputs)} outputs of the model have NaN or Inf"
    elif np.ptp(outputs, axis=0).max() <= EQUAL * np.abs(outputs).max():
        problem = f"the model collapsed: its outputs for {len(outputs)} different texts are equal"
    if problem:
        raise NumericsError(f"{problem}; nothing was exported. After training, lower the learning rate")

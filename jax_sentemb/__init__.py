"""Sentence embeddings without labels, in JAX and Flax."""

__version__ = "0.1.0"

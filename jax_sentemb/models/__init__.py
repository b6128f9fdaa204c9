"""Encoders and their layers on top: transformers, word vectors, pooling, convolutions, heads."""

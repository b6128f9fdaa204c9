"""Encoders and what stands on them: transformers, word vectors, pooling, convolutions, heads."""

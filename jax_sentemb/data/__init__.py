"""Text on the host: corpora, tokenizers, examples and batches. No JAX here."""

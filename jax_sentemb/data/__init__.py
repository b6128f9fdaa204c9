"""Host-side data: corpora, tokenizers, examples and batches. This folder does not import JAX."""

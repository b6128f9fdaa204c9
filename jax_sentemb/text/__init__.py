"""Text: files to sentences to tokens to batches, on the host, in NumPy and `tokenizers`; it never imports jax."""

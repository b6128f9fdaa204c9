"""Evaluation of sentence embeddings: semantic similarity, transfer and probing tasks, diagnostics of collapse."""

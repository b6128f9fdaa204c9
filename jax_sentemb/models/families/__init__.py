"""Describe each family of encoders in a file: everything that depends on the `model_type`, without JAX."""

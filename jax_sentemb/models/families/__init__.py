"""One file for each family of encoders: everything that is known of a `model_type`, without JAX."""

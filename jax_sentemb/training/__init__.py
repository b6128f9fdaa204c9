"""A training run, from its config to scores and an export."""

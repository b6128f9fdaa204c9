"""Train an encoder, from its config to scores and an export."""

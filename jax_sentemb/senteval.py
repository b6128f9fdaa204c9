"""Thin module for one release: this is jax_sentemb.evaluation.senteval_toolkit now."""

from jax_sentemb._moved import moved

moved(__name__, "jax_sentemb.evaluation.senteval_toolkit")

"""Thin module for one release: this is jax_sentemb.retrieval.search now."""

from jax_sentemb._moved import moved

moved(__name__, "jax_sentemb.retrieval.search", "jax_sentemb.retrieval.index")

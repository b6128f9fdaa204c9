"""Methods, one in each file, and their base class."""

from jax_sentemb.methods.base import InitialState, Method

__all__ = ["InitialState", "Method"]

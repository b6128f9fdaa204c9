"""Methods, one in each file, and their base class."""

from jax_sentemb.methods.base import Learned, Method

__all__ = ["Learned", "Method"]

"""Methods, one a file, and what they have in common."""

from jax_sentemb.methods.base import Learned, Method

__all__ = ["Learned", "Method"]

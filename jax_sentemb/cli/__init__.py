"""The commands of `jax-sentemb`, a module each with the name of its command."""

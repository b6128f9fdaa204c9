"""Installs the recipes of configs/ as jax_sentemb/configs, beside what pyproject.toml says."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["jax_sentemb*"]), "jax_sentemb.configs"],
    package_dir={"jax_sentemb.configs": "configs"},
)

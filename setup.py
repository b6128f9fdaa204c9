"""Installs the folders that ship with the package inside it, beside what pyproject.toml says."""

import runpy

from setuptools import find_packages, setup

FOLDERS = runpy.run_path("jax_sentemb/data/shipped.py")["FOLDERS"]

setup(
    packages=[*find_packages(include=["jax_sentemb*"]), *(f"jax_sentemb.{name}" for name in FOLDERS)],
    package_dir={f"jax_sentemb.{name}": folder for name, folder in FOLDERS.items()},
)

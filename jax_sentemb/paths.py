"""Paths as users write them."""

import os
from pathlib import Path


def user_path(path: str | Path) -> Path:
    """The path with ~ as the home folder. One that still begins with ~, as ./~x does, comes out whole: ~ means home only once."""
    found = Path(os.path.expanduser(path))
    return found.absolute() if str(found).startswith("~") else found

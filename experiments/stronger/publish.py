"""Writes the export of a distilled encoder in float16 for the repository: half the size, loaded as float32.

    python experiments/stronger/publish.py runs/distil/final/mini_2-1/export experiments/stronger/mini-distilled

The model card of the target stays.
"""

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from halves import save_halves

LEFT_OUT = ("README.md", "jax_sentemb.json")  # the card that was written by hand, and hashes of the float32 files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    for source in sorted(path for path in options.export.rglob("*") if path.is_file() and path.name not in LEFT_OUT):
        target = options.target / source.relative_to(options.export)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".safetensors":
            save_halves(source, target)
        else:
            shutil.copyfile(source, target)
    files = [path for path in options.target.rglob("*") if path.is_file()]
    print(f"{options.target}: {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

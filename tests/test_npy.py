"""Arrays in files have exactly the bytes that their headers promise, and are no objects."""

import io
import struct
import zipfile

import numpy as np
import pytest

from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb.errors import DataError, ModelFileError
from jax_sentemb.retrieval.vector_store import Vectors


def npy(shape, descr="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


ARRAYS = {
    "more than it has": (npy, (1 << 40, 1 << 10), "describes 4,503,599,627,370,496 bytes of numbers, the file has 64"),
    "less than it has": (npy, (2, 2), "describes 16 bytes of numbers, the file has 64"),
    "a negative length": (npy, (-4, -4), r"shape \(-4, -4\)"),
    "no width": (lambda shape: npy(shape)[:128], (1 << 60, 0), r"contains float32 .*, expected float32 \[rows, width\]"),
    "objects": (lambda shape: npy(shape, "|O"), (8,), "Python objects, which are never loaded"),
    "a long header": (lambda shape: b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 30), (), "its header has 1,073,741,824 bytes"),
}


@pytest.mark.parametrize("title", ARRAYS)
def test_an_array_has_exactly_the_bytes_of_its_header(tmp_path, title):
    make, shape, message = ARRAYS[title]
    content = make(shape)
    (tmp_path / "v.npy").write_bytes(content if title == "no width" else content + bytes(64))
    with pytest.raises(DataError, match=message):
        Vectors(tmp_path / "v.npy")
    with zipfile.ZipFile(tmp_path / "v.npz", "w") as archive:
        archive.writestr("vectors.npy", (tmp_path / "v.npy").read_bytes())
        archive.writestr("words.npy", npy((0,), "|S1"))
    with pytest.raises(ModelFileError, match=r"v\.npz"):
        read_word_vectors(tmp_path / "v.npz")

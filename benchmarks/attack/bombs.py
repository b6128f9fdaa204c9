"""Attack every reader with files that are small and unpack to large ones, claim more than they hold, or have one giant value.

The attack succeeds if a command takes more than CEILING bytes of memory or leaves more than MAX_LEFT bytes in the cache.
"""

import gzip
import io
import json
import lzma
import os
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from commands import case, corpus, ended, fresh, model, start, static_table, trained, watched

CEILING = 3 << 30
MAX_LEFT = 64 << 20
HUGE = 93 * 10**9
LARGE_DICTIONARY = {"id": lzma.FILTER_LZMA2, "dict_size": 3 << 29, "mode": lzma.MODE_FAST, "mf": lzma.MF_HC3}
MB = 1 << 20


def repeated(path: Path, head: bytes, unit: bytes, megabytes: int, tail: bytes = b"") -> Path:
    """Write a compressed file or, by its suffix, a plain file of the same text."""
    block = unit * (MB // len(unit))
    opener = gzip.open if path.suffix == ".gz" else lzma.open if path.suffix == ".xz" else open
    options = {"compresslevel": 1} if path.suffix == ".gz" else {"preset": 0} if path.suffix == ".xz" else {}
    with opener(path, "wb", **options) as file:
        file.write(head)
        for _ in range(megabytes):
            file.write(block)
        file.write(tail)
    return path


def sparse(path: Path, content: bytes = b"", size: int = HUGE) -> Path:
    """Write a file that has `size` bytes and takes no space on the disk."""
    path.write_bytes(content)
    os.truncate(path, len(content) + size)
    return path


def survives(code: int | tuple[int, ...], *arguments: str, named: str = "") -> None:
    """Check that a command is refused without much memory, time or space in the cache."""
    cache, errors = fresh("cache"), fresh("errors") / "stderr"
    with errors.open("w") as stream:
        process = start(*arguments, env={"JAX_SENTEMB_CACHE": str(cache)}, stdout=subprocess.DEVNULL, stderr=stream)
    peak = watched(process, CEILING)
    actual, err = ended(process)[0], errors.read_text(encoding="utf-8", errors="replace")
    left = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    shutil.rmtree(cache)
    assert peak < CEILING, f"{peak >> 20:,} MB of memory"
    allowed = code if isinstance(code, tuple) else (code,)
    last = (err.strip().splitlines() or [""])[-1]
    assert actual in allowed, f"exit code {actual}, not {code}: {last[:200]}"
    assert "Traceback" not in err, "a traceback"
    if actual:
        assert last.startswith("error: "), f"the last line is {last[:100]!r}"
        assert named in last, f"{named!r} is not in {last[:200]!r}"
        assert left < MAX_LEFT, f"{left >> 20:,} MB are left in the cache"


def encoding(file: Path) -> list[str]:
    return ["encode", "--model", str(model()), "--input", str(file), "--output", str(file.parent / "out.npy")]


TEXTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "lines, gz": ("a.txt.gz", lambda path: repeated(path, b"", b"a b\n", 1100)),
    "one line, gz": ("a.txt.gz", lambda path: repeated(path, b"", b"a b ", 300)),
    "lines, xz": ("a.txt.xz", lambda path: repeated(path, b"", b"a b\n", 1100)),
    "a dictionary of 1.5 GB, xz": (
        "a.txt.xz",
        lambda path: path.write_bytes(lzma.compress(b"a b\n", filters=[LARGE_DICTIONARY])),
    ),
    "gz within gz": ("a.txt.gz.gz", lambda path: path.write_bytes(gzip.compress(gzip.compress(bytes(100 * MB))))),
    "10,000 members, gz": ("a.txt.gz", lambda path: path.write_bytes(gzip.compress(b"a b\n" * (MB // 4), 9) * 10_000)),
    "a cell of 300 MB": ("a.csv.gz", lambda path: repeated(path, b'text\n"', b"abc ", 300, b'"\n')),
    "a cell of many lines": ("a.csv.gz", lambda path: repeated(path, b'text\n"', b"abc\n", 900, b'"\n')),
    "a quote that is not closed": ("a.csv", lambda path: repeated(path, b'text\n"', b"abc\n", 300)),
    "100 million commas": ("a.csv.gz", lambda path: repeated(path, b"text\n", b",", 100)),
    "a header of 100 million tabs": ("a.tsv.gz", lambda path: repeated(path, b"text", b"\t", 100, b"\n")),
    "100 million lists": ("a.jsonl.gz", lambda path: repeated(path, b'{"text": "a", "x": [[]', b",[]", 100, b"]}\n")),
    "deep lists": ("a.jsonl", lambda path: path.write_bytes(b'{"text": "a", "x": ' + b"[" * 10**6 + b"\n")),
    "a number of a million digits": ("a.jsonl", lambda path: path.write_bytes(b'{"text": "a", "_id": ' + b"9" * 10**6 + b"}\n")),
    "a value of 300 MB": ("a.jsonl.gz", lambda path: repeated(path, b'{"text": "', b"abc ", 300, b'"}\n')),
    "93 GB of holes, gz": ("a.txt.gz", sparse),
    "93 GB of holes, Parquet": ("a.parquet", lambda path: sparse(path, b"PAR1")),
}  # fmt: skip
for title, (name, write) in TEXTS.items():

    @case(28, f"{name}: {title}")
    def bomb(name=name, write=write):
        file = fresh("bomb") / name
        write(file)
        survives(3, *encoding(file), named=name)


def table(column: str) -> Callable[[Path], None]:
    """Write a Parquet file of some kilobytes whose column repeats a value of 4 MB."""

    def write(path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        value = "ab c" * MB
        rows = {
            "dictionary": lambda: pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 10_000), [value]),
            "binary": lambda: pyarrow.array([value.encode()] * 400),
            "list": lambda: pyarrow.array([[value]] * 400),
            "struct": lambda: pyarrow.array([{"a": value}] * 400),
            "large_string": lambda: pyarrow.array([value] * 400, pyarrow.large_string()),
            "string_view": lambda: pyarrow.array([value] * 400).cast(pyarrow.string_view()),
        }[column]()
        pyarrow.parquet.write_table(pyarrow.table({"text": rows}), path, compression="zstd", dictionary_pagesize_limit=1 << 30)

    return write


for column in ("dictionary", "binary", "list", "struct", "large_string", "string_view"):

    @case(28, f"Parquet: a value of 4 MB repeated, {column}")
    def parquet(column=column):
        file = fresh("bomb") / "a.parquet"
        table(column)(file)
        survives(3, *encoding(file), named="a.parquet")


def safetensors(size: int) -> bytes:
    """Return the weight file of the export with a header that claims `size` bytes of one more tensor."""
    content = (trained() / "export" / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    if size:
        header["more"] = {"dtype": "F32", "shape": [size // 4], "data_offsets": [len(data), len(data) + size]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


WEIGHTS: dict[str, Callable[[Path], object]] = {
    "promises 93 GB": lambda path: path.write_bytes(safetensors(HUGE)),
    "93 GB of holes after the tensors": lambda path: sparse(path, safetensors(0)),
    "93 GB of holes as a tensor": lambda path: sparse(path, safetensors(HUGE)),
    "2 GB of holes as a tensor": lambda path: sparse(path, safetensors(2 * 10**9), 2 * 10**9),
    "only holes": sparse,
    "a header of 2 GB": lambda path: path.write_bytes(struct.pack("<Q", 2 << 30) + b"{"),
}
for title, write in WEIGHTS.items():
    for listed in (True, False):

        @case(28, f"model.safetensors{'' if listed else ', no jax_sentemb.json'}: {title}")
        def weights(write=write, listed=listed):
            folder = model()
            write(folder / "model.safetensors")
            if not listed:
                (folder / "jax_sentemb.json").unlink()
            text = corpus(10)
            survives(
                4,
                "encode",
                "--model",
                str(folder),
                "--input",
                str(text),
                "--output",
                f"{folder.parent}/x.npy",
                named="export",
            )
            workdir = f"--workdir={folder.parent}/run"
            survives(
                4, "train", "--config=simcse:tiny", f"--config.encoder.weights={folder}", f"--config.data.files={text}", workdir
            )


@case(28, "shards that an index names, with 93 GB of holes, and a pickle alone")
def shards():
    folder, text = model(), corpus(10)
    (folder / "jax_sentemb.json").unlink()
    command = ["encode", "--model", str(folder), "--input", str(text), "--output", f"{folder.parent}/x.npy"]
    (folder / "model.safetensors").rename(folder / "1.safetensors")
    names = json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})
    (folder / "model.safetensors.index.json").write_text(names)
    sparse(folder / "2.safetensors", safetensors(0))
    survives(4, *command, named="2.safetensors")
    sparse(folder / "model.safetensors.index.json", names.encode())
    survives(4, *command, named="index.json")
    (folder / "model.safetensors.index.json").unlink()
    (folder / "2.safetensors").unlink()
    (folder / "1.safetensors").unlink()
    sparse(folder / "pytorch_model.bin")
    survives(4, *command, named="pickle")


SIDE = ("config.json", "tokenizer.json", "tokenizer_config.json", "modules.json", "sentence_bert_config.json",
        "config_sentence_transformers.json", "1_Pooling/config.json", "special_tokens_map.json", "jax_sentemb.json")  # fmt: skip
for name in SIDE:

    @case(28, f"{name}: 93 GB of holes, 60 MB of lists")
    def side(name=name):
        folder, text = model(), corpus(10)
        command = ["encode", "--model", str(folder), "--input", str(text), "--output", f"{folder.parent}/x.npy"]
        manifest = (folder / "jax_sentemb.json").read_text()
        sparse(folder / name)
        survives(4, *command, named=name)
        (folder / "jax_sentemb.json").unlink()
        repeated(folder / name, b"[[]", b",[]", 60, b"]")
        if name == "jax_sentemb.json":
            (folder / name).write_text(manifest[:-3] + "," * 10**7)
        survives(4, *command, named=name)


def npy(shape: tuple[int, ...], descr: str = "<f4", version: int = 1) -> bytes:
    file = io.BytesIO()
    write = np.lib.format.write_array_header_1_0 if version == 1 else np.lib.format.write_array_header_2_0
    write(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


ARRAYS = {
    "promises 4 PB": npy((1 << 40, 1 << 10)) + bytes(4096),
    "more bytes than promised": npy((10, 4)) + bytes(4096),
    "rows without width": npy((1 << 60, 0)),
    "no rows": npy((0, 1 << 60)),
    "objects": npy((16,), "|O") + bytes(128),
    "a header of 1 GB": b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 30) + b"{",
    "a negative length": npy((-4, -4)) + bytes(64),
}
for title, content in ARRAYS.items():

    @case(28, f".npy and .npz: {title}")
    def array(content=content):
        file = fresh("array") / "v.npy"
        file.write_bytes(content)
        survives(3, "mine", "--corpus", str(file), named="v.npy")
        with zipfile.ZipFile(file.with_suffix(".npz"), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("vectors.npy", content)
            archive.writestr("words.npy", npy((2,), "|S1") + b"ab")
        survives(4, *words(file.with_suffix(".npz")), named="v.npz")


def words(file: Path) -> list[str]:
    common = ["train", "--config=word_average", "--config.eval.data=", "--config.train.max_steps=1"]
    return [*common, f"--config.data.files={corpus(40)}", f"--config.encoder.vectors={file}", f"--workdir={file.parent / 'run'}"]


VECTORS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "1 GB of lines": ("v.vec.xz", lambda path: repeated(path, b"", b"a " + b"1 " * 300 + b"1\n", 1100)),
    "one line": ("v.txt.xz", lambda path: repeated(path, b"", b"1 ", 300)),
    "a count of 10^18": ("v.txt", lambda path: path.write_bytes(b"999999999999999999 999999999\na 1\n")),
    "a line of half a million numbers": ("v.txt", lambda path: path.write_bytes(b"a" + b" 1" * 5 * 10**5 + b"\nb 1\n")),
    "10^8 words without width": (
        "v.npz",
        lambda path: np.savez_compressed(path, words=np.zeros(10**8, "S1"), vectors=np.zeros((10**8, 0), np.float32)),
    ),
}
for title, (name, write) in VECTORS.items():

    @case(28, f"word vectors: {title}")
    def word_vectors(name=name, write=write):
        file = fresh("words") / name
        write(file)
        survives(4, *words(file), named=name)


@case(28, "vectors.json, an index and labelled pairs")
def others():
    folder = fresh("vectors") / "vectors"
    folder.mkdir()
    sparse(folder / "vectors.json")
    survives(3, "mine", "--corpus", str(folder), named="vectors.json")
    repeated(folder / "vectors.json", b"[[]", b",[]", 100, b"]")
    survives(3, "mine", "--corpus", str(folder), named="vectors.json")
    index = sparse(folder.parent / "index")
    text = corpus(20)
    survives(3, "search", "--model", str(model()), "--corpus", str(text), "--query", "a man", "--index", str(index), named="index")
    pairs = repeated(folder.parent / "pairs.tsv.gz", b"sentence1\tsentence2\tscore\n", b"a man\ta cat\t1\n", 1100)
    files = f"--config.data.files={pairs}"
    survives(3, "train", "--config=sbert_stsb:tiny", files, f"--workdir={folder.parent}/run", named="pairs.tsv.gz")


@case(28, "a static table whose weights and tokenizer are 93 GB of holes")
def static():
    for name in ("model.safetensors", "tokenizer.json"):
        folder = static_table()
        (folder / "jax_sentemb.json").unlink()
        sparse(folder / name, (folder / name).read_bytes())
        command = ["encode", "--model", str(folder), "--input", str(corpus(10)), "--output", f"{folder.parent}/x.npy"]
        survives(4, *command, named=name)


@case(28, "a line of 100 MB of e and an accent, an unknown letter, or white space")
def long_lines():
    for unit in ("e\u0301", "\u6f22", "\u200b \t", "x"):
        file = repeated(fresh("line") / "a.txt", b"a man ", unit.encode(), 100, b" cut\n")
        survives(0, *encoding(file))

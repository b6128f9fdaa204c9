"""Damaged and hostile model files: one line and exit 4, or the weights that were meant; nothing outside is opened, no code runs.

`pytest -m nightly` makes JAX_SENTEMB_MUTATIONS (100,000) random changes of a weight file, drawn by JAX_SENTEMB_SEED.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import pickle
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokenizer_checks import damage
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import DataError, ModelFileError
from jax_sentemb.files import JSON_LIMIT
from jax_sentemb.formats.huggingface import read_encoder, read_max_seq_length, read_parts, read_tokenizer
from jax_sentemb.formats.model_dir import MANIFEST
from jax_sentemb.formats.run_dir import read_metadata, read_run_tokenizer
from jax_sentemb.formats.sentence_transformers import SentenceModel
from jax_sentemb.formats.tensors import HEADER_LIMIT
from jax_sentemb.formats.weight_table import from_torch, table
from jax_sentemb.formats.word_model import read_files, write_word_model
from jax_sentemb.inference.export import export
from jax_sentemb.inference.load import load
from jax_sentemb.methods.language_model import LanguageModel
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig, WordVectors
from jax_sentemb.provenance import EXPORT, KEY, WORD_MODEL, mark
from jax_sentemb.retrieval.vector_manifest import digest, marked
from jax_sentemb.retrieval.vector_store import Vectors
from jax_sentemb.training.encoder_source import given_tokenizer
from jax_sentemb.training.run_sources import run_mark

ROOT = Path(__file__).parents[1]
SEED = int(os.environ.get("JAX_SENTEMB_SEED", "0"))
CONFIG = {
    "model_type": "bert", "vocab_size": 40, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 4, "max_position_embeddings": 12, "type_vocab_size": 2,
}  # fmt: skip
QUERY = "encoder.layer.0.attention.self.query.weight"
SENTENCES = ["a dog runs", "two dogs run over the grass", "a man plays"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify and /proc are Linux's")


def tensors_of(config=CONFIG):
    draw = np.random.default_rng(0)
    return {row.torch: draw.normal(size=row.shape).astype(np.float32) for row in table(BertConfig(**config))}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """A plain directory: config.json, model.safetensors, tokenizer.json and what belongs to it."""
    folder = tmp_path_factory.mktemp("intact")
    Tokenizer.train(SENTENCES, 40).save(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(save(tensors_of()))
    return folder


@pytest.fixture
def folder(intact, tmp_path):
    """A copy of it, to spoil."""
    return Path(shutil.copytree(intact, tmp_path / "model"))


def problem(read, *arguments, names=""):
    """The message of the one error that may be, checked to be a line that names the file."""
    with pytest.raises(ModelFileError) as caught:
        read(*arguments)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2100
    assert str(names) in str(caught.value)
    return str(caught.value)


def change_json(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


# Weight files


def header_of(content):
    size = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def with_header(header, data=b""):
    """A safetensors file with this header: a dict, or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def cut(content, draw):
    return content[: draw.randrange(len(content))]


def flip(content, draw, start, end):
    changed = bytearray(content)
    for bit in draw.sample(range(8 * start, 8 * end), draw.randint(1, 3)):
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flip_header(content, draw):
    return flip(content, draw, 0, len(content) - len(header_of(content)[1]))


def flip_data(content, draw):
    return flip(content, draw, len(content) - len(header_of(content)[1]), len(content))


def claim(content, draw):
    """A header of another length than it has."""
    size = draw.choice(
        [0, 1, 2**62, 2**63, 2**64 - 1, 101 << 20, HEADER_LIMIT, len(content), len(content) - 8, draw.randrange(2**32)]
    )
    return struct.pack("<Q", size) + content[8:]


def twist(content, draw):
    """A header that contradicts itself or the data."""
    header, data = header_of(content)
    name = draw.choice(sorted(header))
    entry, (begin, end) = header[name], header[name]["data_offsets"]
    shift = draw.choice([-4, -1, 1, 4, 2**31, 2**63 - 1, 2**64])
    kind = draw.randrange(8)
    if kind == 0:
        entry["data_offsets"] = [begin + shift, end + shift]  # overlap or hole
    elif kind == 1:
        entry["data_offsets"] = [end, begin]
    elif kind == 2:
        entry["dtype"] = draw.choice(["F99", "", None, "I32", "BOOL", "F64", "F8_E4M3", "C64", "BF16", 3])
    elif kind == 3:
        entry["shape"] = draw.choice([[2**32, 2**32], [2**63], [-1], [0], [], [1.5], "4", None, [1] * 100, [2**64], {}])
    elif kind == 4:
        del entry[draw.choice(sorted(entry))]
    elif kind == 5:
        other = draw.choice(sorted(header))
        header[name], header[other] = header[other], header[name]
    elif kind == 6:
        header[draw.choice(["__metadata__", "bert." + name, "new\nname\x1b[31m", "\ud800", "x" * 5000])] = header.pop(name)
    else:
        once = json.dumps(header)
        return with_header((once[:-1] + f', "{name}": {json.dumps(entry | {"shape": [shift]})}}}').encode(), data)
    return with_header(header, data)


def not_finite(content, draw):
    header, data = header_of(content)
    place = draw.randrange(len(data) // 4) * 4
    return with_header(header, data[:place] + struct.pack("<f", draw.choice([float("nan"), float("inf")])) + data[place + 4 :])


MUTATIONS = (cut, flip_header, flip_data, claim, twist, not_finite)


def memory(field):
    """Bytes of this process: VmRSS now, VmHWM at most since the peak was cleared."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(field))


@contextlib.contextmanager
def within(limit=200 << 20, seconds=2.0):
    """Fails where the block takes more memory than it finds, or more time of the processor; yields a list for the bytes it took."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before, begin, taken = memory("VmRSS"), time.process_time(), []
    yield taken
    taken.append(memory("VmHWM") - before)
    assert taken[0] < limit
    assert time.process_time() - begin < seconds


def shapes_of(params):
    return jax.tree.map(np.shape, params)


def mutated_weights(folder, count, seed):
    """How often each mutation was refused and read, after `count` of them."""
    file, draw = folder / "model.safetensors", random.Random(seed)
    content, shapes = file.read_bytes(), shapes_of(read_encoder(folder)[1])
    outcomes = {}
    for number in range(count):
        mutate = MUTATIONS[number % len(MUTATIONS)]
        file.write_bytes(mutate(content, draw))
        begin = time.process_time()  # wall time would also measure a busy machine
        try:
            params = read_encoder(folder)[1]
        except ModelFileError as error:
            outcome, said = "refused", str(error)
            assert said.isprintable(), (seed, number)
            assert str(folder) in said, (seed, number)
        else:
            assert shapes_of(params) == shapes, (seed, number)
            assert all(leaf.dtype == np.float32 and np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)), (seed, number)
            outcome = "read"
        assert time.process_time() - begin < 2, (seed, number)
        outcomes[mutate.__name__, outcome] = outcomes.get((mutate.__name__, outcome), 0) + 1
    return outcomes


@linux
def test_random_damage_of_a_weight_file_is_one_line_or_finite_weights(folder):
    with within(seconds=120):
        found = mutated_weights(folder, 1200, SEED)
    assert found["flip_data", "read"] > 120  # nothing but a hash tells
    assert {name for name, outcome in found if outcome == "read"} <= {"flip_data", "flip_header", "twist"}


@linux
@pytest.mark.nightly
def test_a_hundred_thousand_changes_of_a_weight_file(folder):
    count = int(os.environ.get("JAX_SENTEMB_MUTATIONS", "100000"))
    begin = time.process_time()
    with within(seconds=float("inf")) as taken:
        found = mutated_weights(folder, count, SEED)
    print(f"{count} in {time.process_time() - begin:.0f} s, {taken[0] >> 20} MiB more: {found}", flush=True)


HUGE = {
    "header of 101 MB": struct.pack("<Q", 101 << 20) + b"{" + b" " * 100,
    "header of spaces": with_header(b"{" + b" " * HEADER_LIMIT + b"}"),
    "many tensors": with_header(
        b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % number for number in range(30_000)) + b"}"
    ),
    "many dimensions": with_header(b'{"a":{"dtype":"F32","shape":[' + b"1," * 900_000 + b'1],"data_offsets":[0,4]}}', b"abcd"),
    "deep": with_header(b"[" * 200_000),
    "long name": save(tensors_of() | {"\n" * 100_000: np.zeros(1, np.float32)}),
}


@linux
@pytest.mark.parametrize("kind", HUGE)
def test_a_header_that_would_cost_memory_or_time_is_refused(folder, kind):
    (folder / "model.safetensors").write_bytes(HUGE[kind])
    begin = time.process_time()
    with within() as taken:
        said = problem(read_encoder, folder, names=folder)
    print(f"{kind}: {time.process_time() - begin:.2f} s, {taken[0] >> 20} MiB")
    assert ("the claimed size of its header is" in said) == kind.startswith("header")


# Weights that do not belong to config.json


def other_sizes(**changes):
    return tensors_of(CONFIG | changes)


WRONG = {
    "hidden size": (lambda tensors: other_sizes(hidden_size=6, num_attention_heads=2), "has shape [40, 6], expected [40, 4]"),
    "vocabulary": (lambda tensors: other_sizes(vocab_size=41), "has shape [41, 4], expected [40, 4]"),
    "a layer missing": (lambda tensors: other_sizes(num_hidden_layers=0), f"{QUERY} is missing"),
    "a layer more": (lambda tensors: other_sizes(num_hidden_layers=2), "encoder.layer.1."),
    "no norm": (
        lambda tensors: {name: t for name, t in tensors.items() if "LayerNorm.bias" not in name},
        "LayerNorm.bias is missing",
    ),
    "transposed": (
        lambda tensors: tensors | {"embeddings.word_embeddings.weight": np.zeros((4, 40), np.float32)},
        "[4, 40], expected",
    ),
    "an unknown prefix": (lambda tensors: {f"module.{name}": t for name, t in tensors.items()}, "is missing"),
    "prefixed twice": (lambda tensors: tensors | {f"bert.{QUERY}": tensors[QUERY]}, "occurs twice"),
    "other norm names": (lambda tensors: {name.replace("LayerNorm", "ln"): t for name, t in tensors.items()}, "is missing"),
    "integers": (lambda tensors: tensors | {QUERY: np.zeros((4, 4), np.int8)}, "has dtype int8"),
    "nothing": (lambda tensors: {}, "is missing"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_weights_are_refused_with_a_list(folder, kind):
    change, says = WRONG[kind]
    (folder / "model.safetensors").write_bytes(save(change(tensors_of())))
    assert says in problem(read_encoder, folder, names=folder)


SPELLINGS = {
    "bert.": lambda name: f"bert.{name}",
    "gamma and beta": lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
    "both": lambda name: SPELLINGS["bert."](SPELLINGS["gamma and beta"](name)),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_documented_spellings_and_precisions_are_the_weights_themselves(folder, spelling, dtype):
    narrow = {name: tensor.astype(dtype) for name, tensor in tensors_of().items()}
    (folder / "model.safetensors").write_bytes(save({SPELLINGS[spelling](name): tensor for name, tensor in narrow.items()}))
    config, params = read_encoder(folder)
    jax.tree.map(
        np.testing.assert_array_equal, params, from_torch(config, {n: t.astype(np.float32) for n, t in narrow.items()}, "")
    )


# Exports of ours: with hashes


@pytest.fixture(scope="module")
def exported(intact, tmp_path_factory):
    config, params = read_parts(intact)
    target = tmp_path_factory.mktemp("exported") / "export"
    model = SentenceModel(config, params, Tokenizer.load(intact), pooling="mean", max_seq_length=12)
    export(target, model, load(intact), sentences=SENTENCES)
    return target


def test_a_flip_in_any_file_of_an_export_is_found_and_readme_is_its_owners(exported, tmp_path):
    folder, draw = Path(shutil.copytree(exported, tmp_path / "export")), random.Random(SEED)
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.name == MANIFEST:
            continue
        content = file.read_bytes()
        file.write_bytes(flip(content, draw, 0, len(content)))
        if file.name == "README.md":
            read_parts(folder)
        else:
            assert "has changed since the export" in problem(read_parts, folder, names=file)
        file.write_bytes(content)
    read_parts(folder)
    (folder / "vocab.txt").rename(folder / "other.txt")
    problem(read_parts, folder, names=folder / "vocab.txt")


@pytest.mark.parametrize("hashed", [True, False])
def test_a_pipe_in_place_of_any_file_is_not_waited_for(exported, tmp_path, hashed):
    folder = Path(shutil.copytree(exported, tmp_path / "export"))
    if not hashed:
        (folder / MANIFEST).unlink()
    names = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name not in (MANIFEST, "README.md")]
    taken = []
    for file in names:
        file.rename(tmp_path / "content")
        os.mkfifo(file)
        signal.alarm(60)  # ends a test that waits
        with contextlib.suppress(ModelFileError):
            read_parts(folder)
            taken.append(file.name)
        signal.alarm(0)
        file.unlink()
        (tmp_path / "content").rename(file)
    assert len(names) > 5
    assert taken == []  # also files that may be missing are refused if they are pipes
    read_parts(folder)


@pytest.mark.parametrize("hashes", [None, [], {"../canary": "0"}, {"/etc/hostname": "0"}, {"a\0": "0"}])
def test_a_manifest_without_hashes_or_with_paths_outside_is_damaged(exported, tmp_path, hashes):
    folder = Path(shutil.copytree(exported, tmp_path / "export"))
    change_json(folder / MANIFEST, sha256=hashes)
    problem(read_parts, folder, names=folder / MANIFEST)


# Tokenizers that do not fit


def change_tokenizer(folder, **model):
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"].update(model)
    (folder / "tokenizer.json").write_text(json.dumps(state))


def test_ids_without_a_row_are_refused_with_both_sizes(folder):
    state = json.loads((folder / "tokenizer.json").read_text())
    change_tokenizer(folder, vocab={**state["model"]["vocab"], "far": 40})
    assert "41 tokens, the encoder's vocab_size is 40" in problem(load, folder, names=folder)


@linux
def test_a_number_that_would_cost_gigabytes_is_refused_at_once(folder):
    state = json.loads((folder / "tokenizer.json").read_text())
    change_tokenizer(folder, vocab={**state["model"]["vocab"], "far": 2**31})
    with within(seconds=1):
        assert "has a token with id 2147483648" in problem(Tokenizer.load, folder, names=folder)


def test_an_encoder_and_its_tokenizer_agree_on_capital_letters(folder):
    change_json(folder / "tokenizer_config.json", do_lower_case=False)
    said = problem(Tokenizer.load, folder, names=folder)
    assert "lowercase=True" in said
    assert "do_lower_case=False" in said
    change_json(folder / "tokenizer_config.json", do_lower_case=True)
    Tokenizer.load(folder)


def test_a_tokenizer_that_numbers_pieces_otherwise_is_refused_for_weights_that_have_one(folder, tmp_path):
    Tokenizer.train(["other words altogether", *SENTENCES], 60).save(tmp_path / "other")
    said = problem(given_tokenizer, str(tmp_path / "other"), folder, names="other")
    assert f"SHA-256 {Tokenizer.load(tmp_path / 'other').fingerprint[:12]}" in said
    assert Tokenizer.load(folder).fingerprint[:12] in said
    given_tokenizer(str(folder), folder)
    vocabulary = (folder / "vocab.txt").read_text().split("\n")
    shutil.copytree(folder, tmp_path / "renamed")
    (tmp_path / "renamed" / "tokenizer.json").unlink()
    (tmp_path / "renamed" / "vocab.txt").write_text("\n".join([*vocabulary[:-2], "domain", ""]))  # in place of the last piece
    given_tokenizer(str(tmp_path / "renamed"), folder)
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).unlink()
    given_tokenizer(str(tmp_path / "other"), folder)


def test_the_tokenizer_of_a_run_is_the_one_that_it_was_trained_with(folder, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copytree(folder, tmp_path / "run" / "tokenizer")
    facts = {"encoder": CONFIG, "tokenizer": Tokenizer.load(folder).fingerprint}
    read_run_tokenizer(tmp_path / "run", facts)
    pieces = Tokenizer.load(folder).numbers
    first, second = sorted(pieces, key=pieces.__getitem__)[-2:]
    change_tokenizer(tmp_path / "run" / "tokenizer", vocab={**pieces, first: pieces[second], second: pieces[first]})
    said = problem(read_run_tokenizer, tmp_path / "run", facts, names="tokenizer")
    assert facts["tokenizer"][:12] in said
    assert "40 tokens" in problem(read_run_tokenizer, tmp_path / "run", {"encoder": CONFIG | {"vocab_size": 39}})


# Paths that lead outside


@contextlib.contextmanager
def nobody_opens(place):
    """Fails if a folder, or a file in it, is opened meanwhile, also by libraries in Rust, which an audit hook does not see."""
    libc = ctypes.CDLL(None)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, os.fsencode(place), 0x20) > 0  # IN_OPEN
    try:
        yield
        with pytest.raises(BlockingIOError):  # there is nothing to read
            os.read(watch, 4096)
    finally:
        os.close(watch)


NAMES = (
    "../outside",
    "/outside",
    "C:\\outside",
    "a/../../outside",
    "./../outside",
    "link",
    "nul\0",
    "\ud800",
    "x" * 5000,
    "circle",
    "x/..",
)


def list_modules(folder, *modules):
    listed = [
        {"idx": n, "name": str(n), "type": f"sentence_transformers.models.{kind}", "path": path} for n, (kind, path) in modules
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def as_encoder(folder, name):
    list_modules(folder, *enumerate([("Transformer", name)]))
    return read_parts, ModelFileError


def as_pooling(folder, name):
    list_modules(folder, *enumerate([("Transformer", ""), ("Pooling", name)]))
    return load, ModelFileError


def as_convolution(folder, name):
    list_modules(folder, *enumerate([("Transformer", ""), ("CNN", name), ("Pooling", "1_Pooling")]))
    return read_parts, ModelFileError


def as_shard(folder, name):
    (folder / "model.safetensors").unlink()
    name = f"{name}/model.safetensors" if isinstance(name, str) else name
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {QUERY: name}}))
    return read_parts, ModelFileError


def as_hashed_file(folder, name):
    (folder / MANIFEST).write_text(json.dumps({KEY: mark(EXPORT, {}), "sha256": {f"{name}/config.json": "0"}}))
    return read_parts, ModelFileError


def as_shard_of_vectors(folder, name):
    file = f"{name}/000000.npy" if isinstance(name, str) else name
    (folder / "vectors.json").write_text(
        signed(VECTORS | {"shards": [{"file": file, "rows": 2, "bytes": 152, "truncated": 0, "sha256": ""}]})
    )
    return Vectors, DataError


VECTORS = {
    **marked({"precision": "float32", "max_seq_length": 9, "rows_per_shard": 9, "format": "npy"}),
    "rows": 2, "width": 3, "ranges": None,
    "truncated": 0, "complete": True, "shards": [{"file": "000000.npy", "rows": 2, "bytes": 152, "truncated": 0, "sha256": ""}],
}  # fmt: skip


def signed(manifest):
    """The text of vectors.json with the right SHA-256 of itself, so that its content is what is checked."""
    return json.dumps(manifest | {"sha256": digest(manifest)})


@linux
@pytest.mark.parametrize("place", [as_encoder, as_pooling, as_convolution, as_shard, as_hashed_file, as_shard_of_vectors])
def test_no_path_in_a_file_leads_outside(folder, tmp_path, place):
    outside = Path(shutil.copytree(folder, tmp_path / "outside"))
    (outside / "1_Pooling").mkdir()
    (outside / "config.json").write_text(json.dumps({**CONFIG, "pooling_mode": "cls"}))
    np.save(outside / "000000.npy", np.zeros((2, 3), np.float32))
    (folder / "link").symlink_to(outside)
    (folder / "circle").symlink_to(folder / "circle")
    for name in NAMES:
        copy = Path(shutil.copytree(folder, tmp_path / "copy", symlinks=True))
        read, kind = place(copy, str(outside) if name == "/outside" else name)
        with nobody_opens(outside), pytest.raises(kind) as caught:
            read(copy)
        assert str(caught.value).isprintable(), name
        assert f"leads out of {copy}" in str(caught.value), name
        shutil.rmtree(copy)


@linux
def test_the_watch_on_the_outside_sees_python_and_rust(folder):
    with pytest.raises(pytest.fail.Exception), nobody_opens(folder):
        (folder / "config.json").read_bytes()
    with pytest.raises(pytest.fail.Exception), nobody_opens(folder):
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A model on word vectors with a part in a folder of its own."""
    folder, tokenizer = tmp_path_factory.mktemp("words"), WordTokenizer.of(["dog", "man"], lowercase=True)
    method, encoder = LanguageModel(hidden=2, candidates=2), WordsConfig(4, 3)
    params = jax.device_get(method.init(WordVectors(encoder), {}, jax.random.key(0)).params)
    facts = {"method": "LanguageModel", "settings": dataclasses.asdict(method), "max_seq_length": 9}
    facts |= {"encoder": dataclasses.asdict(encoder)}
    write_word_model(folder, facts, params | {FROZEN: {"vectors": np.ones((4, 3), np.float32)}}, tokenizer)
    read_files(folder)
    return folder


@linux
def test_no_folder_of_a_word_model_is_a_link_to_the_outside(words, tmp_path):
    folder = Path(shutil.copytree(words, tmp_path / "model"))
    (folder / "1_LSTM").rename(tmp_path / "outside")
    (folder / "1_LSTM").symlink_to(tmp_path / "outside")
    with nobody_opens(tmp_path / "outside"):
        problem(read_files, folder, names="1_LSTM")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"settings": {"hidden": 3}}, ", expected ("),
        ({"settings": {"hidden": "2"}}, "does not describe a model"),
        ({"settings": {"hidden": 10**30}}, "must be below"),
        ({"settings": {"hidden": -1}}, "method"),
        ({"settings": {"pooling": None}}, "pooling"),
        ({"settings": {"import": "os"}}, "does not describe a model"),
        ({"method": "os.system"}, "does not describe a model"),
        ({"encoder": {"vocab_size": 5, "hidden_size": 3}}, "has shape [4, 3]"),
        ({"encoder": {"vocab_size": 4, "hidden_size": 3, "model_type": "bert"}}, "word vectors"),
    ],
)
def test_a_word_model_whose_settings_do_not_fit_is_refused(words, tmp_path, change, says):
    folder = Path(shutil.copytree(words, tmp_path / "model"))
    change_json(folder / "model.json", **change)
    assert says in problem(read_files, folder, names=folder / "model.json" if "encoder" not in change else folder)


def test_a_word_model_with_other_words_or_bad_weights_is_refused(words, tmp_path):
    folder = Path(shutil.copytree(words, tmp_path / "model"))
    for vocabulary, says in (
        ({"[PAD]": 0, "[UNK]": 1, "dog": 2, "man": 3, "more": 4}, "5 tokens, the encoder's vocab_size is 4"),
        ({"[PAD]": 0, "[UNK]": 1, "dog": 2, "man": 9}, "ids must be consecutive from 0"),
        ({"[PAD]": 0, "[UNK]": 1, "dog": 2, "man": 2**31}, "has a token with id 2147483648"),
        ({"[PAD]": 1, "[UNK]": 0, "dog": 2, "man": 3}, "ids must be consecutive from 0"),
        ({"[PAD]": 0, "dog": 1}, "lacks [PAD] or [UNK]"),
    ):
        change_tokenizer(folder, vocab=vocabulary)
        assert says in problem(read_files, folder, names=folder)
    shutil.copy(words / "tokenizer.json", folder)
    good = (words / "model.safetensors").read_bytes()
    for tensor, says in ((np.full((4, 3), np.nan, np.float32), "NaN"), (np.zeros((4, 3), np.int32), "int32")):
        (folder / "model.safetensors").write_bytes(save({"emb_layer.weight": tensor}))
        assert says in problem(read_files, folder, names=folder)
    draw = random.Random(SEED)
    for _ in range(50):
        (folder / "model.safetensors").write_bytes(flip_header(good, draw))
        with contextlib.suppress(ModelFileError):
            read_files(folder)


def test_what_a_file_says_of_padding_and_cutting_changes_no_words(words, tmp_path):
    state = json.loads((words / "tokenizer.json").read_text())
    rows = [row.tolist() for row in WordTokenizer.load(words).encode(SENTENCES, 9)[0]]
    state["truncation"] = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    state["padding"] = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**state, "padding": {**state["padding"], "pad_token": "[PAD]"}}))
    assert [row.tolist() for row in WordTokenizer.load(tmp_path).encode(SENTENCES, 9)[0]] == rows


# Code


class Evil:
    """Its pickle runs a command when it is opened."""

    def __reduce__(self):
        return os.system, ("touch ran",)


def put(folder, name, content):
    """A file with this content, in place of the weights."""
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)


def put_tokenizer(folder):
    (folder / "tokenizer.json").write_bytes(pickle.dumps(Evil()))


def put_settings(folder):
    (folder / "config.json").rename(folder / "config.py")
    (folder / "config.py").write_text("import evil_code")


def put_dense(activation):
    def change(folder):
        list_modules(folder, *enumerate([("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]))
        (folder / "2_Dense").mkdir()
        (folder / "2_Dense" / "config.json").write_text(json.dumps({"activation_function": activation}))

    return change


def put_type(name):
    return lambda folder: (folder / "modules.json").write_text(json.dumps([{"type": name, "path": ""}]))


def put_auto_map(file):
    return lambda folder: change_json(folder / file, auto_map={"AutoModel": "evil_code.Model", "AutoTokenizer": "evil_code.Model"})


def put_word_model(folder):
    shutil.rmtree(folder)
    folder.mkdir()
    facts = {KEY: mark(WORD_MODEL, {}), "method": "evil_code.Model", "settings": {}, "encoder": {}}
    (folder / "model.json").write_text(json.dumps(facts))


def put_archive(folder):
    np.savez(folder / "words.npz", words=np.array([Evil()]), vectors=np.zeros((1, 2)))


def put_objects(folder):
    np.save(folder / "000000.npy", np.array([[Evil()]]), allow_pickle=True)
    (folder / "vectors.json").write_text(signed(VECTORS))


CODE = {
    "bin": lambda folder: put(folder, "pytorch_model.bin", pickle.dumps(Evil())),
    "pt": lambda folder: put(folder, "model.pt", pickle.dumps(Evil())),
    "joblib": lambda folder: put(folder, "model.joblib", pickle.dumps(Evil())),
    "npy": lambda folder: put(folder, "model.npy", pickle.dumps(Evil())),
    "safetensors": lambda folder: put(folder, "model.safetensors", pickle.dumps(Evil())),
    "tokenizer": put_tokenizer,
    "settings": put_settings,
    "os.system": put_type("os.system"),
    "type": put_type("evil_code.Transformer"),
    "ours": put_type("sentence_transformers.evil_code"),
    "auto_map of the model": put_auto_map("config.json"),
    "auto_map of the tokenizer": put_auto_map("tokenizer_config.json"),
    "activation": put_dense("os.getcwd"),
    "torch": put_dense("torch.nn.modules.activation.Tanh"),
    "hidden_act": lambda folder: change_json(folder / "config.json", hidden_act="os.getcwd"),
    "word model": put_word_model,
    "words.npz": put_archive,
    "vectors": put_objects,
    "000000.npy": put_objects,
}
# Reads folders with a hook that notes what code from them would do; the intact folder first, so that all imports are done.
WATCHED = """
import json, os, sys
from pathlib import Path
from jax_sentemb.errors import UserError
from jax_sentemb.inference.load import load
from jax_sentemb.data.word_vectors import read_word_vectors
from jax_sentemb import Vectors

folder, noted = Path(sys.argv[1]), []
RUNS = ("pickle.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.", "socket.connect", "socket.getaddrinfo")

def hook(event, arguments):
    if event.startswith(RUNS) or (event == "import" and "evil" in str(arguments[0])):
        noted.append(f"{event} {arguments}"[:200])
    if event == "exec" and str(folder) in str(getattr(arguments[0], "co_filename", "")):
        noted.append(f"exec {arguments}"[:200])

load(str(folder / "intact"))
sys.addaudithook(hook)
import pickle
if sys.argv[2:]:  # to see that the hook sees
    pickle.loads((folder / sys.argv[2]).read_bytes())
    sys.path.insert(0, str(folder / "auto_map of the model"))
    import evil_code
outcomes = {}
for case in sorted(folder.iterdir()):
    if case.name == "intact":
        continue
    os.chdir(case)
    sys.path.insert(0, str(case))
    before = len(noted)
    try:
        if case.name == "words.npz":
            read_word_vectors(case / "words.npz")
        elif case.name in ("vectors", "000000.npy"):
            Vectors(case if case.name == "vectors" else case / case.name, verify=False)
        else:
            load(str(case))
        said = [0, ""]
    except UserError as error:
        said = [error.exit_code, str(error)]
    sys.path.remove(str(case))
    outcomes[case.name] = [*said, noted[before:]]
print(json.dumps([outcomes, noted]))
"""


def watched(folder, *more):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WATCHED, str(folder), *more]
    ended = subprocess.run(
        command, env=environment, cwd=folder / "intact", capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_code_in_a_model_is_neither_imported_nor_run(intact, tmp_path):
    shutil.copytree(intact, tmp_path / "intact")
    for name, change in CODE.items():
        folder = Path(shutil.copytree(intact, tmp_path / name))
        change(folder)
        (folder / "evil_code.py").write_text("open('ran', 'w')\nModel = 1\n")
    outcomes, noted = watched(tmp_path)
    assert noted == []
    assert outcomes.keys() == CODE.keys()
    for name, (code, said, _) in outcomes.items():
        assert code == (DataError if name in ("vectors", "000000.npy") else ModelFileError).exit_code, (name, said)
        assert said.isprintable(), name
        assert str(tmp_path / name) in said, name
    assert not list(tmp_path.rglob("ran"))
    noted = " ".join(watched(tmp_path, "bin/pytorch_model.bin")[1])
    assert all(event in noted for event in ("pickle.find_class", "os.system", "import ('evil_code'", "exec (<code"))


# JSON


WEIRD = [
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 10**400, 1e308, float("nan"), float("inf"), 0.5, "", "a\nb\x1b[31m", "\ud800",
    "x" * 5000, [], [[]], {}, {"a": {}}, ["a", 1], [None],
]  # fmt: skip


def nodes(value, path=()):
    """The paths of everything in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(node for key, inner in items for node in nodes(inner, (*path, key)))]


def twisted(content, draw):
    """JSON in which one value is another one, is gone, or is there twice."""
    value = json.loads(content)
    *path, key = draw.choice([node for node in nodes(value) if node] or [("",)])
    place = value
    for step in path:
        place = place[step]
    kind = draw.randrange(4)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(key, str):
        text = json.dumps(place)
        twice = f"{text[:-1]}, {json.dumps(key)}: {json.dumps(draw.choice(WEIRD))}}}"
        return json.dumps(value).replace(text, twice, 1).encode()
    else:
        place[key] = draw.choice(WEIRD)
    return json.dumps(value).encode()


def spoiled(content, draw):
    """Bytes changed, cut off, or put in."""
    kind = draw.randrange(3)
    if kind == 0:
        return cut(content, draw)
    if kind == 1:
        return flip(content, draw, 0, len(content))
    place, depth = draw.randrange(len(content)), draw.choice([1, 100, 500, 900, 1000, 5000])
    return (
        content[:place]
        + draw.choice([b"\xff\xfe", b"\0", b"[" * depth, b'{"a":' * depth, b"9" * depth, b"\xed\xa0\x80"])
        + content[place:]
    )


def changed_json(folder, file, count, read, kinds=(ModelFileError,)):
    """How many of `count` changes of a file are refused; whatever is read must go through `read`."""
    draw, content, refused = random.Random(SEED), (folder / file).read_bytes(), 0
    for number in range(count):
        (folder / file).write_bytes((twisted if number % 2 else spoiled)(content, draw))
        try:
            read(folder)
        except kinds as error:
            assert_line(error)
            refused += 1
    (folder / file).write_bytes(content)
    return refused


def assert_line(error):
    assert str(error).isprintable()
    assert len(str(error)) < 2100


COUNTS = [200, pytest.param(5000, marks=pytest.mark.nightly)]  # changes of a file


def encode_some(folder):
    tokenizer = read_tokenizer(folder, BertConfig(**CONFIG))
    for row in tokenizer.encode([*SENTENCES, "\u6f22 x" * 50, ""], 12)[0]:
        assert row.dtype == np.int32
        assert 2 <= len(row) <= 12
        assert 0 <= row.min() <= row.max() < CONFIG["vocab_size"]


def embed_none(folder):
    model = load(folder)
    assert shapes_of(model.params["encoder"]) == shapes_of(from_torch(BertConfig(**CONFIG), tensors_of(), ""))
    assert 2 <= model.embedder.max_seq_length <= 12
    assert model.metadata["pooling"] in ("cls", "mean")


@pytest.mark.parametrize("count", COUNTS)
def test_damaged_tokenizers_are_one_line_or_give_ids_of_the_encoder(folder, count):
    assert count / 4 < changed_json(folder, "tokenizer.json", count, encode_some) < count


@pytest.mark.parametrize("count", COUNTS)
def test_damaged_tokenizers_of_words_are_one_line(words, tmp_path, count):
    folder = Path(shutil.copytree(words, tmp_path / "model"))

    def encode_words(folder):
        tokenizer = WordTokenizer.load(folder)
        for row in tokenizer.encode([*SENTENCES, "\u6f22 x" * 50, ""], 12)[0]:
            assert len(row) <= 12
            assert all(0 <= number < tokenizer.vocab_size for number in row)

    assert count / 5 < changed_json(folder, "tokenizer.json", count, encode_words) < count


@pytest.mark.parametrize(
    "file", ["config.json", "modules.json", "1_Pooling/config.json", "tokenizer_config.json", "sentence_bert_config.json"]
)
@pytest.mark.parametrize("count", COUNTS)
def test_damaged_descriptions_are_one_line_or_the_same_model(exported, tmp_path, file, count):
    folder = Path(shutil.copytree(exported, tmp_path / "export"))
    (folder / MANIFEST).unlink()
    assert count / 5 < changed_json(folder, file, count, embed_none) < count


def test_damaged_manifests_models_and_facts_are_one_line(exported, words, tmp_path):
    folder = Path(shutil.copytree(exported, tmp_path / "export"))
    assert changed_json(folder, MANIFEST, 300, read_parts) > 100
    folder = Path(shutil.copytree(words, tmp_path / "words"))
    assert changed_json(folder, "model.json", 100, read_files) > 30
    names = ("name", "method", "base_model", "pooling", "max_seq_length", "missing_tasks", "tokenizer", "training")
    (tmp_path / "model.json").write_text(json.dumps({"encoder": dataclasses.asdict(BertConfig()), **dict.fromkeys(names, "")}))
    assert changed_json(tmp_path, "model.json", 300, read_metadata) > 100


def test_facts_of_a_run_are_those_of_an_encoder_that_there_is(tmp_path):
    facts = dict.fromkeys(("name", "method", "base_model", "pooling", "missing_tasks", "tokenizer", "training"), "") | {
        "max_seq_length": 12,
        **run_mark("run", {}),
    }
    for changes, says in (
        ({"hidden_size": "x"}, "hidden_size='x'"),
        ({"import": 1}, "encoder has the unknown entry 'import'"),
        ({"model_type": "t5"}, "t5"),
    ):
        (tmp_path / "model.json").write_text(json.dumps({**facts, "encoder": {**CONFIG, **changes}}))
        assert says in problem(read_metadata, tmp_path, names=tmp_path / "model.json")
    (tmp_path / "model.json").write_text(json.dumps({"encoder": CONFIG, **run_mark("run", {})}))
    assert "it has no name" in problem(read_metadata, tmp_path)


def test_damaged_vectors_are_one_line(tmp_path):
    np.save(tmp_path / "000000.npy", np.zeros((2, 3), np.float32))
    (tmp_path / "vectors.json").write_text(signed(VECTORS))

    def rows(folder):
        with contextlib.suppress(ValueError, TypeError, RecursionError):  # what is not JSON, or not an object, stays as it is
            (folder / "vectors.json").write_text(signed(json.loads((folder / "vectors.json").read_bytes())))
        vectors = Vectors(folder, verify=False)
        assert vectors[0 : len(vectors)].shape == vectors.shape

    assert changed_json(tmp_path, "vectors.json", 500, rows, (DataError,)) > 100
    for ranges in ([[10**400] * 3] * 2, [[1e308] * 3] * 2, [[float("nan")] * 3] * 2, [[0.0] * 2] * 2):
        (tmp_path / "vectors.json").write_text(signed(VECTORS | {"ranges": ranges}))
        with pytest.raises(DataError, match="is damaged"):
            Vectors(tmp_path, verify=False)
    (tmp_path / "vectors.json").write_text(signed(VECTORS))
    file, draw = tmp_path / "000000.npy", random.Random(SEED)
    content = file.read_bytes()
    headers = (b"(" * 5000, b"-" * 9000 + b"1", b"{'descr':", b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }")
    headers += tuple(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % shape for shape in ((2**62, 4), (-1, 3), (2, 0))
    )
    for header in headers:
        file.write_bytes(content[:8] + struct.pack("<H", len(header)) + header + bytes(24))
        with pytest.raises(DataError) as caught:
            Vectors(tmp_path, verify=False)
        assert_line(caught.value)
    for _ in range(300):
        file.write_bytes(spoiled(content, draw))
        try:
            rows(tmp_path)
        except DataError as error:
            assert_line(error)


@pytest.mark.parametrize("depth", [*range(900, 1000, 7), 1500, 200_000])
def test_values_nested_to_any_depth_are_one_line(folder, depth):
    for name, key in (("config.json", "hidden_size"), ("config.json", "architectures"), ("tokenizer_config.json", "auto_map")):
        content = (folder / name).read_text()
        (folder / name).write_text(f'{content.rstrip().rstrip("}")}, "{key}": {"[" * depth}{"]" * depth}}}')
        try:
            load(folder)
        except ModelFileError as error:
            assert_line(error)
        (folder / name).write_text(content)


def test_a_description_of_many_megabytes_is_not_read(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG | {"x": "y" * JSON_LIMIT}))
    assert "bytes, more than" in problem(read_parts, folder, names=folder / "config.json")


def test_roberta_positions_that_begin_behind_the_last_are_refused(folder):
    change_json(folder / "config.json", model_type="roberta", pad_token_id=10)
    assert "pad_token_id=10 leaves no position" in problem(read_max_seq_length, folder, names=folder)
    change_json(folder / "config.json", pad_token_id=9)
    assert read_max_seq_length(folder) == 2


def test_a_panic_of_the_tokenizer_is_one_line():
    panic = type("PanicException", (BaseException,), {})  # the binding raises a BaseException that is not an Exception
    with pytest.raises(ModelFileError, match=r"^x\.json is damaged: first; download or export the model again$"), damage("x.json"):
        raise panic("first\nsecond")

"""What is read from sentence-transformers directories, and that their files cannot lead outside or name code."""

import json
import re
import sys

import pytest

from jax_sentemb.errors import ModelFileError
from jax_sentemb.files import read_json, sha256
from jax_sentemb.formats.model_dir import check_hashes, read_readout, transformer_folder
from jax_sentemb.provenance import EXPORT, KEY, mark

OLD = "sentence_transformers.models."
NEW = ("sentence_transformers.base.modules.transformer.", "sentence_transformers.sentence_transformer.modules.pooling.")


def write_modules(root, *modules, pooling=None):
    (root / "modules.json").write_text(json.dumps([{"idx": 0, "type": kind, "path": path} for kind, path in modules]))
    if pooling is not None:
        (root / "1_Pooling").mkdir()
        (root / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return root


def test_a_plain_directory_is_one_transformer_and_says_no_pooling(tmp_path):
    assert transformer_folder(tmp_path) == tmp_path
    assert read_readout(tmp_path).pooling is None
    assert not read_readout(tmp_path).normalize


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": True}, "mean"),
        ({"embedding_dimension": 8, "pooling_mode": "mean"}, "mean"),
    ],
)
def test_pooling_of_old_and_new_directories(tmp_path, pooling, expected):
    root = write_modules(tmp_path, (OLD + "Transformer", ""), (OLD + "Pooling", "1_Pooling"), pooling=pooling)
    assert read_readout(root).pooling == expected
    assert not read_readout(root).normalize


def test_new_class_paths_folders_and_normalisation(tmp_path):
    modules = [
        (NEW[0] + "Transformer", "0_Transformer"),
        (NEW[1] + "Pooling", "1_Pooling"),
        (OLD + "Normalize", "2_Normalize"),
    ]
    root = write_modules(tmp_path, *modules, pooling={"pooling_mode": "cls"})
    assert transformer_folder(root) == root / "0_Transformer"
    assert read_readout(root).pooling == "cls"
    assert read_readout(root).normalize


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": "lasttoken"},
        {"pooling_mode": ["cls", "mean"]},
        {"pooling_mode": {"a": 1}},
        {},
    ],
)
def test_poolings_that_we_cannot_compute_are_refused(tmp_path, pooling):
    root = write_modules(tmp_path, (OLD + "Transformer", ""), (OLD + "Pooling", "1_Pooling"), pooling=pooling)
    with pytest.raises(ModelFileError, match="neither cls nor mean"):
        read_readout(root)


def test_modules_that_change_the_embedding_are_refused(tmp_path):
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_N"), ("LayerNorm", "4")]
    for chosen in (modules[1:3], [modules[0], modules[2], modules[1]], modules[:2] + modules[3:1:-1], [*modules[:2], modules[4]]):
        (root := tmp_path / "+".join(kind for kind, _ in chosen)).mkdir()
        write_modules(root, *((OLD + kind, path) for kind, path in chosen), pooling={"pooling_mode": "cls"})
        with pytest.raises(ModelFileError, match=f"modules {re.escape(' + '.join(kind for kind, _ in chosen))} are not supported"):
            read_readout(root)
    with pytest.raises(ModelFileError, match="first module is WordEmbeddings"):
        transformer_folder(write_modules(tmp_path, (OLD + "WordEmbeddings", "")))


@pytest.mark.parametrize("path", ["../x", "/etc", "C:\\x", "a/../../x", "nul\0", "out", None, 3])
def test_module_paths_stay_inside_the_directory(tmp_path, path):
    root = tmp_path / "model"
    root.mkdir()
    (tmp_path / "x").mkdir()
    (root / "out").symlink_to(tmp_path / "x")
    write_modules(root, (OLD + "Transformer", path))
    with pytest.raises(ModelFileError, match="leads out of"):
        transformer_folder(root)


@pytest.mark.parametrize("kind", ["os.system", "modeling_evil.Transformer", "", None, ["sentence_transformers.x"]])
def test_code_that_a_file_names_is_not_imported(tmp_path, monkeypatch, kind):
    (tmp_path / "modeling_evil.py").write_text("raise SystemExit('ran')")
    monkeypatch.syspath_prepend(tmp_path)
    write_modules(tmp_path, (kind, ""))
    with pytest.raises(ModelFileError, match="is not a module of sentence-transformers"):
        transformer_folder(tmp_path)
    assert "modeling_evil" not in sys.modules


@pytest.mark.parametrize("text", ["{}", "[]", "[1]", '[{"type": "sentence_transformers.models.Transformer"}]', "[", "[" * 200_000])
def test_damaged_module_lists_are_refused(tmp_path, text):
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(ModelFileError, match=r"modules\.json"):
        transformer_folder(tmp_path)


def test_a_changed_file_is_found_where_a_manifest_lists_it(tmp_path):
    file, other = tmp_path / "model.safetensors", tmp_path / "README.md"
    file.write_bytes(b"weights")
    other.write_text("a model")
    check_hashes(tmp_path)  # no manifest
    marked = {KEY: mark(EXPORT, {}), "sha256": {each.name: sha256(each) for each in (file, other)}}
    (tmp_path / "jax_sentemb.json").write_text(json.dumps(marked))
    other.write_text("edited by its owner")
    check_hashes(tmp_path)
    file.write_bytes(b"weighty")
    with pytest.raises(ModelFileError, match=r"model\.safetensors has changed since the export"):
        check_hashes(tmp_path)
    file.unlink()
    with pytest.raises(ModelFileError, match=r"model\.safetensors: No such file"):
        check_hashes(tmp_path)


def test_json_of_the_wrong_kind_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('"text"')
    with pytest.raises(ModelFileError, match="holds a str, expected a dict"):
        read_json(tmp_path / "a.json")

"""Small sentence encoders of each architecture, and the vectors that sentence-transformers gives for them."""

import json

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file
from tokenizers import models, pre_tokenizers, processors

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.files import write_json
from jax_sentemb.formats.modules import dense_files
from jax_sentemb.inference.load import load
from jax_sentemb.models.families.family import GENERIC
from jax_sentemb.models.families.table import FAMILIES

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = [
    "The capital of France is Paris.", "HELLO, \u00c4pfel na\u00efve caf\u00e9", "\u65e5\u672c\u8a9e text",
    " two  spaces\tand\nlines ", "long " + "word Another thing " * 30, "a [e1] zzyzx b", "",
]  # fmt: skip
WORDS = [text.replace("zzyzx", "z y x") for text in TEXTS]  # of vocabularies: "zzyzx" is a new token
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "initializer_range": 0.4}
EXTRA = {  # keys without which a model of the family would be too large, or not have what is particular to it
    "modernbert": {
        "local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 1, "cls_token_id": 0, "sep_token_id": 2,
        "bos_token_id": 0, "eos_token_id": 2,
    },
    "electra": {"embedding_size": 12},
}  # fmt: skip
ROBERTAS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SPECIALS = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]


def named(tokens):
    return dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), tokens, strict=True))


def word_pieces():
    return tokenizers.Tokenizer.from_str(Tokenizer.train(WORDS * 3, 150).serialized), named(SPECIALS)


def word_pieces_of_mpnet():
    state = json.loads(Tokenizer.train(WORDS * 3, 150).serialized)
    known = [*ROBERTAS, "[UNK]", *(piece for piece in state["model"]["vocab"] if not piece.startswith("["))]
    state["model"]["vocab"] = {piece: number for number, piece in enumerate(known)}
    tokens = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
    inner = tokenizers.Tokenizer.from_str(json.dumps({**state, "added_tokens": [], "post_processor": None}))
    inner.add_special_tokens(list(tokens))
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return inner, named(tokens)


def sentence_piece(first, unused=()):
    """A SentencePiece vocabulary with these first pieces, of which some are special without a role."""
    letters = sorted({letter for text in TEXTS for letter in text if not letter.isspace()} - {"<"})
    pieces = ["\u2581", "\u2581the", "ing", "\u2581a", "or", *letters]
    vocabulary = [(name, 0.0) for name in first] + [(piece, -2.0 - len(piece) / 9) for piece in pieces] + [("<mask>", 0.0)]
    inner = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=3))
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    inner.add_special_tokens([*ROBERTAS, *unused])
    ends = [(name, inner.token_to_id(name)) for name in ("<s>", "</s>")]
    inner.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", ends)
    return inner, named(ROBERTAS) | ({"additional_special_tokens": list(unused)} if unused else {})


def byte_level(specials):
    inner = tokenizers.ByteLevelBPETokenizer(lowercase=False)
    inner.train_from_iterator(WORDS, vocab_size=320, min_frequency=1, special_tokens=specials, show_progress=False)
    ends = [(specials[0], 0), (specials[2], 2)]
    inner._tokenizer.post_processor = processors.TemplateProcessing(f"{specials[0]} $A {specials[2]}", None, ends)
    return inner._tokenizer, named(specials)


# Tokenizer class of a family -> its tokenizer.json, and the special tokens of tokenizer_config.json.
TOKENIZERS = {
    "BertTokenizer": word_pieces,
    "MPNetTokenizer": word_pieces_of_mpnet,
    "RobertaTokenizer": lambda: byte_level(ROBERTAS),
    "XLMRobertaTokenizer": lambda: sentence_piece(ROBERTAS[:4]),
    "CamembertTokenizer": lambda: sentence_piece(CAMEMBERTS, ("<s>NOTUSED", "</s>NOTUSED")),
    "PreTrainedTokenizer": lambda: byte_level(SPECIALS),
}
CAMEMBERTS = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]


def tokenizer_of(family):
    """A tokenizer.json as the family has it, and the settings that belong to it."""
    name = FAMILIES[family].tokenizer_class
    inner, settings = TOKENIZERS[name]()
    name = f"{name}Fast" if name == GENERIC else name
    return inner, {"tokenizer_class": name, **({"do_lower_case": True} if has_vocabulary(family) else {}), **settings}


def has_vocabulary(family):
    """Whether the tokenizer can be a vocab.txt."""
    row = FAMILIES[family]
    return row.tokenizer_class != GENERIC and {*row.tokenizer_classes.values()} == {"WordPiece"}


def config_of(family, size, **fields):
    """The configuration of a small model in transformers; `fields` are those of its config here."""
    row = FAMILIES[family]
    fields = {"vocab_size": size, "max_position_embeddings": 66, **SIZES, **EXTRA.get(family, {}), **fields}
    return getattr(transformers, f"{row.class_prefix}Config")(**{row.keys.get(name, name): value for name, value in fields.items()})


def build_originals(tmp_path_factory):
    """A sentence encoder of each family, as sentence-transformers keeps it: mean pooling, a dense layer, unit length."""
    folders = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family) / "model"
        inner, settings = tokenizer_of(family)
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config_of(family, inner.get_vocab_size() + 4))
        model.save_pretrained(folder)
        inner.save(str(folder / "tokenizer.json"))
        write_json(folder / "tokenizer_config.json", {**settings, "model_max_length": 64})
        if has_vocabulary(family):
            pieces = sorted(inner.get_vocab(), key=inner.get_vocab().__getitem__)
            (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": False})
        write_json(folder / "config_sentence_transformers.json", {"prompts": {}, "similarity_fn_name": "cosine"})
        kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_Normalize")]
        listed = [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for place, (kind, path) in enumerate(kinds)
        ]
        write_json(folder / "modules.json", listed)
        for _, path in kinds[1:]:
            (folder / path).mkdir()
        write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True})
        random = np.random.default_rng(0)
        layer = {"kernel": random.normal(size=(16, 12)), "bias": random.normal(size=12)}
        content, tensors = dense_files("tanh", layer)
        write_json(folder / "2_Dense/config.json", content)
        save_file(tensors, folder / "2_Dense/model.safetensors")
        write_json(folder / "3_Normalize/config.json", {})
        folders[family] = folder
    return folders


def edited(folder, name, change):
    """Merge a change into a JSON file; each entry of modules.json gets it."""
    content = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).is_file() else {}
    write_json(folder / name, [{**entry, **change} for entry in content] if isinstance(content, list) else merged(content, change))


def merged(content, change):
    """Merge nested dictionaries; a value at a dotted name goes inside."""
    result = dict(content)
    for name, value in change.items():
        outer, _, inner = name.partition(".")
        result[outer] = merged(result.get(outer) or {}, {inner: value}) if inner else value
    return result


def theirs(folder):
    options = {"dtype": "float32"}  # they would compute in the precision of the file
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu", model_kwargs=options, local_files_only=True)


def compare(folder, texts=TEXTS):
    ours = load(folder)(texts)
    np.testing.assert_allclose(ours, theirs(folder).encode(texts), atol=1e-5)

"""Attack with the files next to the weights: wrong values of every key, unknown keys, damaged files, files of other programs."""

import json
import os

from commands import ROOT, case, corpus, encode, model, refused, run

FILES = (
    "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "Pooling", "Dense", "Normalize",
    "special_tokens_map.json", "added_tokens.json", "tokenizer.json", "tokenizer_config.json", "config.json of bert",
    "config.json of distilbert", "config.json of roberta", "config.json of xlm-roberta", "config.json of mpnet",
    "config.json of modernbert",
)  # fmt: skip

for file in FILES:

    @case(26, f"wrong values of every key: {file}")
    def wrong_values(file=file):
        seed = os.environ.get("JAX_SENTEMB_SEED", "0")
        program = str(ROOT / "benchmarks" / "attack" / "wrong_values.py")
        path = f"{ROOT}:{ROOT / 'tests'}"
        environment = {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        _, out, err = run(file, seed, python=(program,), env=environment, processor=1800)
        result = json.loads((out.strip().splitlines() or ["{}"])[-1] or "{}")
        assert result, f"no result: {err[-200:]}"
        assert not result["problems"], f"{len(result['problems'])} of {result['tried']}: {'; '.join(result['problems'])}"


for name in ("adapter_config.json", "processor_config.json", "preprocessor_config.json"):

    @case(26, f"a {name}")
    def other_program(name=name):
        folder, text = model(), corpus(20)
        (folder / name).write_text("{}", encoding="utf-8")
        (folder / "jax_sentemb.json").unlink()
        refused(4, *encode(folder, text, text.parent / "x.npy"), named=name)

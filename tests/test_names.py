"""Each module has a test file of its name, or is listed with the file that tests it; a test file of another name has a reason."""

from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "jax_sentemb"
# Modules that are one subject for their tests, such as the parts of a report or the baselines on word vectors.
TESTED_IN = {
    "test_dedup.py": "data/record_copies",
    "test_batches.py": "data/epoch_order",
    "test_bad_input.py": "cli/program cli/cut_files config",
    "test_changeable_settings.py": "inference/similarity",
    "test_check.py": "cli/recommend data/corpus data/quality",
    "test_checkpoint.py": "formats/manifest",
    "test_vector_records.py": "retrieval/vector_files",
    "test_collection.py": "__main__ cli/cluster cli/encode cli/mine retrieval/quantize retrieval/vector_store",
    "test_chunks.py": "data/sentence_ends",
    "test_cons_sent.py": "data/perturb",
    "test_distill.py": "inference/static",
    "test_encoder.py": "inference/hub inference/token_embeddings",
    "test_download.py": "evaluation/downloaded",
    "test_examples.py": "data/copies",
    "test_evaluate.py": "evaluation/suite",
    "test_evaluate_files.py": (
        "evaluation/beir_files evaluation/bm25 evaluation/pair_task evaluation/retrieval_task evaluation/user_scores "
        "evaluation/user_tables evaluation/user_task inference/encoded_texts"
    ),
    "test_export.py": "inference/verify",
    "test_hostile_files.py": "data/tokenizer_checks formats/run_dir inference/load",
    "test_corpus_map.py": "cli/map reporting/map_page",
    "test_html_report.py": (
        "cli/report reporting/html_parts reporting/report_data reporting/report_sections reporting/samples reporting/svg"
    ),
    "test_families.py": (
        "formats/config_json models/architectures models/bert_config models/modern_bert models/mpnet models/families/camembert "
        "models/families/distilbert models/families/electra models/families/family models/families/modern_bert "
        "models/families/mpnet models/families/roberta models/families/table models/families/weights"
    ),
    "test_huggingface.py": "formats/tensors formats/weight_table",
    "test_recipes.py": "paper_configs",
    "test_losses.py": ("losses/arrays losses/context losses/contrastive losses/information losses/similarities losses/words"),
    "test_anchor.py": "methods/wrapped",
    "test_matryoshka.py": "evaluation/widths",
    "test_layers.py": "models/attention models/self_attention",
    "test_modules.py": "models/dense",
    "test_plots.py": "reporting/plot_data",
    "test_corpus_files.py": "data/conversion",
    "test_run.py": "training/results training/run_metadata training/setup",
    "test_sbert.py": "methods/cross_encoder methods/labelled_pairs",
    "test_search.py": "retrieval/index",
    "test_sentence_transformers.py": "models/heads",
    "test_simcse.py": "methods/views",
    "test_tsdae.py": "models/decoder",
    "test_side_files.py": "data/tokenizer_classes data/tokenizer_files side_files/reader side_files/config_keys side_files/keys",
    "test_starting_encoder.py": "methods/through_dense",
    "test_sts.py": "evaluation/sts_data",
    "test_sweep.py": "reporting/low_shot reporting/sweep_table training/sweep_sources",
    "test_tables.py": "data/delimited",
    "test_trainer.py": "training/evaluator training/loop training/signals",
    "test_vector_manifest.py": "retrieval/vector_parts",
    "test_word_baselines.py": "methods/infer_sent methods/language_model methods/quick_thoughts methods/word_average",
    "test_word_model.py": "evaluation/model_spec inference/build inference/views",
}
OF_THE_WHOLE = {
    "test_families.py": "all families of architectures",
    "test_side_files.py": "the files beside the weights",
    "test_study_choosing_models.py": "experiments/choosing_models",
    "test_study_baselines.py": "experiments/baselines.py",
    "test_study_commands.py": "commands in the READMEs of experiments/",
    "test_study_data.py": "experiments/data.py",
    "test_study_distil.py": "experiments/stronger/distil.py",
    "test_study_runs.py": "commands in the READMEs of experiments/, run on tiny data",
    "test_threads.py": "what threads may share",
    "test_attention_figures.py": "experiments/attention_figures",
    "test_architecture.py": "the way from the command to the gradient",
    "test_end_to_end.py": "commands with nothing replaced",
    "test_evidence.py": "docs/evidence.py",
    "test_bad_input.py": "what users get wrong, in every command",
    "test_bert_scan.py": "models/bert.py with layers under a scan, beside test_bert.py",
    "test_contract.py": "promises that every recipe keeps",
    "test_deploying.py": "the code for databases in docs/deploying.md",
    "test_docs.py": "README.md and docs/",
    "test_docs_names.py": "what README.md and docs/ name",
    "test_docs_prose.py": "sentences of README.md, docs/ and the studies",
    "test_derived_exports.py": "what exports were made from, of all types",
    "test_derived_vectors.py": "what vectors and indexes were made from, through the commands",
    "test_headers.py": "files that are refused by their headers, of all readers",
    "test_continued_runs.py": "what a run keeps when it is continued, also with other settings",
    "test_faults.py": "processes that are killed, stopped and starved",
    "test_hostile_files.py": "damaged and hostile model files",
    "test_imports.py": "the directions of imports",
    "test_losses.py": "all losses",
    "test_minilm.py": "real weights",
    "test_mteb.py": "mteb on an export",
    "test_mutants.py": "tests/mutants.py",
    "test_names.py": "this file",
    "test_notebooks.py": "docs/notebooks/",
    "test_packaging.py": "pyproject.toml, setup.py and the files of constraints",
    "test_published_files.py": "folders of this machine in what commands write",
    "test_ray.py": "Ray Data",
    "test_robustness.py": "what other processes, terminals, disks and directories do to a command",
    "test_serving.py": "the service in docs/deploying.md",
    "test_topics.py": "the code for other libraries in docs/topics.md",
    "test_soak.py": "hours of training with faults",
}


def modules():
    paths = (path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py"))
    return {path for path in paths if not path.endswith("__init__")}


def own_test(module):
    return f"test_{module.rpartition('/')[2]}.py"


FILES = {path.name for path in TESTS.glob("test_*.py")}
LISTED = {module: file for file, listed in TESTED_IN.items() for module in listed.split()}


def test_each_module_has_a_test_file():
    assert sorted(module for module in modules() if own_test(module) not in FILES and module not in LISTED) == []
    assert set(TESTED_IN) <= FILES


def test_the_list_names_only_modules_that_have_no_file_of_their_own():
    assert sorted(module for module in LISTED if module not in modules() or own_test(module) in FILES) == []


def test_each_test_file_has_the_name_of_a_module_or_a_reason():
    named = {own_test(module) for module in modules()}
    assert sorted(FILES - named - set(OF_THE_WHOLE)) == []
    assert sorted(set(OF_THE_WHOLE) - FILES) == []
    assert not named & set(OF_THE_WHOLE)

"""List the evaluation sets: a row for each, with its files, spellings, published counts and the averages that include it.

To add a set, add its row. A file format that no row has yet also needs a function that reads it.
"""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jax_sentemb.data.delimited import decode_file, numbered_lines
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.evaluation import arguments, sts_data, tasks
from jax_sentemb.evaluation.arguments import AFS_TOPICS, ArgumentTask
from jax_sentemb.evaluation.downloaded import check_download
from jax_sentemb.evaluation.sts_data import StsSpec
from jax_sentemb.evaluation.tasks import TaskSpec


class AbsentSet(DataError):
    """Report that a folder does not have an evaluation set."""


class ArgumentSpec(NamedTuple):
    """The files of a corpus of argument pairs."""

    files: tuple[str, ...]
    pairs: int | None = None  # published counts
    topics: int | None = None


class HubSource(NamedTuple):
    """A data set on the Hugging Face hub."""

    name: str
    config: str | None
    layout: str  # the file format in which its rows are written: a key of download.LAYOUTS
    splits: dict[str, tuple[str, ...]]  # split in our files -> splits on the hub


class EvalSet(NamedTuple):
    """A row of the table."""

    name: str
    group: str  # "sts", "transfer", "probing" or "arguments"
    spec: StsSpec | TaskSpec | ArgumentSpec
    short: str = ""  # name in tables; "": `name`
    aliases: tuple[str, ...] = ()  # spellings of papers and other toolkits: lower case and digits only
    averaged: bool = True  # whether the mean of the group includes it
    development: bool = False  # for model selection, not for reports
    hub: HubSource | None = None

    def files(self, root: Path, optional: bool = False) -> list[Path]:
        """Return the paths below a SentEval folder, whether or not they exist; `optional` as for `sts_files`."""
        if isinstance(self.spec, StsSpec):
            return [file for files in sts_data.sts_files(self.spec, root, optional).values() for file in files]
        files = self.spec.files if isinstance(self.spec, ArgumentSpec) else self.spec.files.values()
        return list(dict.fromkeys(root / file for file in files))


_SENTIMENT = ("0", "1")
_Reader = Callable[[Path, str], Iterator[tasks.Example]]
_BENCHMARK = "downstream/STS/STSBenchmark"
_BENCHMARK_HUB = HubSource(
    "mteb/stsbenchmark-sts", None, "benchmark", {"train": ("train",), "dev": ("validation",), "test": ("test",)}
)
# Values of the third column of STS-B dev whose pairs are in none of the sets STS12 to STS16.
_DISJOINT_YEARS = ("2012train", "2017")


def _year(year: int, pairs: int, subsets: tuple[str, ...], optional: tuple[str, ...] = ()) -> EvalSet:
    """Return the row of a year of STS. Subsets have the names of SentEval's files; the hub has one file for all of them."""

    def files(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        folder = f"downstream/STS/STS{year}-en-test"
        return {name: tuple(f"{folder}/STS.{side}.{name}.txt" for side in ("input", "gs")) for name in names}

    spec = StsSpec(files(subsets), pairs, sts_data.read_year, files(("all",)), files(optional))
    return EvalSet(f"STS{year}", "sts", spec, hub=HubSource(f"mteb/sts{year}-sts", None, "year", {"test": ("test",)}))


def one_file(split: str, file: str, pairs: int, read: Callable[..., sts_data.ScoredPairs]) -> StsSpec:
    """Return the spec of a set that is one file below `downstream`."""
    return StsSpec({split: (f"downstream/{file}",)}, pairs, read)


def _read_disjoint(path: Path) -> sts_data.ScoredPairs:
    """Read the pairs of STS-B dev that are in no scored set."""
    lines = numbered_lines(decode_file(path))
    if not any(line.split("\t")[2:3] in ([year] for year in _DISJOINT_YEARS) for _, line in lines):
        raise AbsentSet(f"{path}: no pair is from {' or '.join(_DISJOINT_YEARS)}; use another development set")
    pairs, root = sts_data.read_benchmark(path, _DISJOINT_YEARS), path.parents[3]
    scored = [SETS[name].spec for name in ("STS12", "STSBenchmark-test", "SICKRelatedness-test")]
    subsets = [(spec, files) for spec in scored if isinstance(spec, StsSpec) for files in sts_data.sts_files(spec, root).values()]
    disjoint = sts_data.without(pairs, [spec.read(*files) for spec, files in subsets if files[0].is_file()])
    if len(set(disjoint.gold)) < 2:
        raise DataError(f"{path}: {len(disjoint.gold)} of its pairs are in no scored set, too few; use another development set")
    return disjoint


def _task(
    folder: str, procedure: str, files: dict[str, tuple[str, int]], read: _Reader, classes: tuple[str, ...] = (),
    pairs: bool = False, has_f1: bool = False,
) -> TaskSpec:  # fmt: skip
    """Return a spec from {split or class: (file below `folder`, published count)}."""
    paths = {split: f"{folder}/{file}" for split, (file, _) in files.items()}
    return TaskSpec(procedure, paths, {split: count for split, (_, count) in files.items()}, read, classes, pairs, has_f1)


def _two_classes(
    name: str, folder: str, positive: tuple[str, int], negative: tuple[str, int], hub: HubSource | None = None
) -> EvalSet:
    """Return the row of a task of two files: first the file with label 1, then the file with label 0, as in SentEval."""
    spec = _task(f"downstream/{folder}", "nested", {"1": positive, "0": negative}, tasks.read_class, _SENTIMENT)
    return EvalSet(name, "transfer", spec, hub=hub)


def _three_splits(files: tuple[str, str, str], counts: tuple[int, int, int]) -> dict[str, tuple[str, int]]:
    return dict(zip(("train", "dev", "test"), zip(files, counts, strict=True), strict=True))


def _probing(name: str, file: str, short: str = "", aliases: tuple[str, ...] = (), has_hidden_layer: bool = True) -> EvalSet:
    files = _three_splits((f"{file}.txt", f"{file}.txt", f"{file}.txt"), (100_000, 10_000, 10_000))
    spec = _task("probing", "split", files, tasks.read_probing)._replace(has_hidden_layer=has_hidden_layer)
    return EvalSet(name, "probing", spec, short, aliases)


DISJOINT_DEV = "STSBenchmark-dev-disjoint"  # pairs of STS-B dev that are in no scored set

_SST_FILES = ("sentiment-train", "sentiment-dev", "sentiment-test")
_SICK = _three_splits(("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"), (4500, 500, 4927))
_SICK_CLASSES = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

_ROWS = (
    _year(12, 3108, ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")),
    # SentEval has no SMT, because its licence does not allow redistribution. Papers that score SentEval's files leave it out; older
    # papers (SIF, Tang and de Sa) include it. See StsProtocol.smt.
    _year(13, 1500, ("FNWN", "headlines", "OnWN"), ("SMT",)),
    _year(14, 3750, ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news")),
    _year(15, 3000, ("answers-forums", "answers-students", "belief", "headlines", "images")),
    _year(16, 1186, ("answer-answer", "headlines", "plagiarism", "postediting", "question-question")),
    EvalSet(
        "STSBenchmark-dev", "sts", one_file("dev", "STS/STSBenchmark/sts-dev.csv", 1500, sts_data.read_benchmark), "STS-B dev",
        ("stsbdev",), False, True, _BENCHMARK_HUB,
    ),
    EvalSet(
        DISJOINT_DEV, "sts", one_file("dev", "STS/STSBenchmark/sts-dev.csv", 363, _read_disjoint),
        "STS-B dev disjoint", ("stsbdevdisjoint",), False, True, _BENCHMARK_HUB,
    ),
    EvalSet(
        "STSBenchmark-test", "sts", one_file("test", "STS/STSBenchmark/sts-test.csv", 1379, sts_data.read_benchmark), "STS-B",
        ("stsb", "stsbtest"), hub=_BENCHMARK_HUB,  # STSBenchmark alone is SentEval's supervised task
    ),
    EvalSet(
        "SICKRelatedness-trial", "sts", one_file("trial", "SICK/SICK_trial.txt", 500, sts_data.read_sick), "SICK-R trial",
        ("sickrtrial", "sickrdev"), False, True,
    ),
    EvalSet(
        "SICKRelatedness-test", "sts", one_file("test", "SICK/SICK_test_annotated.txt", 4927, sts_data.read_sick), "SICK-R",
        ("sickr", "sickrtest"),
    ),
    _two_classes(
        "MR", "MR", ("rt-polarity.pos", 5331), ("rt-polarity.neg", 5331),
        HubSource("cornell-movie-review-data/rotten_tomatoes", None, "reviews", {"all": ("train", "validation", "test")}),
    ),
    _two_classes("CR", "CR", ("custrev.pos", 2407), ("custrev.neg", 1368)),
    _two_classes("SUBJ", "SUBJ", ("subj.objective", 5000), ("subj.subjective", 5000)),
    _two_classes("MPQA", "MPQA", ("mpqa.pos", 3312), ("mpqa.neg", 7294)),
    EvalSet(
        "SST2", "transfer",
        _task("downstream/SST/binary", "split", _three_splits(_SST_FILES, (67349, 872, 1821)), tasks.read_sst2, _SENTIMENT),
        aliases=("sst",),
    ),
    EvalSet(
        "SST5", "transfer",
        _task("downstream/SST/fine", "split", _three_splits(_SST_FILES, (8544, 1101, 2210)), tasks.read_sst5, tuple("01234")),
        averaged=False,
    ),
    EvalSet(
        "TREC", "transfer",
        _task(
            "downstream/TREC", "kfold", {"train": ("train_5500.label", 5452), "test": ("TREC_10.label", 500)}, tasks.read_trec,
            _TREC_CLASSES,
        ),
    ),
    EvalSet(
        "MRPC", "transfer",
        _task(
            "downstream/MRPC", "kfold", {"train": ("msr_paraphrase_train.txt", 4076), "test": ("msr_paraphrase_test.txt", 1725)},
            tasks.read_mrpc, _SENTIMENT, pairs=True, has_f1=True,
        ),
        hub=HubSource("nyu-mll/glue", "mrpc", "paraphrases", {"train": ("train", "validation"), "test": ("test",)}),
    ),
    EvalSet(
        "SICKEntailment", "transfer", _task("downstream/SICK", "split", _SICK, tasks.read_sick_labels, _SICK_CLASSES, pairs=True),
        "SICK-E", ("sicke",), averaged=False,
    ),
    EvalSet(
        "SICKRelatedness", "transfer", _task("downstream/SICK", "relatedness", _SICK, tasks.read_sick_scores, pairs=True), "SICK-R",
        averaged=False,
    ),
    EvalSet(
        "STSBenchmark", "transfer",
        _task(
            _BENCHMARK, "relatedness", _three_splits(("sts-train.csv", "sts-dev.csv", "sts-test.csv"), (5749, 1500, 1379)),
            tasks.read_benchmark, pairs=True,
        ),
        "STS-B", averaged=False, hub=_BENCHMARK_HUB,
    ),
    _probing("Length", "sentence_length"),
    _probing("WordContent", "word_content", has_hidden_layer=False),  # it has 1,000 classes
    _probing("Depth", "tree_depth"),
    _probing("TopConstituents", "top_constituents", "TopConst", ("topconst",)),
    _probing("BigramShift", "bigram_shift"),
    _probing("Tense", "past_present"),
    _probing("SubjNumber", "subj_number"),
    _probing("ObjNumber", "obj_number"),
    _probing("OddManOut", "odd_man_out"),
    _probing("CoordinationInversion", "coordination_inversion", "CoordInv", ("coordinv",)),
    EvalSet("AFS", "arguments", ArgumentSpec(tuple(f"downstream/AFS/ArgPairs_{topic}.csv" for topic in AFS_TOPICS))),
    EvalSet("UKP_ASPECT", "arguments", ArgumentSpec(("downstream/AFS/UKP_ASPECT.tsv",), 3595, 28), aliases=("ukp",)),
)  # fmt: skip
SETS = {row.name: row for row in _ROWS}
GROUPS = {group: tuple(row.name for row in _ROWS if row.group == group) for group in ("sts", "transfer", "probing", "arguments")}
DEVELOPMENT = tuple(row.name for row in _ROWS if row.development)
# The seven sets of the papers' average.
SEVEN = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark-test", "SICKRelatedness-test")


def select(text: str, setting: str = "--tasks") -> list[tuple[str, bool]]:
    """Return the sets of a comma-separated list of sets and groups, with True for those named individually.

    Args:
        text: Names such as "STS12, sick-r, probing".
        setting: The setting that the text comes from, for messages.

    Raises:
        ConfigError: A name is unknown, or the list is empty.
    """
    chosen: dict[str, bool] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        if word == "all":
            chosen = dict.fromkeys(SETS, False) | chosen
        elif word in GROUPS:
            chosen = dict.fromkeys(GROUPS[word], False) | chosen
        elif name := set_name(word):
            chosen[name] = True
        else:
            spellings = _spellings()
            close = difflib.get_close_matches(_letters(word), spellings, 1)
            hint = f"did you mean {spellings[close[0]]}? " if close else ""
            raise ConfigError(
                Setting(setting, word),
                f" is unknown; the groups are {', '.join(GROUPS)}, all; {hint}jax-sentemb evaluate --tasks help lists the tasks",
            )
    if not chosen:
        raise ConfigError(Setting(setting), " is empty: name tasks or groups, for instance ", Setting(setting, "sts,transfer"))
    order = list(SETS)
    return sorted(chosen.items(), key=lambda entry: order.index(entry[0]))


def set_name(word: str) -> str:
    """Return the name of the set that `word` spells in any usual way (STS-B, sick_r, SST-2), "" if there is none."""
    return word if word in SETS else _spellings().get(_letters(word), "")


def _spellings() -> dict[str, str]:
    """Return {letters and digits: name} of all names and aliases; an alias goes before a name."""
    return {_letters(name): name for name in SETS} | {alias: row.name for row in _ROWS for alias in row.aliases}


def _letters(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def heading(column: str) -> str:
    """Return the short form of a table's column: the name of a set, optionally followed by a space and a measure."""
    name, space, measure = column.partition(" ")
    return ((name in SETS and SETS[name].short) or name) + space + measure


def load_sts(folder: str | Path, required: bool = True) -> tuple[dict[str, sts_data.StsTask], list[str]]:
    """Return the similarity sets of a SentEval folder by name, and the names of the missing sets.

    Args:
        folder: A folder that contains `downstream`, or `downstream` itself.
        required: Whether at least one set must exist.

    Raises:
        DataError: A file is malformed, or no set exists and one is `required`.
    """
    root = sts_data.senteval_root(folder, "eval.data")
    loaded = {}
    for name in GROUPS["sts"]:
        with contextlib.suppress(AbsentSet):
            loaded[name] = load_sts_task(name, root)
    if not loaded and required:
        raise DataError(
            Setting("eval.data", str(folder)), " has no evaluation set: expected folders such as downstream/STS/STS12-en-test"
        )
    return loaded, [name for name in GROUPS["sts"] if name not in loaded]


def load_sts_task(name: str, root: Path, optional: bool = False) -> sts_data.StsTask:
    """Read a similarity set by its name. Other arguments are those of `sts_data.load_sts_task`.

    Raises:
        AbsentSet: No file of the set exists.
        DataError: A file is missing or malformed.
    """
    spec = SETS[name].spec
    assert isinstance(spec, StsSpec)
    check_is_there(name, root)
    return sts_data.load_sts_task(name, spec, root, optional)


def check_is_there(name: str, root: Path) -> None:
    """Raise AbsentSet if no file of a set exists, and DataError if it was downloaded and is damaged."""
    files = SETS[name].files(root)
    for folder in {file.parent for file in files}:
        check_download(folder)
    if not any(file.exists() for file in files):
        raise AbsentSet(f"{name}: {files[0]} is missing (jax-sentemb evaluate --check lists where files belong)")


def load_arguments(path: str | Path) -> ArgumentTask:
    """Read a corpus of argument pairs, with a warning if a known corpus does not have its published counts.

    Arguments and errors are those of `arguments.load_arguments`.
    """
    task = arguments.load_arguments(path)
    spec = SETS[task.name].spec if task.name in SETS else None
    pairs, topics = sum(len(scored.gold) for scored in task.topics.values()), len(task.topics)
    if not isinstance(spec, ArgumentSpec) or not spec.pairs or (pairs, topics) == (spec.pairs, spec.topics):
        return task
    published = f"the published {spec.pairs:,} on {spec.topics}"
    warning = f"{path}: {pairs:,} pairs on {topics} topics instead of {published}: scores are not comparable"
    return task._replace(warnings=(*task.warnings, warning))

"""Write corpora into a run's work directory: generated sentences, and the text of a SentEval task."""

from collections.abc import Iterable
from pathlib import Path

from jax_sentemb import config as settings
from jax_sentemb.data import synthetic
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.files import write_text
from jax_sentemb.training.argument_folds import is_split, split

NLI = ("contradiction", "neutral", "entailment")  # labels of generated pairs, each for a third of the score range
PROCESS = "{process}"  # in data.files: the number of the process, which reads only these files
PAIR_SEEDS = 1000  # added to the seeds of generated training pairs, so that they differ from the evaluation pairs


def corpus_files(data: settings.Data, senteval: str, workdir: Path, pairs: bool) -> tuple[str, str, str]:
    """Return the paths of the corpus, the columns to read, and the text that joins columns.

    The corpus is written to `workdir` if `data.files` does not name files. grammar:COUNT generates COUNT sentences or labelled
    pairs. senteval:TASK is all text of a task in the SentEval folder, without labels. senteval:TASK/PART is the text of one part
    (train, dev, test); with `pairs` it is the training part with labels. arguments:FILE is the pairs that `data.scheme` and
    `data.fold` leave for training, with scores from 0 to 5.
    """
    source, _, name = data.files.partition(":")
    if source == "grammar":
        if not name.isdecimal() or int(name) < 1:
            raise ConfigError(Setting("data.files", data.files), ": write grammar:COUNT, for instance grammar:20000")
        if not pairs:
            return _lines(workdir / "corpus.txt", synthetic.sentences(int(name), data.subset_seed)), data.column, data.join
        first, second, gold = synthetic.graded_pairs(int(name), data.subset_seed + PAIR_SEEDS, held_out=False)
        labels = [NLI[min(int(score * 3 / 5), 2)] for score in gold]
        return _pairs(workdir / "pairs.tsv", zip(first, second, gold, labels, strict=True)), data.column, data.join
    if source == "senteval":
        return _senteval(data, name, senteval, workdir, pairs), "text", ""
    if is_split(data):
        if not pairs:
            raise ConfigError(
                Setting("data.files", data.files),
                " are labelled pairs; for sentences give the table, and ",
                Setting("data.column", "sentence1,sentence2"),
            )
        return _pairs(workdir / "pairs.tsv", ((*row, "") for row in split(data).train)), data.column, data.join
    return data.files, data.column, data.join


def corpus_task(files: str) -> str:
    """Return the SentEval task that `files` names.

    Raises:
        ConfigError: `files` names no task.
    """
    source, _, name = files.partition(":")
    if source != "senteval":
        raise ConfigError(
            Setting("eval.tasks", "corpus"),
            " needs ",
            Setting("data.files", "senteval:TASK"),
            ", not ",
            Setting("data.files", files),
            ": name the tasks in ",
            Setting("eval.tasks"),
        )
    return name.partition("/")[0]


def _senteval(data: settings.Data, name: str, senteval: str, workdir: Path, pairs: bool) -> str:
    from jax_sentemb.evaluation.catalog import SETS, check_is_there
    from jax_sentemb.evaluation.sts_data import senteval_root
    from jax_sentemb.evaluation.tasks import TaskSpec, load_task

    specs = {name: row.spec for name, row in SETS.items() if isinstance(row.spec, TaskSpec)}
    name, _, split_name = name.partition("/")
    if name not in specs:
        raise ConfigError(Setting("data.files", data.files), f": unknown task {name!r}; there are {', '.join(specs)}")
    if not senteval or senteval == "grammar":
        raise ConfigError(
            Setting("data.files", data.files), " needs the SentEval folder: ", Setting("eval.data", "path/to/SentEval/data")
        )
    root = senteval_root(senteval, "eval.data")
    check_is_there(name, root)
    task = load_task(name, specs[name], root)
    if pairs:
        split_name = split_name or "train"
        if not task.spec.pairs:
            raise ConfigError(
                Setting("data.files", data.files), f": {name} has single sentences, this method needs pairs with labels"
            )
    if split_name and split_name not in task.splits:
        raise ConfigError(Setting("data.files", data.files), f": {name} has no part {split_name!r}, only {', '.join(task.splits)}")
    splits = [task.splits[split_name]] if split_name else list(task.splits.values())
    if not pairs:
        return _lines(workdir / "corpus.txt", [text for split in splits for side in (split.first, split.second) for text in side])
    split = splits[0]
    labels = [task.classes[int(label)].lower() if task.classes else "" for label in split.labels]
    return _pairs(workdir / "pairs.tsv", zip(split.first, split.second, split.labels, labels, strict=True))


def _lines(path: Path, sentences: Iterable[str]) -> str:
    write_text(path, "".join(sentence + "\n" for sentence in sentences))  # a process that has opened the old file keeps its content
    return str(path)


def _pairs(path: Path, rows: Iterable[tuple]) -> str:
    header = "sentence1\tsentence2\tscore\tlabel\n"
    write_text(path, header + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    return str(path)

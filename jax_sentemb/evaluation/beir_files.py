"""Read a folder in BEIR's layout: corpus.jsonl, queries.jsonl and judgements in qrels/SPLIT.tsv."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jax_sentemb.data.corpus_files import open_text
from jax_sentemb.data.delimited import decode_file, finite, first_repeated, numbered_lines, without_point
from jax_sentemb.data.records import Records
from jax_sentemb.data.tables import kind_of
from jax_sentemb.data.tokenizer import Lines
from jax_sentemb.errors import DataError, Setting
from jax_sentemb.evaluation.rankings import NO_DOCUMENT, Judgements
from jax_sentemb.files import user_path

LAYOUT = "the folder needs corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR's layout)"
ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.xz", ".parquet", ".tsv", ".csv")
NOT_FINITE = ("nan", "inf", "-inf", "infinity", "-infinity")  # numbers that are not grades, even in the first line
Grades = dict[str, dict[str, float]]  # query id -> document id -> grade


class BeirFolder(NamedTuple):
    """The content of a folder. Queries without text or judgements are left out."""

    corpus: Records  # title and text of each document, joined
    ids: list[str]  # of the documents
    query_ids: list[str]
    queries: list[str]
    judgements: list[Judgements]  # of each query
    own: Int[np.ndarray, " queries"]  # the row of the document that is the query itself, NO_DOCUMENT without
    files: list[Path]
    notes: list[str]


def read_folder(setting: str, folder: str | Path, split: str = "") -> BeirFolder:
    """Read a folder in BEIR's layout.

    Args:
        setting: The option that names the folder, for messages.
        folder: The folder.
        split: The name of a file in `qrels`; "" is test, or the only file.

    Raises:
        DataError: A file is missing or malformed.
    """
    root, where = user_path(folder), Setting(setting, str(folder))
    if not root.is_dir():
        problem = ": is a file" if root.exists() else ": no such folder"
        raise DataError(where, f"{problem}; {LAYOUT}")
    corpus_file, queries_file = (_file(root, name, where) for name in ("corpus", "queries"))
    qrels = _qrels_file(root, split, where)
    grades = read_judgements(qrels)
    corpus = open_text(setting, str(corpus_file), "title,text", " ", "_id", optional=("title",))
    ids = _ids(corpus, corpus_file)
    query_records = open_text(setting, str(queries_file), id_column="_id")
    query_ids, queries, notes = _queries(query_records, queries_file, grades)
    if not queries:
        raise DataError(where, f": no query of {queries_file.name} has judgements in {qrels.name}; compare the ids of both files")
    judgements = [*_judgements([grades[identity] for identity in query_ids], ids)]
    if not any(len(judged.rows) for judged in judgements):
        raise DataError(where, f": no document of {corpus_file.name} has judgements in {qrels.name}; compare the ids of both files")
    if not any(len(judged.ideal) for judged in judgements):
        raise DataError(where, f": {qrels.name} has no judgement above 0; give a relevant document a grade of at least 1")
    own = _own_documents(query_ids, queries, ids, corpus.texts)
    notes += _notes(judgements, len(grades) - len(query_ids), corpus)
    if count := int((own != NO_DOCUMENT).sum()):
        notes.append(f"{count:,} queries are documents too (the same id and text), which they do not retrieve, as in BEIR")
    return BeirFolder(corpus, ids, query_ids, queries, judgements, own, [corpus_file, queries_file, qrels], notes)


def read_judgements(file: Path) -> Grades:
    """Read a file of judgements: query id, document id and grade, separated by tabs, below a header.

    Raises:
        DataError: A line is malformed, or grades a document twice in different ways.
    """
    grades: Grades = defaultdict(dict)
    for number, line in numbered_lines(decode_file(file)):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split("\t")]
        where = f"{file} line {number}"
        if len(fields) != 3:
            raise DataError(f"{where} has {len(fields)} tab-separated fields; give query-id, corpus-id and score")
        query, document, grade = fields
        value = finite(grade)
        if value is None:
            if number == 1 and grade and not any(map(str.isdigit, grade)) and grade.lower() not in NOT_FINITE:  # the header
                continue
            raise DataError(f"{where}: score {grade[:40]!r} is not a number; give a grade such as 0, 1 or 2")
        if grades[query].setdefault(document, value) != value:
            raise DataError(
                f"{where}: query {query[:40]!r} grades document {document[:40]!r} a second time; remove one of the lines"
            )
    if not grades:
        raise DataError(f"{file}: no judgement; give lines with query-id, corpus-id and score")
    return dict(grades)


def _file(root: Path, name: str, where: Setting) -> Path:
    for ending in ENDINGS:
        if (root / f"{name}{ending}").exists():
            return root / f"{name}{ending}"
    raise DataError(where, f": {name}.jsonl is missing; {LAYOUT}")


def _qrels_file(root: Path, split: str, where: Setting) -> Path:
    files = sorted((root / "qrels").glob("*.tsv"))
    names = [file.stem for file in files]
    if not files:
        raise DataError(where, f": qrels/*.tsv is missing; {LAYOUT}")
    if split or "test" in names:
        if (name := split or "test") not in names:
            raise DataError(Setting("--split", split), f": qrels/{name}.tsv is missing; the folder has {', '.join(names)}")
        return files[names.index(name)]
    if len(files) > 1:
        remedy = "rename one to test.tsv, or choose it with "
        raise DataError(where, f": qrels has {', '.join(names)} and no test.tsv; {remedy}", Setting("--split", names[0]))
    return files[0]


def _ids(records: Records, file: Path) -> list[str]:
    """Return the ids of all records as text; DataError if one is missing or occurs twice."""
    ids: list[str] = []
    for row in range(records.count):
        identity = records.id_of(row)
        if identity is None:
            raise DataError(f"{file}: record {row} has no _id; give each record an id")
        ids.append(_id_text(identity, f"{file}: record {row}"))
    if len(set(ids)) < len(ids):
        repeated = first_repeated(ids)
        raise DataError(f"{file}: _id {repeated[:40]!r} occurs twice; give each record an id of its own")
    return ids


def _id_text(identity: Any, where: str) -> str:
    """Return an id as the judgements write it: text without spaces around it, and no point in a whole number."""
    identity = without_point(identity)
    if isinstance(identity, bool) or not isinstance(identity, str | int | float):
        raise DataError(f"{where}: _id is {kind_of(identity)}, not text or a number; give each record such an id")
    return str(identity).strip()


def _queries(records: Records, file: Path, grades: Grades) -> tuple[list[str], list[str], list[str]]:
    """Return ids and texts of the queries that have text and judgements, and notes on the others."""
    ids, texts = _ids(records, file), records.texts
    judged = [row for row, identity in enumerate(ids) if identity in grades]
    usable = [(ids[row], text) for row in judged if (text := texts[row])]
    notes = []
    if others := len(ids) - len(judged):
        notes.append(f"{others:,} of {len(ids):,} queries have no judgements: they are left out")
    if empty := len(judged) - len(usable):
        notes.append(f"{empty:,} queries have no text: they are left out")
    return [identity for identity, _ in usable], [text for _, text in usable], notes


def _judgements(grades: Sequence[dict[str, float]], ids: list[str]) -> Iterator[Judgements]:
    """Yield the judgements of each query by rows of the corpus."""
    judged = {document for of_query in grades for document in of_query}
    row_of = {identity: row for row, identity in enumerate(ids) if identity in judged}
    for of_query in grades:
        known = sorted((row_of[document], grade) for document, grade in of_query.items() if document in row_of)
        missing = [grade for document, grade in of_query.items() if document not in row_of]
        rows = np.array([row for row, _ in known], np.int64)
        yield Judgements(rows, np.array([grade for _, grade in known], np.float64), np.array(missing, np.float64))


def _own_documents(query_ids: list[str], queries: list[str], ids: list[str], documents: Lines) -> Int[np.ndarray, " queries"]:
    """Return the row of the document that is the query itself: it has its id, and its text, with or without a title.

    The ids alone do not tell, since queries and documents are often numbered separately.
    """
    query_set = set(query_ids)
    row_of = {identity: row for row, identity in enumerate(ids) if identity in query_set}
    rows = [row_of.get(identity, NO_DOCUMENT) for identity in query_ids]
    is_same = [row != NO_DOCUMENT and documents[row].endswith(query) for row, query in zip(rows, queries, strict=True)]
    return np.where(is_same, rows, NO_DOCUMENT)


def _notes(judgements: Sequence[Judgements], unknown_queries: int, corpus: Records) -> list[str]:
    notes: list[Any] = []
    if unknown_queries > 0:
        notes.append(f"{unknown_queries:,} judged queries are not scored, because the file of queries does not have their text")
    if unanswered := sum(not len(judged.ideal) for judged in judgements):
        notes.append(f"{unanswered:,} queries have no relevant document: they score 0, as in trec_eval")
    if missing := sum(len(judged.missing) for judged in judgements):
        notes.append(f"{missing:,} judgements name documents that the corpus does not have: they count as not retrieved")
    if blank := corpus.describe_blank():
        notes.append(f"documents: {blank}: they are not retrieved")
    return notes

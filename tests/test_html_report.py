"""report.html: what is on it, that it needs nothing else, that text stays text, and that files alone make it again."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.cli import report
from jax_sentemb.cli.program import program
from jax_sentemb.config import Config, Data, sized
from jax_sentemb.errors import ModelFileError
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.provenance import KEY, SWEEP, mark
from jax_sentemb.reporting import html_parts, html_report, report_data, samples, svg
from jax_sentemb.reporting.report_sections import command_line
from jax_sentemb.training import results, run
from jax_sentemb.training.run_sources import run_mark

HOSTILE = "<script>alert({0})</script> & \"quoted\" 'text' <img src=x onerror=y> number {0} \x1b[31m\u202e"


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run that is done, on a corpus whose text would be markup if it were not escaped."""
    folder = tmp_path_factory.mktemp("work")
    corpus = folder / "corpus.txt"
    corpus.write_text("".join(HOSTILE.format(number) + "\n" for number in range(40)), encoding="utf-8")
    config = sized(Config(method=SimCSE()), "tiny")
    config.data = Data(files=str(corpus), vocab_size=200, max_seq_length=24, batch_size=8)
    config.train = dataclasses.replace(config.train, max_steps=4, save_steps=0)
    config.eval.eval_steps, config.encoder.num_hidden_layers = 2, 1
    (folder / "<run>").mkdir()
    (folder / "<run>" / "metrics.jsonl").write_text('{"step": 3, "event": "not finite"}\n')  # of an attempt before this one
    assert run.run(config, folder / "<run>") == 0
    return folder / "<run>"


def read(workdir, name):
    return json.loads((workdir / name).read_text(encoding="utf-8"))


def page(workdir):
    text = (workdir / "report.html").read_text(encoding="utf-8")
    return text, ElementTree.fromstring(text)


def text_of(element):
    return "".join(element.itertext())


def neighbour_texts(tree):
    """The quoted sentences, without the names of the groups of the map."""
    names = {id(name) for table in tree.iter("table") if "near" not in table.get("class", "") for name in table.iter("bdi")}
    return [element for element in tree.iter("bdi") if id(element) not in names]


def tables(tree):
    """Every table as {first cell: other cells} under its column heads."""
    found = []
    for table in tree.iter("table"):
        rows = [[text_of(cell) for cell in row] for row in table.iter("tr")]
        found.append((rows[0], {row[0]: row[1:] for row in rows}))
    return found


def test_a_run_that_starts_anew_has_a_log_of_its_own(workdir):
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [record["event"] for record in records if "event" in record] == ["start", "end"]
    assert "finished after 4 steps" in page(workdir)[0]


@pytest.mark.parametrize("name", ["accuracy", "loss"])
def test_the_curve_that_selects_is_marked_and_first(workdir, name):
    full = report_data.read_run(workdir)
    held_out = {"validation/loss": 0.5, "validation/accuracy": 0.25}
    held_out = held_out if name == "accuracy" else {"validation/loss": 0.5}
    records = [{"step": step, **{key: step * value for key, value in held_out.items()}} for step in (2, 4, 6)]
    about, scores = {**full.about, "selected_by": "validation"}, {**full.scores, "step": 4}
    changed = full._replace(records=[*full.records, *records], about=about, scores=scores)
    tree = ElementTree.fromstring(html_report.run_page(changed))
    captions = [text_of(caption) for caption in tree.iter("figcaption") if "selects the weights" in text_of(caption)]
    assert len(captions) == 1
    assert captions[0].startswith(f"held-out {name}. ")
    assert "dashed: the weights that were kept, step 4" in captions[0]
    direction = "of 1, higher is better" if name == "accuracy" else "lower is better"
    card = next(card for card in next(tree.iter("dl")) if "selects" in text_of(card))
    assert [text_of(part) for part in card] == [
        f"held-out {name}",
        "0.5 → 1" if name == "accuracy" else "1 → 2",
        f"{direction}; start → kept weights; selects the weights",
    ]


def test_the_page_needs_nothing_else_and_holds_no_code(workdir):
    text, tree = page(workdir)
    names = {element.tag for element in tree.iter()}
    assert not names & {"script", "img", "link", "iframe", "object", "image", "use", "foreignObject"}
    assert {"html", "head", "style", "svg", "table"} <= names
    attributes = [(key, value) for element in tree.iter() for key, value in element.attrib.items()]
    assert not [key for key, _ in attributes if key.startswith("on") or key in ("src", "style", "srcset")]
    assert all("//" not in value for key, value in attributes if key == "href")
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert len(text.encode()) < 1_000_000
    assert [element.get("content") for element in tree.iter("meta") if element.get("name") == "viewport"]


def test_pictures_have_a_title_and_tables_have_heads(workdir):
    _, tree = page(workdir)
    pictures = list(tree.iter("svg"))
    assert len(pictures) > 10
    assert all(picture[0].tag == "title" and picture.get("role") == "img" for picture in pictures)
    assert all(not re.search(r"nan|inf", text, re.I) for p in pictures for path in p.iter("path") for text in [path.get("d")])
    assert all(any(cell.get("scope") for cell in table.iter("th")) for table in tree.iter("table"))


def test_text_of_the_corpus_stays_text(workdir):
    text, tree = page(workdir)
    shown = [text_of(element) for element in neighbour_texts(tree)]
    assert len(shown) == samples.QUERIES * (1 + 2 * samples.NEAREST)
    assert all(re.fullmatch(re.escape(HOSTILE).replace(r"\{0\}", r"\d+").replace("\x1b", "\ufffd"), line) for line in shown)
    assert "<script" not in text
    assert "\x1b" not in text


def test_every_number_that_was_logged_over_time_is_there(workdir):
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    logged = {}
    for record in records:
        logged |= {name: value for name, value in record.items() if isinstance(value, float) and name not in ("step", "time")}
    assert [event["step"] for event in records if "speed/steps_per_second" in event] == [2, 3, 4]  # the first step is compilation
    assert {"train/loss", "speed/sentences_per_second", "eval/grammar-dev/spearman_cosine"} <= set(logged)
    _, tree = page(workdir)
    shown = next(rows for heads, rows in tables(tree) if heads[0] == "curve")
    assert set(shown) - {"curve"} == set(logged)
    for name, last in logged.items():
        assert shown[name][2] == html_parts.number_text(last)
    titles = [text_of(picture[0]) for picture in tree.iter("svg")]
    curves = report_data.find_curves(records)
    for name in logged:
        drawn = [title for title in titles if title.startswith(f"{report_data.describe_curve(name).title} over steps")]
        assert len(drawn) == report_data.is_drawn(name, curves), name
    omitted = {"eval/grammar-dev/pearson_cosine", "speed/steps_per_second", "train/contrastive", "diagnostics/collapsed"}
    assert {name for name in logged if not report_data.is_drawn(name, curves)} == omitted


def test_scores_are_those_of_the_file(workdir):
    saved = read(workdir, "scores.json")
    _, tree = page(workdir)
    heads, rows = next((heads, rows) for heads, rows in tables(tree) if heads[0] == "set")
    assert heads[1:] == ["pairs", "start", "kept", "change", "bag of words", "tf-idf"]
    for name, result in saved["scores"].items():
        baselines = saved["baselines"]
        start, end = baselines["untrained"][name], result["spearman"]["all"]
        numbers = [start, end, end - start, baselines["bag of words"][name], baselines["tf-idf"][name]]
        assert [float(cell.replace("\N{MINUS SIGN}", "-")) for cell in rows[name]] == [60, *(round(value, 2) for value in numbers)]


def test_each_correlation_stands_under_its_own_head(workdir):
    full = report_data.read_run(workdir)
    result = {
        kind: {"all": 1.5 * sign, "mean": 2.5 * sign, "wmean": 3.5 * sign, "subsets": {"a": 4.5 * sign, "b": 5.5 * sign}}
        for kind, sign in (("spearman", 1), ("pearson", -1))
    }
    scores = {"step": 4, "scores": {"X": {"n": 7, **result}}, "baselines": {"untrained": {}}, "transfer": {}}
    scores["transfer"] = {"MRPC": {"protocol": "senteval", "headline": {"MRPC": 70.25, "MRPC F1": 80.5}, "scores": {}}}
    (_, short), (heads, all_of_them), (_, others) = tables(
        ElementTree.fromstring(html_report.run_page(full._replace(scores=scores)))
    )[:3]
    assert short["X"] == ["7", "", "1.50", ""]
    assert heads == [
        "set",
        *(f"{kind}, {which}" for kind in ("Spearman", "Pearson") for which in ("all pairs", "mean", "weighted mean")),
    ]
    minus = "\N{MINUS SIGN}"
    assert all_of_them["X"] == ["1.50", "2.50", "3.50", f"{minus}1.50", f"{minus}2.50", f"{minus}3.50"]
    assert all_of_them["X: b"] == ["5.50", "", "", f"{minus}5.50", "", ""]
    assert others["MRPC"] == ["senteval", "MRPC F1", "80.50"]


def test_the_command_makes_the_same_page_again(workdir, capsys):
    before = (workdir / "report.html").read_bytes()
    (workdir / "report.html").unlink()
    assert program(report.main, ["report", "--workdir", str(workdir)]) == 0
    assert (workdir / "report.html").read_bytes() == before
    assert "written: " in capsys.readouterr().out


def copy(workdir, target, without=()):
    """The files that a report is made of."""
    for name in ("run.json", "config.json", "model.json", "metrics.jsonl", "scores.json", "samples/start.json", "samples/end.json"):
        if name not in without:
            (target / name).parent.mkdir(exist_ok=True)
            (target / name).write_bytes((workdir / name).read_bytes())
    return target


def test_a_run_that_was_stopped_shows_what_there_is(workdir, tmp_path):
    copy(workdir, tmp_path, without=("scores.json", "samples/end.json"))
    html_report.write_report(tmp_path)
    text, tree = page(tmp_path)
    assert "stopped at step 4 of 4" in text
    assert not [heads for heads, _ in tables(tree) if heads[0] == "set"]
    assert len(neighbour_texts(tree)) == samples.QUERIES * (1 + samples.NEAREST)


def test_what_is_not_there_is_left_out(workdir):
    """Pairs are scored, nothing is embedded; or nothing is scored at all."""
    full = report_data.read_run(workdir)
    pairs = {when: {"step": 0, "pairs": seen["pairs"]} for when, seen in full.samples.items()}
    text = html_report.run_page(full._replace(samples=pairs, model={**full.model, "scores_pairs": True}))
    assert "Score against gold" in text
    assert "Nearest neighbours" not in text
    unscored = full._replace(
        scores={"step": 4, "scores": {}, "baselines": {"untrained": {}}, "missing_tasks": ["STS12"]}, samples={}
    )
    text = html_report.run_page(unscored)
    assert "nothing is scored" in text
    assert "missing, not scored: STS12" in text
    ElementTree.fromstring(text)


def test_warnings_come_first_and_once(workdir):
    full = report_data.read_run(workdir)
    corpus = {"sentences": 1000, "truncated": 123, "unknown_token_rate": 0.5, "max_seq_length": 24}
    records = [*full.records, {"step": 4, "warning": "it <collapses>"}, {"step": 4, "warning": "it <collapses>"}]
    records += [{"step": 5, "event": "not finite", "warning": "loss nan", "loss": float("nan")}]
    changed = full._replace(about={**full.about, "corpus": corpus}, records=records, scores={})
    text = html_report.run_page(changed)
    assert "failed at step 5 of 4" in text
    warnings = [text_of(item) for item in next(ElementTree.fromstring(text).iter("ul"))]
    assert warnings.count("it <collapses>") == 1
    assert "123 of 1,000 sentences of the corpus (12.3%) are cut at data.max_seq_length=24" in warnings
    assert any("50.0%" in line for line in warnings)


def test_time_between_a_stop_and_the_continuation_does_not_count():
    times = [(0.0, "start"), (10.0, ""), (1000.0, "start"), (1005.0, "")]
    records = [{"step": 0, "time": at, **({"event": event} if event else {})} for at, event in times]
    assert report_data.seconds(records) == 15


def test_values_that_are_not_finite_are_counted_not_drawn():
    records = [{"step": step, "train/loss": value} for step, value in ((2, 1.0), (1, float("nan")), (3, 2.0), (3, 4.0))]
    assert report_data.find_curves(records)["train/loss"] == {1: pytest.approx(float("nan"), nan_ok=True), 2: 1.0, 3: 4.0}
    about = {"steps": 3}
    text = html_report.run_page(report_data.Run(Path("x"), about, {}, {}, records, {}, {}))
    assert "1 values not finite, left out" in text
    assert "nan" not in next(path.get("d") for path in ElementTree.fromstring(text).iter("path") if "line" in path.get("class"))


def test_what_is_no_work_directory_is_one_line(workdir, tmp_path, capsys):
    def fails(code, says):
        assert program(report.main, ["report", "--workdir", str(tmp_path)]) == code
        line = capsys.readouterr().err
        assert says in line
        assert line.count("\n") == 1

    fails(4, "is not the work directory of a run: it has no run.json")
    copy(workdir, tmp_path, without=("metrics.jsonl",))
    fails(4, "metrics.jsonl: No such file")
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    (tmp_path / "scores.json").write_text("{")
    fails(4, "scores.json is damaged")


def test_a_defect_of_the_report_is_said_and_the_run_is_still_done(workdir, monkeypatch, capsys):
    def broken(folder):
        raise KeyError("nothing")

    monkeypatch.setattr(run, "write_report", broken)
    run._report(workdir)
    line = capsys.readouterr().err
    assert "the report is not complete: KeyError: 'nothing'" in line
    assert line.count("\n") == 1


def test_runs_of_vary_have_a_table_and_links(tmp_path):
    rows = [
        {"settings": {"train.seed": "1"}, "folder": "a b=1", "scores": {"STS12": 10.0}},
        {"settings": {"train.seed": "2"}, "folder": "c", "scores": {"STS12": 14.0}},
        {"settings": {"train.seed": "3"}, "folder": "d", "error": "no <file>"},
    ]
    (tmp_path / "sweep.json").write_text(json.dumps([{**row, KEY: mark(SWEEP, {})} for row in rows]))
    html_report.write_report(tmp_path)
    _, tree = page(tmp_path)
    assert [link.get("href") for link in tree.iter("a")] == ["a%20b%3D1/report.html", "c/report.html", "d/report.html"]
    (_, means), (_, runs) = tables(tree)
    assert [text_of(head) for head in tree.iter("h2")] == ["Settings", "Runs"]
    assert means["all"] == ["2 (1 failed)", "12.00 ± 2.83"]
    assert runs["train.seed=2"] == ["14.00", ""]
    assert runs["train.seed=3"] == ["", "no <file>"]


def test_a_low_shot_study_has_its_tables_and_pictures(tmp_path):
    rows = [
        {
            "settings": {"variant": method, "data.subset": size, "data.subset_seed": seed},
            "folder": f"{method}{size}{seed}",
            "scores": {"STS12": score + int(seed)},
            "sentences": int(size),
            **({"baseline": "A"} if method == "<B>" else {}),
        }
        for method, size, score in (("A", "100", 10.0), ("A", "1000", 20.0), ("<B>", "100", 13.0), ("<B>", "1000", 25.0))
        for seed in "12"
    ]
    (tmp_path / "sweep.json").write_text(json.dumps([{**row, KEY: mark(SWEEP, {})} for row in rows]))
    html_report.write_report(tmp_path)
    _, tree = page(tmp_path)
    (heads, scores), (_, differences), *_ = tables(tree)
    assert heads == ["method", "100", "1,000"]
    assert scores["<B>"] == ["14.50 ± 0.71 (2)", "26.50 ± 0.71 (2)"]
    assert differences["<B> - A"] == ["+3.00 [+3.00, +3.00] (2)", "+5.00 [+5.00, +5.00] (2)"]
    first, second = tree.iter("svg")
    assert [path.get("class") for path in first.iter("path") if path.get("class").startswith("line")] == ["line a", "line b"]
    assert [path.get("class") for path in second.iter("path") if path.get("class").startswith("line")] == ["line b"]
    lines = [
        [float(p.split()[1]) for p in path.get("d")[1:].split("L")]
        for path in first.iter("path")
        if path.get("class")[:4] == "line"
    ]
    assert lines[1][1] < lines[0][1] < lines[1][0] < lines[0][0]  # up is less


def test_neighbours_and_cosines_are_those_of_all_pairs():
    vectors = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = [f"sentence {number}" for number in range(30)]
    seen = samples.collect_samples(dict(zip(names, 3 * vectors, strict=True)), {}, {})
    cosine = vectors @ vectors.T
    assert seen["neighbours"]["queries"][0]["sentence"] == names[0]
    for query in seen["neighbours"]["queries"]:
        row = cosine[names.index(query["sentence"])]
        wanted = [place for place in np.argsort(-row) if names[place] != query["sentence"]][: samples.NEAREST]
        assert [text for _, text in query["nearest"]] == [names[place] for place in wanted]
        np.testing.assert_allclose([value for value, _ in query["nearest"]], row[wanted], atol=1e-4)
    above = cosine[np.triu_indices(30, 1)]
    assert seen["cosines"]["mean"] == pytest.approx(above.mean(), abs=1e-6)
    assert seen["cosines"]["counts"] == np.histogram(above, samples.BINS, (-1, 1))[0].tolist()


def test_neighbours_of_a_run_are_those_of_its_export(workdir):
    look, encoder = read(workdir, "samples/end.json"), SentenceEncoder(workdir / "export")
    assert look["neighbours"]["among"] == 40
    for query in look["neighbours"]["queries"]:
        texts = [query["sentence"], *(text for _, text in query["nearest"])]
        first, *others = encoder.encode(texts, normalize_embeddings=True)
        np.testing.assert_allclose([value for value, _ in query["nearest"]], np.stack(others) @ first, atol=1e-4)
    assert look["neighbours"] != read(workdir, "samples/start.json")["neighbours"]


@pytest.mark.parametrize(
    ("most", "trained_rows", "among"),
    [(0, 10**6, 0), (10, 10**6, 10), (30, 0, 30), (200, 0, 30), (200, 4 * 50, 50), (200, 10**6, 200)],
)
def test_a_short_run_shows_neighbours_among_few_sentences(tmp_path, monkeypatch, most, trained_rows, among):
    config = Config(method=SimCSE())
    config.eval.report_sentences = most
    draw = np.random.default_rng(0).normal(size=(1000, 4))
    embedded = []
    scorer = SimpleNamespace(
        is_cross_encoder=False,
        sample=[f"sentence {number}" for number in range(30)],
        vectors=draw[:30],
        similarities={},
        embed=lambda params, texts: embedded.append(len(texts)) or draw[: len(texts)],
    )
    monkeypatch.setattr(results, "corpus_sample", lambda setup, count, seed: [f"sentence {number}" for number in range(count)])
    of_run = results.Results(config, SimpleNamespace(tasks={}), run_mark("run", {}), scorer, None, None, tmp_path)
    of_run.sample("end", 3, {}, 2 * trained_rows, trained_rows)
    assert read(tmp_path, "samples/end.json").get("neighbours", {"among": 0})["among"] == among
    assert embedded == ([] if among in (0, 30) else [among])  # the diagnostics have embedded 30


def test_the_neighbours_that_changed_most_of_a_hand_case(monkeypatch):
    monkeypatch.setattr(samples, "NEIGHBOURS", 1)
    monkeypatch.setattr(samples, "QUERIES", 3)
    before, after = (
        np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], axis=1)
        for angles in ([0, 1, 40, 41, 90, 91], [0, 1, 40, 91, 90, 41])  # sentences 3 and 5 have changed places
    )
    # Changes of the six: 0, 0, 4 + 4, 2 + 3, 1 + 1, 3 + 2. Sentences 3 and 5 are neighbours of 2, which comes first.
    chosen, kept, changed = samples.changed_most(before, after)
    assert chosen.tolist() == [2, 4, 0]
    assert kept == round(2 / 6, 4)
    assert changed == round(4 / 6, 4)
    assert samples.changed_most(before, before)[1:] == (1.0, 0.0)


def test_sentences_with_another_nearest_one_come_first(monkeypatch):
    monkeypatch.setattr(samples, "NEIGHBOURS", 3)
    monkeypatch.setattr(samples, "QUERIES", 2)
    before, after = (
        np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], axis=1)
        for angles in ([141, 46, 66, 45, 146, 47, 89, 132], [143, 46, 66, 45, 146, 78, 44, 132])
    )
    # Sentences 0 and 6 have the largest change, but the nearest one of 0 is the same.
    chosen, _, changed = samples.changed_most(before, after)
    assert chosen.tolist() == [6, 0]
    assert changed == 0.375


def test_weights_that_did_not_change_have_the_same_neighbours():
    unit = samples.unit_length(np.ones(16) + 0.003 * np.random.default_rng(0).normal(size=(200, 16))).astype(np.float32)
    texts = [str(row) for row in range(200)]
    before = {"vectors": samples.store_vectors(unit, texts)}["vectors"]
    assert samples.changed_most(samples.stored_vectors(before, texts), unit)[1:] == (1.0, 0.0)


def test_stored_vectors_are_read_again_for_the_same_sentences_only():
    unit = np.eye(5, dtype=np.float32) * 0.8 + 0.6 * np.eye(5, dtype=np.float32)[[1, 2, 3, 4, 0]]
    texts = list("abcde")
    stored = json.loads(json.dumps(samples.store_vectors(unit, texts)))
    np.testing.assert_array_equal(samples.stored_vectors(stored, texts), unit)
    assert samples.stored_vectors(stored, list("abcdx")) is None
    assert samples.stored_vectors({}, texts) is None
    wide = np.zeros((3000, 4096), np.float32)
    rows = samples.stored_rows(wide)
    assert (rows[0], rows[-1], len(rows)) == (0, 2999, (1 << 23) // (4 * 4096))


def test_a_run_shows_where_neighbours_changed_and_a_map_of_both_ends(workdir):
    start, end = read(workdir, "samples/start.json"), read(workdir, "samples/end.json")
    assert "vectors" in start
    assert "vectors" not in end
    sides = [[query["sentence"] for query in end[name]["queries"]] for name in ("neighbours_before", "neighbours")]
    assert sides[0] == sides[1]
    assert [panel["name"] for panel in end["map"]["panels"]] == ["start", "kept weights"]
    assert (end["map"]["layout"], end["map"]["reason"], len(end["map"]["texts"])) == ("PCA", "the run is short", 40)
    text, tree = page(workdir)
    assert "whose neighbours changed most" in text
    assert f"{end['neighbours']['kept']:.0%} of its ten nearest neighbours" in text
    maps = [picture for picture in tree.iter("svg") if picture.get("class") == "map"]
    assert [len(list(picture.iter("path"))) for picture in maps] == [40, 40]


def test_a_map_takes_a_small_part_of_a_run():
    assert samples.map_size(49_999) == (512, "the run is short")
    assert samples.map_size(50_000) == (1000, "")
    assert samples.map_size(10**6) == (2000, "")


def test_pairs_keep_the_percentiles_of_all_of_them():
    random = np.random.default_rng(1)
    gold = random.integers(0, 3, 1000).astype(float)
    cosine = random.normal(size=1000)
    parts = {"a": gold[:400], "b": gold[400:]}
    task = StsTask("x", {name: ScoredPairs([""] * len(part), [""] * len(part), part) for name, part in parts.items()})
    seen = samples.collect_samples({}, {"x": {"a": cosine[:400], "b": cosine[400:]}}, {"x": task})
    assert set(seen) == {"pairs"}
    assert seen["pairs"]["x"]["n"] == 1000
    assert len(seen["pairs"]["x"]["dots"]) == samples.DOTS
    for centre, count, percentiles in seen["pairs"]["x"]["ranges"]:
        here = cosine[gold == centre]
        assert count == len(here)
        np.testing.assert_allclose(percentiles, np.percentile(here, [5, 25, 50, 75, 95]))


def test_a_long_curve_is_thinned_to_means_with_its_extremes_around():
    values = np.random.default_rng(2).normal(size=10_000)
    values[5000] = 50
    picture = ElementTree.fromstring(svg.line_chart("x", {"a": list(enumerate(values.tolist()))}))
    paths = {path.get("class"): path.get("d") for path in picture.iter("path")}
    heights = {name: [float(point.split()[1].rstrip("Z")) for point in paths[name][1:].split("L")] for name in ("line a", "band a")}
    assert len(heights["line a"]) <= svg.MAX_POINTS
    assert min(heights["band a"]) < min(heights["line a"]) - 20  # up is less


@pytest.mark.parametrize(
    "values",
    [
        [5.0],
        [5.0, 5.0],
        [0.0, 0.0],
        [-1e9, 1e9],
        [1e-12, 2e-12],
        [0.0140211, 0.0140218],
        [0.0004627, 0.000458],
        [-9.17e-7, -9.0e-7],
        [99.5, 100.1],
    ],
)
def test_any_range_of_values_has_an_axis(values):
    picture = ElementTree.fromstring(svg.line_chart("x", {"a": list(enumerate(values))}))
    line = next(path.get("d") for path in picture.iter("path") if path.get("class") == "line a")
    heights = [float(point.split()[1]) for point in line[1:].split("L")]
    assert all(svg.TOP - 0.1 <= height <= svg.HEIGHT - svg.BOTTOM + 0.1 for height in heights)
    marks = [(float(text.get("y")), text.text) for text in picture.iter("text") if text.get("x") == str(svg.LEFT - 5)]
    assert 2 <= len(marks) <= 7
    assert len({label for _, label in marks}) == len(marks)
    assert all(len(label) <= 8 for _, label in marks)  # what fits at the left of a picture


def test_a_part_is_escaped_unless_it_is_markup():
    part = svg.element("b", "<i>", svg.element("i", "&"), _class='"x"', data_label="y")
    assert part == '<b class="&#34;x&#34;" data-label="y">&lt;i&gt;<i>&amp;</i></b>'
    assert isinstance(part, svg.Markup)


def test_every_axis_says_what_it_shows(workdir):
    _, tree = page(workdir)
    for picture in (picture for picture in tree.iter("svg") if picture.get("class") is None):  # a map has no axes
        *_, across, up = [text.text for text in picture.iter("text")]
        assert across in ("step", "cosine", "gold score"), picture[0].text
        assert up, picture[0].text


def test_the_cards_guide_a_choice(workdir):
    _, tree = page(workdir)
    names = [text_of(card[0]) for card in next(tree.iter("dl"))]
    assert names == ["mean of 2 sets", "grammar-dev Spearman", "retrieval", "time"]
    notes = [text_of(card[2]) for card in next(tree.iter("dl"))]
    assert all(note.startswith(("Spearman of 100, chance 0, higher", "of 100, chance 0, higher")) for note in notes[:2])
    chance = 100 * np.mean(1 / np.arange(1, 41))  # of 40 sentences for diagnostics
    assert f"among 40: mean of 100 / rank, 100 is best, chance {chance:.1f}" in notes[2]
    assert notes[3].startswith("from reading the corpus to the export, with compilation and scoring")
    saved = read(workdir, "scores.json")
    means = [np.mean([saved["baselines"]["untrained"][name] for name in saved["scores"]])]
    means += [np.mean([result["spearman"]["all"] for result in saved["scores"].values()])]
    shown = text_of(next(tree.iter("dl"))[0][1]).replace("\N{MINUS SIGN}", "-").split(" → ")
    assert [float(value) for value in shown] == pytest.approx(means, abs=0.005)


def test_without_labels_the_evidence_and_the_neighbours_come_first(workdir):
    full = report_data.read_run(workdir)
    unlabelled = {**full.scores, "scores": {}, "baselines": {}}
    tree = ElementTree.fromstring(html_report.run_page(full._replace(scores=unlabelled)))
    heads = [text_of(head) for head in tree.iter("h2")]
    assert heads[:4] == ["Without labels", "Nearest neighbours", "Map of the corpus", "Cosines of any two sentences"]
    rows = tables(tree)[0][1]
    start = next(record for record in full.records if "diagnostics/retrieval" in record)
    kept = full.scores["diagnostics"]["retrieval"]
    assert rows["retrieval"][:2] == [html_parts.number_text(value) for value in (start["diagnostics/retrieval"], kept)]
    labelled = [text_of(head) for head in page(workdir)[1].iter("h2")]
    assert labelled[0] == "Scores"
    assert labelled.count("Nearest neighbours") == 1


def test_another_encoder_is_a_second_line_in_the_same_picture(workdir):
    full = report_data.read_run(workdir)
    name, other = "diagnostics/retrieval", "first encoder/diagnostics/retrieval"
    records = [{"step": step, other: 2.0 * step} for step in (2, 4)]
    tree = ElementTree.fromstring(html_report.run_page(full._replace(records=[*full.records, *records])))
    (picture,) = [p for p in tree.iter("svg") if p[0].text.startswith(f"{report_data.describe_curve(name).title} over")]
    assert {"line a", "line b"} <= {path.get("class") for path in picture.iter("path")}
    assert "More" not in [text_of(head) for head in tree.iter("h2")]


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["/x/jax_sentemb/__main__.py", "train", "--config", "a b"], "jax-sentemb train --config 'a b'"),
        (["/x/bin/jax-sentemb", "train"], "jax-sentemb train"),
        (["/x/jax_sentemb/main.py", "--config", "c"], "python -m jax_sentemb.main --config c"),
        (["/x/ipykernel_launcher.py", "-f", "/tmp/kernel.json"], "jax_sentemb.train(...) in Python"),
        (["study.py", "1"], "study.py 1"),
        ([], ""),
    ],
)
def test_the_command_is_shown_as_its_user_wrote_it(argv, shown):
    assert command_line(argv) == shown


def test_files_of_an_earlier_run_are_left_out_with_a_line(workdir, tmp_path, capsys):
    copy(workdir, tmp_path)
    html_report.write_report(tmp_path)
    assert capsys.readouterr().err == ""
    for name in ("scores.json", "samples/end.json"):
        content = read(tmp_path, name)
        content[KEY]["sources"]["run"] = {"name": "earlier", "sha256": "b" * 64}
        (tmp_path / name).write_text(json.dumps(content))
    settings = read(tmp_path, "config.json")
    (tmp_path / "config.json").write_text(json.dumps({**settings, "train.seed": 99}))
    html_report.write_report(tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition("; ")[2] for line in lines] == ["it is left out of the report"] * 3
    assert "scores.json was made from run earlier (SHA-256 bbbbbbbbbbbb), not from run" in lines[1]
    left = report_data.read_run(tmp_path)
    assert (left.scores, left.settings, list(left.samples)) == ({}, {}, ["start"])
    (tmp_path / "scores.json").write_text('{"step": 1}')
    with pytest.raises(ModelFileError, match=r"scores.json does not record its sources"):
        report_data.read_run(tmp_path)

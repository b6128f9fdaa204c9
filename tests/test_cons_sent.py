"""Perturbed and parted sentences: what each task promises, for every row; pure in seed, epoch and row. The losses against loops."""

import runpy
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_sentemb import config as settings
from jax_sentemb.data.batches import Batches, make_batches
from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.examples import Perturbed, train_validation_split
from jax_sentemb.data.perturb import Draws, delete, insert, permute, replace, split_at, split_randomly
from jax_sentemb.data.tokens import tokenize
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.errors import ConfigError, DataError
from jax_sentemb.losses import ranking_loss
from jax_sentemb.methods.cons_sent import IN_TURN, ConsSent, ConsSentVectors
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.word_vectors import WordsConfig, WordVectors
from jax_sentemb.parallel import make_mesh, shard_batch
from jax_sentemb.training.optimizer import make_optimizer
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.training.trainer import Trainer
from jax_sentemb.types import Rows, TrainState

NO_STATE = TrainState({}, None, None, None, None, None)
SEEDS = np.zeros(8, np.uint32)  # of dropout, which these encoders do not have

RANDOM = np.random.default_rng(0)
LENGTHS = np.r_[1, 2, 3, 4, 5, RANDOM.integers(3, 13, 400)]
REAL = np.arange(12) < LENGTHS[:, None]
TOKENS = np.where(REAL, RANDOM.integers(2, 60, (405, 12)), 0)
SHARE = np.cumsum(np.r_[0, 0, np.ones(98)]) / 98
K = 3


def rows(pair):
    return [row[:length].tolist() for row, length in zip(*pair, strict=True)]


def draws(epoch=0):
    return Draws(7, epoch, np.arange(len(TOKENS)))


WHOLE = rows((TOKENS, LENGTHS))


def test_deleted_sentences_are_subsequences_k_shorter():
    for whole, changed in zip(WHOLE, rows(delete(TOKENS, LENGTHS, K, draws())), strict=True):
        if len(whole) <= K:
            assert changed == whole
            continue
        assert len(changed) == len(whole) - K
        left = iter(whole)
        assert all(token in left for token in changed)


def test_permuted_sentences_move_k_tokens_and_never_none():
    numbered = np.where(REAL, np.arange(2, 14), 0)  # all tokens of a sentence differ
    counts = []
    for whole, changed in zip(rows((numbered, LENGTHS)), rows(permute(numbered, LENGTHS, K, draws())), strict=True):
        assert sorted(changed) == sorted(whole)
        moved = sum(one != other for one, other in zip(whole, changed, strict=True))
        assert moved == 0 if len(whole) <= K else 2 <= moved <= K
        counts.append(moved)
    assert {2, 3} <= set(counts)


def test_a_permuted_sentence_is_another_one_unless_it_is_one_word():
    tokens = np.where(REAL, RANDOM.integers(2, 4, REAL.shape), 0)  # two words: most places and many permutations change nothing
    for k in (2, 3, 6):
        for whole, changed in zip(rows((tokens, LENGTHS)), rows(permute(tokens, LENGTHS, k, draws())), strict=True):
            assert sorted(changed) == sorted(whole)
            assert (changed == whole) == (len(whole) <= k or len(set(whole)) == 1)
            assert sum(one != other for one, other in zip(whole, changed, strict=True)) <= k


def test_every_permutation_but_the_identity_is_as_frequent():
    count, words = 30_000, np.array([2, 3, 4, 5])
    changed, _ = permute(np.tile(words, (count, 1)), np.full(count, 4), 3, Draws(0, 0, np.arange(count)))
    kinds, counts = np.unique(changed, axis=0, return_counts=True)
    # Of 4 sets of 3 places, each has 5 permutations. 6 swaps of two places are in two sets each, 8 turns of three in one.
    assert len(kinds) == 14
    moved = (kinds != words).sum(axis=1)
    np.testing.assert_allclose(counts[moved == 2] / count, 1 / 10, atol=0.01)
    np.testing.assert_allclose(counts[moved == 3] / count, 1 / 20, atol=0.01)


@pytest.mark.parametrize("change", [insert, replace])
def test_new_words_are_not_in_the_sentence_even_if_nearly_all_words_are(change):
    counts = np.r_[0, 0, np.ones(8) * 1000, 3, 1, 0]
    whole, many = np.arange(2, 10), 4000  # the sentence has all but the words 10 and 11
    drawn = np.tile(whole, (many, 1)), np.full(many, 8), 2, Draws(1, 0, np.arange(many)), counts.cumsum() / counts.sum()
    changed, lengths = change(*drawn)
    new = [[word for word in row[:length].tolist() if word >= 10] for row, length in zip(changed, lengths, strict=True)]
    assert {len(row) for row in new} == {2}
    assert {word for row in new for word in row} == {10, 11}
    assert np.mean([word == 10 for row in new for word in row]) == pytest.approx(0.75, abs=0.02)


def test_inserted_words_are_new_and_the_rest_stays_in_order():
    for whole, changed in zip(WHOLE, rows(insert(TOKENS, LENGTHS, K, draws(), SHARE)), strict=True):
        if len(whole) <= K:
            assert changed == whole
            continue
        assert len(changed) == len(whole) + K
        assert [token for token in changed if token in whole] == whole
        assert all(2 <= token < 100 for token in changed)


def test_replaced_words_are_new_and_k_of_them():
    for whole, changed in zip(WHOLE, rows(replace(TOKENS, LENGTHS, K, draws(), SHARE)), strict=True):
        different = [token for token, before in zip(changed, whole, strict=True) if token != before]
        assert len(different) == (K if len(whole) > K else 0)
        assert not set(different) & set(whole)


def test_random_parts_are_the_sentence_and_neither_is_empty():
    shares = []
    for whole, first, second in zip(WHOLE, *map(rows, split_randomly(TOKENS, LENGTHS, draws())), strict=True):
        assert sorted(first + second) == sorted(whole)
        assert all(part == [] or is_subsequence(part, whole) for part in (first, second))
        assert (bool(first) and bool(second)) or len(whole) == 1
        shares.append(len(first) / len(whole))
    assert np.mean(shares) == pytest.approx(0.5, abs=0.03)


def is_subsequence(part, whole):
    left = iter(whole)
    return all(token in left for token in part)


def test_a_cut_leaves_two_tokens_behind_it_and_falls_anywhere():
    cuts = set()
    for whole, first, second in zip(WHOLE, *map(rows, split_at(TOKENS, LENGTHS, draws())), strict=True):
        assert first + second == whole
        if len(whole) >= 3:
            assert len(first) >= 1
            assert len(second) >= 2
        if len(whole) == 6:
            cuts.add(len(first))
    assert cuts == {1, 2, 3, 4}


@pytest.mark.parametrize("task", ["D", "P", "I", "R", "N", "C"])
def test_a_change_depends_on_seed_epoch_and_row_alone(task):
    change = {
        "D": lambda t, n, d: delete(t, n, K, d), "P": lambda t, n, d: permute(t, n, K, d),
        "I": lambda t, n, d: insert(t, n, K, d, SHARE), "R": lambda t, n, d: replace(t, n, K, d, SHARE),
        "N": lambda t, n, d: split_randomly(t, n, d)[0], "C": lambda t, n, d: split_at(t, n, d)[0],
    }[task]  # fmt: skip
    whole = rows(change(TOKENS, LENGTHS, draws()))
    some = RANDOM.permutation(len(TOKENS))[:50]
    part = rows(change(TOKENS[some], LENGTHS[some], Draws(7, 0, some)))
    assert part == [whole[row] for row in some]
    assert rows(change(TOKENS, LENGTHS, draws(1))) != whole
    assert rows(change(TOKENS, LENGTHS, Draws(8, 0, np.arange(len(TOKENS))))) != whole


WORDS = ["maya", "goes", "to", "school", ".", "she", "loves", "it", "are", "doesn't"]


def as_tokens(sentence):
    return [WORDS.index(word) + 2 for word in sentence.split()]


@pytest.mark.parametrize(
    ("change", "sentence", "expected"),
    [  # Table 1 of the paper: what each task makes of "Maya goes to school ." and "She loves it ."
        (lambda t, n, d: [delete(t, n, 1, d)], "maya goes to school .", ["maya goes to ."]),
        (lambda t, n, d: [permute(t, n, 2, d)], "maya goes to school .", ["maya to goes school ."]),
        (lambda t, n, d: [insert(t, n, 1, d, SHARE)], "maya goes to school .", ["maya goes are to school ."]),
        (lambda t, n, d: [replace(t, n, 1, d, SHARE)], "maya goes to school .", ["maya doesn't to school ."]),
        (split_at, "maya goes to school .", ["maya", "goes to school ."]),
        (split_at, "she loves it .", ["she loves", "it ."]),
        (split_randomly, "maya goes to school .", ["maya school .", "goes to"]),
        (split_randomly, "she loves it .", ["she loves .", "it"]),
    ],
)
def test_the_examples_of_the_paper_are_drawn(change, sentence, expected):
    whole, count = np.array(as_tokens(sentence)), 20_000
    drawn = [rows(part) for part in change(np.tile(whole, (count, 1)), np.full(count, len(whole)), Draws(0, 0, np.arange(count)))]
    assert [as_tokens(part) for part in expected] in [list(parts) for parts in zip(*drawn, strict=True)]


@pytest.fixture
def tokens(tmp_path):
    lines = [" ".join(f"w{word}" for word in RANDOM.integers(0, 50, length)) for length in LENGTHS]
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in dict.fromkeys(lines)))
    tokenizer = WordTokenizer.of([f"w{word}" for word in range(50)], True)
    return tokenize(open_corpus(str(tmp_path / "a.txt")), tokenizer, 12, tmp_path / "cache"), tokenizer.vocab_size


def test_half_of_the_sentences_are_whole_and_labels_say_which(tokens):
    examples = Perturbed(*tokens, "R", K, seed=3)
    numbers = np.arange(len(examples))
    (texts,), labels = examples.texts(numbers, 0), examples.labels(numbers, 0)
    whole = [tokens[0].ids(row).tolist() for row in numbers]
    short = np.array([len(text) <= K for text in whole])
    assert [text.tolist() == other for text, other in zip(texts, whole, strict=True)] == labels.astype(bool).tolist()
    assert labels[short].all()
    share = np.mean([examples.labels(numbers[~short], epoch) for epoch in range(40)])
    assert share == pytest.approx(0.5, abs=5 * (0.25 / 40 / (~short).sum()) ** 0.5)
    assert (examples.labels(numbers, 1) != labels).any()
    assert examples.report[f"too short for R({K})"] == short.sum()
    assert Batches(Perturbed(*tokens, "I", K, seed=3), 8, 0).at(0).label.shape == (8,)


@pytest.mark.parametrize(("task", "fixed"), [("P", {"no no no no no"}), ("R", {"a b c no yes", "yes no c b a a"}), ("D", set())])
def test_sentences_that_no_change_alters_are_consistent_and_counted(task, fixed, tmp_path):
    lines = ["no no no no no", "no no", "a b c no yes", "yes no c b a a", "a b c a b", "c c c c b", "yes a", "a a no c c"]
    (tmp_path / "a.txt").write_text("".join(line + "\n" for line in lines))
    tokenizer = WordTokenizer.of(["no", "yes", "a", "b", "c"], True)
    found = tokenize(open_corpus(str(tmp_path / "a.txt")), tokenizer, 8, tmp_path / "cache")
    examples, rows_of = Perturbed(found, tokenizer.vocab_size, task, 2, seed=0), np.arange(len(lines))
    assert examples.report[f"not changed by {task}(2)"] == len(fixed)
    inconsistent = set()
    for epoch in range(40):
        (texts,), labels = examples.texts(rows_of, epoch), examples.labels(rows_of, epoch)
        for row, text, label in zip(rows_of, texts, labels, strict=True):
            assert (text.tolist() == found.ids(row).tolist()) == (label == 1)
        inconsistent |= {lines[found.line[row]] for row in rows_of[labels == 0]}
    assert inconsistent == set(lines) - fixed - {"no no", "yes a"}


def test_rows_of_one_word_are_found_across_chunks(tokens, monkeypatch):
    expected = [row for row in range(len(tokens[0])) if len(set(tokens[0].ids(row).tolist())) == 1]
    assert expected
    for chunk in (1, 7, 1 << 18):
        monkeypatch.setattr("jax_sentemb.data.tokens.CHUNK", chunk)
        assert tokens[0].rows_of_one_word().tolist() == expected


def test_a_corpus_that_a_task_cannot_change_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("no no no\nyes yes yes yes\nno yes\n")
    tokenizer = WordTokenizer.of(["no", "yes"], True)
    found = tokenize(open_corpus(str(tmp_path / "a.txt")), tokenizer, 8, tmp_path / "cache")
    with pytest.raises(DataError, match=r"task P\(2\) needs sentences of 3 words or more that a change can make different"):
        Perturbed(found, tokenizer.vocab_size, "P", 2, seed=0)


def test_sentences_that_cannot_be_cut_are_left_out(tokens):
    examples = Perturbed(*tokens, "C", 2, seed=3)
    assert len(examples) == (tokens[0].lengths >= 3).sum() == len(tokens[0]) - examples.report["too short for C(2)"]
    batch = Batches(examples, 8, 0).at(0)
    assert batch.tokens.ndim == 3
    assert batch.label is None
    assert batch.mask.any(axis=-1).all()  # no empty part


def test_a_corpus_without_a_sentence_that_is_long_enough_is_refused(tokens):
    with pytest.raises(DataError, match=r"task D\(12\) needs sentences of 13 words") as caught:
        Perturbed(*tokens, "D", 12, seed=3)
    assert "\n" not in str(caught.value)


def test_tasks_come_in_turn_and_each_has_its_classifier(tokens):
    corpus = SimpleNamespace(plain=lambda: tokens[0], tokenizer=SimpleNamespace(vocab_size=tokens[1]))
    examples = Corpus.perturbed_in_turn(corpus, IN_TURN, K, seed=3)
    batches = make_batches(examples, 8, 0)
    kinds = [(batch.tokens.ndim, None if batch.label is None else {int(label) // 2 for label in batch.label}) for batch in
             (batches.at(step) for step in range(12))]  # fmt: skip
    assert kinds == [(2, {0}), (3, None), (2, {1}), (3, None), (2, {2}), (2, {3})] * 2  # D N P C I R
    unchanged = {name: value for part in examples.parts for name, value in part.report.items() if name.startswith("not changed")}
    assert len(unchanged) == 6
    assert unchanged.items() <= examples.report.items()
    each = [len(part) for part in examples.parts]
    assert min(each) < max(each)  # some sentences cannot be cut
    assert make_batches(examples, 1, 0).steps_per_epoch == 6 * min(each)
    for step in (0, 6, 13, 6 * max(each) // 8 + 2):  # the number of a batch counts those of its own kind
        alone = Batches(examples.parts[step % 6], 8, step % 6)
        np.testing.assert_array_equal(batches.at(step).tokens, alone.at(step // 6).tokens)
        np.testing.assert_array_equal(batches.lines(step), alone.lines(step // 6))
    method = ConsSent(task="MT", k=K, hidden=3, classifier_width=4)
    params = jax.device_get(method.init(ENCODER, LOADED, jax.random.key(0)).params)
    sentences = jnp.array(RANDOM.normal(size=(5, 6)), jnp.float32)
    whole = np.array([1, 0, 0, 1, 1], np.float32)
    for place, task in enumerate("DPIR"):
        alone = ConsSent(task=task, k=K, hidden=3, classifier_width=4)
        own = {**params, "classifier": params[f"classifier_{task}"]}
        expected, _ = alone.objective(own, NO_STATE, ConsSentVectors(sentences, whole))
        found, _ = method.objective(params, NO_STATE, ConsSentVectors(sentences, whole + 2 * place))
        assert float(found) == pytest.approx(float(expected))
    halves = [alone.embed(ENCODER, {**params, "lstm": params[name]}, ROWS) for name in ("lstm", "lstm_of_parts")]
    np.testing.assert_allclose(method.embed(ENCODER, params, ROWS), np.concatenate(halves, axis=1), atol=1e-6)


class Adam:
    """Adam with a linear schedule, in NumPy: `count` its own steps, `every` how many steps of the run each of them stands for."""

    def __init__(self, every, steps):
        self.count, self.mean, self.square, self.every, self.steps = 0, 0.0, 0.0, every, steps

    def __call__(self, value, gradient):
        rate = 0.05 * (1 - int(self.count * self.every) / self.steps)
        self.count += 1
        self.mean, self.square = 0.9 * self.mean + 0.1 * gradient, 0.99 * self.square + 0.01 * gradient**2
        moments = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.99**self.count)
        decay = 0.1 * value * (value.ndim > 1)
        return value - rate * (moments[0] / (moments[1] ** 0.5 + 1e-8) + decay)


def test_each_encoder_and_classifier_is_trained_as_if_by_its_own_optimiser(tokens):
    steps, every = 12, {"lstm": Fraction(6, 4), "lstm_of_parts": 3, **{f"classifier_{task}": 6 for task in "DPIR"}}
    corpus = SimpleNamespace(plain=lambda: tokens[0], tokenizer=SimpleNamespace(vocab_size=tokens[1]))
    batches = make_batches(Corpus.perturbed_in_turn(corpus, IN_TURN, K, seed=3), 8, 0)
    encoder = WordVectors(WordsConfig(tokens[1], 4))
    frozen = {"frozen": {"vectors": RANDOM.normal(size=(tokens[1], 4)).astype(np.float32)}}
    sizes = {"k": K, "hidden": 3, "classifier_width": 4}
    method, mesh = ConsSent(task="MT", **sizes), make_mesh(8, jax.devices()[:1])
    options = settings.Optimizer(learning_rate=0.05, adam_beta2=0.99, max_grad_norm=0.02, weight_decay=0.1)
    optimizer = make_optimizer(options, steps, 1, method.step_shares)
    state = create_state(method, encoder, optimizer, frozen, 0, mesh)
    expected = {part: jax.tree.map(np.array, leaves) for part, leaves in state.params.items()}
    parts = {part: jax.tree.map(lambda _, part=part: Adam(every[part], steps), expected[part]) for part in every}
    step, compiled = make_step(method, encoder, optimizer, mesh), {}
    for number in range(steps):
        batch, task = batches.at(number), IN_TURN[number % 6]
        alone, names = ConsSent(task=task, **sizes), ["lstm_of_parts" if task in "NC" else "lstm"]
        names += [] if task in "NC" else [f"classifier_{task}"]
        given = batch if batch.label is None else batch._replace(label=batch.label % 2)

        def loss_of(trained, given, alone=alone, names=names):
            params = {
                **jax.tree.map(jnp.asarray, frozen),
                **dict(zip(("lstm", "classifier"), (trained[name] for name in names), strict=False)),
            }
            return alone.objective(params, NO_STATE, alone.encode(encoder, params, NO_STATE, given, SEEDS))[0]

        compiled.setdefault(task, jax.jit(jax.value_and_grad(loss_of)))
        loss, gradients = compiled[task]({name: expected[name] for name in names}, given)
        norm = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(gradients)))
        assert norm > 0.02  # clipped
        for name in names:
            gradient = jax.tree.map(lambda leaf, norm=norm: np.asarray(leaf) * 0.02 / norm, gradients[name])
            expected[name] = jax.tree.map(lambda adam, *values: adam(*values), parts[name], expected[name], gradient)
        state, metrics = step(state, shard_batch(batch, mesh))
        assert float(metrics["loss"]) == pytest.approx(float(loss), rel=1e-4)
    for name, part in expected.items():
        for ours, theirs in zip(jax.tree.leaves(state.params[name]), jax.tree.leaves(part), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-4, err_msg=name)


def test_a_run_of_several_tasks_has_an_optimiser_for_each_part(tmp_path):
    path = Path(__file__).parents[1] / "configs" / "cons_sent_multitask.py"
    config = runpy.run_path(str(path))["get_config"]("tiny")
    with Trainer(config, tmp_path) as session:
        states = jax.tree.leaves(session.state.opt_state, is_leaf=lambda state: hasattr(state, "inner_states"))
    parts = [set(state.inner_states) for state in states if hasattr(state, "inner_states")]
    assert parts == [{"", "lstm", "lstm_of_parts", *(f"classifier_{task}" for task in "DPIR")}]


@pytest.mark.parametrize("count", [8, 30])
def test_held_out_sentences_are_in_no_training_batch(tokens, count):
    corpus = SimpleNamespace(plain=lambda: tokens[0], tokenizer=SimpleNamespace(vocab_size=tokens[1]))
    for examples in (tokens[0], Perturbed(*tokens, "C", 2, 3), Corpus.perturbed_in_turn(corpus, IN_TURN, K, 3)):
        rest, held = train_validation_split(examples, count, seed=1)
        parts = zip(getattr(rest, "parts", [rest]), getattr(held, "parts", [held]), strict=True)
        for training, kept in parts:
            assert not set(training.line) & set(kept.line)
            assert len(kept) == count
        assert len(rest) + len(held) == len(examples)
        assert rest.fingerprint != train_validation_split(examples, count, seed=2)[0].fingerprint
    row = np.array([3])
    np.testing.assert_array_equal(train_validation_split(tokens[0], count, 1)[1].texts(row, 0)[0][0], tokens[0].ids(
        int(np.flatnonzero(tokens[0].line == train_validation_split(tokens[0], count, 1)[1].line[3])[0])))  # fmt: skip
    with pytest.raises(DataError, match=r"leaves none of the \d+ examples \(\d+ lines.*\) to train on"):
        train_validation_split(tokens[0], len(tokens[0]), 1)


def test_the_right_part_is_ranked_among_those_of_the_next_sentences():
    anchors, parts = RANDOM.normal(size=(2, 5, 4))
    losses, hits = [], 0
    for row in range(5):
        scores = np.array([anchors[row] @ parts[(row + step) % 5] for step in range(3)])
        losses.append(np.log(np.exp(scores).sum()) - scores[0])
        hits += scores.argmax() == 0
    loss, accuracy = ranking_loss(jnp.array(anchors), jnp.array(parts), 3)
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(accuracy) == pytest.approx(hits / 5)


def test_a_first_part_looks_for_the_second_part_of_its_sentence():
    method, parts = ConsSent(task="P", k=2, hidden=2), jnp.array(RANDOM.normal(size=(5, 2, 4)))
    scores = np.einsum("be,bke->bk", parts[:, 0], np.stack([parts[:, 1], np.roll(parts[:, 1], -1, 0)], axis=1))
    loss, (metrics, _) = method.objective({}, NO_STATE, ConsSentVectors(parts, jnp.zeros(5)))
    assert float(loss) == pytest.approx(np.mean(np.log(np.exp(scores).sum(1)) - scores[:, 0]), rel=1e-5)
    assert float(metrics["accuracy"]) == pytest.approx(np.mean(scores[:, 0] > scores[:, 1]))


ENCODER = WordVectors(WordsConfig(20, 4))
LOADED = {"frozen": {"vectors": RANDOM.normal(size=(20, 4)).astype(np.float32)}}
ROWS = Rows(RANDOM.integers(2, 20, (3, 5)).astype(np.int32), np.arange(5) < np.array([[5], [2], [3]]))


def test_the_classifier_is_three_linear_maps():
    method = ConsSent(task="D", k=1, hidden=3, classifier_width=4)
    params = method.init(ENCODER, LOADED, jax.random.key(0)).params
    sentences, label = RANDOM.normal(size=(5, 6)), np.array([1, 0, 0, 1, 1], np.float32)
    values = sentences
    for name in ("first", "second", "output"):
        values = values @ np.array(params["classifier"][name]["kernel"]) + np.array(params["classifier"][name]["bias"])
    expected = np.mean([np.log(np.exp(row).sum()) - row[int(right)] for row, right in zip(values, label, strict=True)])
    loss, _ = method.objective(params, NO_STATE, ConsSentVectors(jnp.array(sentences), jnp.array(label)))
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_the_maximum_is_over_real_tokens_in_torch_too():
    torch = pytest.importorskip("torch")
    method = ConsSent(hidden=3)
    params = jax.device_get(method.init(ENCODER, LOADED, jax.random.key(1)).params)
    tokens = RANDOM.integers(2, 20, (3, 5)).astype(np.int32)
    mask = np.arange(5) < np.array([[5], [2], [3]])
    module = torch.nn.LSTM(4, 3, batch_first=True, bidirectional=True)
    for direction, ending in (("forward", ""), ("backward", "_reverse")):
        for name, theirs in (("input", "ih"), ("recurrent", "hh")):
            part = params["lstm"][direction][name]
            getattr(module, f"weight_{theirs}_l0{ending}").data = torch.tensor(part["kernel"].T)
            getattr(module, f"bias_{theirs}_l0{ending}").data = torch.tensor(part["bias"])
    expected = [
        module(torch.tensor(LOADED["frozen"]["vectors"][row[:length]])[None])[0][0].max(0).values.detach().numpy()
        for row, length in zip(tokens, mask.sum(1), strict=True)
    ]
    np.testing.assert_allclose(method.embed(ENCODER, params, Rows(tokens, mask)), expected, atol=1e-5)
    np.testing.assert_array_equal(method.embed(ENCODER, params, Rows(tokens, np.zeros_like(mask))), 0.0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"task": "X"}, "is not one of D, P, I, R, N, C"),
        ({"task": "P", "k": 1}, "must be at least 2 for task P"),
        ({"task": "D", "k": 0}, "must be at least 1"),
        ({"task": "N", "k": 9}, "at most data.batch_size=8"),
        ({"pooling": "mean"}, "is not one of max"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings, says):
    with pytest.raises(ConfigError, match=says) as caught:
        ConsSent(**settings).check(ENCODER, 8)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="works on word vectors"):
        ConsSent().check(Bert(BertConfig()), 8)

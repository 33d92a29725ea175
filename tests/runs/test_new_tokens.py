"""Fine-tuning a model of elsewhere on characters that its tokenizer does not know."""

import io
import json
import random

import pytest
import torch
from rich.console import Console
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

import transduce
from builders import small_config, small_rnn_config
from transduce import artifact
from transduce.config import RunConfig, TrainingConfig, Vocabulary
from transduce.data.corpus import Corpus
from transduce.data.special_tokens import SpecialTokens
from transduce.data.tokenizer import SPECIAL, SideTokenizer, TokenizerPair
from transduce.errors import ConfigError
from transduce.models.build import build
from transduce.runs.new_tokens import adapt_tokenizer, copy_weights

OLD, NEW = "abcdefgh", "ŋɛɔ"
TRAINING = TrainingConfig(
    steps=4,
    warmup=2,
    learning_rate=0.005,
    max_tokens=500,
    validate_every=250,
    average=1,
    precision="float32",
    threads=1,
)


def words(count, letters, seed=0):
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=generator.randint(3, 6))) for _ in range(count)]


def write(path, lines):
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model that reverses words; its tokenizer knows a few letters, the new text has others."""
    folder = tmp_path_factory.mktemp("place")
    names = [*SPECIAL, *OLD]
    model = models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>")
    backend = Tokenizer(model)
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Split(Regex("."), "isolated"), decoders.Fuse()
    backend.save(str(folder / "letters.json"))
    write(folder / "old.tsv", words(1500, OLD))
    write(folder / "new.tsv", words(1500, OLD + NEW, seed=1))
    write(folder / "valid.tsv", words(50, OLD + NEW, seed=2))
    config = RunConfig(
        model=small_config(encoder_layers=1, decoder_layers=1, d_model=48, d_ff=96),
        training=TRAINING.model_copy(update={"steps": 500, "warmup": 50}),
    )
    run(folder / "base", pairs=folder / "old.tsv", tokenizer=folder / "letters.json", config=config)
    return folder


def run(out, **options):
    said = io.StringIO()
    assert transduce.train(out, console=Console(file=said, width=300), check=False, **options).finished
    return said.getvalue()


def tune(place, out, steps=4, **options):
    config = RunConfig(training=TRAINING.model_copy(update={"steps": steps}))
    chosen = {"pairs": place / "new.tsv", "valid_pairs": place / "valid.tsv", **options}
    return run(out, from_model=place / "base" / "final", config=config, **chosen)


def test_without_the_option_unknown_characters_are_counted_and_named(place, tmp_path):
    said = tune(place, tmp_path / "run")
    lines = sum(bool(set(word) & set(NEW)) for word in words(1500, OLD + NEW, seed=1))
    (report,) = (line for line in said.splitlines() if "--extend-vocabulary" in line)
    assert f"{2 * lines:,} of 3,000 lines" in report
    assert all(letter in report for letter in NEW)
    assert artifact.load(tmp_path / "run" / "final").vocabulary.target == len(SPECIAL) + len(OLD)


def test_known_text_causes_no_words_and_no_tokens(place, tmp_path):
    options = {"pairs": place / "old.tsv", "valid_pairs": place / "old.tsv"}
    assert "extend" not in tune(place, tmp_path / "plain", **options)
    assert "knows all characters" in tune(place, tmp_path / "run", extend_vocabulary=True, **options)
    assert artifact.load(tmp_path / "run" / "final").vocabulary.target == len(SPECIAL) + len(OLD)


def test_all_other_weights_are_those_of_the_model(place, tmp_path):
    said = tune(place, tmp_path / "run", extend_vocabulary=True)
    assert "3 new tokens" in said
    old, start = artifact.load(place / "base" / "final"), artifact.load(tmp_path / "run" / "start")
    size = len(SPECIAL) + len(OLD)
    assert start.vocabulary.source == start.vocabulary.target == size + 3
    for name, parameter in old.named_parameters():
        grown = dict(start.named_parameters())[name]
        assert torch.equal(grown[: len(parameter)], parameter), name
        assert (len(grown) > len(parameter)) == (len(parameter) == size), name
    new = start.output.weight[size:]
    assert len(new.unique(dim=0)) == 3
    mean, spread = old.output.weight.mean(0), old.output.weight.std(0)
    assert ((new - mean).abs() < 2.5 * spread).all()


def test_a_model_learns_new_characters_and_keeps_the_old_ones(place, tmp_path):
    base = transduce.Translator.load(place / "base" / "final")
    tests = {letters: words(60, letters, seed=9) for letters in (OLD, OLD + NEW)}
    tune(place, tmp_path / "run", steps=500, extend_vocabulary=True)
    tuned = transduce.Translator.load(tmp_path / "run" / "final")

    def right(translator, lines):
        translations = [result.text for result in translator(lines)]
        return sum(text == line[::-1] for text, line in zip(translations, lines, strict=True)) / len(lines)

    new = [word for word in tests[OLD + NEW] if set(word) & set(NEW)]
    assert right(base, new) == 0
    assert right(tuned, new) > 0.8
    assert right(tuned, tests[OLD]) > 0.8


def test_resuming_needs_no_option(place, tmp_path):
    tune(place, tmp_path / "whole", steps=6, extend_vocabulary=True)
    tune(place, tmp_path / "parts", steps=3, extend_vocabulary=True)
    config = tmp_path / "parts" / "run.toml"
    assert "steps = 3" in config.read_text()
    run(tmp_path / "parts", resume=True, steps=6)
    one, other = (artifact.load(tmp_path / name / "final") for name in ("whole", "parts"))
    assert one.vocabulary == other.vocabulary
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, dict(other.named_parameters())[name]), name


def test_separate_vocabularies_grow_on_their_own(place, tmp_path):
    config = RunConfig(model=small_config(share="target"), training=TRAINING)
    options = {"source_tokenizer": place / "letters.json", "target_tokenizer": tmp_path / "other.json"}
    content = json.loads((place / "letters.json").read_text())
    content["model"]["vocab"] |= {letter: 12 + number for number, letter in enumerate(NEW)}
    (tmp_path / "other.json").write_text(json.dumps(content))
    run(tmp_path / "base", pairs=place / "old.tsv", config=config, **options)
    tuned = {
        "pairs": place / "new.tsv",
        "from_model": tmp_path / "base" / "final",
        "steps": 2,
        "overrides": {"training.threads": 1},
    }
    said = run(tmp_path / "run", extend_vocabulary=True, **tuned)
    assert "(source)" in said
    assert "(target)" not in said
    model = artifact.load(tmp_path / "run" / "final")
    assert (model.vocabulary.source, model.vocabulary.target) == (15, 15)
    assert not artifact.load_tokenizer(tmp_path / "run" / "final").joint


def test_it_needs_a_model_to_extend(place, tmp_path):
    with pytest.raises(ConfigError, match=r"--extend-vocabulary .*--from"):
        transduce.train(tmp_path / "run", pairs=place / "new.tsv", extend_vocabulary=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "config", [small_config(share="none"), small_config(share="target"), small_rnn_config()]
)
def test_every_matrix_of_a_vocabulary_grows(config):
    sizes = Vocabulary(source=20, target=30), Vocabulary(source=24, target=31)
    if config.share == "all":
        sizes = Vocabulary(source=20, target=20), Vocabulary(source=24, target=24)
    old, new = (build(config, vocabulary, seed=seed) for seed, vocabulary in enumerate(sizes))
    copy_weights(old, new, *sizes, seed=1)
    once = {name: parameter.clone() for name, parameter in new.named_parameters()}
    for name, parameter in old.named_parameters():
        assert torch.equal(once[name][: len(parameter)], parameter), name
    again = build(config, sizes[1], seed=5)
    copy_weights(old, again, *sizes, seed=1)
    assert all(torch.equal(once[name], parameter) for name, parameter in again.named_parameters())


def test_two_tokenizers_of_one_vocabulary_grow_alike(tmp_path):
    """Their sides may share embeddings."""
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "ab"]
    special = SpecialTokens(pad="<pad>", bos="<s>", eos="</s>")
    pieces = (["a", "b"], ["a", "b", "ab"])
    backends = (
        Tokenizer(models.Unigram([("<unk>", -9.0), *((p, -1.0) for p in side)], 0)) for side in pieces
    )
    pair = TokenizerPair(*(SideTokenizer(backend, tokens) for backend in backends), special=special)
    (tmp_path / "text.tsv").write_text("axb\taby\na\tb\n")
    corpus = Corpus.of((), (), [tmp_path / "text.tsv"], "training")
    grown = adapt_tokenizer(pair, corpus, Console(quiet=True), extend=True)
    assert grown.source.map.tokens == grown.target.map.tokens == [*tokens, "x", "y"]
    assert (grown.source.encode(["axb"]), grown.target.encode(["aby"])) == ([[4, 7, 5]], [[6, 8]])

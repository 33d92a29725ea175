"""Training models that know their languages: one direction, or several."""

import io
import random

import pytest
from rich.console import Console

import transduce
from builders import small_config
from inside import run as run_command
from transduce import artifact
from transduce.config import RunConfig, TrainingConfig
from transduce.data.language_tags import with_defaults, with_language_tags
from transduce.data.prepared import Pairs
from transduce.data.special_tokens import SpecialTokens
from transduce.errors import ConfigError, DataError
from transduce.models.build import build
from transduce.training.averaging import average_run

TRAINING = TrainingConfig(
    steps=700,
    warmup=70,
    learning_rate=0.005,
    max_tokens=500,
    validate_every=350,
    average=1,
    precision="float32",
    threads=1,
)
CONFIG = RunConfig(
    model=small_config(encoder_layers=1, decoder_layers=1, d_model=48, d_ff=96), training=TRAINING
)


def words(count, seed):
    generator = random.Random(seed)
    return ["".join(generator.choices("abcdef", k=generator.randint(3, 5))) for _ in range(count)]


def run(out, **options):
    said = io.StringIO()
    console = Console(file=said, width=300)
    assert transduce.train(out, console=console, check=False, **options).finished
    return said.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model that writes words in capitals (up) or backwards (back), as the tag says."""
    folder = tmp_path_factory.mktemp("place")
    for name, change in (("up", str.upper), ("back", lambda word: word[::-1])):
        for part, count, seed in (("train", 1200, 1), ("valid", 20, 2)):
            lines = "".join(f"{word}\t{change(word)}\n" for word in words(count, seed))
            (folder / f"{part}.{name}.tsv").write_text(lines)
    run(
        folder / "run",
        pairs=[f"{folder}/train.up.tsv:0.5", folder / "train.back.tsv"],
        valid_pairs=[folder / "valid.up.tsv", folder / "valid.back.tsv"],
        source_language="low",
        target_language=["up", "back"],
        tokenizer="char",
        config=CONFIG,
        validation_metric="chrf",
    )
    return folder


def test_one_model_learns_two_directions(place):
    unseen = [word for word in words(40, seed=3) if word not in {*words(1200, 1)}]
    path = place / "in"
    path.write_text("".join(f"{word}\n" for word in unseen))
    for code, change in (("up", str.upper), ("back", lambda word: word[::-1])):
        options = ["--input", path, "--target-lang", code]
        done = run_command("translate", place / "run" / "final", *options)
        assert done.returncode == 0, done.stderr
        expected = [change(word) for word in unseen]
        right = sum(ours == word for ours, word in zip(done.stdout.split("\n"), expected, strict=False))
        assert right > 0.8 * len(unseen)


def test_the_model_folder_keeps_its_languages(place):
    special = SpecialTokens.load(place / "run" / "final" / "special_tokens.json")
    assert special.languages == {"back": "<2back>", "low": "<2low>", "up": "<2up>"}
    assert (special.source_language, special.target_language) == ("low", None)
    with pytest.raises(DataError, match=r"(?s)no target language.*--target-lang: back, low, up"):
        transduce.Translator.load(place / "run" / "final")
    with pytest.raises(DataError, match=r"(?s)'de'.*back, low, up"):
        transduce.Translator.load(place / "run" / "final", target_language="de")


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "--source", "a", "--reference", "b", "--metric", "exact", "--json"),
        ("score", "--source", "a", "--target", "b"),
        ("backtranslate", "--input", "a"),
        ("inspect", "abc", "--out", "page.html"),
        ("inspect", "--corpus", "a", "b"),
        ("shortlist", "--source", "a", "--target", "b", "--out", "lists", "--valid-pairs", "valid.up.tsv"),
    ],
)
def test_commands_choose_a_language(place, command, monkeypatch):
    monkeypatch.chdir(place)
    pairs = [line.split("\t") for line in (place / "valid.up.tsv").read_text().splitlines()]
    for name, side in (("a", 0), ("b", 1)):
        (place / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    name, *options = command
    done = run_command(name, "run/final", *options, "--target-lang", "up")
    assert done.returncode == 0, done.stderr
    if name == "evaluate":
        assert '"score": 9' in done.stdout or '"score": 100' in done.stdout
    done = run_command(name, "run/final", *options)
    assert done.returncode == 2
    assert "--target-lang" in done.stderr
    assert "up" in done.stderr


def test_fine_tuning_chooses_among_the_models_languages(place, tmp_path):
    config = RunConfig(training=TRAINING.model_copy(update={"steps": 2, "warmup": 1}))
    chosen = {"pairs": place / "train.up.tsv", "from_model": place / "run" / "final", "config": config}
    run(tmp_path / "run", target_language="up", **chosen)
    special = SpecialTokens.load(tmp_path / "run" / "final" / "special_tokens.json")
    assert (special.source_language, special.target_language) == ("low", "up")
    tokenizer = artifact.load_tokenizer(tmp_path / "run" / "final")
    pairs = Pairs.open(tmp_path / "run" / "data" / "train")
    assert {pairs.source[index][0] for index in range(len(pairs))} == {tokenizer.source.id_of("<2up>")}
    assert transduce.Translator.load(tmp_path / "run" / "final")("abc").text
    for code, error in ((None, "no target language"), ("de", "'de'")):
        with pytest.raises(DataError, match=error):
            run(tmp_path / "other", target_language=code, **chosen)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"source_language": "low"}, "--target-lang"),
        ({"target_language": "<2up>"}, "code"),
        ({"target_language": ["up", "back"]}, "2 times"),
    ],
)
def test_languages_that_do_not_fit(place, tmp_path, options, problem):
    with pytest.raises(ConfigError, match=problem):
        run(tmp_path / "run", pairs=place / "train.up.tsv", config=CONFIG, **options)
    assert not (tmp_path / "run").exists()


QUICK = TRAINING.model_copy(update={"steps": 2, "warmup": 1, "validate_every": 2})
TUNING = RunConfig(training=QUICK)


def languages_of(folder):
    return artifact.load_tokenizer(folder).directions


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """A run of one direction, from two files."""
    folder = tmp_path_factory.mktemp("single")
    for name, seed in (("one", 1), ("two", 2)):
        lines = "".join(f"{word}\t{word.upper()}\n" for word in words(60, seed))
        (folder / f"{name}.tsv").write_text(lines)
    config = CONFIG.model_copy(update={"training": QUICK})
    pairs = [folder / "one.tsv", folder / "two.tsv"]
    options = {"pairs": pairs, "tokenizer": "char", "config": config}
    run(folder / "run", source_language="low", target_language="up", **options)
    run(folder / "plain", **options)
    return folder


def test_one_direction_needs_no_tag(single):
    known, plain = (artifact.load_tokenizer(single / name / "final") for name in ("run", "plain"))
    assert known.directions == [("low", "up")]
    assert known.vocabulary == plain.vocabulary
    ours, theirs = (Pairs.open(single / name / "data" / "train") for name in ("run", "plain"))
    assert [ours.source[index].tolist() for index in range(5)] == [
        theirs.source[index].tolist() for index in range(5)
    ]


def test_commands_accept_the_languages_of_the_model_alone(single):
    (single / "in").write_text("abc\n")
    (single / "out").write_text("ABC\n")
    for command in (
        ("translate", single / "run" / "final", "--input", single / "in"),
        ("evaluate", single / "run" / "final", "--source", single / "in", "--reference", single / "out"),
    ):
        done = run_command(*command, "--source-lang", "low", "--target-lang", "up")
        assert done.returncode == 0, done.stderr
        for option, code, known in (("--source-lang", "up", "low"), ("--target-lang", "de", "up")):
            refused = run_command(*command, option, code)
            assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
            assert f"language is {known}" in refused.stderr
            assert option in refused.stderr


def test_languages_survive_what_is_done_with_a_model(single, tmp_path):
    model, expected = single / "run" / "final", [("low", "up")]
    average_run(single / "run", tmp_path / "average")
    for words_of_command in (
        ("quantize", model, "--out", tmp_path / "int8"),
        ("push", model, tmp_path / "pushed"),
        ("pull", tmp_path / "pushed", "--out", tmp_path / "pulled"),
    ):
        done = run_command(*words_of_command)
        assert done.returncode == 0, done.stderr
    tuned = {"pairs": single / "one.tsv", "from_model": model, "config": TUNING}
    run(tmp_path / "tuned", **tuned)
    run(tmp_path / "adapted", adapter=2, target_language="up", **tuned)
    adapter = tmp_path / "adapted" / "final"
    assert run_command("merge", adapter, "--out", tmp_path / "merged").returncode == 0
    folders = ["average", "int8", "pushed", "pulled", "tuned/final", "adapted/final", "merged"]
    assert {name: languages_of(tmp_path / name) for name in folders} == dict.fromkeys(folders, expected)


def test_fine_tuning_replaces_a_direction_that_no_token_tells(single, tmp_path):
    tuned = {"pairs": [single / "one.tsv", single / "two.tsv"], "config": TUNING}
    for name, start in (("again", "run"), ("first", "plain")):
        model = single / start / "final"
        run(tmp_path / name, source_language="nl", target_language="fy", from_model=model, **tuned)
        assert languages_of(tmp_path / name / "final") == [("nl", "fy")]
    tuned["from_model"] = single / "run" / "final"
    with pytest.raises(ConfigError, match="one direction"):
        run(tmp_path / "other", target_language=["up", "fy"], **tuned)
    with pytest.raises(DataError, match="source language is low"):  # it has no tokenizer of its own
        run(tmp_path / "other", adapter=2, source_language="nl", target_language="up", **tuned)
    assert not (tmp_path / "other").exists()


def test_a_tag_of_one_direction_is_kept(single, tmp_path):
    """As models of one direction had it once."""
    plain = artifact.load_tokenizer(single / "plain" / "final")
    tagged = with_defaults(with_language_tags(plain, ["low", "up"]), [("low", "up")])
    artifact.save(build(CONFIG.model, tagged.vocabulary, seed=1), tmp_path / "old", tagged)
    run(tmp_path / "run", pairs=single / "one.tsv", from_model=tmp_path / "old", config=TUNING)
    found = artifact.load_tokenizer(tmp_path / "run" / "final")
    assert found.is_like(tagged)
    assert found.directions == [("low", "up")]
    assert found.source_prefix == [found.source.id_of("<2up>")]

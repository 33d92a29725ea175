import math
import re

import pytest

from builders import small_config, small_rnn_config
from recorded_runs import METRICS, TOKENIZER, make_run, run_code_of_card, save_progress
from transduce import artifact
from transduce.config import RunConfig, read_toml, write_toml
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_side_tokenizer
from transduce.models.build import build
from transduce.runs.reporting.card import make_card, tokenizer_kind
from transduce.runs.reporting.record import read_record
from transduce.training.checkpoint import Progress


def card(folder, name="best"):
    return make_card(read_record(folder), name)


def rows(text):
    """The rows of a card's tables: {first cell: the other cells}."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]
    return {first: rest[0] if len(rest) == 1 else rest for first, *rest in cells}


def test_the_card_has_the_facts(tmp_path):
    run = make_run(tmp_path / "en-de")
    text = card(run)
    assert text.startswith(
        "---\nlibrary_name: transduce\ntags:\n- transduce\n- transformer\n- translation\n---\n"
    )
    assert "# en-de (best)" in text.splitlines()
    model = artifact.load(run / "best")
    expected = {
        "parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "tokenizer": f"characters, {TOKENIZER.vocabulary.target} tokens",
        "encoder layers": str(model.config.encoder_layers),
        "training pairs": "50",
        "steps": "200",
        "epochs": "3.5",
        "target tokens seen": "700",
        "time": "1 h 30 min",
        "best": ["100", "1.5000", f"{math.exp(1.5):.2f}", "62.5%"],
        "last": ["200", "1.7500", f"{math.exp(1.75):.2f}", "75.0%"],
    }
    assert {name: rows(text).get(name) for name in expected} == expected
    for fact in ("at step 100", "after 200 steps", "7 held-out pairs", "(curves.png)"):
        assert fact in text


def test_the_card_of_an_rnn(tmp_path):
    make_run(tmp_path / "run")
    for attention in ("multiplicative", "none"):
        model = small_rnn_config(cell="gru", attention=attention)
        write_toml(RunConfig(model=model), tmp_path / "run" / "run.toml")
        text = card(tmp_path / "run")
        assert f"attention: {attention}" in text
        assert "- transduce\n- rnn\n" in text
        found = rows(text)
        assert (found["`d_model`"], found["`d_hidden`"], found["recurrent cell"]) == ("16", "12", "gru")
        parameters = sum(p.numel() for p in build(model, TOKENIZER.vocabulary).parameters())
        assert found["parameters"] == f"{parameters:,}"


def test_the_code_of_the_card_translates(tmp_path):
    run = make_run(tmp_path / "run")
    assert run_code_of_card(card(run), cwd=tmp_path).endswith("\n")


def test_the_card_holds_the_configuration(tmp_path):
    run = make_run(tmp_path / "run")
    (toml,) = re.findall(r"```toml\n(.*?)```", card(run), re.DOTALL)
    (tmp_path / "again.toml").write_text(toml)
    assert read_toml(tmp_path / "again.toml") == read_toml(run / "run.toml")


NOT_VALIDATED = "not validated"


def test_an_average_of_checkpoints_was_not_validated(tmp_path):
    run = make_run(tmp_path / "run", average=5)
    for step in (100, 150):
        save_progress(run, Progress(step=step))
    assert "average of the last 3 checkpoints" in card(run, "final")
    assert NOT_VALIDATED in card(run, "final")
    assert NOT_VALIDATED not in card(run, "best")


@pytest.mark.parametrize(
    ("training", "fact"),
    [({"average": 1}, "the last step"), ({"average": 5, "ema": 0.9}, "the moving average at the last step")],
)
def test_final_weights_that_the_last_validation_used(tmp_path, training, fact):
    run = make_run(tmp_path / "run", **training)
    save_progress(run, Progress(step=100))
    assert fact in card(run, "final")
    assert NOT_VALIDATED not in card(run, "final")


@pytest.mark.parametrize("progress", [Progress(step=200), Progress(step=100, finished=True)])
def test_the_final_model_of_an_extended_run(tmp_path, progress):
    """Its newest checkpoint may still be the one at which it was finished."""
    run = make_run(tmp_path / "run", progress, steps=400)
    assert "extended" in card(run, "final")
    assert NOT_VALIDATED in card(run, "final")


def test_a_run_that_is_not_finished(tmp_path):
    progress = Progress(step=100, epoch=1, tokens=400, seconds=59.0, skipped_steps=3)
    run = make_run(tmp_path / "run", progress, models=["best"], steps=1000)
    text = card(run)
    assert "**not finished**" in text
    assert "step 200 of 1,000" in text
    found = rows(text)
    assert found["steps at the last checkpoint"] == "100"
    assert found["time"] == "59 s"
    assert [value for name, value in found.items() if name.startswith("skipped steps")] == ["3"]


def test_a_run_that_stopped_early(tmp_path):
    run = make_run(tmp_path / "run", steps=1000)
    assert "after 200 of at most 1,000 steps" in card(run)


def test_a_run_that_started_from_a_model(tmp_path):
    run = make_run(tmp_path / "run")
    assert "initial weights" not in rows(card(run))
    (run / "start").mkdir()
    assert "initial weights" in rows(card(run))


def test_epochs_of_different_numbers_of_tokens(tmp_path):
    run = make_run(tmp_path / "run", bpe_dropout=0.1)
    assert rows(card(run))["epochs"] == "more than 2"


def test_two_vocabularies(tmp_path):
    tokenizer = TokenizerPair(
        train_side_tokenizer(["abc"], kind="char", size=0), train_side_tokenizer(["de"], kind="byte", size=0)
    )
    run = make_run(tmp_path / "run", models=[])
    tokenizer.save(run)
    config = read_toml(run / "run.toml")
    write_toml(config.model_copy(update={"model": small_config(share="none")}), run / "run.toml")
    found = rows(card(run))
    assert found["source tokenizer"] == f"characters, {tokenizer.source.size} tokens"
    assert found["target tokenizer"] == f"bytes, {tokenizer.target.size} tokens"


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("bpe", 300, "BPE"),
        ("unigram", 300, "Unigram"),
        ("wordpiece", 600, "WordPiece"),
        ("char", 0, "characters"),
        ("byte", 0, "bytes"),
    ],
)
def test_kinds_of_tokenizers(name, size, expected):
    assert tokenizer_kind(train_side_tokenizer(["low lower lowest"] * 20, kind=name, size=size)) == expected


def test_checkpoints_and_data_may_be_gone(tmp_path):
    run = make_run(tmp_path / "run", progress=None)
    for path in sorted((run / "data").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert "held-out pairs" in card(run)
    assert not {"training pairs", "time"} & rows(card(run)).keys()


def test_no_finite_validation(tmp_path):
    run = make_run(
        tmp_path / "run", metrics=[*METRICS[:1], {"step": 100, "epoch": 0, "valid_loss": math.nan}]
    )
    assert read_record(run).best is None
    assert "best" not in rows(card(run))


def test_the_best_model_by_bleu(tmp_path):
    metrics = [
        {"step": 100, "epoch": 1, "valid_loss": 1.5, "valid_accuracy": 0.5, "valid_bleu": 10.0},
        {"step": 200, "epoch": 2, "valid_loss": 1.7, "valid_accuracy": 0.4, "valid_bleu": 12.0},
    ]
    run = make_run(tmp_path / "run", metrics=metrics, validation_metric="bleu")
    text = card(run)
    assert "highest validation BLEU of its run, at step 200" in text
    assert rows(text)["best and last"] == ["200", "1.7000", f"{math.exp(1.7):.2f}", "40.0%", "12.0"]

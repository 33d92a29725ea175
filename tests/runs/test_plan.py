"""Plans of runs, and trials in a process of their own."""

import io
import json
import subprocess

import pytest
import torch
from rich.console import Console

import transduce
from builders import random_words, small_config
from transduce.config import RunConfig, TrainingConfig
from transduce.errors import TrainingError
from transduce.runs.plan import plan, run_trial


def test_a_plan_states_size_speed_memory_and_time(tmp_path):
    """Also where trials were made before: the memory that they left behind does not make it look smaller."""
    words = random_words(300)
    (tmp_path / "a").write_text("\n".join(words) + "\n")
    (tmp_path / "b").write_text("\n".join(word[::-1] for word in words) + "\n")
    config = RunConfig(
        model=small_config(d_model=32, d_ff=512),
        training=TrainingConfig(warmup=2, learning_rate=0.01, max_tokens=4000, precision="float32"),
    )
    figures = plan(
        source=tmp_path / "a",
        target=tmp_path / "b",
        tokenizer="char",
        config=config,
        minutes=0.01,
        console=Console(file=io.StringIO()),
    )
    model = transduce.Transformer(
        config.model, transduce.Vocabulary(source=figures.vocabulary, target=figures.vocabulary)
    )
    assert figures.parameters == sum(p.numel() for p in model.parameters())
    assert figures.pairs == 292
    assert figures.epochs == pytest.approx(figures.config.training.steps / figures.steps_per_epoch)
    assert 0 <= max(figures.source_padding, figures.target_padding) < 0.5
    speed = figures.trial.speed
    assert speed.tokens_per_second > 0
    assert figures.seconds(100) > 100 * speed.seconds_per_step
    # Weights, gradients and Adam; and of the activations, at least those of the feed-forward networks
    tokens = speed.tokens_per_second * speed.seconds_per_step
    kept = 4 * tokens * config.model.d_ff * (config.model.encoder_layers + config.model.decoder_layers)
    assert 16 * figures.parameters + kept < figures.trial.memory < 16 * figures.parameters + 40 * kept


@pytest.mark.parametrize(
    ("code", "output", "errors", "facts"),
    [
        (0, json.dumps({"problem": "no room", "remedy": "make some"}), "", "^no room; make some$"),
        (1, "", "Traceback\nRuntimeError: odd\n", "RuntimeError: odd; .*max_tokens"),
        (-9, "", "", "code -9; .*max_tokens"),
    ],
)
def test_errors_of_a_trial_are_one_line(tmp_path, monkeypatch, code, output, errors, facts):
    done = subprocess.CompletedProcess([], code, output, errors)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(TrainingError, match=facts):
        run_trial(tmp_path, torch.device("cpu"))

"""Choices of the user, and what is chosen for them."""

import pytest

from builders import EvenPairs, small_config
from transduce.config import RunConfig, TrainingConfig, preset
from transduce.errors import ConfigError
from transduce.runs import defaults
from transduce.runs.defaults import (
    UserChoices,
    choose_translation_model,
    image_defaults,
    parse_overrides,
    text_defaults,
    translation_defaults,
    user_choices,
)
from transduce.training.objectives.single_text import SingleTextObjective
from transduce.training.objectives.translation import TranslationObjective

BUDGETS = [
    {},
    {"batch_tokens": 25_000},
    {"batch_tokens": 5_000},
    {"max_tokens": 1_000},
    {"max_tokens": 1_000, "batch_tokens": 3_000},
]


@pytest.mark.parametrize("given", BUDGETS, ids=str)
@pytest.mark.parametrize("lengths", [(15, 15), (30, 15), (15, 30)])
def test_translation_takes_about_thirty_epochs(given, lengths):
    pairs = EvenPairs(60_000, *lengths)
    choices = UserChoices(RunConfig(training=TrainingConfig(**given)))
    training = translation_defaults(choices, pairs).config()
    epochs = training.steps / len(TranslationObjective(pairs, training).steps(0))
    assert 2_000 <= training.steps < 100_000
    assert epochs == pytest.approx(30, rel=0.15) or training.steps == 2_000


@pytest.mark.parametrize("given", BUDGETS, ids=str)
def test_plain_text_takes_about_twenty_epochs(given):
    texts = EvenPairs(40_000, 60, 60).source
    choices = UserChoices(RunConfig(training=TrainingConfig(**given)))
    training = text_defaults(choices, int(texts.lengths.sum())).config()
    epochs = training.steps / len(SingleTextObjective(texts, training).steps(0))
    assert epochs == pytest.approx(20, rel=0.15)


def test_short_runs_do_not_average_checkpoints():
    pairs = EvenPairs(1_000, 15, 15)
    assert translation_defaults(UserChoices(), pairs).config(500).average == 1
    assert translation_defaults(UserChoices(), pairs).config(2_000).average == TrainingConfig().average
    chosen = UserChoices(RunConfig(training=TrainingConfig(average=3)))
    assert translation_defaults(chosen, pairs).config(500).average == 3


def test_defaults_for_images():
    assert image_defaults(UserChoices(), 60_000).config().steps == 14_062
    assert image_defaults(UserChoices(), 100).config().steps == 1_000
    given = RunConfig(training=TrainingConfig(steps=7, learning_rate=0.5))
    assert image_defaults(UserChoices(config=given), 100).config().learning_rate == 0.5
    training = image_defaults(UserChoices(config=given, steps=9), 100).config()
    assert (training.steps, training.schedule) == (9, "cosine")


def test_the_size_of_a_model_suits_the_data(monkeypatch):
    rnn = UserChoices(family="rnn")
    for limit, sizes in ((10**9, (256, 256)), (0, (512, 512))):
        monkeypatch.setattr(defaults, "SMALL_CORPUS", limit)
        model = choose_translation_model(rnn, 300, joint=False)
        assert (model.d_model, model.d_hidden, model.share) == (*sizes, "target")
        name = "small" if limit else "base"
        chosen = choose_translation_model(UserChoices(family="transformer"), 300, joint=True)
        assert chosen == preset(name).model


def test_a_preset_in_a_run_file_is_a_choice(tmp_path):
    (tmp_path / "base.toml").write_text('preset = "base"\n')
    assert chosen(config=tmp_path / "base.toml").model() == preset("base").model


def chosen(**options):
    names = (
        "config preset family from_model steps epochs minutes learning_rate seed precision save_minutes "
        "overrides"
    )
    return user_choices(**{**dict.fromkeys(names.split()), **options})


def test_overrides_are_toml_values_or_strings():
    settings = ["training.warmup=500", "training.schedule=cosine", 'training.freeze=["encoder"]', "a.b=1=2"]
    assert parse_overrides(settings) == {
        "training.warmup": 500,
        "training.schedule": "cosine",
        "training.freeze": ["encoder"],
        "a.b": "1=2",
    }
    assert parse_overrides(None) == {}
    with pytest.raises(ConfigError, match=r"warmup.*KEY=VALUE"):
        parse_overrides(["training.warmup"])


def test_overrides_come_before_everything_else():
    config = RunConfig(model=small_config(), training=TrainingConfig(warmup=3, seed=5))
    overrides = {"training.warmup": 7, "model.dropout": 0.3}
    choices = chosen(config=config, overrides=overrides, learning_rate=0.25)
    training = choices.training()
    assert (training["warmup"], training["seed"], training["learning_rate"]) == (7, 5, 0.25)
    model = choose_translation_model(choices, 10, joint=True)
    assert model == small_config(dropout=0.3)
    sized = choose_translation_model(chosen(overrides={"model.heads": 8}), 10, joint=True)
    assert sized == preset("small").model.model_copy(update={"heads": 8})


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"overrides": {"training.warmpu": 1}}, "'warmpu'.*did you mean 'warmup'"),
        ({"overrides": {"warmup": 1}}, "'warmup'.*did you mean 'training.warmup'"),
        ({"overrides": {"trainin.warmup": 1}}, "did you mean 'training.warmup'"),
        ({"overrides": {"training.warmup": "long"}}, "warmup = 'long'"),
        ({"overrides": {"training.seed": 1}, "seed": 2}, "training.seed.*twice"),
        ({"learning_rate": 2.0}, "learning_rate = 2.0"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 2, "minutes": 3}, "--steps, --epochs and --minutes"),
    ],
)
def test_mistakes(options, facts):
    with pytest.raises(ConfigError, match=facts):
        chosen(**options)


@pytest.mark.parametrize(
    ("overrides", "facts"),
    [
        ({"model.head": 1}, "'head'.*did you mean 'heads'"),
        ({"model.family": "rnn"}, "--family"),
        ({"model.heads": 7}, "7 heads"),
    ],
)
def test_mistakes_about_the_model(overrides, facts):
    with pytest.raises(ConfigError, match=facts):
        choose_translation_model(chosen(overrides=overrides), 10, joint=True)

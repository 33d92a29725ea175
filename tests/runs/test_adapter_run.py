"""Runs that train an adapter, as a user of Python meets them."""

import io

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import transduce
from builders import random_words, small_bert, small_config, small_rnn_config
from transduce import artifact
from transduce.artifact import ADAPTER_WEIGHTS
from transduce.config import RunConfig, TrainingConfig, read_toml, write_toml
from transduce.errors import ArtifactError, ConfigError, TrainingError
from transduce.runs.reporting.report import write_report
from transduce.training.averaging import average_run

QUICK = TrainingConfig(
    average=1, steps=6, warmup=2, learning_rate=0.01, max_tokens=200, validate_every=3, precision="float32"
)
TUNING = RunConfig(training=QUICK)


def train(out, **options):
    said = io.StringIO()
    assert transduce.train(out, console=Console(file=said, width=200), **options).finished
    return said.getvalue()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder, words = tmp_path_factory.mktemp("text"), random_words(200)
    (folder / "a").write_text("\n".join(words) + "\n")
    (folder / "b").write_text("\n".join(word[::-1] for word in words) + "\n")
    return {"source": folder / "a", "target": folder / "b"}


@pytest.fixture(scope="module")
def base(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    train(folder / "run", config=RunConfig(model=small_config(), training=QUICK), tokenizer="char", **text)
    return folder / "run" / "final"


@pytest.fixture(scope="module")
def run(text, base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned") / "run"
    said = train(folder, from_model=base, adapter=4, config=TUNING, **text)
    assert "adapter of rank 4" in said
    return folder


def test_the_base_is_not_changed_and_all_folders_are_adapters(run, base):
    trained = artifact.load_adapted(run / "final")
    frozen = dict(artifact.load(base).named_parameters())
    assert all(torch.equal(trained.get_parameter(name), weight) for name, weight in frozen.items())
    adapters = {name: load_file(run / name / ADAPTER_WEIGHTS) for name in ("start", "best", "final")}
    assert all(not tensor.any() for name, tensor in adapters["start"].items() if name.endswith(".up"))
    assert all(not torch.equal(tensor, adapters["start"][name]) for name, tensor in adapters["final"].items())
    assert read_toml(run / "run.toml").training.adapter_rank == 4


def test_checkpoints_hold_the_adapter_alone(run):
    newest = max((run / "checkpoints").glob("step-*"))
    saved, moments = load_file(newest / "model.safetensors"), load_file(newest / "optimizer.safetensors")
    assert saved.keys() == load_file(run / "final" / ADAPTER_WEIGHTS).keys()
    assert {key.partition("/")[0] for key in moments if "/" in key} == saved.keys()


def test_an_adapter_folder_is_used_like_a_model_folder(run, base, tmp_path):
    sentences = ["abc", "hgfedc", "bb"]
    adapted = [t.text for t in transduce.Translator.load(run / "final")(sentences)]
    artifact.merge_adapter(run / "final", tmp_path / "merged")
    assert adapted == [t.text for t in transduce.Translator.load(tmp_path / "merged")(sentences)]
    assert transduce.Run.load(run).translator()("abc").text == adapted[0]


def test_checkpoints_are_averaged_as_an_adapter(run, tmp_path):
    steps = average_run(run, tmp_path / "average", last=2)
    folders = [run / "checkpoints" / f"step-{step:08}" / "model.safetensors" for step in steps]
    first, second = map(load_file, folders)
    for name, tensor in load_file(tmp_path / "average" / ADAPTER_WEIGHTS).items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
    assert artifact.load(tmp_path / "average").config == small_config()
    assert artifact.read_header(tmp_path / "average").longest_source is not None


def test_a_moving_average_and_scores_work_with_adapters(text, base, tmp_path):
    training = QUICK.model_copy(update={"ema": 0.9, "validation_metric": "chrf", "freeze": ["encoder"]})
    train(tmp_path / "run", from_model=base, adapter=2, config=RunConfig(training=training), **text)
    final = load_file(tmp_path / "run" / "final" / ADAPTER_WEIGHTS)
    moved = {name for name, tensor in final.items() if name.endswith(".up") and tensor.any()}
    assert moved == {name for name in final if name.endswith(".up") and name.startswith("decoder.")}
    average = load_file(max((tmp_path / "run" / "checkpoints").glob("step-*")) / "average.safetensors")
    for name, tensor in final.items():  # half-way to the model without the adapter
        assert torch.equal(tensor, average[name] / (2 if name.endswith(".up") else 1))


def test_a_card_names_the_adapter(run):
    write_report(run)
    assert "rank 4, alpha 16" in (run / "final" / "README.md").read_text()
    artifact.load(run / "final")


def test_dropout_of_the_run_is_kept_when_it_is_resumed(text, base, tmp_path):
    quick = RunConfig(training=QUICK)
    train(
        tmp_path / "run", from_model=base, adapter=2, config=quick, overrides={"model.dropout": 0.3}, **text
    )
    train(
        tmp_path / "once",
        from_model=base,
        adapter=2,
        config=RunConfig(training=QUICK.model_copy(update={"steps": 9})),
        overrides={"model.dropout": 0.3},
        **text,
    )
    train(tmp_path / "run", resume=True, steps=9)
    finals = [load_file(tmp_path / name / "final" / ADAPTER_WEIGHTS) for name in ("run", "once")]
    assert all(torch.equal(finals[0][name], finals[1][name]) for name in finals[0])


def test_a_changed_base_stops_a_resumed_run(text, base, tmp_path):
    model, tokenizer = artifact.load(base), artifact.load_tokenizer(base)
    artifact.save(model, tmp_path / "base", tokenizer)
    train(tmp_path / "run", from_model=tmp_path / "base", adapter=2, config=TUNING, **text)
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1
    artifact.save(model, tmp_path / "base", tokenizer)
    with pytest.raises(ArtifactError, match="another hash"):
        train(tmp_path / "run", resume=True, steps=9)


@pytest.mark.parametrize("changes", [{"adapter_rank": None}, {"adapter_rank": 5}, {"adapter_alpha": 2.0}])
def test_an_adapter_is_not_changed_by_an_edit_of_the_run_file(text, base, tmp_path, changes):
    train(tmp_path / "run", from_model=base, adapter=2, config=TUNING, **text)
    config = read_toml(tmp_path / "run" / "run.toml")
    training = config.training.model_copy(update=changes)
    write_toml(config.model_copy(update={"training": training}), tmp_path / "run" / "run.toml")
    with pytest.raises(TrainingError, match=next(iter(changes))):
        train(tmp_path / "run", resume=True, steps=9)


def test_a_model_with_an_adapter_is_tuned_as_a_whole(text, run, tmp_path):
    train(tmp_path / "run", from_model=run / "final", config=TUNING, **text)
    assert not artifact.is_adapter(tmp_path / "run" / "final")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"adapter": 4}, "needs a model"),
        ({"adapter": 0}, "adapter_rank"),
        ({"overrides": {"training.adapter_alpha": 2.0}}, "adapter_alpha has no effect"),
        ({"adapter": 2, "overrides": {"training.adapter_rank": 2}}, "given twice"),
    ],
)
def test_mistakes(text, tmp_path, options, problem):
    with pytest.raises(ConfigError, match=problem):
        train(tmp_path / "run", **options, **text)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rank", [16, 100, 10_000_000])
def test_a_rank_must_be_smaller_than_the_model(text, base, tmp_path, rank):
    with pytest.raises(ConfigError, match=r"d_model, 16"):
        train(tmp_path / "run", from_model=base, adapter=rank, **text)


def test_an_adapter_of_an_adapter_is_refused(text, run, tmp_path):
    with pytest.raises(ConfigError, match="transduce merge"):
        train(tmp_path / "run", from_model=run / "final", adapter=2, **text)


def test_a_family_without_such_blocks_is_refused(text, tmp_path):
    rnn = RunConfig(model=small_rnn_config(), training=QUICK)
    train(tmp_path / "rnn", config=rnn, tokenizer="char", **text)
    with pytest.raises(ConfigError, match="'rnn'"):
        train(tmp_path / "run", from_model=tmp_path / "rnn" / "final", adapter=2, **text)


def test_a_language_model_is_adapted_and_a_new_head_is_refused(text, tmp_path):
    quick = {"config": TUNING, "console": Console(file=io.StringIO())}
    model = small_bert().config
    first = RunConfig(model=model, training=QUICK)
    transduce.train_masked_language_model(
        tmp_path / "base", text=text["source"], **{**quick, "config": first}
    )
    rank = {"overrides": {"training.adapter_rank": 2}, "from_model": tmp_path / "base" / "final"}
    run = transduce.train_masked_language_model(tmp_path / "run", text=text["source"], **quick, **rank)
    assert transduce.MaskedTextModel.load(run.final).model.config.family == "bert"
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "".join(f"{word}\t{'short' if len(word) < 5 else 'long'}\n" for word in random_words(60))
    )
    with pytest.raises(ConfigError, match="new parts"):
        transduce.finetune_text_classifier(tmp_path / "classes", pairs=pairs, **quick, **rank)

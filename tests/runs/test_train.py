"""``transduce.train`` as a user of Python meets it."""

import io
import json
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import transduce
from builders import random_words, small_config, small_rnn_config
from transduce import artifact
from transduce.config import PRESETS, RunConfig, TrainingConfig, preset, read_toml
from transduce.data.corpus import Corpus
from transduce.errors import ArtifactError, ConfigError, DataError, TrainingError
from transduce.runs import prepare as preparing
from transduce.runs.defaults import UserChoices
from transduce.runs.lock import locked
from transduce.runs.prepare import prepare
from transduce.runs.translation_inputs import TranslationInputs
from transduce.training.distributed import WorkerGroup
from transduce.training.objectives.objective import LossModule

QUICK = TrainingConfig(
    average=1, steps=6, warmup=2, learning_rate=0.01, max_tokens=200, validate_every=3, precision="float32"
)
CONFIG = RunConfig(model=small_config(), training=QUICK)
RNN = RunConfig(model=small_rnn_config(dropout=0.2), training=QUICK)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Words and their reversals."""
    folder, words = tmp_path_factory.mktemp("text"), random_words(300)
    (folder / "a").write_text("\n".join(words) + "\n")
    (folder / "b").write_text("\n".join(word[::-1] for word in words) + "\n")
    (folder / "both.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words[:50]))
    return folder


@pytest.fixture
def files(text):
    return {"source": text / "a", "target": text / "b", "tokenizer": "char"}


def train(out, **options):
    said = io.StringIO()
    console = Console(file=said, width=200)
    assert transduce.train(out, console=console, **options).finished
    return said.getvalue()


def test_a_run_from_python(files, text, tmp_path):
    said = train(tmp_path / "run", config=CONFIG, valid_pairs=text / "both.tsv", **files)
    assert "300 training pairs, 50 validation pairs" in said
    assert transduce.load(tmp_path / "run" / "final").config == CONFIG.model
    assert read_toml(tmp_path / "run" / "run.toml") == CONFIG
    longest = 1 + max(map(len, (text / "a").read_text().split()))
    for name in ("best", "final"):
        assert artifact.read_header(tmp_path / "run" / name).longest_source == longest


def test_several_files_of_strings(text, tmp_path):
    sources, targets = [str(text / "a")] * 2, [str(text / "b")] * 2
    said = train(tmp_path / "run", config=CONFIG, source=sources, target=targets, tokenizer="byte")
    assert "584 training pairs, 16 validation pairs" in said  # a repeated pair is on one side only


def test_an_unknown_option_is_an_error(tmp_path):
    with pytest.raises(TypeError, match="stepz"):
        transduce.train(tmp_path / "run", stepz=3)


def test_epochs_become_steps(files, tmp_path):
    train(tmp_path / "run", config=CONFIG, epochs=1.5, **files)
    steps = read_toml(tmp_path / "run" / "run.toml").training.steps
    state = json.loads(next((tmp_path / "run" / "checkpoints").glob(f"*{steps}/state.json")).read_text())
    assert state["epoch"] == 1
    assert state["step_in_epoch"] == pytest.approx(steps / 3, abs=1)


def test_minutes_become_steps_that_fit(files, tmp_path, monkeypatch):
    """On a machine where a forward pass takes 0.05 seconds, and nothing else takes any time."""
    now, real = [0.0], LossModule.forward

    def forward(*arguments, **options):
        now[0] += 0.05
        return real(*arguments, **options)

    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=lambda: now[0])
    monkeypatch.setattr(LossModule, "forward", forward)
    monkeypatch.setattr("transduce.runs.autotune.time", clock)
    monkeypatch.setattr("transduce.training.clock.time", clock)
    said = train(tmp_path / "run", config=CONFIG, minutes=0.1, **files)
    training = read_toml(tmp_path / "run" / "run.toml").training
    assert training.minutes == 0.1
    assert f"{training.steps:,} steps fit into 0.1 minutes" in said
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    state = json.loads((newest / "state.json").read_text())
    assert (state["step"], state["time_is_up"]) == (training.steps, False)
    assert 0.9 * 6 < state["seconds"] < 6


def test_precision_is_measured_and_said(files, tmp_path):
    undecided = RunConfig(model=CONFIG.model, training=QUICK.model_copy(update={"precision": "auto"}))
    said = train(tmp_path / "run", config=undecided, **files)
    chosen = read_toml(tmp_path / "run" / "run.toml").training.precision
    assert chosen in ("float32", "bfloat16")
    assert f"precision: {chosen} (" in said


def test_what_was_not_chosen_suits_the_text(files, tmp_path, monkeypatch):
    # The row's own model has 65 million parameters.
    monkeypatch.setitem(PRESETS, "D3", preset("D3").model_copy(update={"model": small_config()}))
    train(tmp_path / "run", preset="D3", steps=1, **files)
    config = read_toml(tmp_path / "run" / "run.toml")
    assert config.model == transduce.preset("D3").model
    assert (config.training.label_smoothing, config.training.steps, config.training.validate_every) == (
        0,
        1,
        1,
    )


def test_separate_vocabularies_share_what_they_can(files, tmp_path):
    train(tmp_path / "run", separate=True, steps=1, preset="tiny", **files)
    model = transduce.load(tmp_path / "run" / "final")
    assert model.config.share == "target"


def test_more_steps_for_a_finished_run(files, tmp_path):
    train(tmp_path / "whole", config=CONFIG, **files)
    train(tmp_path / "more", config=CONFIG, steps=3, **files)
    said = train(tmp_path / "more", resume=True, steps=6)
    assert "from step 3" in said
    one, other = (artifact.load(tmp_path / run / "final").output.weight for run in ("whole", "more"))
    assert torch.equal(one, other)


def test_an_rnn_that_was_interrupted_ends_with_the_same_bits(files, tmp_path):
    train(tmp_path / "whole", config=RNN, **files)
    train(tmp_path / "more", config=RNN, steps=3, **files)
    train(tmp_path / "more", resume=True, steps=6)
    one, other = (
        dict(artifact.load(tmp_path / run / "final").named_parameters()) for run in ("whole", "more")
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_family_whose_sizes_suit_the_text(files, tmp_path):
    train(tmp_path / "run", family="rnn", steps=1, precision="float32", **files)
    assert read_toml(tmp_path / "run" / "run.toml").model == preset("rnn").model


def test_an_rnn_is_tuned_and_keeps_its_family(files, tmp_path):
    train(tmp_path / "old", config=RNN, **files)
    (tmp_path / "tune.toml").write_text(
        "[model]\ndropout = 0.5\n[training]\nsteps = 2\nprecision = 'float32'\nfreeze = ['encoder']\n"
    )
    start = {"from_model": tmp_path / "old" / "final", "source": files["source"], "target": files["target"]}
    train(tmp_path / "new", config=tmp_path / "tune.toml", **start)
    old, new = (artifact.load(tmp_path / run / "final") for run in ("old", "new"))
    assert new.config == old.config.model_copy(update={"dropout": 0.5})
    (tmp_path / "tune.toml").write_text("[model]\nfamily = 'transformer'\n")
    with pytest.raises(ConfigError, match="is of family 'rnn', not 'transformer'; remove the family"):
        transduce.train(tmp_path / "no", config=tmp_path / "tune.toml", **start)


def test_resume_starts_a_run_where_there_is_none(files, tmp_path):
    said = train(tmp_path / "run", config=CONFIG, resume=True, **files)
    assert f"{tmp_path / 'run'} holds no run" in said
    assert (tmp_path / "run" / "final").exists()


def test_a_run_is_not_overwritten(files, tmp_path):
    train(tmp_path / "run", config=CONFIG, **files)
    with pytest.raises(TrainingError, match="at step 6 of 6; add --resume"):
        transduce.train(tmp_path / "run", **files)


def test_fine_tuning_keeps_vocabulary_and_architecture(files, text, tmp_path):
    train(tmp_path / "old", config=CONFIG, **files)
    (tmp_path / "c").write_text("XYZ abc\n" * 40)  # with characters that the old model does not know
    options = {"source": tmp_path / "c", "target": tmp_path / "c", "hold_out": 0.5}
    tuned = RunConfig(
        model=small_config(dropout=0.3, d_model=64),
        training=QUICK.model_copy(update={"steps": 2, "freeze": ["encoder"], "average": 1}),
    )
    (tmp_path / "d").write_text("abc\n")
    train(
        tmp_path / "new",
        config=tuned,
        from_model=tmp_path / "old" / "final",
        **{**options, "valid_source": tmp_path / "d", "valid_target": tmp_path / "d"},
    )
    old, new = (artifact.load(tmp_path / run / "final") for run in ("old", "new"))
    assert new.vocabulary == old.vocabulary
    assert new.config == old.config.model_copy(update={"dropout": 0.3})
    for name, parameter in old.named_parameters():
        same = torch.equal(parameter, dict(new.named_parameters())[name])
        assert same == name.startswith("encoder."), name


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({}, DataError, "no training files.*--source FILE"),
        ({"source": "nowhere"}, DataError, "1 source and 0 target files"),
        ({"preset": "smal"}, ConfigError, "did you mean 'small'"),
        ({"family": "rnnn"}, ConfigError, "'rnnn'; did you mean 'rnn'"),
        ({"family": "rnn", "preset": "small"}, ConfigError, "leave one of them out"),
        ({"family": "rnn", "config": CONFIG}, ConfigError, "leave one of them out"),
        ({"preset": "small", "config": CONFIG}, ConfigError, "a run file and a preset"),
        ({"preset": "small", "from_model": "model", "tokenizer": None}, ConfigError, "leave the preset out"),
        ({"steps": -5}, ConfigError, "steps is -5; give a number above 0 and up to 10,000,000"),
        ({"steps": "3"}, ConfigError, "steps is '3'; give a number above 0 and up to 10,000,000"),
        ({"steps": 3, "overrides": {"training.steps": 4}}, ConfigError, "training.steps was given twice"),
        ({"overrides": ["training.warmup=4"]}, ConfigError, "overrides is a list; give a dict"),
        ({"overrides": {"training": {"warmup": 4}}}, ConfigError, "for example training.warmup"),
        ({"from_model": "nowhere", "tokenizer": None}, ArtifactError, "nowhere is not a folder"),
        ({"steps": 2, "minutes": 3}, ConfigError, "choose one of --steps, --epochs and --minutes"),
        ({"tokenizer": "bpee"}, DataError, "'bpee'; use bpe, unigram"),
        (
            {"tokenizer": __file__, "separate": True},
            ConfigError,
            "--separate has no effect .* existing tokenizer",
        ),
        (
            {"tokenizer": __file__, "vocabulary": 9},
            ConfigError,
            "--vocabulary has no effect .* existing tokenizer",
        ),
        ({"from_model": "model"}, ConfigError, "--tokenizer has no effect .*--from"),
        (
            {"from_model": "model", "tokenizer": None, "separate": True},
            ConfigError,
            "--separate has no effect .*--from",
        ),
        (
            {"from_model": "model", "tokenizer": None, "vocabulary": 9},
            ConfigError,
            "--vocabulary has no effect .*--from",
        ),
        ({"minutes": float("inf")}, ConfigError, "minutes is inf"),
        ({"max_length": 1}, DataError, "--max-length"),
    ],
)
def test_mistakes(files, tmp_path, options, error, problem):
    wished = {} if "source" in options or not options else files
    with pytest.raises(error, match=problem):
        transduce.train(tmp_path / "run", **{**wished, **options})
    assert not (tmp_path / "run" / "run.toml").exists()


def test_bpe_dropout_reads_every_epoch_anew(files, text, tmp_path):
    dropped = CONFIG.model_copy(update={"training": QUICK.model_copy(update={"bpe_dropout": 0.3})})
    options = {**files, "tokenizer": "bpe", "vocabulary": 300}
    train(tmp_path / "run", config=dropped, **options)
    train(tmp_path / "again", config=dropped, **options)
    train(tmp_path / "without", config=CONFIG, **options)
    weights = [artifact.load(tmp_path / run / "final").output.weight for run in ("run", "again", "without")]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_bpe_dropout_needs_bpe(files, tmp_path):
    dropped = CONFIG.model_copy(update={"training": QUICK.model_copy(update={"bpe_dropout": 0.3})})
    with pytest.raises(DataError, match="BPE-dropout needs a BPE tokenizer"):
        transduce.train(tmp_path / "run", config=dropped, **files)


def test_a_run_file_changes_what_it_names_and_nothing_else(files, tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "small", RunConfig(model=small_config()))
    (tmp_path / "few.toml").write_text("[training]\npatience = 3\nsteps = 20\nprecision = 'float32'\n")
    train(tmp_path / "run", config=tmp_path / "few.toml", **files)
    chosen = read_toml(tmp_path / "run" / "run.toml")
    assert chosen.model == preset("small").model  # as without a file: the text is small
    assert (chosen.training.patience, chosen.training.steps, chosen.training.warmup) == (3, 20, 2)


def test_separate_vocabularies_are_not_tied_by_a_run_file(files, tmp_path):
    train(tmp_path / "run", separate=True, config=CONFIG, **files)
    assert transduce.load(tmp_path / "run" / "final").config.share == "target"


def test_fewer_steps_than_were_planned(files, tmp_path):
    patient = CONFIG.model_copy(
        update={"training": QUICK.model_copy(update={"steps": 1000, "minutes": 0.01})}
    )
    train(tmp_path / "run", config=patient, **files)
    state = json.loads((max((tmp_path / "run" / "checkpoints").iterdir()) / "state.json").read_text())
    assert state["time_is_up"]
    wanted = state["step"] + 4
    train(tmp_path / "run", resume=True, steps=wanted)
    assert max((tmp_path / "run" / "checkpoints").iterdir()).name == f"step-{wanted:08d}"
    with pytest.raises(TrainingError, match=f"already at step {wanted}"):
        transduce.train(tmp_path / "run", resume=True, steps=2)


def test_odd_names_are_only_names(files, tmp_path):
    said = train(tmp_path / "run [/x] [de]", config=CONFIG, **files)
    assert "run [/x] [de]/final" in said


def test_a_model_in_half_precision_is_tuned_in_float32(files, text, tmp_path):
    train(tmp_path / "old", config=CONFIG, **files)
    model = transduce.load(tmp_path / "old" / "final").bfloat16()
    transduce.save(model, tmp_path / "half", artifact.load_tokenizer(tmp_path / "old" / "final"))
    tuned = CONFIG.model_copy(update={"training": QUICK.model_copy(update={"steps": 2})})
    train(tmp_path / "new", config=tuned, from_model=tmp_path / "half", source=text / "a", target=text / "b")
    assert transduce.load(tmp_path / "new" / "final").output.weight.dtype == torch.float32


def test_a_run_folder_belongs_to_one_process(tmp_path, files):
    train(tmp_path / "run", config=CONFIG, **files)
    with locked(tmp_path / "run"), pytest.raises(TrainingError, match="another process is training in"):
        transduce.train(tmp_path / "run", resume=True, steps=9)
    with locked(tmp_path / "new"), pytest.raises(TrainingError, match="another process is training in"):
        transduce.train(tmp_path / "new", config=CONFIG, **files)
    train(tmp_path / "run", resume=True, steps=9)


def test_the_result_is_a_run(files, tmp_path):
    run = transduce.train(tmp_path / "run", config=CONFIG, console=Console(quiet=True), **files)
    assert run.finished
    assert (run.folder, run.best, run.final) == tuple(
        tmp_path / "run" / part for part in ("", "best", "final")
    )
    assert [line["step"] for line in run.metrics if "valid_loss" in line] == [3, 6]
    assert transduce.Run.load(str(run.folder)) == run
    with pytest.raises(TrainingError, match="run folder"):
        transduce.Run.load(run.final)
    assert run.translator()("abc").text == transduce.Translator.load(run.final)("abc").text


def test_a_reopened_run_trains_to_the_same_bits(files, tmp_path):
    """Whether the model and the data are those of the preparation, after its trials, or read from disk."""
    undecided = CONFIG.model_copy(update={"training": QUICK.model_copy(update={"minutes": 5})})
    first = transduce.train(tmp_path / "first", config=undecided, console=Console(quiet=True), **files)
    inputs = TranslationInputs(**files)
    prepare(
        tmp_path / "second",
        inputs,
        UserChoices(undecided, minutes=0.05),
        Console(quiet=True),
        WorkerGroup(),
    )
    second = transduce.train(tmp_path / "second", resume=True, steps=6, console=Console(quiet=True))
    one, other = (load_file(run.final / "model.safetensors") for run in (first, second))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_pairs_are_read_three_times_and_the_model_is_built_once(files, tmp_path, monkeypatch):
    """To look for problems, to train the tokenizer, and to write the ids."""
    reads, builds = [], []
    real_chunks, real_build = Corpus.chunks, preparing.build
    monkeypatch.setattr(Corpus, "chunks", lambda *a: reads.append(1) or real_chunks(*a))
    monkeypatch.setattr(preparing, "build", lambda *a, **o: builds.append(1) or real_build(*a, **o))
    undecided = CONFIG.model_copy(update={"training": QUICK.model_copy(update={"precision": "auto"})})
    train(tmp_path / "run", config=undecided, **files)
    assert (len(reads), len(builds)) == (3, 1)


def test_options_on_the_command_line_and_in_python_are_settings(files, tmp_path):
    train(
        tmp_path / "run",
        config=CONFIG,
        learning_rate=0.002,
        seed=7,
        overrides={"training.warmup": 4, "model.dropout": 0.25},
        **files,
    )
    config = read_toml(tmp_path / "run" / "run.toml")
    assert (config.training.learning_rate, config.training.seed, config.training.warmup) == (0.002, 7, 4)
    assert config.model.dropout == 0.25


def test_a_warm_up_longer_than_the_run_is_reported(files, tmp_path):
    said = train(tmp_path / "run", config=CONFIG, overrides={"training.warmup": 100}, **files)
    assert "warm-up takes 100 steps" in said
    assert "--set training.warmup=" in said
    resumed = train(tmp_path / "run", resume=True, steps=7)
    assert "warm-up takes 100 steps" in resumed
    assert "--set" not in resumed
    assert "warm-up takes" not in train(tmp_path / "other", config=CONFIG, **files)


def test_resuming_names_the_options_it_ignores(files, tmp_path):
    assert "no effect" not in train(tmp_path / "run", config=CONFIG, **files)
    said = train(
        tmp_path / "run",
        config=CONFIG,
        resume=True,
        steps=7,
        from_model="x",
        overrides={"training.warmup": 9},
        valid_source=[],
        **files,
    )
    (line,) = (line for line in said.splitlines() if "no effect" in line)
    for option in ("--source", "--target", "--tokenizer", "--config", "--from", "--set"):
        assert option in line
    assert "--valid-source" not in line
    assert "no effect" not in train(tmp_path / "run", resume=True, steps=8)


def test_a_device_that_is_not_there(files, tmp_path):
    with pytest.raises(ConfigError, match="--device"):
        transduce.train(tmp_path / "run", device="cuda:7", **files)
    assert not (tmp_path / "run").exists()


def test_the_best_model_can_be_chosen_by_bleu_or_chrf(files, tmp_path):
    run = transduce.train(
        tmp_path / "run", config=CONFIG, validation_metric="chrf", console=Console(quiet=True), **files
    )
    validations = [line for line in run.metrics if "valid_loss" in line]
    assert all(0 <= line[name] <= 100 for line in validations for name in ("valid_bleu", "valid_chrf"))
    assert max(line["valid_chrf"] for line in validations) > 0
    plain = transduce.train(tmp_path / "plain", config=CONFIG, console=Console(quiet=True), **files)
    assert not any("valid_bleu" in line for line in plain.metrics)
    one, other = (load_file(result.final / "model.safetensors") for result in (run, plain))
    assert all(torch.equal(one[name], other[name]) for name in one)  # scoring changes no weights


def test_scores_take_part_in_a_plan_of_minutes(files, tmp_path):
    said = train(tmp_path / "run", config=CONFIG, validation_metric="bleu", minutes=0.02, **files)
    assert "0.02 minutes" in said


def test_a_mistake_in_a_model_setting_is_found_before_the_text_is_read(files, tmp_path, monkeypatch):
    monkeypatch.setattr(Corpus, "chunks", None)
    with pytest.raises(ConfigError, match="did you mean 'heads'"):
        transduce.train(tmp_path / "run", overrides={"model.head": 2}, console=Console(quiet=True), **files)
    assert not (tmp_path / "run").exists()


def test_a_tuned_model_ends_half_way_and_keeps_the_length_that_it_knows(files, tmp_path):
    train(tmp_path / "old", config=CONFIG, **files)
    (tmp_path / "short").write_text("a b\nb a\n" * 20)
    pairs = {"source": tmp_path / "short", "target": tmp_path / "short"}
    pairs |= {"valid_source": tmp_path / "valid", "valid_target": tmp_path / "valid"}
    (tmp_path / "valid").write_text("b b\n")
    options = {"from_model": tmp_path / "old" / "final", "steps": 3, "precision": "float32", **pairs}
    train(tmp_path / "new", **options)
    train(tmp_path / "alone", overrides={"training.start_share": 0.0}, **options)
    old, new, alone = (artifact.load(tmp_path / run / "final") for run in ("old", "new", "alone"))
    changed = dict(alone.named_parameters())
    assert any(not torch.equal(changed[name], parameter) for name, parameter in old.named_parameters())
    for (name, before), after in zip(old.named_parameters(), new.parameters(), strict=True):
        torch.testing.assert_close(after, (before + changed[name]) / 2)
    longest = artifact.read_header(tmp_path / "old" / "final").longest_source
    assert artifact.read_header(tmp_path / "new" / "final").longest_source == longest > 3


@pytest.mark.parametrize("there", [False, True])
def test_a_run_that_is_refused_leaves_nothing(files, tmp_path, there):
    folder = tmp_path / "run"
    if there:
        folder.mkdir()
    with pytest.raises(DataError, match="left for validation"):
        train(folder, **files, hold_out=0)
    assert list(tmp_path.rglob("*")) == ([folder] if there else [])

import copy
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import random_tokens, small_config, small_model, small_rnn
from transduce import artifact
from transduce.artifact import folder as folder_module
from transduce.config import GPTConfig, Vocabulary
from transduce.config.attention import FullAttention, HashedAttention, LowRankAttention, WindowAttention
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import ArtifactError
from transduce.models.build import build

TOKENIZER = train_tokenizer(["abc"], ["def"], kind="char")


@given(
    share=st.sampled_from(["all", "target", "none"]),
    norm=st.sampled_from(["post", "pre"]),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "none"]),
    activation=st.sampled_from(["relu", "gelu", "gelu_tanh", "swish", "swiglu"]),
    attention=st.sampled_from(
        [FullAttention(), WindowAttention(), LowRankAttention(), HashedAttention(chunk=2)]
    ),
)
@settings(max_examples=20)
def test_saved_is_loaded(share, norm, positions, activation, attention, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = small_model(
        share=share, norm=norm, positions=positions, activation=activation, attention=attention
    )
    artifact.save(model, folder)
    loaded = artifact.load(folder)
    assert (loaded.config, loaded.vocabulary) == (model.config, model.vocabulary)
    source, target = random_tokens(2, 5), random_tokens(2, 6, seed=1)
    assert torch.equal(loaded(source, target), model(source, target))
    assert all(parameter.requires_grad for parameter in loaded.parameters())


@given(
    cell=st.sampled_from(["lstm", "gru"]),
    attention=st.sampled_from(["additive", "multiplicative", "none"]),
    bidirectional=st.booleans(),
    share=st.sampled_from(["all", "target", "none"]),
)
@settings(max_examples=20)
def test_a_saved_rnn_is_loaded(cell, attention, bidirectional, share, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = small_rnn(cell=cell, attention=attention, bidirectional=bidirectional, share=share)
    artifact.save(model, folder)
    loaded = artifact.load(folder)
    assert (type(loaded), loaded.config, loaded.vocabulary) == (type(model), model.config, model.vocabulary)
    source, target = random_tokens(2, 5), random_tokens(2, 6, seed=1)
    assert torch.equal(loaded(source, target), model(source, target))
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_an_rnn_takes_the_place_of_a_transformer(tmp_path):
    artifact.save(small_model(), tmp_path / "model")
    artifact.save(small_rnn(), tmp_path / "model")
    assert artifact.load(tmp_path / "model").config.family == "rnn"


def test_separate_vocabularies(tmp_path):
    model = build(small_config(share="target"), Vocabulary(source=11, target=13, pad=4, bos=5, eos=6), seed=0)
    artifact.save(model, tmp_path / "model")
    assert artifact.load(tmp_path / "model").vocabulary == model.vocabulary


def test_an_older_model_is_replaced_and_nothing_is_left_behind(tmp_path):
    artifact.save(small_model(seed=0), tmp_path / "model")
    newer = small_model(seed=1)
    artifact.save(newer, tmp_path / "model")
    loaded = artifact.load(tmp_path / "model")
    assert torch.equal(loaded.output.weight, newer.output.weight)
    assert names(tmp_path) == ["model"]


def test_other_folders_are_left_alone(tmp_path):
    for name, config in (("thesis", None), ("app", '{"my": "app"}'), ("notes", '["transduce"]')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chapter.txt").write_text("years of work")
        if config:
            (tmp_path / name / "config.json").write_text(config)
        with pytest.raises(ArtifactError, match=name):
            artifact.save(small_model(), tmp_path / name)
        assert (tmp_path / name / "chapter.txt").read_text() == "years of work"
    (tmp_path / "file").write_text("text")
    with pytest.raises(ArtifactError, match="file"):
        artifact.save(small_model(), tmp_path / "file")


def test_other_files_in_a_model_folder_stay(tmp_path):
    artifact.save(small_model(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    artifact.save(small_model(seed=1), tmp_path)
    assert sorted(names(tmp_path)) == ["config.json", "model.safetensors", "notes.txt"]


def test_saving_through_a_link_and_into_the_current_folder(tmp_path, monkeypatch):
    artifact.save(small_model(), tmp_path / "v1")
    (tmp_path / "latest").symlink_to("v1")
    newer = small_model(seed=1)
    artifact.save(newer, tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert torch.equal(artifact.load(tmp_path / "v1").output.weight, newer.output.weight)
    monkeypatch.chdir(tmp_path / "v1")
    artifact.save(small_model(), ".")
    assert artifact.load(".").config == newer.config


def test_a_model_changed_by_hand_is_not_saved(tmp_path):
    artifact.save(small_model(), tmp_path / "model")
    changed = small_model()
    changed.decoder.final_norm = torch.nn.LayerNorm(16)
    with pytest.raises(ArtifactError, match=r"decoder\.final_norm\.bias"):
        artifact.save(changed, tmp_path / "model")
    artifact.load(tmp_path / "model")
    with pytest.raises(TypeError, match="Linear"):
        artifact.save(torch.nn.Linear(1, 1), tmp_path / "model")


@pytest.mark.slow  # importing the compiler takes seconds
def test_a_compiled_model_is_saved_as_itself(tmp_path):
    artifact.save(torch.compile(small_model()), tmp_path / "model")
    artifact.load(tmp_path / "model")


def test_both_files_have_the_same_permissions(tmp_path):
    artifact.save(small_model(), tmp_path / "model")
    assert len({path.stat().st_mode for path in (tmp_path / "model").iterdir()}) == 1


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("moment", range(6))
def test_a_save_interrupted_at_any_moment_leaves_a_complete_model(folder, moment, monkeypatch):
    """The old one or the new one: the shapes, the header and the weights belong together."""
    old, new = artifact.load(folder), small_model(seed=1, norm="pre", d_ff=64)
    calls = iter(range(100))

    def cut(real):
        def maybe(*arguments, **options):
            if next(calls) == moment:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return maybe

    # In this order: the weights are written, two files synced, two renamed, the folder synced.
    for name in ("write_weights", "sync"):
        monkeypatch.setattr(folder_module, name, cut(getattr(folder_module, name)))
    monkeypatch.setattr(Path, "replace", cut(Path.replace))
    with pytest.raises(KeyboardInterrupt):
        artifact.save(new, folder)
    monkeypatch.undo()
    loaded = artifact.load(folder)
    expected = new if moment >= 4 else old
    assert loaded.config == expected.config
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, expected.get_parameter(name))


def _model_of(tokenizer, seed=0):
    return build(small_config(share="none"), tokenizer.vocabulary, seed=seed)


@pytest.mark.parametrize("moment", range(7))
def test_a_first_save_killed_at_any_moment_can_be_done_again(tmp_path, moment):
    folder = tmp_path / "model"
    if process := os.fork():
        assert os.waitpid(process, 0)[1] == signal.SIGKILL
    else:
        calls = iter(range(100))
        real = folder_module.write_weights, folder_module.sync, Path.replace

        def mortal(function):
            return lambda *a: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == moment else function(*a)

        folder_module.write_weights, folder_module.sync, Path.replace = map(mortal, real)
        artifact.save(_model_of(TOKENIZER), folder, TOKENIZER)
    if (folder / "model.safetensors").exists():
        artifact.load(folder)
    newer = _model_of(TOKENIZER, seed=1)
    artifact.save(newer, folder, TOKENIZER)
    assert torch.equal(artifact.load(folder).output.weight, newer.output.weight)
    assert artifact.load_tokenizer(folder).vocabulary == TOKENIZER.vocabulary
    assert sorted(names(folder)) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_the_tokenizer_of_an_older_model_is_removed(tmp_path):
    artifact.save(_model_of(TOKENIZER), tmp_path / "model", TOKENIZER)
    separate = train_tokenizer(["abc"], ["de"], kind="char", joint=False)
    artifact.save(_model_of(separate), tmp_path / "model", separate)
    assert not artifact.load_tokenizer(tmp_path / "model").joint
    artifact.save(_model_of(TOKENIZER), tmp_path / "model", TOKENIZER)
    assert artifact.load_tokenizer(tmp_path / "model").joint


def test_files_reach_the_disk_before_they_take_their_names(tmp_path, monkeypatch):
    events = []
    sync, replace = folder_module.sync, Path.replace
    monkeypatch.setattr(folder_module, "sync", lambda path: (events.append(("sync", path.name)), sync(path)))
    monkeypatch.setattr(Path, "replace", lambda a, b: (events.append(("name", b.name)), replace(a, b)))
    artifact.save(small_model(), tmp_path / "model")
    assert {events[0], events[1]} == {("sync", "config.json"), ("sync", "model.safetensors")}
    assert events[2:] == [("name", "model.safetensors"), ("name", "config.json"), ("sync", "model")]


def test_a_loaded_model_can_be_moved_and_cast(folder):
    source, target = random_tokens(1, 4), random_tokens(1, 3)
    expected = artifact.load(folder)(source, target)
    moved = artifact.load(folder).to("cpu")
    assert torch.equal(moved(source, target), expected)
    torch.testing.assert_close(artifact.load(folder).double()(source, target).float(), expected)
    assert torch.equal(copy.deepcopy(moved)(source, target), expected)


def test_the_remains_of_a_killed_save_do_not_stop_the_next(tmp_path):
    (tmp_path / "model" / ".saving-99999999").mkdir(parents=True)
    artifact.save(small_model(), tmp_path / "model")
    artifact.load(tmp_path / "model")
    assert sorted(names(tmp_path / "model")) == ["config.json", "model.safetensors"]


def test_a_failed_save_keeps_the_old_model(folder, monkeypatch):
    before = artifact.load(folder).output.weight

    def fail(path):
        raise OSError(28, "No space left")

    monkeypatch.setattr(folder_module, "sync", fail)
    with pytest.raises(ArtifactError, match="No space left"):
        artifact.save(small_model(seed=1), folder)
    assert torch.equal(artifact.load(folder).output.weight, before)
    assert sorted(names(folder)) == ["config.json", "model.safetensors"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], check=False).returncode:
        pytest.skip("a small disk could not be mounted")
    try:
        artifact.save(small_model(), disk / "model")
        before = artifact.load(disk / "model").output.weight.clone()
        with pytest.raises(ArtifactError, match="model") as caught:
            artifact.save(small_model(d_model=128), disk / "model")
        assert "\n" not in str(caught.value)
        assert torch.equal(artifact.load(disk / "model").output.weight, before)
        assert sorted(names(disk / "model")) == ["config.json", "model.safetensors"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_loading_does_not_import_torchs_compiler(tmp_path):
    artifact.save(small_model(), tmp_path)
    code = f"import sys, transduce; transduce.load({str(tmp_path)!r}); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_model_without_a_tokenizer_says_how_to_save_one(folder):
    with pytest.raises(ArtifactError, match=r"tokenizer.*transduce\.save"):
        artifact.load_tokenizer(folder)


def test_a_tokenizer_of_another_size_is_refused(folder):
    TOKENIZER.save(folder)
    with pytest.raises(ArtifactError, match=rf"{TOKENIZER.vocabulary.source} .* 20"):
        artifact.load_tokenizer(folder)


def test_a_model_of_another_family_is_refused(folder):
    assert artifact.load_text_to_text(folder).config.family == "transformer"
    for family, command in (("gpt", "lm train"), ("bert", "mlm train"), ("vit", "vision train")):
        with pytest.raises(ArtifactError, match=f"'transformer'.*{command}"):
            artifact.load_as(folder, family)
    artifact.save(
        build(GPTConfig(layers=1, d_model=8, d_ff=8, heads=1), Vocabulary(source=9, target=9)), folder
    )
    assert artifact.load_as(folder, "gpt").config.layers == 1
    with pytest.raises(ArtifactError, match="'gpt'"):
        artifact.load_text_to_text(folder)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_tokenizer_that_is_not_the_saved_one_is_refused(tmp_path, damage):
    tokenizer = train_tokenizer(["a b c"], ["d e f"], kind="char", joint=False)
    model = build(small_config(), tokenizer.vocabulary, seed=0)
    artifact.save(model, tmp_path / "model", tokenizer)
    path = tmp_path / "model" / "tokenizer.target.json"
    # The same size, with two characters exchanged
    text = path.read_text().replace('"d"', '"?"').replace('"e"', '"d"').replace('"?"', '"e"')
    path.write_text(text) if damage == "changed" else path.unlink()
    with pytest.raises(ArtifactError, match=r"tokenizer\.target\.json"):
        artifact.load_tokenizer(tmp_path / "model")


def test_a_tokenizer_stays_with_a_model_that_is_saved_again_without_it(tmp_path):
    tokenizer = train_tokenizer(["a b c"], ["d e f"], kind="char")
    model = build(small_config(), tokenizer.vocabulary, seed=0)
    artifact.save(model, tmp_path / "model", tokenizer)
    artifact.save(model, tmp_path / "model")
    assert artifact.load_tokenizer(tmp_path / "model").is_like(tokenizer)
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"tokenizer\.json"):
        artifact.load_tokenizer(tmp_path / "model")


def test_a_tokenizer_that_was_not_saved_with_the_model_is_refused(tmp_path):
    tokenizer = train_tokenizer(["a b c"], ["d e f"], kind="char", joint=False)
    artifact.save(build(small_config(), tokenizer.vocabulary, seed=0), tmp_path / "model", tokenizer)
    shutil.copy(tmp_path / "model" / "tokenizer.source.json", tmp_path / "model" / "tokenizer.json")
    with pytest.raises(ArtifactError, match=r"tokenizer\.json was not saved with this model"):
        artifact.load_tokenizer(tmp_path / "model")

import copy
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from builders import random_tokens, small_config, small_model, small_rnn
from transduce import artifact
from transduce.config import Vocabulary
from transduce.data.tokenizer_training import train_tokenizer
from transduce.errors import ArtifactError
from transduce.models.build import build

TOKENIZER = train_tokenizer(["abc"], ["def"], kind="char")


@given(
    share=st.sampled_from(["all", "target", "none"]),
    norm=st.sampled_from(["post", "pre"]),
    positions=st.sampled_from(["sinusoidal", "learned", "rotary", "none"]),
    activation=st.sampled_from(["relu", "gelu", "swiglu"]),
    attention=st.sampled_from(["full", "window", "low_rank", "hashed"]),
)
@settings(max_examples=20)
def test_saved_is_loaded(share, norm, positions, activation, attention, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = small_model(
        share=share, norm=norm, positions=positions, activation=activation, attention=attention, hash_chunk=2
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


def test_a_folder_from_before_there_were_families(folder):
    """Its header may not name one."""
    config = json.loads((folder / "config.json").read_text())
    del config["model"]["family"]
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    save_file(load_file(path), path, {"transduce": json.dumps(config)})
    assert torch.equal(artifact.load(folder).output.weight, small_model().output.weight)


def test_a_folder_from_before_attention_could_be_chosen(folder):
    """It has full attention; the new keys are not in its header."""
    config = json.loads((folder / "config.json").read_text())
    for key in (
        "attention",
        "window_radius",
        "global_tokens",
        "rank",
        "hash_buckets",
        "hash_rounds",
        "hash_chunk",
    ):
        del config["model"][key]
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    save_file(load_file(path), path, {"transduce": json.dumps(config)})
    source, target = random_tokens(2, 5), random_tokens(2, 6, seed=1)
    loaded = artifact.load(folder)
    assert loaded.config == small_model().config
    assert torch.equal(loaded(source, target), small_model()(source, target))


@pytest.mark.parametrize(("share", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_shared_matrices_are_stored_once_and_stay_shared(share, matrices, tmp_path):
    artifact.save(small_model(share=share), tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert sum("embedding" in name or name == "output.weight" for name in stored) == matrices
    model = artifact.load(tmp_path / "model")
    used = {model.source_embedding.weight, model.target_embedding.weight, model.output.weight}
    assert len(used) == matrices


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
        with pytest.raises(ArtifactError, match="exists and is not a model folder"):
            artifact.save(small_model(), tmp_path / name)
        assert (tmp_path / name / "chapter.txt").read_text() == "years of work"
    (tmp_path / "file").write_text("text")
    with pytest.raises(ArtifactError, match="exists and is not a model folder"):
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
    with pytest.raises(ArtifactError, match=r"the first difference is decoder\.final_norm\.bias"):
        artifact.save(changed, tmp_path / "model")
    artifact.load(tmp_path / "model")
    with pytest.raises(TypeError, match="save takes a model of transduce, not a Linear"):
        artifact.save(torch.nn.Linear(1, 1), tmp_path / "model")


def test_a_compiled_model_is_saved_as_itself(tmp_path):
    artifact.save(torch.compile(small_model()), tmp_path / "model")
    artifact.load(tmp_path / "model")


def test_both_files_can_be_read_by_the_same_people(tmp_path):
    artifact.save(small_model(), tmp_path / "model")
    assert len({path.stat().st_mode for path in (tmp_path / "model").iterdir()}) == 1


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def folder(tmp_path):
    artifact.save(small_model(), tmp_path / "model")
    return tmp_path / "model"


def refused(folder) -> str:
    with pytest.raises(ArtifactError) as caught:
        artifact.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        *tables, last = key.split("__")
        table = config
        for name in tables:
            table = table[name]
        table[last] = value
    (folder / "config.json").write_text(json.dumps(config))


def test_wrong_folders(folder, tmp_path):
    assert "is not a folder" in refused(tmp_path / "missing")
    assert "is not a folder" in refused(folder / "config.json")
    assert "is not a folder" in refused("x" * 300)
    assert "is not a model folder: it has no config.json" in refused(tmp_path)


def test_foreign_and_broken_configs(folder):
    edit(folder, format=99)
    assert "has format 99, but this version reads up to 1; upgrade" in refused(folder)
    edit(folder, format=1, model__d_ff=10**18)
    assert "model.d_ff = 1000000000000000000: input should be less" in refused(folder)
    edit(folder, model__d_ff=32, model__heds=3)
    assert "unknown key 'model.heds'; did you mean 'heads'?" in refused(folder)
    (folder / "config.json").write_text('{"architectures": ["BertModel"]}')
    assert "was not written by transduce" in refused(folder)
    (folder / "config.json").write_text("[1, 2]")
    assert "was not written by transduce" in refused(folder)
    (folder / "config.json").write_text("[" * 100_000)
    assert "cannot read" in refused(folder)
    (folder / "config.json").write_text('{"format": 1,')
    assert "cannot read" in refused(folder)
    (folder / "config.json").write_bytes(b"\xff\xfe")
    assert "cannot read" in refused(folder)


@pytest.mark.parametrize("kept", [0, 4, 100, 5000, -1])
def test_truncated_weights(folder, kept):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    assert "model.safetensors is damaged" in refused(folder)


def test_weights_that_are_no_numbers(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8] + b"\xff" * 8)
    with pytest.raises(ArtifactError, match=r"model.safetensors is damaged: some of .* are no numbers; copy"):
        artifact.load(folder)


def test_missing_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "has no model.safetensors" in refused(folder)


def rewrite(folder, change):
    """Other tensors under the same header."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    save_file(change(load_file(path)), path, metadata)


def test_weights_that_do_not_fit(folder):
    name = "encoder.layers.1.feed_forward.inner.weight"
    rewrite(folder, lambda weights: {**weights, name: torch.zeros(33, 16)})
    assert f"{name} is (33, 16), but its configuration calls for (32, 16)" in refused(folder)
    rewrite(folder, lambda weights: {**weights, name: torch.zeros(32, 16), "extra": torch.zeros(1)})
    assert "has extra, which its configuration does not call for" in refused(folder)
    rewrite(folder, lambda weights: {n: w for n, w in weights.items() if n not in (name, "extra")})
    assert f"lacks {name}, which its configuration calls for" in refused(folder)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"model__d_ff": 33}, "says model.d_ff = 33, but the weights were saved with 32"),
        (
            {"model__activation": "gelu"},
            "says model.activation = 'gelu', but the weights were saved with 'relu'",
        ),
        (
            {"model__attention": "window"},
            "says model.attention = 'window', but the weights were saved with 'full'",
        ),
        ({"model__norm": "pre"}, "says model.norm = 'pre', but the weights were saved with 'post'"),
        ({"vocabulary__pad": 3}, "says vocabulary.pad = 3, but the weights were saved with 0"),
        ({"model__family": "rnn"}, "unknown key 'model.d_ff'; it is an option of family = 'transformer'"),
        ({"model__family": "rn"}, "model: there is no family 'rn'; did you mean 'rnn'?"),
        ({"model": {"family": "rnn"}}, "says model.family = 'rnn', but the weights were saved with"),
        ({"vocabulary": None}, "says vocabulary.source = None, but the weights were saved with 20"),
    ],
)
def test_an_edit_that_changes_what_the_weights_mean_is_refused(folder, edits, expected):
    edit(folder, **edits)
    assert expected in refused(folder)


def test_dropout_may_be_edited(folder):
    edit(folder, model__dropout=0.4)
    assert artifact.load(folder).dropout.p == 0.4
    artifact.save(small_rnn(), folder)
    edit(folder, model__dropout=0.3)
    assert artifact.load(folder).decoder.dropout.p == 0.3


def test_a_text_model_without_a_vocabulary(folder):
    edit(folder, vocabulary=None)
    path = folder / "model.safetensors"
    save_file(load_file(path), path, {"transduce": (folder / "config.json").read_text()})
    assert "a model of family 'transformer' needs a vocabulary; copy" in refused(folder)


@pytest.mark.parametrize("moment", range(6))
def test_a_save_cut_off_at_any_moment_leaves_a_whole_model(folder, moment, monkeypatch):
    """The old one or the new one; its shapes, its meaning and its weights belong together."""
    old, new = artifact.load(folder), small_model(seed=1, norm="pre", d_ff=64)
    calls = iter(range(100))

    def cut(real):
        def maybe(*arguments, **options):
            if next(calls) == moment:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return maybe

    # In this order: the weights are written, two files synced, two renamed, the folder synced.
    monkeypatch.setattr(artifact, "save_file", cut(artifact.save_file))
    monkeypatch.setattr(artifact, "sync", cut(artifact.sync))
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
    """With a tokenizer, whose file comes before the weights."""
    folder = tmp_path / "model"
    if process := os.fork():
        assert os.waitpid(process, 0)[1] == signal.SIGKILL
    else:
        calls = iter(range(100))
        real = artifact.save_file, artifact.sync, Path.replace

        def mortal(function):
            return lambda *a: os.kill(os.getpid(), signal.SIGKILL) if next(calls) == moment else function(*a)

        artifact.save_file, artifact.sync, Path.replace = map(mortal, real)
        artifact.save(_model_of(TOKENIZER), folder, TOKENIZER)
    if (folder / "model.safetensors").exists():
        artifact.load(folder)
    newer = _model_of(TOKENIZER, seed=1)
    artifact.save(newer, folder, TOKENIZER)
    assert torch.equal(artifact.load(folder).output.weight, newer.output.weight)
    assert artifact.load_tokenizer(folder).vocabulary == TOKENIZER.vocabulary
    assert sorted(names(folder)) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_the_tokenizer_of_an_older_model_goes(tmp_path):
    artifact.save(_model_of(TOKENIZER), tmp_path / "model", TOKENIZER)
    separate = train_tokenizer(["abc"], ["de"], kind="char", joint=False)
    artifact.save(_model_of(separate), tmp_path / "model", separate)
    assert not artifact.load_tokenizer(tmp_path / "model").joint
    artifact.save(_model_of(TOKENIZER), tmp_path / "model", TOKENIZER)
    assert artifact.load_tokenizer(tmp_path / "model").joint


def test_files_reach_the_disk_before_they_take_their_names(tmp_path, monkeypatch):
    events = []
    sync, replace = artifact.sync, Path.replace
    monkeypatch.setattr(artifact, "sync", lambda path: (events.append(("sync", path.name)), sync(path)))
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


def test_weights_from_elsewhere(folder):
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")
    assert "was not written by transduce" in refused(folder)


def test_numbers_that_are_no_weights(folder):
    rewrite(folder, lambda weights: {name: tensor.long() for name, tensor in weights.items()})
    assert "holds I64 numbers" in refused(folder)
    rewrite(folder, lambda weights: {n: w.float() if "norm" in n else w.half() for n, w in weights.items()})
    assert "holds F16 and F32 numbers" in refused(folder)


@pytest.mark.parametrize("metadata", [None, {"transduce": "[1]"}, {"transduce": "null"}, {"transduce": "x"}])
def test_strange_headers(folder, metadata):
    path = folder / "model.safetensors"
    save_file(load_file(path), path, metadata)
    refused(folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(folder, dtype):
    model = small_model().to(dtype)
    artifact.save(model, folder)
    assert torch.equal(artifact.load(folder).output.weight, model.output.weight)


def test_what_a_killed_save_leaves_does_not_stop_the_next(tmp_path):
    (tmp_path / "model" / ".saving-99999999").mkdir(parents=True)
    artifact.save(small_model(), tmp_path / "model")
    artifact.load(tmp_path / "model")
    assert sorted(names(tmp_path / "model")) == ["config.json", "model.safetensors"]


def test_a_failed_save_keeps_the_old_model(folder, monkeypatch):
    before = artifact.load(folder).output.weight
    monkeypatch.setattr(artifact, "sync", lambda path: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ArtifactError, match=r"cannot write .*: No space left; check"):
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
        with pytest.raises(ArtifactError, match="cannot write") as caught:
            artifact.save(small_model(d_model=128), disk / "model")
        assert "\n" not in str(caught.value)
        assert torch.equal(artifact.load(disk / "model").output.weight, before)
        assert sorted(names(disk / "model")) == ["config.json", "model.safetensors"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_loading_needs_no_compiler(tmp_path):
    """Which takes torch more than a second to load."""
    artifact.save(small_model(), tmp_path)
    code = f"import sys, transduce; transduce.load({str(tmp_path)!r}); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

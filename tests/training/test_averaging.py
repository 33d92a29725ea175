import pytest
import torch
from small_trainer import TOKENIZER, damage, make_trainer

from transduce import artifact
from transduce.config import write_toml
from transduce.data.prepared_tokenizer import tokenizer_files
from transduce.errors import CheckpointError, ConfigError
from transduce.files import write_manifest
from transduce.training import checkpoint
from transduce.training.averaging import average_run

EMBEDDING = "source_embedding.weight"


def embedding_at(run, step):
    path = run.folder / "checkpoints" / f"step-{step:08d}" / "model.safetensors"
    return checkpoint.load_file(path)[EMBEDDING]


def embedding_of(folder):
    return dict(artifact.load(folder).named_parameters())[EMBEDDING].detach()


def test_the_final_model_is_the_average_of_the_last_checkpoints(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, average=2)
    run.run()
    expected = (embedding_at(run, 4) + embedding_at(run, 6)) / 2
    torch.testing.assert_close(embedding_of(run.folder / "final"), expected)


def test_the_final_average_leaves_damaged_checkpoints_out(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs)
    run.run()
    damaged = checkpoint.list_checkpoints(run.folder / "checkpoints")[0]
    damage(damaged)
    again = make_trainer(tmp_path, pairs)
    again.resume()
    again.run()
    assert str(damaged) in again.callback.messages[-1]
    expected = (embedding_at(run, 4) + embedding_at(run, 6)) / 2
    torch.testing.assert_close(embedding_of(run.folder / "final"), expected)


def test_a_moving_average_is_validated_and_is_the_final_model(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, ema=0.9, steps=4)
    expected = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    for number, batches in enumerate(run.train_data.steps(epoch=0)[:4], start=1):
        run.step(batches)
        for name, parameter in run.model.named_parameters():
            decay = min(0.9, (1 + number) / (10 + number))
            expected[name] = decay * expected[name] + (1 - decay) * parameter.detach()
    run.validate()
    run.write_final_model()
    final = dict(artifact.load(run.folder / "final").named_parameters())
    for name, tensor in expected.items():
        torch.testing.assert_close(final[name].detach(), tensor)
    assert not torch.equal(final[EMBEDDING], run.model.source_embedding.weight)
    torch.testing.assert_close(embedding_of(run.folder / "best"), final[EMBEDDING].detach())


def test_a_moving_average_that_starts_late_starts_with_the_weights(tmp_path, pairs):
    make_trainer(tmp_path, pairs, steps=2).run()
    later = make_trainer(tmp_path, pairs, ema=0.999, steps=8)
    later.resume()
    for name, parameter in later.model.named_parameters():
        assert torch.equal(later.moving_average.weights[name], parameter)


@pytest.fixture
def finished(tmp_path, pairs):
    """A run folder with checkpoints of steps 2, 4, 6 and 8."""
    run = make_trainer(tmp_path, pairs, steps=8, average=3, vocabulary=TOKENIZER.vocabulary)
    run.run()
    write_toml(run.config, run.folder / "run.toml")
    TOKENIZER.save(run.folder)
    write_manifest(run.folder, tokenizer_files(run.folder))
    return run


@pytest.mark.parametrize(
    ("choice", "steps"),
    [({}, [4, 6, 8]), ({"last": 2}, [6, 8]), ({"steps": [6]}, [6]), ({"steps": [8, 2, 2]}, [2, 8])],
)
def test_chosen_checkpoints_are_averaged(finished, choice, steps, tmp_path):
    assert average_run(finished.folder, tmp_path / "out", **choice) == steps
    expected = sum(embedding_at(finished, step) for step in steps) / len(steps)
    torch.testing.assert_close(embedding_of(tmp_path / "out"), expected)
    assert (tmp_path / "out" / "tokenizer.json").exists()
    headers = [artifact.read_header(folder) for folder in (tmp_path / "out", finished.folder / "final")]
    assert headers[0].longest_source == headers[1].longest_source is not None


def test_a_damaged_checkpoint_is_not_averaged(finished, tmp_path):
    damage(finished.folder / "checkpoints" / "step-00000006")
    with pytest.raises(CheckpointError, match="step-00000006"):
        average_run(finished.folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_checkpoint_is_named_with_those_that_exist(finished, tmp_path):
    with pytest.raises(CheckpointError, match=r"step 5.*2, 4, 6, 8"):
        average_run(finished.folder, tmp_path / "out", steps=[4, 5])


def test_last_and_steps_exclude_each_other(finished, tmp_path):
    with pytest.raises(ConfigError):
        average_run(finished.folder, tmp_path / "out", last=1, steps=[4])


@pytest.mark.parametrize("name", ["best", "final"])
def test_models_of_the_run_are_not_overwritten(finished, name):
    with pytest.raises(ConfigError, match=name):
        average_run(finished.folder, finished.folder / name)


def test_a_run_without_checkpoints_is_not_averaged(finished, tmp_path):
    for path in checkpoint.list_checkpoints(finished.folder / "checkpoints"):
        checkpoint.shutil.rmtree(path)
    with pytest.raises(CheckpointError, match="no checkpoints"):
        average_run(finished.folder, tmp_path / "out")

import math

import pytest
import torch
from small_trainer import make_trainer

from transduce.errors import ConfigError


def test_the_gradient_is_clipped(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, clip=1e-3)
    run.step(run.train_data.steps(epoch=0)[0])
    norm = math.sqrt(sum(float((p.grad**2).sum()) for p in run.model.parameters()))
    assert norm <= 1.001e-3
    assert run.callback.steps[0]["norm"] > 1e-2  # the norm before clipping


def test_frozen_parts_keep_their_weights_and_the_rest_learns(tmp_path, pairs):
    run = make_trainer(tmp_path, pairs, freeze=["encoder", "source_embedding.weight"])
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    for batches in run.train_data.steps(epoch=0)[:3]:
        run.step(batches)
    for name, parameter in run.model.named_parameters():
        frozen = name.startswith(("encoder.", "source_embedding"))
        assert torch.equal(parameter, before[name]) == frozen, name


def test_a_part_that_does_not_exist_is_named_with_those_that_do(tmp_path, pairs):
    with pytest.raises(ConfigError, match=r"'enc'.*source_embedding, encoder, decoder"):
        make_trainer(tmp_path, pairs, freeze=["enc"])


def test_not_everything_can_be_frozen(tmp_path, pairs):
    with pytest.raises(ConfigError, match="freeze"):
        make_trainer(tmp_path, pairs, freeze=["encoder", "decoder", "source_embedding"])

import pytest
from torch import nn

from transduce.models.evaluation_mode import evaluating


def fail_in_evaluation_mode(model):
    with evaluating(model):
        raise KeyError(model.training)


@pytest.mark.parametrize("training", [False, True])
def test_the_mode_is_restored_even_after_an_error(training):
    model = nn.Dropout().train(training)
    with pytest.raises(KeyError) as raised:
        fail_in_evaluation_mode(model)
    assert raised.value.args == (False,)
    assert model.training == training

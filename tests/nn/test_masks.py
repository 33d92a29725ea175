import torch

from transduce.nn.masks import causal_mask, padding_mask


def test_true_means_may_attend():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert padding_mask(torch.tensor([[5, 6, 0], [7, 0, 0]]), pad=0).tolist() == [
        [True, True, False],
        [True, False, False],
    ]


def test_causal_and_padding_together():
    both = causal_mask(3) & padding_mask(torch.tensor([[5, 6, 0]]), pad=0)
    assert both.tolist() == [[True, False, False], [True, True, False], [True, True, False]]

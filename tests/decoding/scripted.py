"""A model that knows the translations of a few lines, with their probabilities."""

import torch
from toys import Toy

from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator


class Scripted(Toy):
    """``plans`` are (probability, target words) for each source; a token that is in no plan is improbable."""

    device = torch.device("cpu")

    def __init__(self, plans, tokenizer):
        super().__init__(tokenizer.vocabulary.target, seed=1)
        self.vocabulary = tokenizer.vocabulary
        encoded = {
            source: tuple(ids) for source, ids in zip(plans, tokenizer.encode_source(plans), strict=True)
        }
        self.plans = {
            encoded[source]: [
                (weight, [*tokenizer.target.encode([" ".join(words)])[0], self.vocabulary.eos])
                for weight, words in targets
            ]
            for source, targets in plans.items()
        }

    def logits(self, source, target):
        source = tuple(token for token in source if token != self.vocabulary.pad)
        history, weights = list(target[1:]), torch.full((self.size,), 1e-7)
        for weight, plan in self.plans[source]:
            if plan[: len(history)] == history and len(history) < len(plan):
                weights[plan[len(history)]] += weight
        return weights.log()


def scripted_translator(plans, *, guard=True, settings=None, **others):
    texts = [*plans, *(" ".join(words) for targets in plans.values() for _, words in targets)]
    tokenizer = train_tokenizer(texts, texts, kind="symbols")
    return Translator(
        Scripted(plans, tokenizer), tokenizer, settings or SearchSettings(), guard=guard, **others
    )

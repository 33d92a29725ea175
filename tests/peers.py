"""Models of ours in other libraries, for tests that compare."""

import torch

from transduce.interop.hugging_face_seq2seq_config import their_fields
from transduce.interop.hugging_face_seq2seq_weights import export_seq2seq
from transduce.models.transformer import Transformer


def hugging_face_twin(model: Transformer, positions: int = 64):
    """The same model, Hugging Face's; every key of it is filled."""
    import transformers

    fields = their_fields(model.config, model.vocabulary, positions=positions)
    (architecture,) = fields.pop("architectures")
    config = transformers.AutoConfig.for_model(**fields)
    twin = getattr(transformers, architecture)(config).eval()
    twin.load_state_dict(export_seq2seq(model, positions=positions))
    return twin


def hugging_face_search(twin, source: torch.Tensor, max_length: int, beam: int, alpha: float):
    """(tokens without the end, score) of every hypothesis of every source, by ``generate``."""
    config = twin.config
    special = {config.pad_token_id, config.decoder_start_token_id} - {config.eos_token_id}
    # With one beam it is greedy search, which takes no penalty and gives no score.
    searching = {"length_penalty": alpha, "early_stopping": "never"} if beam > 1 else {}
    found = twin.generate(
        input_ids=source,
        attention_mask=source != config.pad_token_id,
        num_beams=beam,
        num_return_sequences=beam,
        max_new_tokens=max_length,
        suppress_tokens=sorted(special),
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
        **searching,
    )
    scores = found.sequences_scores.tolist() if beam > 1 else [None] * len(source)
    each = [
        (_spoken(tokens, config.eos_token_id, config.pad_token_id), score)
        for tokens, score in zip(found.sequences[:, 1:].tolist(), scores, strict=True)
    ]
    return [each[begin : begin + beam] for begin in range(0, len(each), beam)]


def _spoken(tokens: list[int], eos: int, pad: int) -> list[int]:
    """Until the end, or until the padding of a hypothesis that was cut off."""
    return tokens[: min(tokens.index(token) if token in tokens else len(tokens) for token in (eos, pad))]

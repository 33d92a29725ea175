"""Encoder-decoder models of transformers and ours compute the same logits and find the same hypotheses."""

import json

import pytest
import torch
from safetensors.torch import load_file

from builders import random_tokens, shaken, small_config, small_model
from peers import hugging_face_search, hugging_face_twin
from transduce.config import Vocabulary
from transduce.config.attention import WindowAttention
from transduce.decoding.beam import beam_search
from transduce.decoding.penalties import plain_penalty
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.hugging_face_seq2seq import load_seq2seq
from transduce.interop.hugging_face_seq2seq_config import their_fields
from transduce.interop.hugging_face_seq2seq_weights import export_seq2seq, import_seq2seq, stored_seq2seq
from transduce.models.build import build

transformers = pytest.importorskip("transformers")

BART = {"positions": "learned", "embedding_norm": True, "max_length": 40}
M2M = {"norm": "pre", "sine_spacing": "endpoint", "special": {"pad": 1, "bos": 2, "eos": 2}}
OURS = [
    {},
    {"activation": "gelu", "d_model": 24, "d_ff": 7, "heads": 3, "encoder_layers": 1, "decoder_layers": 3},
    {"d_model": 15, "heads": 5},  # an odd width: one sine more than cosines
    {"share": "target"},
    {"share": "target", "source": 31, "target": 17},
    {"share": "none", "source": 17, "target": 31},
    {"share": "inputs", "output_bias": True},
    {"special": {"pad": 5, "bos": 2, "eos": 2}},
    {"special": {"pad": 5, "bos": 5, "eos": 0}, "output_bias": True, "activation": "swish"},
    {"sine_layout": "halves", "scale_embeddings": False},
    {"encoder_layers": 6, "decoder_layers": 6, "d_model": 64, "d_ff": 128, "heads": 8},
    BART,
    {**BART, "share": "none", "output_bias": True, "scale_embeddings": False, "activation": "gelu"},
    {**BART, "norm": "pre", "output_bias": True},
    {**BART, "norm": "pre", "share": "inputs", "special": {"pad": 1, "bos": 2, "eos": 2}},
    {**M2M, "first_position": 2},
    {**M2M, "first_position": 2, "sine_layout": "halves", "share": "target", "scale_embeddings": False},
]


def random_model(source=20, target=20, seed=0, special=None, **changes):
    vocabulary = Vocabulary(source=source, target=target, **(special or {}))
    return shaken(build(small_config(**changes), vocabulary, seed=seed), seed)


def padded(rows, length, size, pad):
    """Random tokens, the rows of different lengths."""
    tokens = torch.randint(6, size, (rows, length))
    lengths = torch.randint(1, length + 1, (rows, 1))
    lengths[0] = length
    return tokens.masked_fill(torch.arange(length) >= lengths, pad)


def compare_logits(model, twin, tolerance=1e-5):
    vocabulary = model.vocabulary
    source, target = (
        padded(5, length, size, vocabulary.pad)
        for length, size in ((9, vocabulary.source), (7, vocabulary.target))
    )
    target[:, 0] = vocabulary.bos
    real = target != vocabulary.pad
    real[:, 0] = True
    with torch.no_grad():
        theirs = twin(
            input_ids=source,
            attention_mask=source != vocabulary.pad,
            decoder_input_ids=target,
            decoder_attention_mask=real,
        ).logits
        ours = model(source, target)
    assert ours.std() > 0.01
    torch.testing.assert_close(ours[real], theirs[real], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("options", OURS)
def test_ours_in_theirs(options):
    model = random_model(**options)
    compare_logits(model, hugging_face_twin(model))


@pytest.mark.parametrize("options", OURS)
def test_there_and_back(options, tmp_path):
    """Through their files, in which there are no copies and no sinusoids, every weight stays the same."""
    model = random_model(**options)
    twin = hugging_face_twin(model)
    twin.save_pretrained(tmp_path)
    compare_logits(model, type(twin).from_pretrained(tmp_path).eval())
    if model.config.d_model % 2:
        return  # only our alternating sinusoids have odd widths
    other = load_seq2seq(tmp_path)
    compare_logits(other, twin)
    assert other.config.share == model.config.share
    again = stored_seq2seq(other)
    for name, tensor in stored_seq2seq(model).items():
        assert torch.equal(again[name], tensor), name
    if model.config.positions == "learned" or model.config.sine_layout == "halves":
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, other.get_parameter(name)), name


SIZES = {
    "vocab_size": 40,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 50,
    "init_std": 0.3,
}
OPUS = {"pad_token_id": 39, "eos_token_id": 0, "decoder_start_token_id": 39, "forced_eos_token_id": None}
FAIRSEQ = {"pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}
FAIRSEQ = {**FAIRSEQ, "forced_eos_token_id": None}
THEIRS = [
    ("Marian", "MTModel", {**OPUS, "activation_function": "swish", "scale_embedding": True}),
    ("Marian", "MTModel", {**OPUS, "share_encoder_decoder_embeddings": False}),
    (
        "Marian",
        "MTModel",
        {**OPUS, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 45, "d_model": 48},
    ),
    ("Marian", "MTModel", {**OPUS, "tie_word_embeddings": False, "activation_function": "relu"}),
    ("Bart", "ForConditionalGeneration", FAIRSEQ),
    ("Bart", "ForConditionalGeneration", {**FAIRSEQ, "scale_embedding": True, "encoder_layers": 1}),
    ("MBart", "ForConditionalGeneration", {**FAIRSEQ, "scale_embedding": True}),
    ("MBart", "ForConditionalGeneration", {**FAIRSEQ, "tie_word_embeddings": False}),
    ("M2M100", "ForConditionalGeneration", FAIRSEQ),
    ("M2M100", "ForConditionalGeneration", {**FAIRSEQ, "scale_embedding": False, "d_model": 16}),
]


def their_model(kind, suffix, changes, seed=0):
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **changes})
    twin = shaken(getattr(transformers, f"{kind}{suffix}")(config))
    if hasattr(twin, "final_logits_bias"):
        twin.final_logits_bias.normal_()
    return twin


@pytest.mark.parametrize(("kind", "suffix", "changes"), THEIRS)
def test_theirs_in_ours(kind, suffix, changes, tmp_path):
    """Models that began there: equal logits, and equal hypotheses of greedy and beam search."""
    twin = their_model(kind, suffix, changes)
    twin.save_pretrained(tmp_path)
    model = load_seq2seq(tmp_path)
    compare_logits(model, twin, 1e-4)
    vocabulary = model.vocabulary
    source = random_tokens(12, 8, seed=3) % 30 + 5
    source[:4, 6:] = vocabulary.pad
    for beam in (1, 4):
        ours = beam_search(model, source, [14] * 12, beam=beam, penalty=plain_penalty(1.0))
        theirs = hugging_face_search(twin, source, 14, beam, 1.0)
        for mine, others in zip(ours, theirs, strict=True):
            assert [each.tokens for each in mine] == [tokens for tokens, _ in others]


@pytest.mark.parametrize("form", ["shards", "torch", "torch shards", "half", "old"])
def test_forms_of_weights(form, tmp_path):
    twin = their_model("Marian", "MTModel", {**OPUS, "activation_function": "swish"})
    if form == "half":
        twin.half().save_pretrained(tmp_path)
        twin = transformers.MarianMTModel.from_pretrained(tmp_path, dtype=torch.float32).eval()
    elif form == "shards":
        twin.save_pretrained(tmp_path, max_shard_size="20KB")
        assert (tmp_path / "model.safetensors.index.json").exists()
    else:
        twin.save_pretrained(tmp_path)
        (tmp_path / "model.safetensors").unlink()
        state = twin.state_dict()
        if form == "old":  # as the first files had it
            state["model.encoder.version"] = torch.ones(1)
        if form == "torch shards":
            names = sorted(state)
            parts = {"a.bin": names[::2], "b.bin": names[1::2]}
            for file, part in parts.items():
                torch.save({name: state[name] for name in part}, tmp_path / file)
            index = {name: file for file, part in parts.items() for name in part}
            (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
        else:
            torch.save(state, tmp_path / "pytorch_model.bin")
    compare_logits(load_seq2seq(tmp_path), twin, 1e-4)


@pytest.mark.parametrize("index", ["[]", "{", '{"weight_map": {}}', '{"weight_map": {"a": "../a.bin"}}'])
def test_damaged_indices(index, tmp_path):
    their_model("Marian", "MTModel", OPUS).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ArtifactError):
        load_seq2seq(tmp_path)


def test_base_models_have_no_prefix(tmp_path):
    """``BartModel`` and others are saved without the name of the body."""
    twin = their_model("Bart", "ForConditionalGeneration", FAIRSEQ)
    twin.final_logits_bias.zero_()
    twin.model.save_pretrained(tmp_path)
    assert "shared.weight" in load_file(tmp_path / "model.safetensors")
    compare_logits(load_seq2seq(tmp_path), twin, 1e-4)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"norm": "pre"}, "norm = 'pre'"),
        ({"positions": "learned"}, "positions = 'learned'"),
        ({"positions": "rotary"}, "positions = 'rotary'"),
        ({"activation": "swiglu"}, "activation = 'swiglu'"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon = 1e-06"),
        ({"attention": WindowAttention()}, "attention.kind = 'window'"),
        ({"d_k": 8}, "d_k = 8"),
        ({"d_v": 8}, "d_v = 8"),
        ({"final_norm": True}, "final_norm = True"),
        ({"bias": False}, "bias = False"),
        ({"decoder": "ssru"}, "decoder = 'ssru'"),
        ({"mask_padding": False}, "mask_padding = False"),
        ({"first_position": 2}, "first_position = 2"),
    ],
)
def test_what_theirs_cannot_express_is_refused(changes, named):
    model = small_model(**changes)
    for refused in (
        lambda: their_fields(model.config, model.vocabulary),
        lambda: export_seq2seq(model, positions=8),
    ):
        with pytest.raises(ConfigError) as error:
            refused()
        assert named in str(error.value)
        assert "\n" not in str(error.value)


def test_unfit_states_are_refused():
    model = random_model(share="target", sine_layout="halves")
    state = export_seq2seq(model, positions=16)

    def refuse(named, changes, without=()):
        before = {name: tensor.clone() for name, tensor in model.named_parameters()}
        changed = {name: tensor for name, tensor in (state | changes).items() if name not in without}
        with pytest.raises(ArtifactError, match=named):
            import_seq2seq(model, changed)
        assert all(torch.equal(before[name], tensor) for name, tensor in model.named_parameters())

    refuse(r"1 tensors.*model\.extra", {"model.extra": torch.zeros(1)})
    fc1 = "model.encoder.layers.1.fc1.weight"
    refuse(f"1 tensors.*{fc1}", {}, without=[fc1])
    refuse(r"fc1\.weight.*\(31, 16\).*\(32, 16\)", {fc1: torch.zeros(31, 16)})
    refuse(r"fc1\.weight.*\(16, 32\).*\(32, 16\)", {fc1: torch.zeros(16, 32)})
    refuse(r"lm_head\.weight.*model\.decoder", {"lm_head.weight": torch.zeros(20, 16)})
    refuse("final_logits_bias", {"final_logits_bias": torch.ones(1, 20)})
    table = "model.encoder.embed_positions.weight"
    refuse(table, {table: state[table].flip(1)})
    refuse(table, {table: state[table][:, :4]})

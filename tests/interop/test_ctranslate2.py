import json
import sys

import pytest
import torch

from builders import TOKENS, random_tokens, random_words, reversal, reversing_model, small_config, small_model
from transduce.config import Vocabulary
from transduce.config.attention import WindowAttention
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.beam import beam_search
from transduce.decoding.penalties import plain_penalty
from transduce.errors import ArtifactError, ConfigError, DependencyError
from transduce.interop.ctranslate2 import export_ctranslate2
from transduce.interop.ctranslate2_file import read_ctranslate2
from transduce.models.build import build

ctranslate2 = pytest.importorskip("ctranslate2")


def opened(folder, compute_type="float32"):
    return ctranslate2.Translator(str(folder), device="cpu", compute_type=compute_type, intra_threads=1)


def named(rows):
    """Ids as their tokens, without padding and end."""
    return [[f"<{token}>" for token in row if token not in (0, 2)] for row in rows.tolist()]


def numbered(tokens):
    return [int(token[1:-1]) for token in tokens if token != "<2>"]


@torch.no_grad()
def our_scores(model, source, target):
    """The log-probability of every target token, ``eos`` included."""
    bos = torch.full((len(target), 1), model.vocabulary.bos)
    steps = model(source, torch.cat((bos, target[:, :-1]), dim=1)).log_softmax(-1)
    scores = steps.gather(2, target[:, :, None]).squeeze(2)
    return [row[tokens != 0].tolist() for row, tokens in zip(scores, target, strict=True)]


def their_scores(translator, source, target):
    found = translator.score_batch(named(source), named(target))
    return [result.log_probs for result in found]


def pairs(rows):
    """Sources, and targets that have nothing to do with them."""
    generator = torch.Generator().manual_seed(0)
    return reversal(rows, generator)[0], reversal(rows, generator)[1]


def assert_equal_scores(ours, theirs, within):
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, abs=within)


MODELS = [
    {},
    {"norm": "pre"},
    {"activation": "gelu", "norm_epsilon": 0.01},
    {"activation": "swiglu", "norm": "pre", "share": "target"},
    {"activation": "swish"},
    {"activation": "gelu_tanh"},
    {"activation": "swiglu", "share": "none", "encoder_layers": 1, "decoder_layers": 3},
    {"positions": "learned", "max_length": 40},
    {"positions": "none"},
    {"positions": "rotary"},
    {"positions": "rotary", "norm": "pre", "d_k": 5, "d_v": 5},
    {"d_k": 6, "d_v": 6},
    {"d_model": 15, "heads": 5},
    {"final_norm": True},
    {"norm": "pre", "final_norm": False},
    {"output_bias": True},
    {"output_bias": True, "share": "inputs", "scale_embeddings": False},
    {"output_bias": True, "share": "none", "embedding_norm": True},
    {"bias": False},
    {"bias": False, "norm": "pre", "activation": "swiglu"},
    {"sine_layout": "halves", "sine_spacing": "endpoint", "first_position": 2},
]


@pytest.mark.parametrize("changes", MODELS)
def test_equal_log_probabilities(changes, tmp_path):
    model = small_model(**changes)
    export_ctranslate2(model, tmp_path / "out")
    source, target = pairs(20)
    theirs = their_scores(opened(tmp_path / "out"), source, target)
    assert_equal_scores(our_scores(model, source, target), theirs, within=1e-4)


def test_a_decoder_that_starts_from_a_zero_embedding(tmp_path):
    """Its first token is padding, whose row is zero."""
    vocabulary = Vocabulary(source=TOKENS, target=TOKENS, pad=TOKENS - 1, bos=TOKENS - 1, eos=2)
    model = build(small_config(share="none"), vocabulary, seed=1).eval()
    with torch.no_grad():
        model.target_embedding.weight[-1] = 0
    export_ctranslate2(model, tmp_path / "out")
    assert read_ctranslate2(tmp_path / "out").variables["decoder/start_from_zero_embedding"] == 1
    source, target = random_tokens(4, 6), random_tokens(4, 7, seed=1)
    source[source == TOKENS - 1] = target[target == TOKENS - 1] = 5
    source[:, -1] = target[:, -1] = 2
    theirs = their_scores(opened(tmp_path / "out"), source, target)
    assert_equal_scores(our_scores(model, source, target), theirs, within=1e-4)


def test_two_vocabularies(tmp_path):
    model = build(small_config(share="target"), Vocabulary(source=TOKENS, target=31), seed=1).eval()
    export_ctranslate2(model, tmp_path / "out")
    source, target = pairs(20)
    target = torch.where(target > 2, target + 11, target)
    theirs = their_scores(opened(tmp_path / "out"), source, target)
    assert_equal_scores(our_scores(model, source, target), theirs, within=1e-4)


@pytest.mark.parametrize(
    ("quantization", "within"), [("bfloat16", 0.1), ("float16", 0.01), ("int16", 0.1), ("int8", 0.3)]
)
def test_quantized(quantization, within, tmp_path):
    """The model itself stays as it is."""
    model = small_model()
    before = [parameter.clone() for parameter in model.parameters()]
    export_ctranslate2(model, tmp_path / "out", quantization=quantization, positions=16)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    export_ctranslate2(model, tmp_path / "whole", positions=16)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("out", "whole")]
    assert sizes[0] < 0.8 * sizes[1]
    source, target = pairs(20)
    translator = opened(tmp_path / "out", "default")
    theirs = their_scores(translator, source, target)
    assert_equal_scores(our_scores(model, source, target), theirs, within)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that learned a little, and its folder."""
    folder = tmp_path_factory.mktemp("trained")
    model = reversing_model(steps=150)
    export_ctranslate2(model, folder / "float32")
    export_ctranslate2(model, folder / "int8", quantization="int8")
    return model, folder


def translations(translator, source, beam, alpha, patience=1.0):
    """(tokens, score) of each. Theirs counts ``eos`` as part of |Y| only if it is asked to return it."""
    found = translator.translate_batch(
        named(source),
        beam_size=beam,
        length_penalty=alpha,
        patience=patience,
        min_decoding_length=0,
        max_decoding_length=12,
        return_end_token=True,
        return_scores=True,
    )
    return [(numbered(one.hypotheses[0]), one.scores[0]) for one in found]


@pytest.mark.parametrize(
    ("beam", "alpha"), [(1, 0.0), (2, 0.0), (4, 0.0), (2, 0.6), (4, 0.6), (4, 1.0), (5, 2.0), (3, -0.5)]
)
def test_equal_searches(trained, beam, alpha):
    """Theirs stops when as many hypotheses have ended as the beam is wide; more patience makes it whole."""
    model, folder = trained
    source, _ = reversal(100, torch.Generator().manual_seed(1))
    ours = beam_search(model, source, [12] * 100, beam=beam, penalty=plain_penalty(alpha))
    translator = opened(folder / "float32")
    for (best, *_), (tokens, score) in zip(
        ours, translations(translator, source, beam, alpha, patience=50), strict=True
    ):
        assert best.tokens == tokens
        assert best.score == pytest.approx(score, abs=1e-4)
    hasty = translations(translator, source, beam, alpha)
    assert all(one[0].score >= score - 1e-4 for one, (_, score) in zip(ours, hasty, strict=True))
    assert sum(one[0].tokens == tokens for one, (tokens, _) in zip(ours, hasty, strict=True)) >= 95


def test_8_bit_numbers_say_nearly_the_same(trained):
    model, folder = trained
    source, _ = reversal(100, torch.Generator().manual_seed(1))
    ours = beam_search(model, source, [12] * 100, beam=4, penalty=plain_penalty(0.6))
    theirs = translations(opened(folder / "int8", "int8"), source, 4, 0.6)
    assert sum(one[0].tokens == tokens for one, (tokens, _) in zip(ours, theirs, strict=True)) >= 85


@pytest.mark.parametrize("joint", [True, False])
def test_text(joint, tmp_path):
    """Its tokens are the tokenizer's: what that makes of a line goes in as it is."""
    words = random_words(300)
    lines = [" ".join(words[i : i + 3]) for i in range(0, 300, 3)]
    tokenizer = train_tokenizer(lines, lines[::-1], size=300, joint=joint)
    model = build(small_config(share="all" if joint else "target"), tokenizer.vocabulary, seed=1).eval()
    export_ctranslate2(model, tmp_path / "out", tokenizer)
    again = TokenizerPair.load(tmp_path / "out")
    ids = tokenizer.encode_source(lines[:8])
    tokens = [again.source.backend.encode(line, add_special_tokens=False).tokens for line in lines[:8]]
    translator = opened(tmp_path / "out")
    found = translator.score_batch(tokens, [again.target.backend.encode(lines[9]).tokens] * 8)
    target = torch.tensor(tokenizer.encode_target([lines[9]]))
    for result, source in zip(found, ids, strict=True):
        (expected,) = our_scores(model, torch.tensor([source]), target)
        assert result.log_probs == pytest.approx(expected, abs=1e-4)
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (settings["bos_token"], settings["eos_token"], settings["unk_token"]) == ("<s>", "</s>", "<unk>")


def test_far_positions(tmp_path):
    """It reads as many tokens as were asked for, and no more."""
    model = small_model()
    export_ctranslate2(model, tmp_path / "out", positions=50)
    source, target = random_tokens(2, 50), random_tokens(2, 50, seed=1)
    source[:, -1] = target[:, -1] = 2
    translator = opened(tmp_path / "out")
    theirs = their_scores(translator, source, target)
    assert_equal_scores(our_scores(model, source, target), theirs, within=1e-4)
    with pytest.raises(RuntimeError, match="positions >= 50"):
        translator.score_batch(named(random_tokens(1, 51)), named(target[:1]))


def refusal(kind, *arguments, **options):
    with pytest.raises(kind) as error:
        export_ctranslate2(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_it_cannot_do_is_refused(tmp_path):
    window = refusal(ConfigError, small_model(attention=WindowAttention()), tmp_path / "out")
    assert "'window'" in window
    widths = refusal(ConfigError, small_model(d_k=8, d_v=4), tmp_path / "out")
    assert "d_k = 8" in widths
    assert "d_v = 4" in widths
    assert "'ssru'" in refusal(ConfigError, small_model(decoder="ssru"), tmp_path / "out")
    assert "mask_padding" in refusal(ConfigError, small_model(mask_padding=False), tmp_path / "out")
    unknown = refusal(ConfigError, small_model(), tmp_path / "out", quantization="int4")
    assert "'int4'" in unknown
    assert "int8," in unknown
    assert not (tmp_path / "out").exists()


def test_a_place_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("here")
    assert str(tmp_path) in refusal(ArtifactError, small_model(), tmp_path)
    assert str(tmp_path / "mine") in refusal(ArtifactError, small_model(), tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    assert "pip install ctranslate2" in refusal(DependencyError, small_model(), tmp_path / "out")

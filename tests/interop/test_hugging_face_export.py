"""Folders that we write load in transformers, give the same results there, and come back unchanged."""

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, normalizers

from builders import shaken, small_bert, small_config, small_gpt, small_rnn
from exchange import LINES as PIECES
from exchange import train_sentencepiece
from transduce.config import Vocabulary
from transduce.config.vit import ViTConfig
from transduce.data.sentencepiece import read_sentencepiece
from transduce.data.special_tokens import SpecialTokens
from transduce.data.subword_nmt import SPECIAL, bpe_tokenizer, read_bpe_codes
from transduce.data.tokenizer import SideTokenizer, TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.beam import beam_search
from transduce.decoding.penalties import plain_penalty
from transduce.errors import ArtifactError, ConfigError
from transduce.interop import vit
from transduce.interop.bert import load_bert
from transduce.interop.folders import read_folder
from transduce.interop.gpt2 import load_gpt2
from transduce.interop.hugging_face_export import export_hugging_face
from transduce.interop.hugging_face_peer import HuggingFacePeer, load_peer, load_tokenizer, outputs_of_lines
from transduce.interop.hugging_face_seq2seq import load_seq2seq
from transduce.interop.peer import Pair, Search
from transduce.models.build import build

transformers = pytest.importorskip("transformers")

SOURCE = [f"the cat saw {n} mice" for n in range(60)]
TARGET = [f"die Katze sah {n} Mäuse" for n in range(60)]
LINES = ["the cat saw 5 mice", "", "  two  spaces ", "größte ½ </s> 你好 <pad>", "mice."]


def trained(kind="bpe", **options):
    return train_tokenizer(SOURCE, TARGET, kind=kind, size=700, **options)


def model_for(tokenizer, **changes):
    return shaken(build(small_config(**changes), tokenizer.vocabulary, seed=1))


def same_weights(first, second):
    theirs = dict(second.named_parameters())
    assert theirs.keys() == dict(first.named_parameters()).keys()
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, theirs[name]), name


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char", "byte"])
def test_tokenizers(kind, tmp_path):
    tokenizer = trained(kind)
    export_hugging_face(model_for(tokenizer), tokenizer, tmp_path)
    theirs = load_tokenizer(tmp_path)
    assert theirs(LINES)["input_ids"] == tokenizer.encode_source(LINES)
    assert theirs(LINES, padding=True)["input_ids"][1][-1] == tokenizer.vocabulary.pad
    ids = tokenizer.encode_target(TARGET[:5])
    texts = [text.strip() for text in theirs.batch_decode(ids, skip_special_tokens=True)]
    assert texts == [tokenizer.decode(row) for row in ids] == TARGET[:5]


SHAPES = [
    {},
    {"sine_layout": "halves", "output_bias": True, "share": "target"},
    {"share": "none"},
    {"positions": "learned", "embedding_norm": True, "max_length": 60},
    {"positions": "learned", "embedding_norm": True, "norm": "pre", "max_length": 60, "share": "inputs"},
    {"norm": "pre", "sine_spacing": "endpoint", "first_position": 1},
]


@pytest.mark.parametrize("changes", SHAPES)
def test_the_same_results(changes, tmp_path):
    tokenizer = trained()
    model = model_for(tokenizer, **changes)
    export_hugging_face(model, tokenizer, tmp_path)
    peer = HuggingFacePeer(tmp_path)
    assert peer.description.startswith("transformers ")
    sources = tokenizer.encode_source(SOURCE[:4])
    targets = tokenizer.encode_target(TARGET[:4])
    for source, target, theirs in zip(
        sources,
        targets,
        peer.score([Pair(*each) for each in zip(sources, targets, strict=True)]),
        strict=True,
    ):
        with torch.no_grad():
            read = torch.tensor([[tokenizer.vocabulary.bos, *target[:-1]]])
            ours = model(torch.tensor([source]), read)[0].log_softmax(-1)
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    for beam in (1, 4):
        found = [
            beam_search(model, torch.tensor([source]), [12], beam=beam, penalty=plain_penalty(0.8))[0][
                0
            ].tokens
            for source in sources
        ]
        assert peer.search(sources, Search(beam, 12, 0.8, [])) == found
    outputs = outputs_of_lines(tmp_path, SOURCE[:2], limit=9)
    for source, output in zip(sources, outputs, strict=False):
        assert output.source == source
        best = beam_search(model, torch.tensor([source]), [9], beam=1)[0][0].tokens
        assert output.greedy == best
        assert output.logits.shape == (len(best) + 1, model.vocabulary.target)
        assert output.text.strip() == tokenizer.decode(best)


@pytest.mark.parametrize("changes", SHAPES)
def test_in_and_out_again(changes, tmp_path):
    tokenizer = trained()
    model = model_for(tokenizer, **changes)
    export_hugging_face(model, tokenizer, tmp_path / "out")
    imported = read_folder(tmp_path / "out")
    export_hugging_face(imported.model, imported.tokenizer, tmp_path / "again")
    same_weights(imported.model, load_seq2seq(tmp_path / "again"))
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "again")]
    assert files[0] == files[1]
    if model.config.positions == "learned" or model.config.sine_layout == "halves":
        same_weights(model, imported.model)
    assert imported.tokenizer.encode_source(LINES) == tokenizer.encode_source(LINES)


def test_two_tokenizers(tmp_path):
    tokenizer = trained("char", joint=False)
    assert not tokenizer.joint
    export_hugging_face(model_for(tokenizer, share="target"), tokenizer, tmp_path)
    assert load_tokenizer(tmp_path)(SOURCE[:3])["input_ids"] == tokenizer.encode_source(SOURCE[:3])
    theirs = load_tokenizer(tmp_path / "target_tokenizer")
    assert theirs(TARGET[:3])["input_ids"] == tokenizer.encode_target(TARGET[:3])
    again = read_folder(tmp_path).tokenizer
    assert again.encode_source(LINES) == tokenizer.encode_source(LINES)
    assert again.encode_target(LINES) == tokenizer.encode_target(LINES)
    output = outputs_of_lines(tmp_path, SOURCE[:1], limit=5)[0]
    assert output.text.strip() == tokenizer.decode(output.greedy)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    pytest.importorskip("sentencepiece")
    return read_sentencepiece(train_sentencepiece(tmp_path_factory.mktemp("pieces") / "spm.model"))


def own_ids(backend, *added):
    """Return tokenizers whose model has its pieces in another order, and some more."""
    tokens = [token for token in sorted(backend.get_vocab(), reverse=True) if token != "<s>"]
    side = SideTokenizer(backend, ["<pad>", *added, *tokens])
    return TokenizerPair(side, side, special=SpecialTokens(pad="<pad>", bos="<pad>", eos="</s>"))


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "sine_spacing": "endpoint", "first_position": 1}])
def test_pieces_with_ids_of_the_model(pieces, changes, tmp_path):
    tokenizer = own_ids(pieces, "▁theirs", "你")  # of which the text of a source may have the second
    model = model_for(tokenizer, **changes)
    export_hugging_face(model, tokenizer, tmp_path)
    theirs = load_tokenizer(tmp_path)
    assert type(theirs).__name__ == "MarianTokenizer"
    lines = [*PIECES[:5], "", "  two  spaces ", "你", "größte"]
    assert theirs(lines)["input_ids"] == tokenizer.encode_source(lines)
    ids = [1, *tokenizer.target.encode(PIECES[:1])[0], 1]
    assert theirs.decode(ids) == tokenizer.decode(ids)
    again = read_folder(tmp_path).tokenizer
    assert again.encode_source(lines) == tokenizer.encode_source(lines)


def test_pieces_that_sentencepiece_cannot_have(pieces, tmp_path):
    backend = Tokenizer.from_str(pieces.to_str())
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), backend.normalizer])
    tokenizer = own_ids(backend, "▁theirs")
    export_hugging_face(model_for(tokenizer), tokenizer, tmp_path)
    assert not list(tmp_path.glob("*.spm"))
    theirs = load_tokenizer(tmp_path)
    lines = [*(line.upper() for line in PIECES[:5]), "", "你 größte"]
    assert theirs(lines)["input_ids"] == tokenizer.encode_source(lines)
    ids = [1, *tokenizer.target.encode(PIECES[:1])[0], 1]
    assert theirs.decode(ids).strip() == tokenizer.decode(ids).strip()
    assert "theirs" in theirs.decode(ids)


def test_pieces_that_the_model_lacks_are_named(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\na b\nab c</w>\n")
    side = bpe_tokenizer(read_bpe_codes(tmp_path / "codes"), [*SPECIAL, "a@@", "b@@", "abc"])
    special = SpecialTokens(pad="<pad>", bos="<s>", eos="</s>")
    tokenizer = TokenizerPair(side, side, special=special)
    with pytest.raises(ConfigError, match=r"makes 2 pieces .* such as 'ab'") as error:
        export_hugging_face(model_for(tokenizer), tokenizer, tmp_path / "out")
    assert "--to" in str(error.value)


def test_gpt(tmp_path):
    model = small_gpt(vocabulary=Vocabulary(source=20, target=20, pad=19, bos=19, eos=19))
    export_hugging_face(model, None, tmp_path)
    tokens = torch.randint(0, 19, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), load_peer(tmp_path)(tokens).logits, atol=1e-4, rtol=1e-4)
    same_weights(model, load_gpt2(tmp_path))


@pytest.mark.parametrize(
    ("heads", "name"),
    [
        ({}, "BertForMaskedLM"),
        ({"masked_head": False}, "BertModel"),
        ({"masked_head": False, "pooler": True}, "BertModel"),
        ({"masked_head": False, "pooler": True, "classes": ["a", "b", "c"]}, "BertForSequenceClassification"),
        ({"pooler": True, "classes": ["next", "random"]}, "BertForPreTraining"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*assuming that")
def test_bert(heads, name, tmp_path):
    model = small_bert(**heads)
    export_hugging_face(model, None, tmp_path)
    twin = load_peer(tmp_path)
    assert type(twin).__name__ == name
    same_weights(model, load_bert(tmp_path))
    assert load_bert(tmp_path).config.classes == model.config.classes


@pytest.mark.parametrize("options", [{}, {"qkv_bias": False, "image_size": [8, 16], "channels": 1}])
def test_vit(options, tmp_path):
    sizes = {"image_size": 8, "patch_size": 4, "channels": 3, "classes": ["x", "y", "z"], "layers": 2}
    sizes |= {"d_model": 16, "d_ff": 20, "heads": 2, "dropout": 0.0}
    config = ViTConfig(**{**sizes, **options})
    model = shaken(build(config))
    with torch.no_grad():
        model.class_token.normal_()
    export_hugging_face(model, None, tmp_path)
    twin = load_peer(tmp_path)
    assert twin.config.id2label == {0: "x", 1: "y", 2: "z"}
    images = torch.rand(2, config.channels, *config.size)
    with torch.no_grad():
        torch.testing.assert_close(model(images), twin(pixel_values=images).logits, atol=1e-4, rtol=1e-4)
    other = build(config, seed=5)
    twin.save_pretrained(tmp_path / "theirs")
    vit.import_vit(other, load_file(tmp_path / "theirs" / "model.safetensors"))
    same_weights(model, other)


def test_what_cannot_be_exported(tmp_path):
    def refuse(model, named):
        with pytest.raises(ConfigError) as error:
            export_hugging_face(model, None, tmp_path / "out")
        assert named in str(error.value)
        assert not (tmp_path / "out").exists()

    tokenizer = trained("char")
    refuse(model_for(tokenizer, norm="pre"), "norm = 'pre'")
    refuse(model_for(tokenizer, norm="pre", sine_spacing="endpoint"), "first_position = 0")
    refuse(small_bert(pooler=True), "pooler = True")
    refuse(small_rnn(), "rnn")


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    tokenizer = trained("char")
    with pytest.raises(ArtifactError, match="cannot write"):
        export_hugging_face(model_for(tokenizer), tokenizer, tmp_path / "file" / "out")

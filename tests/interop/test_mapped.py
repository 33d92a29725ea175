"""State dicts of people's own models with torch.nn.Transformer, and mapping files."""

import json
import math

import pytest
import torch
from foreign.parity import greedy
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from inside import run
from transduce import artifact
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.errors import ArtifactError, ConfigError
from transduce.interop.mapped import read_mapped

SPECIAL = ["<unk>", "<pad>", "<bos>", "<eos>"]
SOURCE = [*SPECIAL, *["zwei", "kleine", "Hunde", "spielen", "im", "Schnee", "und", "ein", "Mann", "schläft"]]
TARGET = [
    *SPECIAL,
    *["two", "small", "dogs", "play", "in", "the", "snow", "and", "a", "man", "sleeps"],
    "here",
]
PAD, BOS, EOS = 1, 2, 3
MAP = """
heads = 3
scale_embeddings = true
{more}
[tensors]
source_embedding = "src_tok_emb.embedding.weight"
target_embedding = "tgt_tok_emb.embedding.weight"
output_weight = "generator.weight"
output_bias = "generator.bias"
position_table = "positional_encoding.pos_embedding"
{tensors}
[text]
source_vocabulary = "source.json"
target_vocabulary = "target.txt"
pad = "<pad>"
bos = "<bos>"
eos = "<eos>"
source_prefix = ["<bos>"]
{text}
"""


class PositionalEncoding(nn.Module):
    """The tutorial's: a buffer (length, 1, width) of interleaved sinusoids."""

    def __init__(self, width, length=60):
        super().__init__()
        rates = torch.exp(-torch.arange(0, width, 2) * math.log(10000) / width)
        angles = torch.arange(length).reshape(length, 1) * rates
        table = torch.zeros(length, width)
        table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
        self.register_buffer("pos_embedding", table.unsqueeze(-2))

    def forward(self, x):
        return x + self.pos_embedding[: x.size(0)]


class TokenEmbedding(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.width = width

    def forward(self, tokens):
        return self.embedding(tokens) * math.sqrt(self.width)


class Tutorial(nn.Module):
    """The translation model of PyTorch's tutorial, whose length comes first."""

    def __init__(self, width=24, **options):
        super().__init__()
        self.transformer = nn.Transformer(width, 3, 2, 1, dim_feedforward=40, dropout=0.1, **options)
        self.generator = nn.Linear(width, len(TARGET))
        self.src_tok_emb = TokenEmbedding(len(SOURCE), width)
        self.tgt_tok_emb = TokenEmbedding(len(TARGET), width)
        self.positional_encoding = PositionalEncoding(width)

    def forward(self, source, target):
        source, target = source.T, target.T
        outs = self.transformer(
            self.positional_encoding(self.src_tok_emb(source)),
            self.positional_encoding(self.tgt_tok_emb(target)),
            None,
            nn.Transformer.generate_square_subsequent_mask(len(target)),
            None,
            (source == PAD).T,
            None,
            (source == PAD).T,
        )
        return self.generator(outs).transpose(0, 1)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "source.json").write_text(json.dumps({token: n for n, token in enumerate(SOURCE)}))
    (tmp_path / "target.txt").write_text("".join(f"{token}\n" for token in TARGET), encoding="utf-8")
    return tmp_path


def written(folder, model=None, more="", tensors="", text="", change=None):
    """Write a state dict and a mapping file; return both paths and the model."""
    model = (model or Tutorial()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    torch.save(model.state_dict(), folder / "state.pt")
    content = MAP.format(more=more, tensors=tensors, text=text)
    (folder / "names.toml").write_text(change(content) if change else content)
    return folder / "state.pt", folder / "names.toml", model


def compare(model, theirs, tolerance=1e-5):
    source = torch.tensor([[2, 5, 9, 4, 7, 3], [2, 8, 10, 3, PAD, PAD]])
    target = torch.tensor([[2, 6, 8, 4, 11], [2, 9, 5, 5, 14]])
    with torch.no_grad():
        expected, found = theirs(source, target), model(source, target)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, ""),
        ({"norm_first": True}, "norm_first = true"),
        ({"activation": "gelu", "layer_norm_eps": 1e-3}, 'activation = "gelu"\nnorm_epsilon = 1e-3'),
        ({"bias": False}, ""),
    ],
)
def test_the_tutorials_model_has_the_same_logits(options, more, folder):
    path, names, theirs = written(folder, Tutorial(**options), more)
    imported = read_mapped(path, names)
    assert imported.model.config.has_final_norm
    compare(imported.model, theirs)


def test_the_command_writes_a_model_that_translates(folder):
    path, names, theirs = written(folder)
    done = run("import", path, "--map", names, "--out", folder / "model")
    assert done.returncode == 0, done.stderr
    loaded, tokenizer = artifact.load(folder / "model"), artifact.load_tokenizer(folder / "model")
    compare(loaded, theirs)
    source = tokenizer.encode_source(["zwei Hunde schlafen"])[0]
    assert source == [BOS, SOURCE.index("zwei"), SOURCE.index("Hunde"), 0, EOS]

    class Toolkit:
        PAD, BOS, EOS = PAD, BOS, EOS

    with torch.no_grad():
        expected = greedy(theirs, Toolkit, source)
    found = Translator(loaded, tokenizer, SearchSettings(beam=1, max_length=12))("zwei Hunde schlafen")
    assert found.text == " ".join(TARGET[token] for token in expected if token)
    assert expected


def test_learned_positions_and_shared_embeddings(folder):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Transformer(24, 3, 1, 2, dim_feedforward=32, batch_first=True, norm_first=True)
            self.words = nn.Embedding(len(TARGET), 24)
            self.places = nn.Embedding(40, 24)

        def forward(self, source, target):
            def embed(ids):
                return self.words(ids) + self.places.weight[: ids.size(1)]

            mask = nn.Transformer.generate_square_subsequent_mask(target.size(1))
            padding = source == PAD
            x = self.net(
                embed(source),
                embed(target),
                tgt_mask=mask,
                src_key_padding_mask=padding,
                memory_key_padding_mask=padding,
            )
            return x @ self.words.weight.T

    theirs = Own().eval()
    torch.save({"epoch": 3, "model": theirs.state_dict()}, folder / "state.pt")
    (folder / "names.toml").write_text(
        'heads = 3\nscale_embeddings = false\nnorm_first = true\npositions = "learned"\n'
        '[tensors]\nstate = "model"\ntransformer = "net."\nsource_embedding = "words.weight"\n'
        'position_table = "places.weight"\n'
        '[text]\nsource_vocabulary = "target.txt"\npad = 1\nbos = 2\neos = 3\n'
    )
    imported = read_mapped(folder / "state.pt", folder / "names.toml")
    assert imported.model.config.share == "all"
    assert imported.model.max_length == 40
    assert imported.tokenizer.joint
    compare(imported.model, theirs)


def test_a_tokenizer_file_and_safetensors(folder):
    _, names, theirs = written(folder, text='source_tokenizer = "tokenizer.json"\ntarget_tokenizer = "words"')
    backend = Tokenizer(models.WordLevel({token: n for n, token in enumerate(SOURCE)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.save(str(folder / "tokenizer.json"))
    state = {f"module.{name}": tensor.contiguous() for name, tensor in theirs.state_dict().items()}
    save_file(state, folder / "state.safetensors")
    imported = read_mapped(folder / "state.safetensors", names)
    compare(imported.model, theirs)
    assert imported.tokenizer.encode_source(["zwei"]) == [[BOS, 4, EOS]]


def test_without_vocabularies_there_is_no_tokenizer(folder):
    path, names, theirs = written(
        folder,
        change=lambda text: text.split("[text]")[0] + "[text]\npad = 1\nbos = 2\neos = 3\n",
    )
    imported = read_mapped(path, names)
    assert imported.tokenizer is None
    assert imported.notes
    compare(imported.model, theirs)


def replaced(old, new):
    def change(text):
        assert old in text
        return text.replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (replaced("heads = 3", ""), "heads"),
        (replaced("heads = 3", "heads = 5"), "heads"),
        (replaced("heads = 3", "heads = 3\nnhead = 3"), "nhead"),
        (replaced("scale_embeddings = true", ""), "scale_embeddings"),
        (replaced("src_tok_emb.embedding", "src_tok_emb.words"), r"src_tok_emb\.words"),
        (replaced('output_bias = "generator.bias"', ""), r"generator\.bias"),
        (replaced("[tensors]", '[tensors]\ntransformer = "model."'), r"model\.encoder"),
        (replaced("positional_encoding.pos", "positional.pos"), r"positional\.pos"),
        (replaced("[tensors]", 'sine_layout = "halves"\n[tensors]'), "pos_embedding"),
        (replaced("[tensors]", 'positions = "none"\n[tensors]'), "pos_embedding"),
        (replaced('eos = "<eos>"', 'eos = "</s>"'), "</s>"),
        (replaced('"target.txt"', '"source.json"'), "14 tokens"),
        (replaced('"target.txt"', '"missing.txt"'), r"missing\.txt"),
        (replaced('source_prefix = ["<bos>"]', 'unknown = "<what>"'), "unknown"),
        (lambda _: "heads = ", r"names\.toml"),
    ],
)
def test_mistakes_in_the_mapping_file_are_one_line(change, fact, folder):
    path, names, _ = written(folder, change=change)
    with pytest.raises((ArtifactError, ConfigError), match=fact) as caught:
        read_mapped(path, names)
    assert "\n" not in str(caught.value)


def test_tensors_that_nobody_named_are_refused_unless_ignored(folder):
    path, names, theirs = written(folder)
    torch.save({**theirs.state_dict(), "extra.weight": torch.ones(3)}, path)
    with pytest.raises(ArtifactError, match=r"extra\.weight"):
        read_mapped(path, names)
    _, names, _ = written(folder, theirs, tensors='ignore = ["extra.weight"]')
    torch.save({**theirs.state_dict(), "extra.weight": torch.ones(3)}, path)
    compare(read_mapped(path, names).model, theirs)


def test_a_checkpoint_with_more_than_weights_needs_the_key(folder):
    path, names, theirs = written(folder)
    torch.save({"weights": theirs.state_dict(), "epoch": 1}, path)
    with pytest.raises(ArtifactError, match="weights"):
        read_mapped(path, names)


def test_a_pickled_module_is_refused_by_name(folder):
    path, names, theirs = written(folder)
    torch.save(theirs, path)
    with pytest.raises(ArtifactError, match=r"calls .*Tutorial"):
        read_mapped(path, names)

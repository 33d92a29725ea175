"""``transduce import``: from a folder of transformers to a model folder, and what can be done with that."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from builders import shaken
from inside import run
from transduce import artifact
from transduce.errors import ArtifactError
from transduce.runs.exchange import import_model as import_folder

transformers = pytest.importorskip("transformers")

END = "<|endoftext|>"
TEXT = [f"the cat saw {n} mice" for n in range(50)]
WORDS = ["the", "[SEP]", "cat", "[PAD]", "saw", "[CLS]", "[UNK]", "[MASK]", "mice"]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXT, trainer)
    backend.save(str(folder / "tokenizer.json"))
    sizes = {"vocab_size": 280, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    twin = shaken(transformers.GPT2LMHeadModel(config))
    twin.save_pretrained(folder)
    return folder, twin


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    sizes = {
        "vocab_size": len(WORDS),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 20,
        "max_position_embeddings": 11,
        "pad_token_id": 3,
    }
    twin = shaken(transformers.BertForMaskedLM(transformers.BertConfig(**sizes)))
    twin.save_pretrained(folder)
    return folder, twin


def test_gpt2(gpt2, tmp_path):
    folder, twin = gpt2
    done = run("import", folder, "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'model'}\n"
    assert done.stderr.startswith("gpt: 2 layers, d_model 16")
    tokens = torch.randint(1, 280, (2, 7))
    with torch.no_grad():
        ours, theirs = artifact.load_as(tmp_path / "model", "gpt")(tokens), twin(tokens).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    told = run("lm", "generate", tmp_path / "model", "--prompt", "the cat", "--beam", 1, "--max-length", 3)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("the cat")


def test_bert(bert, tmp_path):
    folder, twin = bert
    done = run("import", folder, "--out", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    filled = run("mlm", "fill", tmp_path / "model", "the [MASK] saw", "--count", 2)
    assert filled.returncode == 0, filled.stderr
    with torch.no_grad():
        logits = twin(torch.tensor([[5, 0, 7, 4, 1]])).logits[0, 2]
    best = float(logits.softmax(-1).max())
    assert float(filled.stdout.splitlines()[0].split("\t")[1]) == pytest.approx(best, abs=1e-3)


def test_what_cannot_be_imported(gpt2, bert, tmp_path):
    def refuse(named, **changes):
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        for path in gpt2[0].iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        fields = json.loads((folder / "config.json").read_text())
        for name, value in changes.items():
            if name in ("tokenizer", "weights"):
                value(folder)
            elif value is None:
                del fields[name]
            else:
                fields[name] = value
        (folder / "config.json").write_text(json.dumps(fields))
        done = run("import", folder, "--out", tmp_path / "model")
        assert done.returncode == 2, done.stdout
        assert named in done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "model").exists()

    def add_a_tensor(folder):
        path = folder / "model.safetensors"
        save_file({**load_file(path), "transformer.extra": torch.zeros(1)}, path)

    refuse("'pegasus'", model_type="pegasus")
    refuse("'n_embd'", n_embd=None)
    refuse("bos_token_id 0 and eos_token_id 6", bos_token_id=0, eos_token_id=6)
    refuse("transformer.extra", weights=add_a_tensor)
    refuse("tokenizer.json or vocab.txt", tokenizer=lambda folder: (folder / "tokenizer.json").unlink())
    done = run("import", tmp_path / "nowhere", "--out", tmp_path / "model")
    assert str(tmp_path / "nowhere") in done.stderr


def test_a_model_folder_of_ours_is_not_imported(gpt2, tmp_path):
    run("import", gpt2[0], "--out", tmp_path / "model")
    with pytest.raises(ArtifactError, match="model folder"):
        import_folder(tmp_path / "model", tmp_path / "again")

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from builders import shaken
from inside import run
from transduce import artifact
from transduce.errors import TransduceError
from transduce.interop.roberta import load_roberta

transformers = pytest.importorskip("transformers")

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "the", "cat", "saw", "mice", "<mask>"]
SIZES = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 12,
    "type_vocab_size": 1,
    "initializer_range": 0.3,
}


def theirs(kind, family="Roberta", **changes):
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    return shaken(getattr(transformers, f"{family}{kind}")(config))


def texts():
    tokens = torch.randint(4, 9, (3, 10))
    tokens[1, 6:], tokens[2, 1:] = 1, 1
    return tokens, tokens != 1


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta"])
@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_equal_outputs(family, kind, tmp_path):
    labels = {"id2label": {0: "good", 1: "bad", 2: "neither"}} if "Class" in kind else {}
    twin = theirs(kind, family, **labels)
    twin.save_pretrained(tmp_path)
    model = load_roberta(tmp_path)
    assert model.max_length == 10
    tokens, real = texts()
    with torch.no_grad():
        wanted = twin(tokens, attention_mask=real.long())
        states = model.encode(tokens)
        if kind == "Model":
            torch.testing.assert_close(states[real], wanted.last_hidden_state[real], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(model.pool(states), wanted.pooler_output, atol=1e-5, rtol=1e-5)
        elif kind == "ForMaskedLM":
            torch.testing.assert_close(model(tokens)[real], wanted.logits[real], atol=1e-5, rtol=1e-5)
        else:
            assert model.config.classes == ["good", "bad", "neither"]
            torch.testing.assert_close(model.classify(states), wanted.logits, atol=1e-5, rtol=1e-5)


def test_the_command(tmp_path):
    folder = tmp_path / "theirs"
    twin = theirs("ForMaskedLM")
    twin.save_pretrained(folder)
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([WORDS[-1], *WORDS[:4]])
    backend.save(str(folder / "tokenizer.json"))
    done = run("import", folder, "--out", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    found = artifact.load_tokenizer(tmp_path / "ours").vocabulary
    assert (found.bos, found.pad, found.eos) == (0, 1, 2)
    filled = run("mlm", "fill", tmp_path / "ours", "the <mask> saw", "--count", 2)
    assert filled.returncode == 0, filled.stderr
    with torch.no_grad():
        best = twin(torch.tensor([[0, 4, 8, 6, 2]])).logits[0, 2].softmax(-1).max()
    assert float(filled.stdout.splitlines()[0].split("\t")[1]) == pytest.approx(float(best), abs=1e-3)


def test_unfit_folders_are_refused(tmp_path):
    theirs("Model").save_pretrained(tmp_path)
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    state, fields = load_file(path), json.loads(config.read_text())

    def refuse(named, tensors=None, **changes):
        save_file({**state, **(tensors or {})}, path)
        config.write_text(json.dumps({**fields, **changes}))
        with pytest.raises(TransduceError) as error:
            load_roberta(tmp_path)
        assert named in str(error.value)

    refuse("bert.extra", {"extra": torch.zeros(1)})
    refuse("positions", {"embeddings.position_embeddings.weight": torch.zeros(2, 16)})
    refuse("'relative_key'", position_embedding_type="relative_key")
    refuse("bart", model_type="bart")
    refuse("bos", bos_token_id=99)

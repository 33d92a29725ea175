"""What stands in front of a prompt, and special tokens under other names: from the folder, into ours."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from builders import shaken
from transduce import artifact
from transduce.decoding.generator import TextGenerator
from transduce.runs.exchange import import_model

transformers = pytest.importorskip("transformers")

WORDS = ["<nothing>", "<sos>", "<end>", "<what>", "the", "cat", "saw", "mice", "and", "more"]
SPECIAL = WORDS[:4]


def save_tokenizer(folder, *, prefix=(), special=SPECIAL, **names):
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<what>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.WhitespaceSplit(), decoders.Fuse()
    backend.add_special_tokens(list(special))
    if prefix:
        backend.post_processor = processors.TemplateProcessing(
            single=[*prefix, "$A"], special_tokens=[(name, WORDS.index(name)) for name in prefix]
        )
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def save_gpt2(folder, **fields):
    sizes = {"vocab_size": len(WORDS), "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 4}
    twin = shaken(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, initializer_range=0.3)))
    twin.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    (folder / "generation_config.json").unlink()
    return twin


def imported(folder, out):
    import_model(folder, out)
    return artifact.load_tokenizer(out), artifact.load_as(out, "gpt")


@pytest.mark.parametrize(
    ("prefix", "names", "ids"),
    [
        ((), {}, [4, 5]),
        (("<sos>",), {}, [1, 4, 5]),
        (("<sos>", "<what>"), {}, [1, 3, 4, 5]),
        ((), {"add_bos_token": True}, [1, 4, 5]),
        ((), {"add_bos_token": False}, [4, 5]),
    ],
)
def test_prompts_begin_and_continue_as_theirs(prefix, names, ids, tmp_path):
    twin = save_gpt2(tmp_path, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    save_tokenizer(tmp_path, prefix=prefix, **names)
    tokenizer, _ = imported(tmp_path, tmp_path / "ours")
    special = tokenizer.vocabulary
    assert (special.pad, special.bos, special.eos) == (0, 1, 2)
    generator = TextGenerator.load(tmp_path / "ours", beam=1, max_length=6, precision="float32")
    assert generator._encode("the cat") == ids
    (found,) = generator("the cat")
    wanted = twin.generate(
        torch.tensor([ids]), max_new_tokens=6, do_sample=False, eos_token_id=2, suppress_tokens=[0, 1]
    )[0, len(ids) :].tolist()
    assert found.ids == wanted[: wanted.index(2) if 2 in wanted else len(wanted)]


def test_an_empty_prompt_continues_the_beginning(tmp_path):
    save_gpt2(tmp_path, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    save_tokenizer(tmp_path)
    imported(tmp_path, tmp_path / "ours")
    assert TextGenerator.load(tmp_path / "ours")._encode("") == [1]


@pytest.mark.parametrize(
    ("fields", "generation", "names", "found"),
    [
        ({"bos_token_id": 5, "eos_token_id": 5, "pad_token_id": None}, {}, {}, (5, 5, 5)),
        ({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}, {}, {}, (0, 1, 2)),
        ({"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 2}, {}, {"unk_token": "<what>"}, (1, 0, 2)),
        ({"bos_token_id": None, "eos_token_id": None}, {"eos_token_id": [3, 2]}, {}, (3, 3, 3)),
        ({"bos_token_id": 1, "eos_token_id": [3, 2]}, {}, {"eos_token": "<end>"}, (0, 1, 2)),
        (
            {"bos_token_id": 50256, "eos_token_id": 50256},
            {},
            {"bos_token": {"content": "<sos>"}, "eos_token": "<end>", "pad_token": "<what>"},
            (3, 1, 2),
        ),
    ],
)
def test_special_tokens_are_found(fields, generation, names, found, tmp_path):
    save_gpt2(tmp_path, **fields)
    save_tokenizer(tmp_path, **names)
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    tokenizer, model = imported(tmp_path, tmp_path / "ours")
    for vocabulary in (tokenizer.vocabulary, model.vocabulary):
        assert (vocabulary.pad, vocabulary.bos, vocabulary.eos) == found


def test_a_bert_with_other_names(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 20}
    twin = shaken(transformers.BertModel(transformers.BertConfig(vocab_size=len(WORDS), **sizes)))
    twin.save_pretrained(tmp_path)
    names = {"pad_token": "<nothing>", "cls_token": "<sos>", "sep_token": "<end>"}
    save_tokenizer(tmp_path, **names)
    import_model(tmp_path, tmp_path / "ours")
    found = artifact.load_tokenizer(tmp_path / "ours").vocabulary
    assert (found.pad, found.bos, found.eos) == (0, 1, 2)

"""Folders of sentence-transformers: vectors by its rules and, where it is installed, by itself."""

import json

import numpy as np
import pytest
import torch

from builders import shaken
from inside import run
from transduce import artifact
from transduce.errors import ArtifactError
from transduce.prediction.masked_text import MaskedTextModel
from transduce.runs.exchange import import_model

transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
LINES = ["a b c d a b c d a b", "a", "b c d", "d d"]
NAMES = {
    "mean": "mean_tokens",
    "cls": "cls_token",
    "max": "max_tokens",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
}


def save(folder, pooling="mean", *, normalize=True, longest=6, place="", new=False):
    body = folder / place
    body.mkdir(parents=True, exist_ok=True)
    (body / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=12, **sizes)
    twin = shaken(transformers.BertModel(config))
    twin.save_pretrained(body)
    write(
        body / "sentence_bert_config.json", {} if new else {"max_seq_length": longest, "do_lower_case": False}
    )
    if new:
        write(body / "tokenizer_config.json", {"model_max_length": longest})
    modules = [("Transformer", place), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    write(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (kind, path) in enumerate(modules[: 3 if normalize else 2])
        ],
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    fields = {f"pooling_mode_{name}": mode == pooling for mode, name in NAMES.items()}
    if new:
        fields = {"pooling_mode": {"mean_sqrt_len": "mean_sqrt_len_tokens"}.get(pooling, pooling)}
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, **fields})
    return twin


def write(path, content):
    path.write_text(json.dumps(content))


def wanted(twin, line, pooling, normalize, longest):
    """The vector by the rules of sentence-transformers, of one text alone."""
    ids = [2, *[WORDS.index(word) for word in line.split()][: longest - 2], 3]
    with torch.no_grad():
        states = twin(torch.tensor([ids])).last_hidden_state[0]
    vector = {
        "mean": lambda: states.mean(dim=0),
        "cls": lambda: states[0],
        "max": lambda: states.max(dim=0).values,
        "mean_sqrt_len": lambda: states.sum(dim=0) / len(ids) ** 0.5,
    }[pooling]()
    return (vector / vector.norm() if normalize else vector).numpy()


@pytest.mark.parametrize("pooling", NAMES)
@pytest.mark.parametrize(("normalize", "place", "new"), [(True, "", False), (False, "0_Transformer", True)])
@pytest.mark.filterwarnings("ignore:.*truncated")
def test_equal_vectors(pooling, normalize, place, new, tmp_path):
    twin = save(tmp_path / "theirs", pooling, normalize=normalize, place=place, new=new)
    import_model(tmp_path / "theirs", tmp_path / "ours")
    model = MaskedTextModel.load(tmp_path / "ours", precision="float32", on_warning=lambda _: None)
    found = model.embed(LINES)
    for line, vector in zip(LINES, found, strict=True):
        np.testing.assert_allclose(vector, wanted(twin, line, pooling, normalize, 6), atol=1e-5)
    other = model.embed(LINES, "cls", normalize=not normalize)
    for line, vector in zip(LINES, other, strict=True):
        np.testing.assert_allclose(vector, wanted(twin, line, "cls", not normalize, 6), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pooling", NAMES)
def test_the_library_itself(pooling, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    save(tmp_path / "theirs", pooling)
    theirs = library.SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    model = MaskedTextModel.load(tmp_path / "ours", precision="float32", on_warning=lambda _: None)
    np.testing.assert_allclose(model.embed(LINES), theirs.encode(LINES), atol=1e-5)


def test_the_command(tmp_path):
    twin = save(tmp_path / "theirs")
    done = run("import", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    config = artifact.load_as(tmp_path / "ours", "bert").config
    assert (config.pooling, config.normalize, config.embedding_length) == ("mean", True, 6)
    (tmp_path / "lines.txt").write_text("a\n")
    for options, how in (
        ((), ("mean", True)),
        (("--no-normalize",), ("mean", False)),
        (("--pooling", "max", "--normalize"), ("max", True)),
    ):
        said = run(
            "mlm",
            "embed",
            tmp_path / "ours",
            "--input",
            tmp_path / "lines.txt",
            "--precision",
            "float32",
            *options,
        )
        np.testing.assert_allclose(json.loads(said.stdout), wanted(twin, "a", *how, 6), atol=1e-5)


def test_what_cannot_be_imported(tmp_path):
    folder = tmp_path / "theirs"

    def refuse(named, path, change):
        save(folder)
        content = json.loads((folder / path).read_text()) if (folder / path).exists() else {}
        write(folder / path, change(content))
        with pytest.raises(ArtifactError) as error:
            import_model(folder, tmp_path / "ours")
        assert named in str(error.value)

    refuse("Dense", "modules.json", lambda old: [*old[:2], {**old[2], "type": "x.Dense"}])
    refuse("nothing", "modules.json", lambda _: [])
    refuse("damaged", "modules.json", lambda _: [3])
    refuse("damaged", "modules.json", lambda _: 3)
    refuse("outside", "modules.json", lambda old: [old[0], {**old[1], "path": "../1_Pooling"}])
    pooling = "1_Pooling/config.json"
    refuse("weightedmean", pooling, lambda _: {"pooling_mode_weightedmean_tokens": True})
    refuse("lasttoken", pooling, lambda _: {"pooling_mode": "lasttoken"})
    refuse(
        "cls_token and mean_tokens",
        pooling,
        lambda old: {"pooling_mode_cls_token": True, **old} | {"pooling_mode_cls_token": True},
    )
    refuse("do_lower_case", "sentence_bert_config.json", lambda old: {**old, "do_lower_case": True})
    refuse("prompt", "config_sentence_transformers.json", lambda _: {"default_prompt_name": "query"})


def test_lengths(tmp_path):
    for longest, found in ((512, 12), (1e30, 12), (float("inf"), 12), (7, 7), ("x", 12)):
        save(tmp_path / "theirs", longest=longest)
        ours = tmp_path / f"ours {longest}"
        import_model(tmp_path / "theirs", ours)
        assert artifact.load_as(ours, "bert").config.embedding_length == found

import pytest

from builders import small_config
from inside import run
from transduce import save
from transduce.data.corpus import Corpus
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.backtranslation import backtranslate_file
from transduce.decoding.translator import Translator
from transduce.errors import ConfigError
from transduce.models.build import build

TOKENIZER = train_tokenizer(["the quick brown fox"], ["jumps over the lazy dog"], kind="char")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reverse")
    save(build(small_config(), TOKENIZER.vocabulary, seed=1), folder / "model", TOKENIZER)
    (folder / "mono").write_text("the fox\n\nlazy dog\n")
    return folder


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_every_line_becomes_a_pair_with_its_translation_as_the_source(folder):
    translator = Translator.load(folder / "model", precision="float32", extra_length=8)
    backtranslate_file(translator, folder / "mono", folder / "pairs.tsv")
    expected = [(translator(line).text, line) for line in ("the fox", "lazy dog")]
    assert [tuple(row) for row in rows(folder / "pairs.tsv")] == expected
    (part,) = Corpus.of([], [], [folder / "pairs.tsv"], "training").parts
    assert sum(len(chunk.sources) for chunk in part.chunks()) == 2


def test_a_tag_and_several_samples_on_the_command_line(folder):
    done = run(
        *("backtranslate", folder / "model", "--input", folder / "mono", "--output", folder / "tagged.tsv"),
        *("--tag", "<BT>", "--sample", "--nbest", 2),
    )
    assert (done.returncode, done.stdout) == (0, "")
    found = rows(folder / "tagged.tsv")
    assert [target for _, target in found] == ["the fox"] * 2 + ["lazy dog"] * 2
    assert all(source.startswith("<BT> ") for source, _ in found)


def test_a_tag_that_would_break_the_rows_is_refused(folder):
    translator = Translator.load(folder / "model", precision="float32")
    with pytest.raises(ConfigError, match="--tag"):
        backtranslate_file(translator, folder / "mono", folder / "bad.tsv", tag="a\tb")
    assert not (folder / "bad.tsv").exists()

"""The page's scripts in node, for the tests of the walk."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest
import torch

from builders import shaken, small_config
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.settings import SearchSettings
from transduce.decoding.translator import Translator
from transduce.inspection.walk.data import walk_data
from transduce.inspection.walk.model import rounded_model
from transduce.inspection.walk.scripts import walk_script
from transduce.models.build import build

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed (Debian: nodejs)")

# Reads one JSON request per line, {body, values}; the body is that of a function of the values.
DRIVER = """
const vm = require("node:vm");
vm.runInThisContext(SCRIPT);
const plain = (key, value) =>
  value instanceof Set || ArrayBuffer.isView(value) ? Array.from(value)
  : value === -Infinity ? "-Infinity" : value;
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  let answer;
  try {
    const { body, values } = JSON.parse(line);
    answer = { result: new Function(...Object.keys(values), body)(...Object.values(values)) ?? null };
  } catch (error) { answer = { error: error.stack }; }
  process.stdout.write(JSON.stringify(answer, plain) + "\\n");
});
"""


class Node:
    """A node process that has read the scripts; `run` calls the body of a function in it."""

    def __init__(self):
        driver = DRIVER.replace("SCRIPT", json.dumps(walk_script()))
        self.process = subprocess.Popen(
            [NODE, "-e", driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def run(self, body, **values):
        self.process.stdin.write(json.dumps({"body": body, "values": values}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["result"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def node():
    if NODE is None:
        pytest.skip("node is not installed (Debian: nodejs)")
    process = Node()
    yield process
    process.close()


def tensor(value):
    """A tensor of the page as one of torch."""
    numbers = [float(number) if number is not None else float("nan") for number in value["data"]]
    return torch.tensor(numbers).view(value["shape"])


SOURCES = ["the quick brown fox jumps", "over the lazy dog", "a b c"]
TARGETS = ["der schnelle braune Fuchs", "über den faulen Hund", "a b c d"]


def walker(
    *, kind="char", joint=True, beam=3, extra_length=3, penalty="paper", length_penalty=0.6, **changes
):
    """A translator with an untrained model whose heads differ, biases are not 0 and norms not 1."""
    tokenizer = train_tokenizer(SOURCES, TARGETS, kind=kind, size=600, joint=joint)
    model = shaken(build(small_config(**changes), tokenizer.vocabulary, seed=1))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query" in name or "key" in name:
                parameter.mul_(3)
    settings = SearchSettings(
        beam=beam, extra_length=extra_length, penalty=penalty, length_penalty=length_penalty
    )
    return Translator(model, tokenizer, settings)


def rounded(translator):
    """The same translator, with the weights of the page."""
    return replace(translator, model=rounded_model(translator.model))


def walked(translator, sentence=SOURCES[0]):
    """The data of the page, as it reads it."""
    return json.loads(json.dumps(walk_data(translator, sentence)))

import pytest

import examples

PAGE = """# A page: two `parts`

[here](#a-page-two-parts), [there](other.md#part), [outside](https://example.org/x)

```python
x = 2
x + 1  # => 3
```

```console
$ transduce --version > version.txt
transduce 9.9.9
$ ls \\
    transduce
```

```text
[no](link.md)
```

```python
y = x
```
"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_python_and_commands_are_run_in_the_folder(page, tmp_path):
    assert examples.run_page(page, tmp_path)["y"] == 2
    assert (tmp_path / "version.txt").read_text().startswith("transduce ")


def test_a_wrong_result_and_its_line_are_reported(page, tmp_path):
    page.write_text(PAGE.replace("=> 3", "=> 4"))
    with pytest.raises(AssertionError) as failure:
        examples.run_page(page, tmp_path)
    last = failure.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(page), 7)


def test_a_command_that_fails_is_reported(page, tmp_path):
    page.write_text(PAGE.replace("--version", "--versoin"))
    with pytest.raises(AssertionError, match=r"page.md, line 11: transduce --versoin"):
        examples.run_page(page, tmp_path)


def test_text_goes_in_through_a_pipe_or_a_file(tmp_path, monkeypatch):
    seen = []

    def run(*arguments, input=""):  # noqa: A002
        seen.append((arguments, input))
        return examples.inside.Done(0, "", "")

    monkeypatch.setattr(examples.inside, "run", run)
    (tmp_path / "in.txt").write_text("a\nb\n")
    (tmp_path / "page.md").write_text(
        '```sh\necho "two words" | transduce translate m  # a comment\ntransduce translate m < in.txt\n```\n'
    )
    examples.run_page(tmp_path / "page.md", tmp_path)
    assert seen == [(("translate", "m"), "two words\n"), (("translate", "m"), "a\nb\n")]


def test_links_and_headings(page, tmp_path):
    assert examples.links(page) == [(page, "a-page-two-parts"), (tmp_path / "other.md", "part")]
    assert examples.headings(page) == {"a-page-two-parts"}

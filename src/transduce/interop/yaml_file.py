"""Read YAML files of other toolkits: plain data, whatever their tags say."""

from pathlib import Path
from typing import Any

from transduce.errors import ArtifactError, DependencyError, reason_of, remedy_for
from transduce.files import read_small

_LARGEST = 1 << 21  # bytes


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file whose content is a table; tagged tables become dictionaries, and nothing is created."""
    try:
        import yaml
    except ImportError as error:
        raise DependencyError(
            f"{path} needs PyYAML, which is not installed", "run: pip install PyYAML"
        ) from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """A loader that ignores tags."""

        def flatten_mapping(self, node: Any) -> None:
            """Refuse merged tables: a few lines of them can describe a table of any size."""
            if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
                raise yaml.YAMLError("merge keys (<<) are not supported")

    def plain(loader: Any, _tag: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        return loader.construct_scalar(node)

    Loader.add_multi_constructor("!", plain)
    Loader.add_multi_constructor("tag:yaml.org,2002:python/", plain)
    try:
        content = yaml.load(read_small(path, _LARGEST), Loader)  # noqa: S506
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {reason_of(error)}", remedy_for(error)) from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError) as error:
        raise ArtifactError(f"{path} is not valid YAML: {error}", "copy the file again") from error
    if not isinstance(content, dict):
        raise ArtifactError(f"{path} is not a table of options", "copy the file again")
    return content

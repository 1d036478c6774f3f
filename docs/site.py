"""MkDocs hook and Griffe extension of the site (see mkdocs.yml).

The hook adds README.md, CHANGELOG.md and CONTRIBUTING.md as pages and expands `::: package.*` into one entry per public
name. The extension formats our docstrings for the API reference.
"""

import ast
import re
import textwrap
from pathlib import Path

from griffe import Class, Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
# The home page is the only one of its section: no navigation.
HOME = "---\nhide: [navigation]\n---\n"
# Other files in the root that pages link to.
PLAIN = {"LICENSE": "license.txt", "SECURITY.md": "security.txt", "CITATION.cff": "citation.txt"}
# Docstring sections that Griffe does not know: code and prose.
CODE, PROSE = "Example", ("Input shape", "Output shape", "Reference")
# Methods called and documented by Keras.
KERAS = {"build", "call", "compute_mask", "compute_output_shape", "compute_output_spec", "get_config", "from_config"}
KERAS |= {"on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "train_step", "test_step", "predict_step"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from the root, with their links adjusted."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for old, new in {**PAGES, **PLAIN}.items():
            text = text.replace(f"]({old}", f"]({new}")
        files.append(File.generated(config, page, content=HOME + text if page == "index.md" else text))
    for source, target in PLAIN.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Expands `::: package.*`."""
    return re.sub(r"^::: ([\w.]+)\.\*$", lambda match: entries(match[1]), markdown, flags=re.MULTILINE)


def on_page_content(html: str, **_: object) -> str:
    """Keeps the options in inline code on one line: browsers break them after their hyphens."""
    options = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
    code = re.compile(r"<code>[^<]*-[^<]*</code>")
    return code.sub(lambda found: options.sub(r'<span class="option">\g<0></span>', found[0]), html)


def entries(package: str) -> str:
    """Returns a directive for each name that a package re-exports, classes first."""
    module = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    imports = [(node.module, alias) for node in module.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    places = {alias.name: place for place, alias in imports if alias.asname == alias.name}
    names = sorted(places, key=lambda name: (name.islower(), name))
    return "\n\n".join(f"::: {places[name]}.{name}" for name in names)


class Docstrings(Extension):
    """Formats examples as code, lists attributes in the class docstring, hides methods that only Keras calls."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Fences example code and sets section titles in bold."""
        if obj.docstring:
            titles = "|".join((CODE, *PROSE))
            pattern = rf"^({titles}):\n((?:(?:    .*)?\n)*(?:    .*)?)"
            obj.docstring.value = re.sub(pattern, _section, obj.docstring.value, flags=re.MULTILINE)

    def on_class_members(self, *, cls: Class, **_: object) -> None:
        """Moves attribute docstrings into the class docstring."""
        documented = [one for one in cls.attributes.values() if one.docstring and not one.name.startswith("_")]
        for attribute in documented:
            # Inherited attributes are hidden where they are defined.
            if not attribute.inherited:
                attribute.public = False
        for name, member in cls.members.items():
            if name in KERAS or name.startswith("__"):
                member.public = False
        if documented and cls.docstring:
            lines = (f"    {one.name}: {' '.join(one.docstring.value.split())}" for one in documented)
            cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)


def _section(match: re.Match[str]) -> str:
    title, body = match[1], textwrap.dedent(match[2]).strip()
    return f"**{title}**\n\n```python\n{body}\n```\n\n" if title == CODE else f"**{title}:** {body}\n\n"

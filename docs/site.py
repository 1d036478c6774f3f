"""What the site needs beyond the Markdown files of docs/, named twice in mkdocs.yml.

As a hook of MkDocs it makes pages of README.md, CHANGELOG.md and CONTRIBUTING.md, and expands `::: package.*` into one
entry for each public name of a package. As an extension of Griffe it fences the examples in docstrings.
"""

import ast
import re
import textwrap
from pathlib import Path

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
# Files of the root that pages link to and that are no pages themselves.
PLAIN = {"LICENSE": "license.txt", "SECURITY.md": "security.txt", "CITATION.cff": "citation.txt"}
# Sections of our docstrings that Griffe does not know: code, and prose.
CODE, PROSE = "Example", ("Input shape", "Output shape", "Reference")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made of files of the root, with links that fit their new place."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for old, new in {**PAGES, **PLAIN}.items():
            text = text.replace(f"]({old}", f"]({new}")
        files.append(File.generated(config, page, content=text))
    for source, target in PLAIN.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Puts an entry for each public name in the place of `::: package.*`."""
    return re.sub(r"^::: ([\w.]+)\.\*$", lambda match: entries(match[1]), markdown, flags=re.MULTILINE)


def entries(package: str) -> str:
    """One entry for each name that the package imports as its own, classes first.

    A function whose module has the same name is named by its full path: Griffe would take it for the module.
    """
    module = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    imports = [(node.module, alias) for node in module.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    places = {alias.name: place for place, alias in imports if alias.asname == alias.name}
    names = sorted(places, key=lambda name: (name.islower(), name))
    hidden = {name for name in names if (ROOT / package.replace(".", "/") / f"{name}.py").exists()}
    return "\n\n".join(f"::: {places[name] if name in hidden else package}.{name}" for name in names)


class Examples(Extension):
    """Gives the sections of a docstring that Griffe takes for plain text their form."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Fences the code of an example, and sets the titles of other sections in bold."""
        if obj.docstring:
            titles = "|".join((CODE, *PROSE))
            pattern = rf"^({titles}):\n((?:(?:    .*)?\n)*(?:    .*)?)"
            obj.docstring.value = re.sub(pattern, _section, obj.docstring.value, flags=re.MULTILINE)


def _section(match: re.Match[str]) -> str:
    title, body = match[1], textwrap.dedent(match[2]).strip()
    return f"**{title}**\n\n```python\n{body}\n```\n\n" if title == CODE else f"**{title}:** {body}\n\n"

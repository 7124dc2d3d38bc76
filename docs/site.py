"""Files of the project that pages of the site lead to."""

# ruff: noqa: INP001  (mkdocs loads it by its path)

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
_LINK = re.compile(
    r"\]\((?:\.\./)+((?:examples|bench|cli|spark|tests|lua|ampsq)/[^)#]+|README\.md|SECURITY\.md|compose\.yaml)(#[^)]*)?\)"
)


def on_files(files: Any, config: Any) -> Any:
    """Add the examples and what else is linked, as files that are shown as they are."""
    for page in list(files.documentation_pages()):
        for target, _ in _LINK.findall(page.content_string):
            source = ROOT / target
            if source.is_file() and not target.endswith(".md") and files.get_file_from_path(f"files/{target}") is None:
                files.append(File.generated(config, f"files/{target}", content=source.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to these files; what the site does not have becomes plain text."""
    up = "../" * page.file.src_uri.count("/")

    def led(found: re.Match[str]) -> str:
        target = found[1]
        if target == "README.md":
            return f"]({up}index.md)"
        return (
            f"]({up}files/{target})" if (ROOT / target).is_file() and not target.endswith(".md") else f"]({up}index.md)"
        )

    return _LINK.sub(led, markdown)

"""The documentation points at things that are there."""

import re

import pytest
from conftest import ROOT

PAGES = [
    p
    for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "examples/*.md")
    for p in sorted(ROOT.glob(pattern))
]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links(page):
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    broken = [link for link in links if not (page.parent / link).exists()]
    assert not broken


def test_every_command_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text()
    commands = [p.name for p in (ROOT / "docs" / "commands").glob("*.md")]
    missing = [name for name in commands if f"commands/{name}" not in index]
    assert not missing

"""Every error code has a page, a test that mentions it, and the four parts of a page."""

import re

import pytest
from conftest import ROOT

CODE = re.compile(r'"(TK\d{4})"')
PAGES = ROOT / "docs" / "errors"


def sources(*patterns):
    return [p for pattern in patterns for p in sorted(ROOT.glob(pattern))]


def is_test(path):
    return "test" in path.stem or "tests" in path.relative_to(ROOT).parts


def thrown():
    """Code to the first file that throws it."""
    found = {}
    for path in sources("src/**/*.cpp", "src/**/*.h", "python/**/*.py"):
        if not is_test(path):
            for code in CODE.findall(path.read_text()):
                found.setdefault(code, path.relative_to(ROOT))
    return found


def mentioned_in_tests():
    files = sources("src/**/*test*", "src/**/*.tk", "tests/**/*")
    text = "".join(p.read_text(errors="replace") for p in files if p.is_file())
    return set(re.findall(r"TK\d{4}", text))


def test_every_code_has_a_page():
    missing = [f"{c} ({f})" for c, f in thrown().items() if not (PAGES / f"{c}.md").is_file()]
    assert not missing, "no page in docs/errors for " + ", ".join(missing)


def test_every_code_has_a_test():
    covered = mentioned_in_tests()
    missing = [f"{code} ({file})" for code, file in thrown().items() if code not in covered]
    assert not missing, "no test mentions " + ", ".join(missing)


def test_every_page_is_of_a_code():
    stale = {p.stem for p in PAGES.glob("TK*.md")} - set(thrown())
    assert not stale, f"pages of codes that nothing throws: {sorted(stale)}"


@pytest.mark.parametrize("page", sorted(p.name for p in PAGES.glob("TK*.md")))
def test_page_has_its_parts(page):
    text = (PAGES / page).read_text()
    code = page.removesuffix(".md")
    assert text.startswith(f"# {code}: ")
    parts = re.findall(r"(?m)^(?:\*\*|## )(What|Sample|Causes|Remedies)\b", text)
    assert parts == ["What", "Sample", "Causes", "Remedies"]
    assert f"error[{code}]" in text, "the sample shows the message"

"""The rules of the source tree that a compiler does not see."""

import re
import subprocess

import pytest
from conftest import ROOT

# Bottom up, as in CMakeLists.txt: a folder may use those before it, and itself.
ORDER = re.search(r"foreach\(folder (base [\w ]+)\)", (ROOT / "CMakeLists.txt").read_text())[
    1
].split()
INCLUDE = re.compile(r'(?m)^#include "(\w+)/')
MAX_LINES = 600


def tracked(*patterns):
    names = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


@pytest.fixture(scope="module", autouse=True)
def checkout():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")


def test_includes_point_down():
    wrong = []
    for path in tracked("src/*.cpp", "src/*.h"):
        folder = path.relative_to(ROOT / "src").parts[0]
        for used in INCLUDE.findall(path.read_text()):
            if used in ORDER and ORDER.index(used) > ORDER.index(folder):
                wrong.append(f"{path.relative_to(ROOT)} includes {used}/")
    assert not wrong


def test_files_are_small():
    files = tracked("src/*.cpp", "src/*.h", "python/*.py", "tests/*.py", "tests/*.cpp")
    files = [p for p in files if ROOT / "tests/data" not in p.parents]  # tables of cases
    lengths = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in files}
    assert {str(p): n for p, n in lengths.items() if n > MAX_LINES} == {}


def test_each_folder_says_what_it_is():
    folders = {p.parent for p in tracked("src/**/CMakeLists.txt")}
    assert [str(f) for f in sorted(folders) if not (f / "README.md").is_file()] == []


def test_nothing_is_left_for_later():
    words = re.compile(r"\b(TODO|FIXME|XXX)\b")
    files = tracked("src/*", "python/*", "scripts/*", "*.sh")
    assert [str(p) for p in files if words.search(p.read_text(errors="replace"))] == []


def test_sources_are_listed():
    """A .cpp file that no CMakeLists.txt names is not built, and nobody notices."""
    text = "".join(p.read_text() for p in tracked("*CMakeLists.txt", "*.cmake"))
    unlisted = [
        str(p.relative_to(ROOT))
        for p in tracked("src/*.cpp")
        if p.name not in text and p.name.replace(".cpp", "") not in text
    ]
    assert unlisted == []

"""Writes docs/lint/<rule>.md from the table of rules (python/tokamak/lint/rules.py)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from tokamak.lint.rules import RULES, page  # noqa: E402

folder = ROOT / "docs" / "lint"
folder.mkdir(exist_ok=True)
for stale in {p.stem for p in folder.glob("*.md")} - set(RULES):
    (folder / f"{stale}.md").unlink()
for rule in RULES.values():
    (folder / f"{rule.id}.md").write_text(page(rule))
print(f"{len(RULES)} pages in {folder}")

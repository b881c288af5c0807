#!/usr/bin/env python3
"""Adds up the JUnit files that test.sh wrote: count_tests.py RESULTS FAILED_STEPS.

Cases of GoogleTest binaries are counted one by one; a ctest test that left no such file (a script,
or a binary that crashed) counts as one. A step that failed without a failing test counts as one
failure too, so that the last line never says less than what happened. Exits 1 on any failure.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def cases(path):
    return list(ElementTree.parse(path).getroot().iter("testcase"))


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is not None and "Unable to find executable" in (skipped.get("message") or ""):
        return "failed"  # ctest calls a test that was never built "not run"
    if skipped is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def main(results, failed_steps):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for ctest, binaries in (("ctest.xml", "gtest"), ("ctest-asan.xml", "gtest-asan")):
        files = list((results / binaries).glob("*.xml"))
        for file in files:
            for case in cases(file):
                count[outcome(case)] += 1
        names = {file.stem for file in files}
        if (results / ctest).is_file():
            for case in cases(results / ctest):
                if case.get("name") not in names:
                    count[outcome(case)] += 1
    if (results / "pytest.xml").is_file():
        for case in cases(results / "pytest.xml"):
            count[outcome(case)] += 1
    if failed_steps and not count["failed"]:
        count["failed"] = failed_steps
    print(", ".join(f"{number} {name}" for name, number in count.items()))
    return 1 if count["failed"] or failed_steps else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))

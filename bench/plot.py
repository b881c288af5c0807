#!/usr/bin/env python3
"""Draws the rows of run.py: tokens per second of each engine, a panel for each model and case.

bench/plot.py rows.json -o docs/img/performance.svg
"""

import argparse
import collections
import json
from html import escape
from pathlib import Path

COLOURS = ("#2457a7", "#c8702a", "#5b8c3a", "#8a5aa8", "#8c8c8c", "#b8a13a")
PANEL, BAR, LEFT, GAP = 350, 18, 110, 24  # pixels


def panels(rows):
    """(model, threads, batch, context, measure) -> [(engine, tokens/s, tokamak / it or None)]."""
    found = collections.defaultdict(list)
    for row in rows:
        for measure in ("decode", "prefill"):
            # The prefill of a batch or of a longer context is measured with the first case.
            if measure == "prefill" and (row["batch"] != 1 or row["context"] != 128):
                continue
            if f"{measure}_tok_s" in row:
                key = (row["model"], row["threads"], row["batch"], row["context"], measure)
                ratio = row.get(f"{measure}_ratio")
                found[key].append((row["engine"], row[f"{measure}_tok_s"], ratio))
    return found


def title(key):
    model, threads, batch, context, measure = key
    case = f"batch {batch}, {context} tokens in the cache" if measure == "decode" else "512 tokens"
    return f"{model}: {measure}, {case}, {threads} thread{'s' * (threads > 1)}"


def draw(rows):
    found = panels(rows)
    engines = sorted({row["engine"] for row in rows}, key=lambda e: (e != "tokamak", e))
    colour = dict(zip(engines, COLOURS, strict=False))
    columns = 2
    cells, heights, y = [], [], 0
    keys = sorted(found)
    for start in range(0, len(keys), columns):
        tallest = 0
        for column, key in enumerate(keys[start : start + columns]):
            bars = sorted(found[key], key=lambda bar: -bar[1])
            x, most = column * (LEFT + PANEL + GAP), max(bar[1] for bar in bars)
            cells.append(f'<text x="{x}" y="{y + 16}" class="title">{escape(title(key))}</text>')
            for i, (engine, value, ratio) in enumerate(bars):
                top = y + 26 + i * (BAR + 6)
                width = max(1, value / most * (PANEL - 150))
                note = f"{value:.4g}" + (f"  (tokamak {ratio:.2f}x)" if ratio else "")
                cells += [
                    f'<text x="{x + LEFT - 6}" y="{top + 13}" class="name">{escape(engine)}</text>',
                    f'<rect x="{x + LEFT}" y="{top}" width="{width:.1f}" height="{BAR}" '
                    f'fill="{colour.get(engine, "#8c8c8c")}"/>',
                    f'<text x="{x + LEFT + width + 6:.1f}" y="{top + 13}">{note}</text>',
                ]
            tallest = max(tallest, 26 + len(bars) * (BAR + 6) + GAP)
        heights.append(tallest)
        y += tallest
    width, height = columns * (LEFT + PANEL + GAP), sum(heights)
    style = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.name{text-anchor:end}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 -8 {width + 8} {height + 32}" '
        f'width="{width}"><rect x="-8" y="-8" width="{width + 8}" height="{height + 32}" '
        f'fill="#fff"/><style>{style}</style>{"".join(cells)}'
        f'<text x="0" y="{height + 12}">tokens per second, medians; in brackets '
        f"Tokamak / it in the same rounds</text></svg>\n"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, nargs="+", help="what run.py wrote with --out")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    rows = [row for path in options.rows for row in json.loads(path.read_text())]
    if not rows:
        parser.error(f"no row in {', '.join(map(str, options.rows))}: did every cell fail?")
    options.output.write_text(draw(rows))
    print(options.output)


if __name__ == "__main__":
    main()

"""One picture: the gaps of each run, sorted, against their percentile. Writes SVG text; needs no library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
MARKS = (50.0, 90.0, 99.0, 99.9)
# distinguishable without colour too: each line has dashes of its own
STYLES = (("#0072b2", ""), ("#d55e00", "7 3"), ("#009e73", "2 3"), ("#cc79a7", "9 3 2 3"), ("#000000", "4 6"))


def gaps_svg(title: str, gaps_s: Mapping[str, Sequence[float]]) -> str:
    """An SVG document; gaps in seconds, sorted. A run without gaps has no line."""
    drawn = {name: values for name, values in gaps_s.items() if values}
    low_ms = 1e3 * max(1e-6, min((values[len(values) // 2] for values in drawn.values()), default=1e-3)) / 2
    high_ms = max(2 * low_ms, 1e3 * max((values[-1] for values in drawn.values()), default=1e-2))
    scale = _Scale(low_ms, high_ms)
    body = [*_axes(scale), *_lines(scale, drawn)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(title)}">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>\n' + "\n".join(body) + "\n</svg>\n"
    )


class _Scale:
    """Percentile p on x as -log10(1 - p/100), milliseconds on y as their logarithm."""

    def __init__(self, low_ms: float, high_ms: float) -> None:
        self.low_ms, self.high_ms = low_ms, high_ms

    def x(self, percentile: float) -> float:
        share = min(1.0, -math.log10(max(1e-4, 1 - percentile / 100)) / 4)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, ms: float) -> float:
        share = math.log(max(ms, self.low_ms) / self.low_ms) / math.log(self.high_ms / self.low_ms)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _axes(scale: _Scale) -> list[str]:
    parts = []
    bottom = HEIGHT - BOTTOM
    for percentile in MARKS:
        x = scale.x(percentile)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">p{percentile:g}</text>')
    for ms in _ticks_ms(scale.low_ms, scale.high_ms):
        y = scale.y(ms)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{ms:g} ms</text>')
    return parts


def _ticks_ms(low_ms: float, high_ms: float) -> list[float]:
    exponents = range(math.floor(math.log10(low_ms)), math.ceil(math.log10(high_ms)) + 1)
    candidates = [factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5)]
    return [ms for ms in candidates if low_ms <= ms <= high_ms]


def _lines(scale: _Scale, gaps_s: Mapping[str, Sequence[float]]) -> list[str]:
    parts = []
    for i, (name, values) in enumerate(gaps_s.items()):
        colour, dashes = STYLES[i % len(STYLES)]
        # one point for each place on x: the last, and so the largest, of those that share it
        places = {f"{scale.x(100 * rank / len(values)):.1f}": value for rank, value in enumerate(values)}
        points = " ".join(f"{x},{scale.y(1e3 * value):.1f}" for x, value in places.items())
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline points="{points}" {style}/>')
        y = TOP + 20 + 20 * i
        x = WIDTH - RIGHT + 16
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 34}" y2="{y}" {style}/>')
        parts.append(f'<text x="{x + 40}" y="{y + 4}">{escape(name)}</text>')
    return parts

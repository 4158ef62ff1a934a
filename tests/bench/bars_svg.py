"""A bar chart as SVG text: groups of bars, one colour per series. No library, so that it runs wherever the tests do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_COLOURS = ("#2a6f97", "#8ecae6", "#b5651d", "#f4c095", "#4d7c0f", "#bef264")
_BAR_PX, _GAP_PX, _LEFT_PX, _WIDTH_PX = 14, 14, 220, 960


def bars_svg(title: str, unit: str, groups: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """`groups` maps a group's name to its bars, (series, value), the series in one order everywhere."""
    series = [name for name, _ in next(iter(groups.values()))]
    largest = max(value for bars in groups.values() for _, value in bars) or 1.0
    parts: list[str] = []
    y_px = 34 + 18 * len(series)
    for i, name in enumerate(series):
        parts.append(f'<rect x="{_LEFT_PX}" y="{30 + 18 * i}" width="12" height="12" fill="{_COLOURS[i]}"/>')
        parts.append(_text(_LEFT_PX + 18, 41 + 18 * i, name))
    for group, bars in groups.items():
        y_px += _GAP_PX
        parts.append(_text(8, y_px + _BAR_PX, group))
        for i, (_, value) in enumerate(bars):
            width_px = (_WIDTH_PX - _LEFT_PX - 90) * value / largest
            parts.append(
                f'<rect x="{_LEFT_PX}" y="{y_px}" width="{width_px:.1f}" height="{_BAR_PX - 2}" fill="{_COLOURS[i]}"/>'
            )
            parts.append(_text(_LEFT_PX + width_px + 6, y_px + 10, f"{value:g}"))
            y_px += _BAR_PX
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH_PX}" height="{y_px + 20}" font-family="sans-serif">'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, ground, _text(8, 18, f"{title} ({unit})", 15), *parts, "</svg>", ""])


def _text(x_px: float, y_px: float, text: str, size_px: int = 12) -> str:
    return f'<text x="{x_px:.1f}" y="{y_px}" font-size="{size_px}">{escape(text)}</text>'

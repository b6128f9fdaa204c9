"""Small charts as inline SVG that take their colours from the page.

Charts use the classes `grid`, `tick`, and `a`, `b`, ... for their series; the page's style gives them colours.
"""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

WIDTH, HEIGHT = 340, 214  # of a chart, in its own units: letters of 11 are readable where it is as wide as a phone
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 24, 38
MOST = 240  # points of a line; of more, groups are drawn by their mean, and by a band from lowest to highest
SERIES = "abcdefgh"  # classes with a colour of their own
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # neither HTML nor XML may contain them

Points = Sequence[tuple[float, float]]


def printable(value: object) -> object:
    """`value` as text without characters that HTML and XML exclude; markup is returned as it is."""
    return value if isinstance(value, Markup) else _CONTROL.sub("\ufffd", str(value))


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """<name attributes>content</name>; in an attribute's name a `_` is "-", at the start nothing (`aria_label`, `_class`)."""
    given = "".join(f' {key.strip("_").replace("_", "-")}="{escape(str(printable(value)))}"' for key, value in attributes.items())
    inside = "".join(escape(printable(part)) for part in content)
    return Markup(f"<{name}{given}>{inside}</{name}>" if content else f"<{name}{given}/>")


def line_chart(title: str, series: Mapping[str, Points], unit: str = "", mark: float | None = None) -> Markup:
    """Curves ({class: points}) over steps; `unit` names the vertical axis, `mark` is a step with a dashed line."""
    drawn = {name: sorted(points) for name, points in series.items()}
    everything = [point for points in drawn.values() for point in points]
    x = _Axis([step for step, _ in everything], LEFT, WIDTH - RIGHT, 5, zero=True)
    y = _Axis([value for _, value in everything], HEIGHT - BOTTOM, TOP)
    parts = [_frame(x, y, "step", unit)]
    if mark is not None:
        parts.append(element("path", d=f"M{x(mark):.1f} {TOP}V{HEIGHT - BOTTOM}", _class="mark"))
    for name, points in reversed(drawn.items()):  # the first series is on top
        size = -(-len(points) // MOST)
        groups = [points[start : start + size] for start in range(0, len(points), size)]
        means = [tuple(sum(column) / len(group) for column in zip(*group, strict=True)) for group in groups]
        if len(means) < len(points):
            tops, bottoms = ([(m[0], pick(v for _, v in g)) for m, g in zip(means, groups, strict=True)] for pick in (max, min))
            parts.append(element("path", d=_path(x, y, [*tops, *reversed(bottoms)]) + "Z", _class=f"band {name}"))
        parts.append(element("path", d=_path(x, y, means), _class=f"line {name}"))
        if len(points) <= 30:
            parts.append(element("path", d="".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in points), _class=f"dots large {name}"))
    return _svg(title, parts)


def size_chart(title: str, curves: Mapping[str, Sequence[tuple[int, float, float]]], unit: str) -> Markup:
    """Means with bars of one standard deviation over numbers of sentences, on a logarithmic axis.

    `curves`: {classes: [(sentences, mean, deviation), ...]}.
    """
    points = [point for values in curves.values() for point in values]
    x = _LogAxis([size for size, _, _ in points], LEFT + 12, WIDTH - RIGHT - 12)
    y = _Axis([mean + sign * deviation for _, mean, deviation in points for sign in (-1, 1)], HEIGHT - BOTTOM, TOP)
    parts = [_frame(x, y, "training sentences", unit)]
    for number, (name, values) in enumerate(curves.items()):
        shift = 2.0 * (number - (len(curves) - 1) / 2)  # bars of one size stand beside each other
        at = [(x(size) + shift, mean, deviation) for size, mean, deviation in sorted(values)]
        bars = "".join(f"M{place:.1f} {y(mean - spread):.1f}V{y(mean + spread):.1f}" for place, mean, spread in at)
        line = "M" + "L".join(f"{place:.1f} {y(mean):.1f}" for place, mean, _ in at)
        dots = "".join(f"M{place:.1f} {y(mean):.1f}h0" for place, mean, _ in at)
        parts += [
            element("path", d=d, _class=f"{kind} {name}") for d, kind in ((bars, "bar"), (line, "line"), (dots, "dots large"))
        ]
    return _svg(title, parts)


def histogram(title: str, low: float, high: float, counts: Mapping[str, Sequence[int]], label: str) -> Markup:
    """Outlines of histograms ({class: counts of equal parts from `low` to `high`}), each drawn to its own height."""
    x, y = _Axis([low, high], LEFT, WIDTH - RIGHT, 5), _Axis([0, 1], HEIGHT - BOTTOM, TOP)
    parts = [_frame(x, None, label, "relative frequency")]
    for name, values in counts.items():
        width, top = (high - low) / len(values), max(*values, 1)
        steps = [(low + (place + side) * width, count / top) for place, count in enumerate(values) for side in (0, 1)]
        parts.append(element("path", d=_path(x, y, [(low, 0.0), *steps, (high, 0.0)]), _class=f"line filled {name}"))
    return _svg(title, parts)


def scatter(
    title: str, dots: Points, ranges: Sequence[tuple[float, int, Sequence[float]]], name: str, labels: tuple[str, str]
) -> Markup:
    """Dots, and over each range of x a box (middle half, median, 5th and 95th percentile).

    `name` is the class of the dots, `labels` those of the two axes.
    """
    centres = [centre for centre, _, _ in ranges]
    gaps = [after - before for before, after in itertools.pairwise(centres)]
    half = 0.3 * min(gaps, default=1.0)
    x = _Axis([*(a for a, _ in dots), centres[0] - half, centres[-1] + half], LEFT, WIDTH - RIGHT, 5)
    heights = [*(b for _, b in dots), *(value for _, _, percentiles in ranges for value in percentiles)]
    y = _Axis(heights, HEIGHT - BOTTOM, TOP)
    parts = [_frame(x, y, *labels), element("path", d="".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in dots), _class=f"dots {name}")]
    for centre, _, (lowest, start, middle, end, highest) in ranges:
        left, right = x(centre - half), x(centre + half)
        lines = f"M{x(centre):.1f} {y(lowest):.1f}V{y(start):.1f}M{x(centre):.1f} {y(end):.1f}V{y(highest):.1f}"
        parts.append(element("path", d=lines, _class="box"))
        parts.append(element("path", d=f"M{left:.1f} {y(start):.1f}H{right:.1f}V{y(end):.1f}H{left:.1f}Z", _class="box"))
        parts.append(element("path", d=f"M{left:.1f} {y(middle):.1f}H{right:.1f}", _class="box median"))
    return _svg(title, parts)


class _Axis:
    """Values to places between `start` and `end`, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float, ticks: int = 4, zero: bool = False) -> None:
        low, high = min(values), max(values)
        low = min(low, 0) if zero else low
        if high - low < 1e-9 * max(abs(low), abs(high), 1e-300):
            low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
        self.start, self.end = start, end
        step = 10.0 ** math.floor(math.log10((high - low) / ticks))
        step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= ticks)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        self.ticks = [number * step for number in range(first, last + 1)]
        vertical = start > end
        self.low, self.high = (self.ticks[0], self.ticks[-1]) if vertical else (low, high)
        self.ticks = [tick for tick in self.ticks if self.low - 1e-9 * step <= tick <= self.high + 1e-9 * step]
        self.digits = max(0, -math.floor(math.log10(step) + 1e-9))

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def label(self, tick: float) -> str:
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if max(abs(self.low), abs(self.high)) >= 10 * size:
                return f"{tick / size:g}{letter}" if tick else "0"
        if self.digits > 5:  # no room for so many: the first tick in full, the others by their distance from it
            if tick != self.ticks[0]:
                return f"+{_scientific(tick - self.ticks[0], 1)}"
            text = f"{tick:.5g}"
            return text if len(text) <= 7 else _scientific(tick, 2)
        return f"{tick:.{self.digits}f}".replace("-", "\N{MINUS SIGN}") if abs(tick) > 1e-12 else "0"


def _scientific(value: float, digits: int) -> str:
    """A short text of a number, such as "1.5e-8"."""
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}".replace("-", "\N{MINUS SIGN}")


class _LogAxis:
    """Sizes to places between `start` and `end` by their logarithm, with a tick at each size."""

    def __init__(self, sizes: Iterable[int], start: float, end: float) -> None:
        self.ticks = sorted(set(sizes))
        self.start, self.end = start, end
        self.low, self.high = math.log(max(self.ticks[0], 1)), math.log(max(self.ticks[-1], 1))

    def __call__(self, size: float) -> float:
        share = (math.log(max(size, 1)) - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * (self.end - self.start)

    def label(self, tick: float) -> str:
        return f"{tick / 1000:.3g}k" if tick >= 1000 else f"{tick:g}"


def _frame(x: _Axis | _LogAxis, y: _Axis | None, label: str, unit: str) -> Markup:
    """The numbers below and at the left with grid lines, and what both axes show."""
    heights = y.ticks if y else []
    places = [y(tick) for tick in heights] if y else [HEIGHT - BOTTOM]
    parts = [element("path", d="".join(f"M{LEFT} {place:.1f}H{WIDTH - RIGHT}" for place in places), _class="grid")]
    for tick, place in zip(heights, places, strict=False):
        parts.append(element("text", y.label(tick) if y else "", x=LEFT - 5, y=f"{place + 4:.1f}", _class="tick end"))
    for tick in x.ticks:
        last = x(tick) > WIDTH - RIGHT - 12
        at = x(tick) + (RIGHT if last else 0)
        parts.append(element("text", x.label(tick), x=f"{at:.1f}", y=HEIGHT - 22, _class="tick end" if last else "tick"))
    parts.append(element("text", label, x=f"{(LEFT + WIDTH - RIGHT) / 2:.1f}", y=HEIGHT - 6, _class="tick"))
    parts.append(element("text", unit, x=4, y=11, _class="tick start"))
    return Markup("".join(parts))


def _path(x: _Axis, y: _Axis, points: Iterable[Sequence[float]]) -> str:
    return "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)


def _svg(title: str, parts: Sequence[Markup]) -> Markup:
    return element("svg", element("title", title), *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title)

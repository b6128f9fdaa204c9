"""Draw small charts as inline SVG that take their colours from the page.

Charts use the classes `grid`, `tick`, and `a`, `b`, ... for their series; the page's style gives them colours.
"""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

WIDTH, HEIGHT = 340, 214  # of a chart, in its own units: letters of 11 are readable if it is as wide as a phone
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 24, 38  # margins
MAP_SIDE = 480  # width and height of a map
LEAST_RANGE = 0.05  # of a vertical axis, as a share of its largest value: a change of a thousandth must not look like a collapse
MAX_POINTS = 240  # points of a line; if there are more, groups are drawn by their mean and a band from lowest to highest
SERIES = "abcdefgh"  # classes, each with its own colour
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # neither HTML nor XML may contain them

Points = Sequence[tuple[float, float]]


def printable(value: object) -> object:
    """Return `value` as text without characters that HTML and XML exclude; markup is returned unchanged."""
    return value if isinstance(value, Markup) else _CONTROL.sub("\ufffd", str(value))


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return <name attributes>content</name>.

    In the name of an attribute, `_` becomes "-"; at the start it is removed (`aria_label`, `_class`).
    """
    attribute_text = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(str(printable(value)))}"' for key, value in attributes.items()
    )
    content_text = "".join(escape(printable(value)) for value in content)
    return Markup(f"<{name}{attribute_text}>{content_text}</{name}>" if content else f"<{name}{attribute_text}/>")


def line_chart(title: str, series: Mapping[str, Points], unit: str = "", mark: float | None = None) -> Markup:
    """Draw curves ({class: points}) over steps; `unit` names the vertical axis, `mark` is a step with a dashed line."""
    sorted_series = {name: sorted(points) for name, points in series.items()}
    all_points = [point for points in sorted_series.values() for point in points]
    x = _Axis([step for step, _ in all_points], LEFT, WIDTH - RIGHT, 5, zero=True)
    y = _Axis([value for _, value in all_points], HEIGHT - BOTTOM, TOP)
    elements = [_frame(x, y, "step", unit)]
    if mark is not None:
        elements.append(element("path", d=f"M{x(mark):.1f} {TOP}V{HEIGHT - BOTTOM}", _class="mark"))
    for name, points in reversed(sorted_series.items()):  # the first series is on top
        size = -(-len(points) // MAX_POINTS)
        groups = [points[start : start + size] for start in range(0, len(points), size)]
        means = [tuple(sum(column) / len(group) for column in zip(*group, strict=True)) for group in groups]
        if len(means) < len(points):
            tops, bottoms = (
                [(m[0], extreme(v for _, v in g)) for m, g in zip(means, groups, strict=True)] for extreme in (max, min)
            )
            elements.append(element("path", d=_path(x, y, [*tops, *reversed(bottoms)]) + "Z", _class=f"band {name}"))
        elements.append(element("path", d=_path(x, y, means), _class=f"line {name}"))
        if len(points) <= 30:
            elements.append(element("path", d="".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in points), _class=f"dots large {name}"))
    return _svg(title, elements)


def size_chart(title: str, curves: Mapping[str, Sequence[tuple[int, float, float]]], unit: str) -> Markup:
    """Draw means with bars of one standard deviation over numbers of sentences, on a logarithmic axis.

    Args:
        title: The title for screen readers.
        curves: {classes: [(sentences, mean, deviation), ...]}.
        unit: The label of the vertical axis.
    """
    points = [point for values in curves.values() for point in values]
    x = _LogAxis([size for size, _, _ in points], LEFT + 12, WIDTH - RIGHT - 12)
    y = _Axis([mean + sign * deviation for _, mean, deviation in points for sign in (-1, 1)], HEIGHT - BOTTOM, TOP)
    elements = [_frame(x, y, "training sentences", unit)]
    for number, (name, values) in enumerate(curves.items()):
        shift = 2.0 * (number - (len(curves) - 1) / 2)  # puts bars of the same size next to each other
        positions = [(x(size) + shift, mean, deviation) for size, mean, deviation in sorted(values)]
        bars = "".join(f"M{left:.1f} {y(mean - spread):.1f}V{y(mean + spread):.1f}" for left, mean, spread in positions)
        line = "M" + "L".join(f"{left:.1f} {y(mean):.1f}" for left, mean, _ in positions)
        dots = "".join(f"M{left:.1f} {y(mean):.1f}h0" for left, mean, _ in positions)
        elements += [
            element("path", d=d, _class=f"{shape_class} {name}")
            for d, shape_class in ((bars, "bar"), (line, "line"), (dots, "dots large"))
        ]
    return _svg(title, elements)


def histogram(title: str, low: float, high: float, counts: Mapping[str, Sequence[int]], label: str) -> Markup:
    """Draw outlines of histograms ({class: counts of equal parts from `low` to `high`}), each to its own height."""
    x, y = _Axis([low, high], LEFT, WIDTH - RIGHT, 5), _Axis([0, 1], HEIGHT - BOTTOM, TOP)
    elements = [_frame(x, None, label, "relative frequency")]
    for name, values in counts.items():
        width, top = (high - low) / len(values), max(*values, 1)
        steps = [(low + (bin + side) * width, count / top) for bin, count in enumerate(values) for side in (0, 1)]
        elements.append(element("path", d=_path(x, y, [(low, 0.0), *steps, (high, 0.0)]), _class=f"line filled {name}"))
    return _svg(title, elements)


def scatter(
    title: str, dots: Points, ranges: Sequence[tuple[float, int, Sequence[float]]], name: str, labels: tuple[str, str]
) -> Markup:
    """Draw dots, and over each range of x a box (middle half, median, 5th and 95th percentile).

    Args:
        title: The title for screen readers.
        dots: (x, y) of each dot.
        ranges: (centre, pairs, [5, 25, 50, 75, 95th percentile]) of each range.
        name: The class of the dots.
        labels: The labels of the two axes.
    """
    centres = [centre for centre, _, _ in ranges]
    gaps = [after - before for before, after in itertools.pairwise(centres)]
    half = 0.3 * min(gaps, default=1.0)
    x = _Axis([*(a for a, _ in dots), centres[0] - half, centres[-1] + half], LEFT, WIDTH - RIGHT, 5)
    heights = [*(b for _, b in dots), *(value for _, _, percentiles in ranges for value in percentiles)]
    y = _Axis(heights, HEIGHT - BOTTOM, TOP)
    elements = [
        _frame(x, y, *labels),
        element("path", d="".join(f"M{x(a):.1f} {y(b):.1f}h0" for a, b in dots), _class=f"dots {name}"),
    ]
    for centre, _, (lowest, start, middle, end, highest) in ranges:
        box_left, box_right = x(centre - half), x(centre + half)
        lines = f"M{x(centre):.1f} {y(lowest):.1f}V{y(start):.1f}M{x(centre):.1f} {y(end):.1f}V{y(highest):.1f}"
        elements.append(element("path", d=lines, _class="box"))
        elements.append(
            element("path", d=f"M{box_left:.1f} {y(start):.1f}H{box_right:.1f}V{y(end):.1f}H{box_left:.1f}Z", _class="box")
        )
        elements.append(element("path", d=f"M{box_left:.1f} {y(middle):.1f}H{box_right:.1f}", _class="box median"))
    return _svg(title, elements)


MARKS = {  # class -> name and outline of its mark, so that groups also differ in grey
    "a": ("circle", "m-3.3 0a3.3 3.3 0 1 0 6.6 0a3.3 3.3 0 1 0-6.6 0z"),
    "b": ("square", "m-3-3h6v6h-6z"),
    "c": ("triangle", "m0-4l4 7h-8z"),
    "d": ("diamond", "m0-4.6l3.8 4.6l-3.8 4.6l-3.8-4.6z"),
    "e": ("plus", "m-1.4-4.2h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z"),
    "f": ("triangle that points down", "m0 4l4-7h-8z"),
    "g": ("cross", "m-3.9-2l1.9-1.9l2 2l2-2l1.9 1.9l-2 2l2 2l-1.9 1.9l-2-2l-2 2l-1.9-1.9l2-2z"),
    "h": ("ring", "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z"),
}


def marks(title: str, description: str, points: Iterable[tuple[float, float, str, str]], side: float) -> Markup:
    """Draw a mark for each point; its text appears when the pointer is over it.

    Args:
        title: The title for screen readers.
        description: A longer description for screen readers.
        points: (x, y, class in MARKS, perhaps followed by " faint", text) of each point, with x and y from 0 to `side`.
        side: The width and height of the coordinates.
    """
    margin = 10
    scale = (MAP_SIDE - 2 * margin) / side
    elements = [element("title", title), element("desc", description)]
    for x, y, name, text in points:
        outline = f"M{margin + x * scale:.1f} {margin + (side - y) * scale:.1f}{MARKS[name[0]][1]}"
        elements.append(element("path", element("title", text), d=outline, _class=f"point {name}"))
    return element("svg", *elements, viewBox=f"0 0 {MAP_SIDE} {MAP_SIDE}", role="img", aria_label=title, _class="map")


def mark_key(name: str) -> Markup:
    """Draw the mark of a class alone, for a table."""
    title = MARKS[name][0]
    path = element("path", d=f"M6 6{MARKS[name][1]}", _class=f"point {name}")
    return element("svg", element("title", title), path, viewBox="0 0 12 12", role="img", aria_label=title, _class="mark-key")


class _Axis:
    """Map values to positions between `start` and `end`, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float, ticks: int = 4, zero: bool = False) -> None:
        low, high = min(values), max(values)
        low = min(low, 0) if zero else low
        is_vertical = start > end
        if high - low < 1e-9 * max(abs(low), abs(high), 1e-300):
            low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
        elif is_vertical and (missing := LEAST_RANGE * max(abs(low), abs(high)) - (high - low)) > 0:
            low, high = low - missing / 2, high + missing / 2
        self.start, self.end = start, end
        step = 10.0 ** math.floor(math.log10((high - low) / ticks))
        step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= ticks)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        self.ticks = [number * step for number in range(first, last + 1)]
        self.low, self.high = (self.ticks[0], self.ticks[-1]) if is_vertical else (low, high)
        self.ticks = [tick for tick in self.ticks if self.low - 1e-9 * step <= tick <= self.high + 1e-9 * step]
        self.digits = max(0, -math.floor(math.log10(step) + 1e-9))

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def label(self, tick: float) -> str:
        """Return the text of a tick."""
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if max(abs(self.low), abs(self.high)) >= 10 * size:
                return f"{tick / size:g}{letter}" if tick else "0"
        if self.digits > 5:  # there is no room for them: write the first tick in full, the others by their distance from it
            if tick != self.ticks[0]:
                return f"+{_scientific(tick - self.ticks[0], 1)}"
            text = f"{tick:.5g}"
            return text if len(text) <= 7 else _scientific(tick, 2)
        return f"{tick:.{self.digits}f}".replace("-", "\N{MINUS SIGN}") if abs(tick) > 1e-12 else "0"


def _scientific(value: float, digits: int) -> str:
    """Return a short text of a number, such as "1.5e-8"."""
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}".replace("-", "\N{MINUS SIGN}")


class _LogAxis:
    """Map sizes to positions between `start` and `end` by their logarithm, with a tick at each size."""

    def __init__(self, sizes: Iterable[int], start: float, end: float) -> None:
        self.ticks = sorted(set(sizes))
        self.start, self.end = start, end
        self.low, self.high = math.log(max(self.ticks[0], 1)), math.log(max(self.ticks[-1], 1))

    def __call__(self, size: float) -> float:
        share = (math.log(max(size, 1)) - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + share * (self.end - self.start)

    def label(self, tick: float) -> str:
        """Return the text of a tick."""
        return f"{tick / 1000:.3g}k" if tick >= 1000 else f"{tick:g}"


def _frame(x: _Axis | _LogAxis, y: _Axis | None, label: str, unit: str) -> Markup:
    """Draw the numbers below and on the left with grid lines, and the labels of both axes."""
    y_ticks = y.ticks if y else []
    heights = [y(tick) for tick in y_ticks] if y else [HEIGHT - BOTTOM]
    elements = [element("path", d="".join(f"M{LEFT} {height:.1f}H{WIDTH - RIGHT}" for height in heights), _class="grid")]
    for tick, height in zip(y_ticks, heights, strict=False):
        elements.append(element("text", y.label(tick) if y else "", x=LEFT - 5, y=f"{height + 4:.1f}", _class="tick end"))
    for tick in x.ticks:
        last = x(tick) > WIDTH - RIGHT - 12
        position = x(tick) + (RIGHT if last else 0)
        elements.append(element("text", x.label(tick), x=f"{position:.1f}", y=HEIGHT - 22, _class="tick end" if last else "tick"))
    elements.append(element("text", label, x=f"{(LEFT + WIDTH - RIGHT) / 2:.1f}", y=HEIGHT - 6, _class="tick"))
    elements.append(element("text", unit, x=4, y=11, _class="tick start"))
    return Markup("".join(elements))


def _path(x: _Axis, y: _Axis, points: Iterable[Sequence[float]]) -> str:
    return "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)


def _svg(title: str, elements: Sequence[Markup]) -> Markup:
    return element("svg", element("title", title), *elements, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=title)

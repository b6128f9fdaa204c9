"""Parts of a report page: the page with its style, tables, and numbers as text."""

from collections.abc import Iterable, Sequence

from jax_sentemb.reporting.svg import Markup, element, together

STYLE = """
:root{color-scheme:light dark;--back:#fff;--card:#f5f6f8;--text:#1b1f24;--soft:#59626d;--line:#d9dde2;--a:#0072b2;--b:#d55e00;
--warn:#fff4d6;--edge:#b98900}
@media(prefers-color-scheme:dark){:root{--back:#14171a;--card:#1e2327;--text:#e6e8ea;--soft:#9aa4ae;--line:#353c43;--a:#56b4e9;
--b:#f0a04b;--warn:#33290f;--edge:#d9a92b}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:72rem;background:var(--back);color:var(--text);font:1rem/1.5 system-ui,sans-serif;
overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0 0}h2{font-size:1.25rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}p{margin:.4rem 0}a{color:var(--a)}
.soft,figcaption,caption{color:var(--soft);font-size:.875rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.cards div{background:var(--card);border-radius:.5rem;padding:.6rem .8rem}
.cards dt{color:var(--soft);font-size:.8rem}.cards dd{margin:0;font-size:1.25rem;line-height:1.3;font-weight:600}
.cards dd.soft{font-size:.8rem;font-weight:400}
ul.warn{background:var(--warn);border-left:.25rem solid var(--edge);border-radius:.25rem;margin:1rem 0;
padding:.6rem 1rem .6rem 2rem}
.grid-of{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:1.2rem 1.5rem}
.two{grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),26rem))}
figure{margin:0}figcaption b{color:var(--text)}svg{display:block;width:100%;height:auto}
.grid{stroke:var(--line);fill:none}.tick{fill:var(--soft);font-size:11px;text-anchor:middle}.tick.end{text-anchor:end}
.a{--c:var(--a)}.b{--c:var(--b)}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}.band{fill:var(--c);opacity:.22}
.filled{fill:var(--c);fill-opacity:.12}.mark{stroke:var(--soft);stroke-dasharray:4 4}
.dots{stroke:var(--c);stroke-width:3;stroke-linecap:round;fill:none;opacity:.45}.dots.large{stroke-width:6;opacity:1}
.box{fill:none;stroke:var(--text);stroke-width:1.3}.median{stroke-width:3.5}
i.key{margin-left:.4em;display:inline-block;width:.8em;height:.8em;border-radius:.2em;background:var(--c)}
table{border-collapse:collapse;width:100%;margin:.4rem 0;font-variant-numeric:tabular-nums}
caption{text-align:left}th,td{padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
thead th{color:var(--soft);font-weight:500;font-size:.875rem}tbody th{font-weight:500}
.n{text-align:right}.facts th{width:34%;color:var(--soft)}.near td{width:50%}.near .n{color:var(--soft);padding-right:.6rem}
pre{background:var(--card);border-radius:.5rem;padding:.8rem;white-space:pre-wrap;font-size:.85rem;margin:.4rem 0}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--a)}blockquote{margin:1.4rem 0 .2rem;font-weight:600}
@media(max-width:40rem){.stack thead{position:absolute;clip-path:inset(50%)}.stack tr{display:block;padding:.5rem 0;
border-bottom:1px solid var(--line)}
.stack tbody th{font-weight:700}
.stack th,.stack td{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.1rem 0;width:auto}
.stack td::before{content:attr(data-label);color:var(--soft)}.near td::before{flex:0 0 3rem}.near td{text-align:right}}
"""

Cell = str | Markup


def page(name: str, parts: Iterable[Markup]) -> str:
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{name}: report"),
        element("style", Markup(STYLE)),
    ]
    content = element("html", element("head", together(head)), element("body", element("main", together(parts))), lang="en")
    return f"<!DOCTYPE html>\n{content}\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], kind: str = "", heads: bool = True) -> Markup:
    """A table that becomes one block a row in a narrow window; the first cell of a row is its head where `heads`."""

    def cell(place: int, value: Cell) -> Markup:
        if heads and not place:
            return element("th", value, scope="row", role="rowheader")
        return element("td", value, role="cell", data_label=columns[place], **({"_class": "n"} if heads else {}))

    numeric = [{"_class": "n"} if heads and place else {} for place in range(len(columns))]
    top = element(
        "tr", *(element("th", c, scope="col", role="columnheader", **n) for c, n in zip(columns, numeric, strict=True)), role="row"
    )
    body = [element("tr", *(cell(place, value) for place, value in enumerate(row)), role="row") for row in rows]
    groups = element("thead", top, role="rowgroup"), element("tbody", *body, role="rowgroup")
    return element("table", *groups, role="table", _class=f"stack {kind}".strip())


def facts_table(rows: Iterable[Sequence[Cell]]) -> Markup:
    body = (element("tr", element("th", name, scope="row"), element("td", value)) for name, value in rows)
    return element("table", element("tbody", *body), _class="facts")


def score_text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def number_text(value: float, digits: int = 4) -> str:
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
    return text.replace("-", "\N{MINUS SIGN}")


def fact_text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def duration_text(time_taken: float) -> str:
    minutes, rest = divmod(round(time_taken), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"

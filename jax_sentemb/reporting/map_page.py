"""Draw the map of a corpus that `corpus_map` has laid out: panels, a table of its groups, and how to read them."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from jax_sentemb.reporting.corpus_map import NEIGHBOURS, OTHER, SIDE
from jax_sentemb.reporting.html_parts import Figure, templates
from jax_sentemb.reporting.svg import SERIES, element, mark_key, marks

LIMITS = {
    "t-SNE": (
        "marks that lie close together are mostly similar sentences. Distances between far groups, sizes of groups and empty "
        "areas mean nothing, and the axes have no unit. Even random vectors form small groups in such a map, and another seed "
        "arranges them differently."
    ),
    "PCA": (
        "the two directions in which the vectors vary most are shown, and all others are left out. Marks that lie far apart are "
        "different sentences, but marks that lie close together may be different, too. The axes have no unit."
    ),
}


def map_page(name: str, corpus_map: Mapping[str, Any]) -> str:
    """Return a page with a map alone as HTML."""
    return templates().get_template("map.html").render(name=name, map=map_section(corpus_map))


def map_section(corpus_map: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of the macro `map` in parts.html."""
    groups, panels = corpus_map["groups"], corpus_map["panels"]
    figures = [
        Figure(_panel(corpus_map, number), panel["name"], _method_note(corpus_map, number)) for number, panel in enumerate(panels)
    ]
    by_label, several, count = corpus_map["grouped_by"] == "label", len(panels) > 1, len(corpus_map["texts"])
    columns = ["group", "sentences", *["frequent words"] * by_label, "by chance", *(panel["name"] for panel in panels)]
    rows = [
        [
            mark_key(SERIES[number]) + element("bdi", group["name"]),
            f"{group['count']:,}",
            *[", ".join(group["words"])] * by_label,
            *(f"{share:.0%}" for share in (group["chance"], *group["shares"])),
        ]
        for number, group in enumerate(groups)
    ]  # fmt: skip
    return {
        "what": f"{count:,} sentences{', the same in both panels' if several else ''}. Point at a mark to read its sentence.",
        "figures": figures,
        "style": "maps" if several else "alone",
        "columns": columns,
        "rows": rows,
        "groups": _groups_note(by_label, several),
        "limits": f"How to read the map: {LIMITS[corpus_map['layout']]}",
    }


def _panel(corpus_map: Mapping[str, Any], number: int) -> Markup:
    panel, groups = corpus_map["panels"][number], corpus_map["groups"]
    points = [
        (x, y, SERIES[group] + " faint" * (groups[group]["name"] == OTHER), f"{text}\n[{groups[group]['name']}]")
        for text, group, (x, y) in zip(corpus_map["texts"], corpus_map["group_of"], panel["positions"], strict=True)
    ]
    points.sort(key=lambda point: "faint" not in point[2])  # below the others
    largest = "; ".join(f"{group['name']}: {group['count']:,} sentences, {group['shares'][number]:.0%}" for group in groups)
    description = (
        f"Each mark is a sentence. The groups, with the share of the {NEIGHBOURS} nearest neighbours of a sentence that are in "
        f"its group: {largest}."
    )
    return marks(f"Map of {len(corpus_map['texts']):,} sentences: {panel['name']}", description, points, SIDE)


def _method_note(corpus_map: Mapping[str, Any], number: int) -> str:
    """Return the caption of a panel: its method, the reason for PCA, and what the second panel starts from."""
    layout, reason = corpus_map["layout"], corpus_map["reason"]
    note = f"Laid out by {layout}" + (f" ({reason})" if reason else "")
    if number:
        note += ", from the layout of the first panel" if layout == "t-SNE" else ", turned to resemble the first panel"
    return note


def _groups_note(by_label: bool, several: bool) -> str:
    """Return how the groups were made, and what the shares in the table are."""
    shares = (
        f"The last columns are computed from the vectors, not from the map: of the {NEIGHBOURS} nearest neighbours of a "
        "sentence, the share in its own group."
    )
    if by_label:
        return f"The groups are labels. {shares}"
    both = " of both models together, so they favour neither" if several else ""
    return f"The groups are clusters (k-means) of the vectors{both}; they are named by frequent words. {shares}"

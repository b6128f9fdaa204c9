"""Generate English sentences and pairs with known semantic similarity, from a small grammar.

A sentence describes a scene: who did what to which thing, where, when and how. The gold score of a pair compares the two scenes,
not the words. Word overlap predicts it poorly. A concept has several names (bread, loaf, baguette), a scene has several word
orders, and half of the pairs do not repeat a name. The same phrases ("according to the report") introduce related and unrelated
scenes. From the text alone, an encoder can learn which words occur together, as in natural text.
"""

import zlib
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

Choice = TypeVar("Choice")

# A block is a domain, a row an activity: agents | actions | objects | places. ";" separates concepts, "," the names of one
# concept. Every verb has one form for past tense and participle; a name that ends in one "s" is a plural.
WORLD = """
baker, pastry maker, confectioner | baked, toasted; iced, glazed | \
    loaf, bread, baguette; cake, tart, sponge | in the bakery, beside the oven, at the pastry counter
cook, chef, kitchen hand | boiled, simmered, stewed; salted, seasoned, spiced | \
    soup, broth, chowder; sauce, gravy | on the stove, over the flame, in the scullery
waiter, server, steward | served, offered; brought, carried | \
    dinner, supper, meal; wine, drinks, beer | in the dining room, at the corner table, in the restaurant

fisherman, angler, trawlerman | caught, netted, hooked; gutted, filleted | \
    herring, cod, mackerel; crabs, lobsters, shellfish | off the coast, out at sea, beyond the reef
shipwright, boatbuilder, sailmaker | built, constructed; launched, floated | \
    boat, vessel, ship; hull, keel, mast | in the shipyard, on the slipway, in the dry dock
docker, stevedore, porter | unloaded, unpacked; stacked, piled | \
    cargo, freight, goods; crates, containers, barrels | on the quay, at the wharf, on the pier

judge, magistrate, justice | sentenced, convicted; acquitted, pardoned | \
    thief, burglar, robber; swindler, fraudster, forger | in the courtroom, before the jury, at the tribunal
detective, inspector, constable | arrested, detained, seized; questioned, interrogated | \
    suspect, culprit; witness, bystander, onlooker | at the police station, in the cell, at the crime scene
lawyer, attorney, solicitor | drafted, worded; signed, sealed | \
    contract, agreement, treaty; testament, deed | at the law firm, in chambers, at the notary

surgeon, physician, anaesthetist | stitched, sutured; treated, cured, healed | \
    wound, gash, cut; fracture, broken bone | in the operating room, on the surgical ward, in the emergency room
nurse, matron, midwife | comforted, soothed; bandaged, washed | \
    patient, invalid; newborn, infant, baby | in the hospital, in the clinic, at the bedside
pharmacist, chemist, druggist | dispensed, supplied; weighed, measured | \
    pills, tablets, capsules; ointment, salve, balm | in the pharmacy, at the dispensary, behind the medicine cabinet

farmer, grower, peasant | harvested, reaped, gathered; planted, sowed | \
    wheat, barley, rye; potatoes, turnips, carrots | in the field, on the farm, among the furrows
shepherd, herdsman, drover | herded, rounded up; sheared, clipped | \
    lambs, ewes, rams; goats, ponies, cattle | on the pasture, in the meadow, on the hillside
gardener, fruit picker, winegrower | picked, plucked; pruned, trimmed | \
    apples, pears, plums; grapes, vines | in the orchard, in the vineyard, behind the hedge

teacher, schoolmaster, tutor | taught, presented; explained, clarified | \
    algebra, geometry, arithmetic; grammar, spelling | in the classroom, at the blackboard, at school
student, pupil, schoolgirl | passed, completed; failed, flunked | \
    exam, test, quiz; homework, assignment, essay | in the examination hall, at the desk, at college
librarian, archivist, bookseller | catalogued, indexed, filed; lent, loaned | \
    novel, book, paperback; manuscript, scroll, parchment | in the library, in the reading room, among the shelves

actor, actress, comedian | rehearsed, practised; performed, staged | \
    play, drama, tragedy; monologue, soliloquy | on the stage, at the playhouse, behind the curtain
violinist, pianist, cellist | played, interpreted; composed, arranged | \
    sonata, symphony, concerto; melody, tune, song | in the concert hall, at the opera, in the orchestra pit
painter, artist, illustrator | painted, depicted, portrayed; sketched, outlined | \
    landscape, seascape; portrait, likeness | in the studio, at the easel, in the gallery

mechanic, technician, engineer | repaired, fixed, mended; tuned, adjusted | \
    engine, motor, gearbox; car, automobile, van | in the garage, under the bonnet, on the ramp
carpenter, joiner, woodworker | sawed, planed; varnished, polished | \
    table, bench, chair; cupboard, wardrobe, cabinet | in the joinery, at the workbench, in the sawmill
blacksmith, smith, metalworker | forged, hammered; welded, soldered | \
    sword, dagger, blade; horseshoe, chain, gate | in the forge, at the anvil, in the smithy
"""
TIMES = (
    "at dawn, at daybreak, at sunrise; at noon, at midday; at dusk, at sunset, at nightfall; "
    "in winter, in the cold months; in summer, in the warm months; last week, a few days ago"
)
MANNERS = (
    "quickly, hastily, in a hurry; carefully, cautiously, with great care; quietly, silently, without a sound; "
    "cheerfully, happily, with a smile; reluctantly, grudgingly, unwillingly"
)
OPENERS = ("according to the report,", "we were told that", "it is worth noting that", "nobody was surprised that")
CLAUSES = (
    "the {agent} {action} the {object}",
    "the {object} {was} {action} by the {agent}",
    "it was the {agent} who {action} the {object}",
    "it was the {object} that the {agent} {action}",
)
WEIGHTS = {"agent": 1.0, "action": 1.0, "object": 1.0, "place": 1.0, "time": 0.5, "manner": 0.5}
SAME_ACTIVITY, SAME_DOMAIN = 0.6, 0.3  # similarity of two different concepts of one role, from 0 to 1
NEW_NAMES = 0.5  # share of the pairs whose second sentence repeats no name of the first
HELD_OUT = 10  # one sentence in ten, chosen by its checksum, is reserved for the pairs


class Concept(NamedTuple):
    """One meaning: its domain, its activity, and its names in English."""

    domain: int
    activity: int
    names: tuple[str, ...]


Scene = dict[str, Concept | None]  # role -> concept; time and manner may be absent
Names = dict[str, str]  # role -> the name of its concept in one sentence


def _concepts(text: str, domain: int = -1, activity: int = -1) -> tuple[Concept, ...]:
    return tuple(Concept(domain, activity, tuple(name.strip() for name in names.split(","))) for names in text.split(";"))


def _activities() -> list[list[dict[str, tuple[Concept, ...]]]]:
    """Return the concepts of each role, for each domain and activity."""
    roles = ("agent", "action", "object", "place")
    return [
        [
            {role: _concepts(text, domain, activity) for role, text in zip(roles, line.split("|"), strict=True)}
            for activity, line in enumerate(block.splitlines())
        ]
        for domain, block in enumerate(WORLD.strip().split("\n\n"))
    ]


_WORLD, _TIMES, _MANNERS = _activities(), _concepts(TIMES), _concepts(MANNERS)


def _pick(random: np.random.Generator, choices: Sequence[Choice]) -> Choice:
    return choices[int(random.integers(len(choices)))]


def _scene(random: np.random.Generator, domain: int, activity: int) -> Scene:
    """Return a scene of one activity. Each role comes from a random activity of the same domain with probability 0.2."""
    scene: Scene = {}
    for role in ("agent", "action", "object", "place"):
        concepts = _WORLD[domain][activity] if random.random() < 0.8 else _pick(random, _WORLD[domain])
        scene[role] = _pick(random, concepts[role])
    scene["time"] = _pick(random, _TIMES) if random.random() < 0.5 else None
    scene["manner"] = _pick(random, _MANNERS) if random.random() < 0.5 else None
    return scene


def _any_scene(random: np.random.Generator) -> tuple[Scene, int, int]:
    domain = int(random.integers(len(_WORLD)))
    activity = int(random.integers(len(_WORLD[domain])))
    return _scene(random, domain, activity), domain, activity


def _names(random: np.random.Generator, scene: Scene, avoid: Collection[str] = ()) -> Names:
    """Return a random name for every concept of the scene, but none of the names in `avoid`."""
    filled = {role: concept for role, concept in scene.items() if concept is not None}
    return {role: _pick(random, [name for name in concept.names if name not in avoid]) for role, concept in filled.items()}


def _write(random: np.random.Generator, names: Names) -> str:
    """Write a sentence with the names. Word order and introductory phrases are random."""
    plural = names["object"].endswith("s") and not names["object"].endswith("ss")
    clause = _pick(random, CLAUSES).format(**names, was="were" if plural else "was")
    before, after = [], []
    for role in ("manner", "place", "time"):
        if role in names:
            (before if not before and random.random() < 0.3 else after).append(names[role])
    opener = [_pick(random, OPENERS)] if random.random() < 0.5 else []
    sentence = " ".join([*opener, *(f"{phrase}," for phrase in before), clause, *after]) + "."
    return sentence[0].upper() + sentence[1:]


def _held_out(sentence: str) -> bool:
    return zlib.crc32(sentence.encode()) % HELD_OUT == 0


def _write_split(random: np.random.Generator, scene: Scene, held_out: bool, avoid: Collection[str] = ()) -> tuple[str, Names]:
    """Return a sentence for the scene and its names. Sentences are drawn until one is in the requested part (held out or not)."""
    while True:
        names = _names(random, scene, avoid)
        sentence = _write(random, names)
        if _held_out(sentence) == held_out:
            return sentence, names


def sentences(count: int, seed: int) -> list[str]:
    """Return `count` training sentences, a function of the seed. None of them can occur in held-out `graded_pairs` of any seed."""
    random = np.random.default_rng(seed)
    return [_write_split(random, _any_scene(random)[0], held_out=False)[0] for _ in range(count)]


def _concept_similarity(first: Concept | None, second: Concept | None) -> float:
    if first is None or second is None:
        return 0.0
    if first == second:
        return 1.0
    if first.domain < 0 or first.domain != second.domain:
        return 0.0
    return SAME_ACTIVITY if first.activity == second.activity else SAME_DOMAIN


def similarity(first: Scene, second: Scene) -> float:
    """Return the gold score of two scenes, from 0 (unrelated) to 5 (same meaning): a weighted mean over their roles."""
    roles = [role for role in WEIGHTS if first[role] is not None or second[role] is not None]
    total = sum(WEIGHTS[role] * _concept_similarity(first[role], second[role]) for role in roles)
    return 5.0 * total / sum(WEIGHTS[role] for role in roles)


def _scene_pair(random: np.random.Generator) -> tuple[Scene, Scene]:
    """Return two scenes of the same activity, the same domain or different domains. Related scenes share some of their roles."""
    first, domain, activity = _any_scene(random)
    relation = random.integers(3)
    if relation == 0:
        second = _scene(random, domain, activity)
    elif relation == 1:
        second = _scene(random, domain, int(random.integers(len(_WORLD[domain]))))
    else:
        second = _scene(random, (domain + int(random.integers(1, len(_WORLD)))) % len(_WORLD), activity)
    shared = ("time", "manner") if relation == 2 else tuple(WEIGHTS)
    keep = random.random()
    return first, second | {role: first[role] for role in shared if random.random() < keep}


def graded_pairs(count: int, seed: int, held_out: bool = True) -> tuple[list[str], list[str], Float[np.ndarray, " count"]]:
    """Return `count` pairs and their gold scores (float64), spread evenly over 0 to 5; a function of the seed.

    Held-out pairs share no sentence with other pairs or with `sentences`, for any seeds.
    """
    random = np.random.default_rng(seed)
    first, second, gold = [], [], np.zeros(count)
    for row, score_bin in enumerate(random.permutation(np.arange(count) % 10)):
        while True:
            scenes = _scene_pair(random)
            gold[row] = similarity(*scenes)
            if min(int(gold[row] * 2), 9) == score_bin:
                break
        sentence, names = _write_split(random, scenes[0], held_out)
        avoid = set(names.values()) if random.random() < NEW_NAMES else ()
        first.append(sentence)
        second.append(_write_split(random, scenes[1], held_out, avoid=avoid)[0])
    return first, second, gold

"""Read a compiled program's text (optimised HLO): bytes that it moves, collectives, padding of arrays, largest arrays.

A loop counts as often as it runs. The compilers' own cost analysis counts it once.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c64": 8, "c128": 16, "s4": 0.5, "u4": 0.5}
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
FREE = {  # operations that move nothing themselves
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all", "partition-id",
    "replica-id", "iota", "async-start", "async-update", "async-done", "copy-done", "opt-barrier", "add-dependency",
}  # fmt: skip
SLICES = ("dynamic-slice", "slice", "gather")
ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\](?:\{([^}]*)\})?")
CALLED = re.compile(r"\b(?:calls|to_apply|body|condition)=%?([\w.\-]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class Shape(NamedTuple):
    """An array in a program's text."""

    dtype: str
    sizes: tuple[int, ...]
    layout: str  # "1,0:T(8,128)(2,1)S(1)": order of the axes, tiles, memory space

    @property
    def bytes(self) -> float:
        """Return the size without padding."""
        return math.prod(self.sizes) * _item_bytes(self.dtype)

    @property
    def padded_bytes(self) -> float:
        """Return the size in the tiles of its layout, where the minor axes are rounded up to a tile."""
        order, _, tiling = self.layout.partition(":")
        tile = re.match(r"T\(([\d,]+)\)", tiling)
        axes = [int(axis) for axis in order.split(",") if axis]
        if not tile or not axes or len(axes) != len(self.sizes):
            return self.bytes
        sizes = [self.sizes[axis] for axis in reversed(axes)]  # major to minor
        tiles = [int(size) for size in tile[1].split(",")][-len(sizes) :]
        for axis_from_end, size in enumerate(reversed(tiles), 1):
            sizes[-axis_from_end] = -(-sizes[-axis_from_end] // size) * size
        return math.prod(sizes) * _item_bytes(self.dtype)

    @property
    def on_chip(self) -> bool:
        """Return whether the array is in a memory of the chip itself, not in HBM."""
        return bool(re.search(r"S\([1-9]", self.layout))


class Instruction(NamedTuple):
    """A line of a program."""

    name: str
    shapes: list[Shape]  # of the result; several for a tuple
    opcode: str
    operands: list[str]
    attributes: str


class Collective(NamedTuple):
    """All collectives of one operation and group size."""

    operation: str  # an element of COLLECTIVES
    group: int  # devices that take part together
    times: int  # in one step, loops unrolled
    bytes: float  # of the whole arrays, on one device, in one step


class Program:
    """The computations of a program, each with the number of times that it runs in a step."""

    def __init__(self, text: str) -> None:
        self.computations, self._entry = _parse(text)
        self.runs: dict[str, float] = defaultdict(float)  # of computations that are not fused
        self._count(self._entry, 1)

    def moved_bytes(self, hbm_only: bool = True) -> float:
        """Return the bytes that operations read and write on one device. Of a slice, only the part that is taken counts.

        `hbm_only` leaves out arrays that the compiler keeps on the chip (TPU).
        """
        total = 0.0
        for name, runs in self.runs.items():
            shapes = {line.name: line.shapes for line in self.computations[name]}
            total += runs * sum(self._moved(line, shapes, hbm_only) for line in self.computations[name])
        return total

    def collectives(self, devices: int) -> list[Collective]:
        """Return the collectives by operation and group size; all `devices` take part if the text names no groups."""
        count: Counter[tuple[str, int]] = Counter()
        size: dict[tuple[str, int], float] = defaultdict(float)
        for line, runs in self._everywhere():
            operation = line.opcode.removesuffix("-start")
            if operation not in COLLECTIVES:
                continue
            shapes = (
                line.shapes[1:]
                if line.opcode.endswith("-start") and operation != "all-reduce" and len(line.shapes) > 1
                else line.shapes
            )
            group = _group(line.attributes, devices)
            bytes_ = sum(shape.bytes for shape in shapes if shape.sizes or operation == "all-reduce")
            count[operation, group] += int(runs)
            size[operation, group] += runs * bytes_ * (group if operation == "reduce-scatter" else 1)
        return [Collective(operation, group, count[operation, group], size[operation, group]) for operation, group in sorted(count)]

    def padding(self) -> float:
        """Return the share of the bytes of all results that is padding of tiles."""
        shapes = [shape for line, _ in self._top() if line.opcode not in FREE for shape in line.shapes]
        padded = sum(shape.padded_bytes for shape in shapes)
        return 1 - sum(shape.bytes for shape in shapes) / padded if padded else 0.0

    def largest(self, count: int = 10) -> list[tuple[float, str, str]]:
        """Return (bytes, array, operation in the source) of the largest results in HBM, each array and operation once."""
        size_of = {}
        for line, _ in self._top():
            for shape in line.shapes if line.opcode not in FREE else ():
                if not shape.on_chip:
                    source = re.search(r'op_name="([^"]*)"', line.attributes)
                    text = f"{shape.dtype}[{','.join(map(str, shape.sizes))}]"
                    size_of[text, source[1].rpartition("/")[2] if source else line.opcode] = shape.padded_bytes
        return [(size, *names) for names, size in sorted(size_of.items(), key=lambda item: -item[1])[:count]]

    def _count(self, name: str, runs: float) -> None:
        self.runs[name] += runs
        for line in self.computations[name]:
            if line.opcode == "while":
                body, condition = (re.search(rf"{role}=%?([\w.\-]+)", line.attributes) for role in ("body", "condition"))
                if body and condition:
                    self._count(body[1], runs * self._trips(line, condition[1]))
            elif line.opcode in ("call", "async-start", "conditional"):
                called = CALLED.findall(line.attributes)
                if branches := BRANCHES.search(line.attributes):
                    called = [branch.strip(" %") for branch in branches[1].split(",")]
                called += re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", line.attributes)
                for computation in called[:1] if line.opcode != "conditional" else called:
                    self._count(computation, runs / (len(called) if line.opcode == "conditional" else 1))

    def _trips(self, loop: Instruction, condition: str) -> int:
        """Return how often a loop runs: the count by the compiler, or else the constant that its condition compares with."""
        if known_count := re.search(r'known_trip_count"?:\{"n":"(\d+)"', loop.attributes):
            return int(known_count[1])
        constants = [
            int(line.operands[0])
            for line in self.computations[condition]
            if line.opcode == "constant" and line.operands and re.fullmatch(r"\d+", line.operands[0])
        ]
        return max(constants, default=1)

    def _top(self) -> Iterator[tuple[Instruction, float]]:
        """Yield every instruction outside fusions, with its runs."""
        for name, runs in self.runs.items():
            for line in self.computations[name]:
                yield line, runs

    def _everywhere(self) -> Iterator[tuple[Instruction, float]]:
        """Yield all instructions, with their runs.

        A collective that a TPU overlaps with several fusions appears in all of them, but is yielded once.
        """
        seen = set()
        for line, runs in self._top():
            yield line, runs
            if line.opcode == "fusion":
                for name in CALLED.findall(line.attributes):
                    for inner in self.computations.get(name, ()):
                        chain = re.search(r'chain_id="\d+"', inner.attributes)
                        if chain and chain[0] in seen:
                            continue
                        seen.add(chain and chain[0])
                        if name.startswith("all-reduce-scatter") and inner.opcode == "all-reduce":  # a TPU's reduce-scatter
                            yield line._replace(opcode="reduce-scatter", attributes=inner.attributes), runs
                        else:
                            yield inner, runs

    def _moved(self, line: Instruction, shapes: dict[str, list[Shape]], hbm_only: bool) -> float:
        if line.opcode in FREE or line.opcode.endswith("-done"):
            return 0.0
        counted_shapes = [shape for shape in line.shapes if not (hbm_only and shape.on_chip)]
        bytes_written = sum(shape.bytes for shape in counted_shapes)
        bytes_read = 0.0
        called = CALLED.search(line.attributes) if line.opcode == "fusion" else None
        for index, operand in enumerate(line.operands):
            size = sum(shape.bytes for shape in shapes.get(operand, ()) if not (hbm_only and shape.on_chip))
            if called:
                used, updated = self._parameter_use(called[1], index, size)
                bytes_read += used
                bytes_written -= min(updated, bytes_written) if size else 0.0
            elif line.opcode in SLICES and index == 0:
                bytes_read += min(size, sum(shape.bytes for shape in line.shapes))
            elif line.opcode == "dynamic-update-slice":
                update = sum(shape.bytes for shape in shapes.get(line.operands[1], ()))
                bytes_read, bytes_written = update, update
                break
            else:
                bytes_read += size
        if line.opcode == "copy-start":  # its result is (copy, original, context)
            return bytes_read + sum(shape.bytes for shape in line.shapes[:1] if not (hbm_only and shape.on_chip))
        if line.opcode == "slice-start":  # ((original), slice, context)
            slice_bytes = line.shapes[1].bytes
            return min(bytes_read, slice_bytes) + (0.0 if hbm_only and line.shapes[1].on_chip else slice_bytes)
        return bytes_read + bytes_written

    def _parameter_use(self, computation: str, number: int, size: float) -> tuple[float, float]:
        """Return the bytes that a fusion reads of its parameter `number`, and those of its result that it does not change.

        A fusion that updates a parameter in place leaves most of its result unchanged.
        """
        lines = self.computations.get(computation, [])
        name = next((line.name for line in lines if line.opcode == "parameter" and line.operands == [str(number)]), None)
        aliases = {name}
        bytes_read = unchanged = 0.0
        for line in lines:
            used = [index for index, operand in enumerate(line.operands) if operand in aliases and line.opcode != "parameter"]
            if not used:
                continue
            if line.opcode in ("bitcast", "get-tuple-element"):
                aliases.add(line.name)
            elif line.opcode in SLICES and used == [0]:
                bytes_read += line.shapes[0].bytes
            elif line.opcode == "dynamic-update-slice" and used == [0]:
                update = next((instruction.shapes[0].bytes for instruction in lines if instruction.name == line.operands[1]), 0.0)
                unchanged += max(line.shapes[0].bytes - update, 0.0)
            elif line.opcode == "fusion" and (inner := CALLED.search(line.attributes)):
                for index in used:
                    inner_use = self._parameter_use(inner[1], index, size)
                    bytes_read, unchanged = bytes_read + inner_use[0], unchanged + inner_use[1]
            else:
                bytes_read = size
        return min(bytes_read, size), unchanged


def _item_bytes(dtype: str) -> float:
    size_or_match = BYTES.get(dtype) or re.match(r"[suf](\d+)", dtype)
    return size_or_match if isinstance(size_or_match, int | float) else int(size_or_match[1]) / 8 if size_or_match else 0


def _group(attributes: str, devices: int) -> int:
    """Return the number of devices in a group of replica_groups={{0,1},{2,3}} or [2,4]<=[8]; two for a permutation."""
    if groups := re.search(r"replica_groups=\[(\d+),(\d+)\]", attributes):
        return int(groups[2])
    if groups := re.search(r"replica_groups=\{\{([\d,]*)\}", attributes):
        return groups[1].count(",") + 1
    return 2 if "source_target_pairs" in attributes else devices


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    entry = ""
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line):
            current = computations[head[2]] = []
            entry = head[2] if head[1] else entry
        elif " = " in line and (instruction := _instruction(line)):
            current.append(instruction)
    return computations, entry


def _instruction(line: str) -> Instruction | None:
    """Return the instruction of `ROOT %name = f32[2]{0} add(%a, %b), attributes`, or None for another line."""
    head, _, text = line.strip().removeprefix("ROOT ").partition(" = ")
    end = _closing(text) if text.startswith("(") else text.find(" ")
    result, text = text[:end], text[end:].strip()
    opcode, bracket, text = text.partition("(")
    if not bracket or not re.fullmatch(r"[\w\-]+", opcode):
        return None
    end = _closing("(" + text) - 2
    operands = re.findall(r"%([\w.\-]+)", text[:end]) if opcode not in ("parameter", "constant") else [text[:end].strip()]
    shapes = [
        Shape(dtype, tuple(int(size) for size in sizes.split(",") if size), layout)
        for dtype, sizes, layout in ARRAY.findall(result)
    ]
    return Instruction(head.strip().lstrip("%"), shapes, opcode, operands, text[end + 1 :])


def _closing(text: str) -> int:
    """Return the position after the bracket that closes the first one."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "({") - (character in ")}")
        if not depth:
            return position + 1
    return len(text)

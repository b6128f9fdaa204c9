"""Attack dedup: files that would be replaced, kills, odd tables and texts, rows that are not finite."""

import csv
import filecmp

import numpy as np
from commands import await_file, case, corpus, done, ended, fresh, model, refused, run, start


def dedup(folder, text, output, *more: str) -> list[str]:
    return ["dedup", "--model", str(folder), "--corpus", str(text), "--output", str(output), *more]


@case(31, "an output that is the corpus, a link to it, or beside files of the user")
def dedup_replaces_nothing():
    folder, text = model(), corpus(20)
    whole, link, output = text.read_bytes(), text.parent / "link.txt", text.parent / "unique.txt"
    link.symlink_to(text)
    for name in (text, link, text.parent):
        refused(2, *dedup(folder, text, name), named="exists")
    for suffix in (".json", ".dropped.csv"):
        beside = output.with_name(output.name + suffix)
        beside.write_text("precious", encoding="utf-8")
        refused(2, *dedup(folder, text, output), named=beside.name)
        assert beside.read_text(encoding="utf-8") == "precious", f"{beside.name} was replaced"
        beside.unlink()
        beside.symlink_to(text)
        refused(2, *dedup(folder, text, output), named=beside.name)
        beside.unlink()
    assert text.read_bytes() == whole, "the corpus changed"


@case(31, "kill -9 while dedup encodes, then again to the end")
def killed_dedup():
    folder, text = model(), corpus(6_000)
    whole, resumed = text.parent / "whole.txt", text.parent / "resumed.txt"
    done(*dedup(folder, text, whole))
    process = start(*dedup(folder, text, resumed))
    await_file(process, text.parent / "resumed.txt.vectors" / "000000.npy")
    process.kill()
    process.communicate()
    assert not resumed.exists(), "a part of the output is there"
    done(*dedup(folder, text, resumed))
    for suffix in ("", ".dropped.csv", ".json"):
        assert filecmp.cmp(f"{whole}{suffix}", f"{resumed}{suffix}", shallow=False), f"{suffix} differs"
    assert not (text.parent / "resumed.txt.vectors").exists(), "the vectors are left"


@case(31, "a text that is edited while dedup reads it")
def edited_dedup():
    folder, text = model(), corpus(6_000)
    process = start(*dedup(folder, text, text.parent / "unique.txt"))
    await_file(process, text.parent / "unique.txt.vectors" / "000000.npy")
    with text.open("r+b") as file:
        file.write(b"A")
    code, _, err = ended(process)
    assert code == 3, f"exit code {code}: {err[-200:]}"
    assert not (text.parent / "unique.txt").exists(), "an output of the edited text was written"


@case(31, "quoted line breaks, Windows line ends and other columns of tables")
def dedup_tables():
    table = fresh("table") / "table.csv"
    rows = [["1", 'a man,\nthe "cook"', "x"], ["2", 'a man, the  "cook"', "y\nz"], ["3", "the cargo was cut", "a man"]]
    header, fields = "id,text,note\r\n", [",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row) for row in rows]
    table.write_bytes((header + "".join(f"{row}\r\n" for row in fields)).encode())
    output = table.parent / "unique.csv"
    done(*dedup(model(), table, output, "--threshold", "1"))
    assert output.read_bytes() == (header + f"{fields[0]}\r\n{fields[2]}\r\n").encode(), output.read_bytes()
    with (table.parent / "unique.csv.dropped.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["row"], row["reason"], row["kept_row"]) for row in csv.DictReader(file)] == [("1", "exact", "0")]


@case(31, "20,000 equal lines, one record, and no record")
def dedup_sizes():
    text = fresh("equal") / "equal.txt"
    for lines, kept in ((20_000, 1), (1, 1)):
        text.write_text("a man was the cook\n" * lines, encoding="utf-8")
        output = text.parent / f"{lines}.txt"
        done(*dedup(model(), text, output))
        assert len(output.read_text(encoding="utf-8").splitlines()) == kept
    text.write_text("\n \n", encoding="utf-8")
    refused(3, *dedup(model(), text, text.parent / "none.txt"), named="contains no sentence")


@case(31, "vectors with NaN, also a single one")
def dedup_nan():
    folder = fresh("nan")
    for count, row in ((1, 0), (5, 3), (3_000, 2_999)):
        text, vectors = folder / f"{count}.txt", np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
        text.write_text("".join(f"line {number}\n" for number in range(count)), encoding="utf-8")
        vectors[row, 1] = np.nan
        np.save(folder / f"{count}.npy", vectors)
        output = folder / f"unique{count}.txt"
        refused(5, "dedup", "--corpus", f"{folder}/{count}.npy", "--corpus-text", str(text), "--output", str(output), named="NaN")
        assert not output.exists()


@case(31, "a threshold that is out of range or not a number")
def dedup_thresholds():
    text = corpus(5)
    for threshold in ("0", "-1", "1.0000001", "nan", "inf", "x"):
        code, _, err = run(*dedup(model(), text, text.parent / "unique.txt", f"--threshold={threshold}"))
        assert (code, "--threshold" in err) == (2, True), (code, err[-200:])

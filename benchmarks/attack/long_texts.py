"""Attack what reads long texts in chunks: settings that differ, kills, damaged places, texts without sentences or spaces."""

import filecmp
import json
import random

from commands import await_file, case, done, encode, fresh, model, refused, run, start

LENGTH = ("--max-seq-length", "12")
SENTENCES = ("A man treated the gravy.", "The cook was a farmer!", "Is the cargo cut?", "the porter treated the hull .")


def documents(count: int = 40):
    """Write texts of 1 to 30 sentences with ids, of which some are empty, and return their file."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(SENTENCES, k=draw.randint(1, 30))) if row % 7 else "" for row in range(count)]
    file = fresh("documents") / "documents.jsonl"
    file.write_text("".join(json.dumps({"_id": f"d{row}", "text": text}) + "\n" for row, text in enumerate(texts)), "utf-8")
    return file


@case(30, "vectors with other --chunks, in every command")
def other_chunks():
    folder, text = model(), documents()
    each, mean, plain = (text.parent / name for name in ("each", "mean", "plain"))
    done(*encode(folder, text, each, *LENGTH, "--chunks", "each"))
    done(*encode(folder, text, mean, *LENGTH, "--chunks", "mean"))
    done(*encode(folder, text, plain, *LENGTH))
    search = ["search", "--model", str(folder), "--query", "a man", "--corpus"]
    refused(3, *search, str(plain), "--chunks", "each", named="was made without chunks")
    refused(3, *search, str(each), "--chunks", "mean", named="was made with chunks='each'")
    refused(3, "mine", "--corpus", str(each), named="has a vector for each chunk")
    refused(3, "cluster", "--corpus", str(each), "--k", "2", named="has a vector for each chunk")
    options = ["--corpus-text", str(text), "--output", str(text.parent / "unique.jsonl")]
    refused(3, "dedup", "--corpus", str(each), *options, named="has a vector for each chunk")
    refused(2, *encode(folder, text, each, *LENGTH, "--chunks", "max"), named="chunks='each'")
    refused(2, *encode(folder, text, mean, *LENGTH), named="chunks='mean'")
    text.write_text(text.read_text("utf-8").replace("cook", "king"), "utf-8")
    refused(3, *search, str(each), "--corpus-text", str(text), named="from corpus documents.jsonl")


@case(30, "kill -9 while chunks are encoded, then again to the end")
def killed_chunks():
    folder, text = model(), documents(400)
    whole, resumed = text.parent / "whole", text.parent / "resumed"
    options = (*LENGTH, "--chunks", "each", "--rows-per-shard", "200")
    done(*encode(folder, text, whole, *options))
    process = start(*encode(folder, text, resumed, *options))
    await_file(process, resumed / "000001.npy")
    process.kill()
    process.communicate()
    done(*encode(folder, text, resumed, *options))
    names = sorted(path.name for path in whole.iterdir() if path.suffix != ".LOCK" and path.name != "LOCK")
    _, differ, missing = filecmp.cmpfiles(whole, resumed, names, shallow=False)
    assert not differ, differ
    assert not missing, missing


@case(30, "damaged places of chunks that are not verified")
def damaged_places():
    folder, text = model(), documents(5)
    vectors = text.parent / "each"
    done(*encode(folder, text, vectors, *LENGTH, "--chunks", "each"))
    file = vectors / "000000.npy.records.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    search = ["search", "--model", str(folder), "--query", "a man", "--corpus", str(vectors), "--no-verify"]
    for change in ({"start": -1}, {"end": -1}, {"start": True}, {"end": 10**30}, {"start": 0.5}, {"row": 10**30}, {"row": -1}):
        file.write_text("".join(json.dumps(line | (change if row == 3 else {})) + "\n" for row, line in enumerate(lines)), "utf-8")
        refused(3, *search, named="the record of row 3")


@case(30, "texts without sentences, without spaces, of one word, of marks")
def odd_texts():
    texts = [
        "a man " * 500,
        "gravy" * 5_000,
        "中文。" * 500,
        "e\u0301" * 2_000,
        "👨\u200d👩\u200d👧" * 300,
        "\u200b" * 3_000,
        "a. " * 900,
    ]
    file = fresh("odd") / "odd.txt"
    file.write_text("".join(f"{text}\r\n" for text in texts), "utf-8")
    folder, output = model(), file.parent / "each"
    _, _, err = run(*encode(folder, file, output, *LENGTH, "--chunks", "each"))
    assert "nothing was cut" in err, err[-200:]
    covered = [set() for _ in texts]
    for line in (output / "000000.npy.records.jsonl").read_text("utf-8").splitlines():
        values = json.loads(line)
        covered[values["row"]].update(range(values["start"], values["end"]))
    for text, numbers in zip(texts, covered, strict=True):
        missing = [number for number, letter in enumerate(text.rstrip()) if number not in numbers and not letter.isspace()]
        assert not missing, f"{text[:20]!r}: characters {missing[:5]} are in no chunk"

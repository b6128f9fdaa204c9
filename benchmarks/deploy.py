"""Compare an export in the backends of sentence-transformers: speed and score of float32 and int8, a row for each backend.

    python benchmarks/deploy.py --model EXPORT --data SENTEVAL --backend torch|onnx|onnx-int8|openvino|openvino-int8|jax_sentemb

The backends need their own packages, which may need other versions of transformers, so run each in an environment with
`sentence-transformers[onnx]` or `sentence-transformers[openvino]`. The distinct sentences of STS-B test are encoded and timed.
Speed is the median of `--passes` in wall time and in processor time of all threads, which a busy machine disturbs less. int8 is
dynamic quantisation for AVX-512 VNNI (ONNX), or weights and activations calibrated on sentences of STS-B train (OpenVINO).
"""

import argparse
import csv
import os
import statistics
import tempfile
import time
from pathlib import Path

ONNX_FILE, OPENVINO_FILE = "onnx/model_qint8_avx512_vnni.onnx", "openvino/openvino_model_qint8_quantized.xml"
CALIBRATION = 300  # sentences of STS-B train


def read_pairs(data, split):
    """Return (first sentences, second sentences, scores) of a part of STS-B."""
    file = Path(data) / "downstream" / "STS" / "STSBenchmark" / f"sts-{split}.csv"
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return [row[5] for row in rows], [row[6] for row in rows], [float(row[4]) for row in rows]


def load(options):
    """Return the encode function of the backend."""
    if options.backend == "jax_sentemb":
        from jax_sentemb import SentenceEncoder

        return SentenceEncoder.load(options.model).encode
    from sentence_transformers import SentenceTransformer

    backend, _, precision = options.backend.partition("-")
    folder, settings = str(options.model), {}
    if backend != "torch":
        settings["model_kwargs"] = {"provider": "CPUExecutionProvider"} if backend == "onnx" else {"device": "CPU"}
    if precision:
        file = ONNX_FILE if backend == "onnx" else OPENVINO_FILE
        if not (options.model / file).is_file():
            quantize(SentenceTransformer(folder, backend=backend, **settings), backend, options)
        settings["model_kwargs"]["file_name"] = Path(file).name if backend == "onnx" else file
    return SentenceTransformer(folder, device="cpu", backend=backend, **settings).encode


def quantize(model, backend, options):
    """Write the int8 model into the export's directory."""
    if backend == "onnx":
        from sentence_transformers import export_dynamic_quantized_onnx_model

        export_dynamic_quantized_onnx_model(model, "avx512_vnni", str(options.model))
        return
    from optimum.intel import OVQuantizationConfig
    from sentence_transformers import export_static_quantized_openvino_model

    quantization = OVQuantizationConfig(num_samples=CALIBRATION)
    with tempfile.TemporaryDirectory() as folder:  # the calibration reads a data set by its name on the hub, or files
        (Path(folder) / "train.csv").write_text("text\n" + "".join(map(quoted, read_pairs(options.data, "train")[0][:CALIBRATION])))
        source = {"dataset_name": folder, "dataset_config_name": "default", "dataset_split": "train", "column_name": "text"}
        export_static_quantized_openvino_model(model, quantization, str(options.model), **source)


def quoted(text):
    """Return a line of a CSV file with one column."""
    return '"' + text.replace('"', '""') + '"\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    import numpy as np
    from scipy.stats import spearmanr

    encode = load(options)
    first, second, gold = read_pairs(options.data, "test")
    sentences = list(dict.fromkeys(first + second))
    encode(sentences[:64])
    seconds = []
    for _ in range(options.passes):
        started = time.monotonic(), time.process_time()
        vectors = encode(sentences)
        seconds.append((time.monotonic() - started[0], time.process_time() - started[1]))
    wall, processor = (statistics.median(side) for side in zip(*seconds, strict=True))
    row_of = {sentence: number for number, sentence in enumerate(sentences)}
    first_vectors, second_vectors = (np.asarray(vectors)[[row_of[sentence] for sentence in side]] for side in (first, second))
    cosines = (
        (first_vectors * second_vectors).sum(1) / np.linalg.norm(first_vectors, axis=1) / np.linalg.norm(second_vectors, axis=1)
    )
    row = {
        "backend": options.backend,
        "stsb_test": f"{100 * spearmanr(cosines, gold).statistic:.2f}",
        "sentences_per_second": f"{len(sentences) / wall:.0f}",
        "sentences_per_cpu_second": f"{len(sentences) / processor:.0f}",
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    print(row, flush=True)
    if options.results:
        new = not options.results.is_file()
        with options.results.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, row, lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()

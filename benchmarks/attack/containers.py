"""Attack with containers: every public function for texts or vectors gets tables, sets, bytes, tensors and unusual arrays."""

from commands import ROOT, case, corpus, model, run

for part in ("texts", "vectors", "arguments"):

    @case(27, f"odd containers and values: {part}")
    def containers(part=part):
        program = str(ROOT / "benchmarks" / "attack" / "odd_values.py")
        code, _, err = run(part, str(model()), str(corpus(40)), python=(program,), processor=900)
        assert code == 0, (err.strip().splitlines() or [""])[-1]

"""Attack distill: streams that close, an edited text, a signal, a second distillation, a full disk."""

import os
import resource
import signal

from commands import await_file, case, corpus, distill, done, ended, fresh, model, refused, start


@case(1, "distill with both streams closed from the start")
def closed_distill():
    output = fresh("static") / "static"
    started = start(*distill(model(), corpus(), output), stdout=None, stderr=None, preexec_fn=lambda: os.closerange(1, 3))
    assert (code := ended(started)[0]) == 0, f"exit code {code}"
    assert (output / "model.safetensors").is_file(), "exit code 0 and no table"


@case(2, "a text that is edited while it is distilled")
def edited_distill():
    text = corpus(20_000)
    output = text.parent / "static"
    process = start(*distill(model(), text, output, "--epochs", "1"))
    await_file(process, text.parent, lambda folder: bool(list(folder.glob(".static.vectors.*.partial"))))
    with text.open("r+b") as file:
        file.write(b"A")
    code, _, err = ended(process)
    assert code == 3, f"exit code {code}: {err[-200:]}"
    assert "changed while it was read" in err.splitlines()[-1], err[-200:]
    assert not output.exists(), "a table of the edited text was written"


@case(7, "SIGHUP in distill, then again to the end")
def hangup_distill():
    text = corpus(20_000)
    output = text.parent / "static"
    default = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}
    process = start(*distill(model(), text, output, "--epochs", "1"), **default)
    await_file(process, text.parent, lambda folder: bool(list(folder.glob(".static.vectors.*.partial"))))
    process.send_signal(signal.SIGHUP)
    code, _, err = ended(process)
    assert code == -signal.SIGHUP, f"exit code {code}: {err[-200:]}"
    done(*distill(model(), text, output, "--epochs", "1"))
    assert not list(text.parent.glob(".static*")), "a temporary file is left"


@case(10, "two distillations to one place")
def two_distillations():
    folder, text = model(), corpus(20_000)
    command = distill(folder, text, text.parent / "static", "--epochs", "1")
    first = start(*command)
    await_file(first, text.parent, lambda folder: bool(list(folder.glob(".static.vectors.*.partial"))))
    first.send_signal(signal.SIGSTOP)  # so that it is still running when the second starts
    refused(6, *command, named="is being written by another process")
    first.send_signal(signal.SIGCONT)
    assert (code := ended(first)[0]) == 0, f"exit code {code}"


@case(10, "distill on a full disk")
def full_distill():
    text = corpus(20_000)
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))}
    refused(7, *distill(model(), text, text.parent / "static", "--epochs", "1"), named="static", **limited)
    assert sorted(file.name for file in text.parent.iterdir()) == ["corpus.txt"], "a temporary file is left"

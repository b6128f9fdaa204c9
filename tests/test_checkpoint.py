"""Which steps of a checkpoint folder count, and what becomes of the others."""

import gc
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jax_sentemb.errors import ModelFileError, ResourceError
from jax_sentemb.formats import checkpoint, manifest
from jax_sentemb.formats.checkpoint import Checkpoints
from jax_sentemb.formats.run_dir import read_checkpoint
from jax_sentemb.provenance import Source
from jax_sentemb.training.run_sources import run_mark
from jax_sentemb.types import TrainState

FACTS = {"seed": 1}


def state(number, width=5, dtype=jnp.float32, **more):
    params = {"encoder": {"kernel": jnp.full((4, width), number, dtype), **more}}
    moments = {"mean": jnp.full((4, width), -number, jnp.float32)}
    return TrainState(params, None, None, moments, jnp.zeros(2, jnp.uint32), jnp.int32(number))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Steps 1 and 2 in checkpoints/, step 2 in best/."""
    folder = tmp_path_factory.mktemp("written")
    checkpoints = Checkpoints(folder, FACTS)
    for number in (1, 2):
        checkpoints.save(number, state(number), {})
        checkpoints.save_best(number, state(number).params, {"best_score": number})
    checkpoints.wait()
    checkpoints.close()
    return folder


@pytest.fixture
def folder(written, tmp_path):
    shutil.copytree(written, tmp_path / "run")
    return tmp_path / "run"


def restore(folder, template=None, said=None):
    """The number of the state that is restored (None: none), after the warnings were put into `said`."""
    warn = (lambda step, text: said.append(text)) if said is not None else (lambda step, text: None)
    found = Checkpoints(folder, FACTS, warn=warn).restore(template or state(0))
    return None if found is None else int(found[0].params["encoder"]["kernel"][0, 0])


def files(step):
    return sorted(file for file in step.rglob("*") if file.is_file())


def flip(file, position):
    """One bit of a file turned over; done again, it is as before."""
    content = bytearray(file.read_bytes())
    content[position // 8] ^= 1 << position % 8
    file.write_bytes(content)


def test_what_was_saved_comes_back_and_older_steps_are_deleted(folder):
    assert restore(folder) == 2
    step, params = Checkpoints(folder, FACTS).restore_best(state(0).params)
    assert step == 2
    assert params["encoder"]["kernel"][0, 0] == 2
    checkpoints = Checkpoints(folder, FACTS)
    checkpoints.restore(state(0))
    checkpoints.save(3, state(3), {})
    checkpoints.wait()
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["2", "3"]
    assert [path.name for path in (folder / "best").iterdir()] == ["2"]


def test_a_continued_run_keeps_as_many_steps_as_one_without_a_stop(folder):
    checkpoints = Checkpoints(folder, FACTS, keep=3)
    checkpoints.restore(state(0))
    for number, kept in ((3, ["1", "2", "3"]), (4, ["2", "3", "4"])):
        checkpoints.save(number, state(number), {})
        checkpoints.wait()
        assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == kept


def test_the_step_of_a_stop_does_not_replace_a_regular_one(folder):
    for start, number, kept in ((2, 3, ["2", "3"]), (3, 4, ["2", "4"]), (4, 6, ["4", "6"])):
        checkpoints = Checkpoints(folder, FACTS, keep=2, interval=2)
        assert checkpoints.restore(state(0))[0].step == start
        checkpoints.save(number, state(number), {})
        checkpoints.wait()
        assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == kept


def test_best_weights_are_deleted_with_their_damaged_steps(folder):
    flip(next(file for file in files(folder / "best" / "2") if file.name != "manifest.json"), 3)
    with pytest.raises(ModelFileError, match="best: no step is intact; delete this folder to export the last weights"):
        Checkpoints(folder, FACTS).restore_best(state(0).params)
    assert [path.name for path in (folder / "best").iterdir()] == ["corrupt-2"]
    Checkpoints(folder, FACTS).delete_best()
    assert list((folder / "best").iterdir()) == []


def test_a_flipped_bit_in_any_file_is_found(folder):
    random = np.random.default_rng(0)
    for kind in ("checkpoints", "best"):
        step = folder / kind / "2"
        manifest.verify(step)
        found = files(step)
        sizes = np.array([file.stat().st_size for file in found])
        places = [(file, int(random.integers(8 * file.stat().st_size))) for file in found if file.stat().st_size]
        places += [(found[n], int(random.integers(8 * sizes[n]))) for n in random.choice(len(found), 100, p=sizes / sizes.sum())]
        for file, position in places:
            flip(file, position)
            with pytest.raises(manifest.Damaged, match=file.name):
                manifest.verify(step)
            flip(file, position)
        manifest.verify(step)


def test_a_damaged_step_is_moved_aside_and_the_one_before_it_used(folder):
    data = max(files(folder / "checkpoints" / "2" / "state"), key=lambda file: file.stat().st_size)
    flip(data, 1000)
    shutil.rmtree(folder / "best")
    said = []
    with pytest.raises(ModelFileError, match="is damaged"):
        read_checkpoint(folder, "2")
    params, step = read_checkpoint(folder, "last")  # reading changes nothing
    assert (step, params["encoder"]["kernel"][0, 0]) == (1, 1)
    assert (folder / "checkpoints" / "2").is_dir()
    assert restore(folder, said=said) == 1
    assert data.name in said[0]
    assert "corrupt-2" in said[0]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["1", "corrupt-2"]


@pytest.mark.parametrize("times", [1, 2])
def test_without_an_intact_step_a_run_does_not_start_anew(folder, times):
    for kind in ("checkpoints", "best"):
        for step in (folder / kind).iterdir():
            flip(files(step / "state")[0], 3)
    for _ in range(times):
        with pytest.raises(ModelFileError, match="no step is intact"):
            restore(folder)
    with pytest.raises(ModelFileError, match="no step is intact"):
        Checkpoints(folder, FACTS).restore_best(state(0).params)
    with pytest.raises(ModelFileError, match="no step is intact"):
        read_checkpoint(folder, "best")


def truncated(step):
    file = files(step / "state")[-1]
    file.write_bytes(file.read_bytes()[:-1])


def emptied(step):
    files(step / "facts")[0].write_bytes(b"")


def missing(step):
    (step / "commit_success.txt").unlink()


def foreign(step):
    (step / "state" / "notes.txt").write_text("mine")


def without_manifest(step):
    (step / "manifest.json").unlink()


def empty_step(step):
    shutil.rmtree(step)
    step.mkdir()


def replaced_by_a_link(step):
    file = files(step / "state")[0]
    file.rename(step.parents[1] / "elsewhere")
    file.symlink_to(step.parents[1] / "elsewhere")


@pytest.mark.parametrize("harm", [truncated, emptied, missing, foreign, without_manifest, empty_step, replaced_by_a_link])
def test_a_step_that_lost_or_gained_something_does_not_count(folder, harm):
    harm(folder / "checkpoints" / "2")
    said = []
    assert restore(folder, said=said) == 1
    assert len(said) == 1
    assert "checkpoints/2" in said[0]


def test_a_step_that_leads_out_of_the_work_directory_is_refused(folder, tmp_path):
    (folder / "checkpoints" / "2").rename(tmp_path / "elsewhere")
    (folder / "checkpoints" / "2").symlink_to(tmp_path / "elsewhere")
    said = []
    assert restore(folder, said=said) == 1
    assert "is a link out of the work directory" in said[0]
    assert (tmp_path / "elsewhere" / "manifest.json").is_file()
    assert read_checkpoint(folder, "last")[1] == 1


def test_what_is_no_step_is_left_alone_with_a_warning(folder):
    for name in ("abc", "-1", "1e3", "007"):
        (folder / "checkpoints" / name).mkdir()
    (folder / "checkpoints" / "9").write_text("a file")
    said = []
    assert restore(folder, said=said) == 2
    assert len(said) == 1
    for name in ("abc", "-1", "1e3", "007", "9"):
        assert name in said[0]
        assert (folder / "checkpoints" / name).exists()


def test_an_interrupted_save_is_no_damage(folder):
    (folder / "checkpoints" / "2" / "manifest.json").unlink()
    (folder / "checkpoints" / "unfinished").write_text("2")
    (folder / "checkpoints" / "3.orbax-checkpoint-tmp").mkdir()
    (folder / "checkpoints" / "0.deleted").mkdir()
    assert restore(folder) == 1
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["1"]
    (folder / "checkpoints" / "1" / "manifest.json").unlink()
    (folder / "checkpoints" / "unfinished").write_text("1")
    assert restore(folder) is None  # of the first save nothing is left to go on from


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (state(0, width=6), r"params/encoder/kernel is float32\[4x5\], expected float32\[4x6\]"),
        (state(0, dtype=jnp.bfloat16), r"params/encoder/kernel is float32\[4x5\], expected bfloat16\[4x5\]"),
        (state(0, bias=jnp.zeros(3)), r"params/encoder/bias is absent, expected float32\[3\]"),
        (state(0)._replace(opt_state={}), r"opt_state/mean is float32\[4x5\], expected absent"),
        (
            state(0, **{f"extra{n:02}": jnp.zeros(3) for n in range(15)}),
            r"extra09 is absent, expected float32\[3\]; and 5 more; give another --workdir$",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named_with_both_kinds(folder, template, says):
    before = {file: file.stat().st_mtime_ns for file in files(folder)}
    with pytest.raises(ModelFileError, match=says) as caught:
        restore(folder, template)
    assert "\n" not in str(caught.value)
    assert {file: file.stat().st_mtime_ns for file in files(folder)} == before


def failing(monkeypatch, *numbers):
    """Manifests of these steps cannot be written."""
    real = manifest.write

    def write(folder, content):
        if int(folder.name) in numbers:
            raise OSError(28, "No space left on device")
        real(folder, content)

    monkeypatch.setattr(manifest, "write", write)


def test_a_failed_save_is_a_warning_and_the_next_one_may_succeed(folder, monkeypatch):
    failing(monkeypatch, 3)
    said = []
    checkpoints = Checkpoints(folder, FACTS, warn=lambda step, text: said.append((step, text)))
    checkpoints.restore(state(0))
    checkpoints.save(3, state(3), {})
    checkpoints.save(4, state(4), {})
    checkpoints.wait()
    assert [step for step, _ in said] == [3]
    assert "No space left" in said[0][1]
    assert "step 2 is intact" in said[0][1]
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["2", "4"]


@pytest.fixture
def small_disk(tmp_path, mount_tmpfs):
    """A file system of 2 MB."""
    return mount_tmpfs(tmp_path / "disk", "-o", "size=2m")


# Where Orbax meets the full disk itself, its threads speak to an event loop that its failure has closed.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)
@pytest.mark.parametrize("checked", [True, False], ids=["known before", "met on the way"])
def test_a_full_disk_keeps_the_last_step_and_space_that_is_freed_is_used(small_disk, monkeypatch, checked):
    if not checked:
        monkeypatch.setattr(checkpoint, "_check_room", lambda folder, size: None)
    noise = jax.random.normal(jax.random.key(0), (400, 250))  # 400 kB that cannot be packed
    said = []
    checkpoints = Checkpoints(small_disk, FACTS, warn=lambda step, text: said.append((step, text)))
    checkpoints.save(1, state(1, noise=noise), {})
    checkpoints.wait()
    free = shutil.disk_usage(small_disk).free
    (small_disk / "others").write_bytes(bytes(max(free - 300_000, 0)))
    checkpoints.save(2, state(2, noise=noise), {})
    checkpoints._latest.finish()
    assert [step for step, _ in said] == [2]
    assert "step 1 is intact" in said[0][1]
    assert restore(small_disk, state(0, noise=noise)) == 1
    (small_disk / "others").unlink()
    checkpoints.save(3, state(3, noise=noise), {})
    checkpoints.wait()
    assert restore(small_disk, state(0, noise=noise)) == 3
    assert len(said) == 1
    gc.collect()  # what is left of Orbax's tasks complains here, not in another test


@pytest.mark.parametrize(("first", "bad"), [(True, (3,)), (False, (3, 4)), (False, (4,))])
def test_a_failed_save_is_an_error_at_the_first_the_last_and_the_second_in_a_row(folder, monkeypatch, first, bad):
    failing(monkeypatch, *bad)
    checkpoints = Checkpoints(folder / "new" if first else folder, FACTS, warn=lambda step, text: None)
    checkpoints.restore(state(0))
    checkpoints.save(3, state(3), {})

    def rest():
        checkpoints.save(4, state(4), {})
        checkpoints.wait()

    with pytest.raises(ResourceError, match=f"step {bad[-1]} could not be saved.*No space left"):
        rest()
    assert restore(folder) == (3 if bad == (4,) else 2)


def test_saves_of_two_runs_in_a_process_do_not_start_at_once(folder, monkeypatch):
    """Orbax would wait for the folder of the other save, and write before its own exists."""
    save, starting, together = ocp.AsyncCheckpointer.save, threading.Semaphore(1), []

    def slow(self, *args, **more):
        together.append(not starting.acquire(blocking=False))
        time.sleep(0.1)
        save(self, *args, **more)
        starting.release()

    monkeypatch.setattr(ocp.AsyncCheckpointer, "save", slow)
    runs = [Checkpoints(folder / name, FACTS) for name in ("first", "second")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: run.save(1, state(1), {}), runs))
    for run in runs:
        run.wait()
        assert run.restore(state(0)) is not None
    assert together == [False, False]


def test_hashing_does_not_keep_the_loop_waiting(folder, monkeypatch):
    go_on = threading.Event()
    real = manifest.write
    monkeypatch.setattr(manifest, "write", lambda *arguments: go_on.wait(60) and real(*arguments))
    checkpoints = Checkpoints(folder / "new", FACTS)
    checkpoints.save(1, state(1), {})  # returns
    assert not (folder / "new" / "checkpoints" / "1" / "manifest.json").exists()
    go_on.set()
    checkpoints.wait()
    assert json.loads((folder / "new" / "checkpoints" / "1" / "manifest.json").read_text())["content"]["step"] == 1


def test_a_best_step_before_the_last_one_replaces_it(folder):
    checkpoints = Checkpoints(folder, FACTS)
    checkpoints.restore_best(state(0).params)
    checkpoints.save_best(1, state(7).params, {"best_score": 7})  # after a return to an earlier step
    checkpoints.wait()
    assert [step.name for step in (folder / "best").iterdir()] == ["1"]
    step, params = checkpoints.restore_best(state(0).params, 1)
    assert (step, params["encoder"]["kernel"][0, 0]) == (1, 7)


def test_the_wanted_step_is_restored_unless_it_is_damaged(folder):
    shutil.copytree(folder / "best" / "2", folder / "best" / "3")
    assert Checkpoints(folder, FACTS).restore_best(state(0).params)[0] == 3
    assert Checkpoints(folder, FACTS).restore_best(state(0).params, 2)[0] == 2
    flip(next(file for file in files(folder / "best" / "2") if file.name != "manifest.json"), 3)
    assert Checkpoints(folder, FACTS).restore_best(state(0).params, 2)[0] == 3


def test_another_best_at_the_same_step_takes_its_place(folder):
    checkpoints = Checkpoints(folder, FACTS)
    checkpoints.restore_best(state(0).params)
    inode = os.stat(folder / "best" / "2").st_ino
    checkpoints.save_best(2, state(2).params, {"best_score": 2})
    checkpoints.wait()
    assert os.stat(folder / "best" / "2").st_ino == inode  # the same: not written again
    checkpoints.save_best(2, state(7).params, {"best_score": 7})
    checkpoints.wait()
    assert jax.device_get(Checkpoints(folder, FACTS).restore_best(state(0).params)[1]["encoder"]["kernel"])[0, 0] == 7


def change_manifest(step, change):
    """Change the content of a manifest as another version of the package would write it, with the right hash."""
    file = step / "manifest.json"
    content = json.loads(file.read_text())["content"]
    change(content)
    file.write_text(manifest._text(content))


def test_a_later_format_is_refused_alike_by_resume_export_and_best(folder):
    def later(content):
        content["provenance"]["format"] += 1

    for kind in ("checkpoints", "best"):
        change_manifest(folder / kind / "2", later)
    before = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    for read in (
        lambda: restore(folder),
        lambda: Checkpoints(folder, FACTS).restore_best(state(0).params),
        lambda: read_checkpoint(folder, "best"),
        lambda: read_checkpoint(folder, "last"),
        lambda: read_checkpoint(folder, "2"),
        lambda: checkpoint.read_params(folder / "checkpoints" / "2"),
    ):
        with pytest.raises(ModelFileError, match=r"2 has format 2, this version reads format 1; .* that wrote it"):
            read()
    after = sorted(path.relative_to(folder) for path in folder.rglob("*") if "unfinished" not in path.name)
    assert after == before  # nothing was moved aside, and no older step was taken


def test_a_checkpoint_of_other_sources_is_refused_by_name_also_the_best_one(folder):
    for sources, named in (
        ({"seed": 2}, "was made with seed=1, not with seed=2"),
        (
            {"seed": 1, "encoder.weights": Source("new", "b" * 64)},
            r"without encoder\.weights, not from encoder\.weights new \(SHA-256 b+\)",
        ),
    ):
        with pytest.raises(ModelFileError, match=named):
            Checkpoints(folder, sources).restore(state(0))
        with pytest.raises(ModelFileError, match=named):
            Checkpoints(folder, sources).restore_best(state(0).params)


def test_a_checkpoint_that_was_copied_from_another_run_is_not_exported(folder):
    (folder / "model.json").write_text(json.dumps(run_mark("run", FACTS)))
    assert read_checkpoint(folder, "last")[1] == 2
    (folder / "model.json").write_text(json.dumps(run_mark("run", {"seed": 2})))
    with pytest.raises(ModelFileError, match=r"model\.json was made from run run .*, not from run of .*best.2"):
        read_checkpoint(folder, "last")

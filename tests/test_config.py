"""Settings by the names of before."""

from jax_sentemb.config import Config, Optimizer, current_name, flatten, stored_name
from jax_sentemb.methods.simcse import SimCSE


def test_constructors_take_old_names_with_a_note(capsys):
    first = Config(SimCSE())
    old = {"before": first, "vary": "train.seed=1,2", "optimizer": Optimizer(**{"lr_drop": 0.5})}
    assert flatten(Config(SimCSE(), **old)) == flatten(
        Config(SimCSE(), pretrain=first, sweep="train.seed=1,2", optimizer=Optimizer(plateau_factor=0.5))
    )
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == 3
    assert all("the next release does not accept the old name" in note for note in notes)


def test_names_in_checkpoints_stay(capsys):
    names = {"before.optimizer.lr_drop": "pretrain.optimizer.plateau_factor", "vary": "sweep", "train.seed": "train.seed"}
    assert {stored_name(new): current_name(old) for old, new in names.items()} == names

import json
import os
import pickle
import warnings
from dataclasses import replace

import pytest

import sdesens
from sdesens.errors import CheckpointError, CheckpointWarning
from sdesens.models import BlackScholes
from sdesens.montecarlo.checkpoint import Checkpoint, digest_of_file
from sdesens.pricing import Call
from tests.montecarlo.faulty import FaultyJob, assert_same_bits, carried_out


@pytest.fixture
def job(tmp_path):
    return FaultyJob(tmp_path / "log")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


def files(folder, pattern="*-*.json"):
    return sorted(folder.glob(f"*/{pattern}"))


def calls_after(job, folder):
    """The shards that a run computes."""
    before = job.calls()
    assert_same_bits(carried_out(job, checkpoint=folder), job.undisturbed())
    after = job.calls()
    for index in before:
        after.remove(index)
    return after


def test_a_second_run_computes_nothing(job, folder):
    assert calls_after(job, folder) == list(range(10))
    assert len(files(folder)) == 10
    assert calls_after(job, folder) == []


def test_only_what_is_missing_is_computed(job, folder):
    calls_after(job, folder)
    for path in files(folder)[3:7]:
        path.unlink()
    assert calls_after(job, folder) == [3, 4, 5, 6]


def test_more_paths_go_on_where_fewer_ended(job, folder):
    few = replace(job, paths=450)
    assert calls_after(few, folder) == [0, 1, 2, 3, 4]
    assert calls_after(job, folder) == [4, 5, 6, 7, 8, 9]  # the last one was of 50 paths
    assert calls_after(replace(job, paths=1200), folder) == [10, 11]
    assert calls_after(replace(job, paths=700), folder) == []


def test_another_job_gets_another_folder(job, folder):
    calls_after(job, folder)
    assert calls_after(replace(job, salt=1), folder) == list(range(10))
    assert calls_after(job, folder) == []
    assert len(list(folder.iterdir())) == 2


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def emptied(path):
    path.write_bytes(b"")


def changed(path):
    path.write_text(path.read_text().replace('"mean": [', '"mean": [1', 1))


def pickled(path):
    path.write_bytes(pickle.dumps({"format": 1}))


def of_another_shard(path):
    path.write_bytes(path.with_name("00-00000001.json").read_bytes())


def a_folder(path):
    path.unlink()
    path.mkdir()
    path.rmdir()
    path.write_text("[]")


@pytest.mark.parametrize("harm", [cut, emptied, changed, pickled, of_another_shard, a_folder])
def test_a_damaged_file_is_computed_again(job, folder, harm):
    calls_after(job, folder)
    harm(files(folder)[2])
    with pytest.warns(CheckpointWarning, match=r"00-00000002\.json is not used: "):
        assert calls_after(job, folder) == [2]
    assert calls_after(job, folder) == []


def test_a_file_of_another_job_is_computed_again(job, folder):
    calls_after(job, folder)
    other = replace(job, salt=1)
    calls_after(other, folder)
    first, second = (sorted(f.glob("*-*.json")) for f in sorted(folder.iterdir()))
    first[5].write_bytes(second[5].read_bytes())
    with pytest.warns(CheckpointWarning, match="belongs to another job"):
        assert calls_after(job, folder) + calls_after(other, folder) == [5]


def test_nothing_is_unpickled(job, folder, tmp_path):
    calls_after(job, folder)
    trace = tmp_path / "executed"

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(trace),)

    for path in [*files(folder)[:1], *files(folder, "specification.json")]:
        path.write_bytes(pickle.dumps(Bomb()))
    with pytest.warns(CheckpointWarning):
        calls_after(job, folder)
    assert not trace.exists()


def rewritten(path, **changes):
    document = json.loads(path.read_text()) | changes
    document.pop("sha256", None)
    path.write_text(json.dumps({**document, "sha256": digest_of_file(document)}))


def test_a_newer_format_is_refused(job, folder):
    calls_after(job, folder)
    rewritten(files(folder)[0], format=2)
    with pytest.raises(CheckpointError, match="has format 2, of a newer version"):
        carried_out(job, checkpoint=folder)
    rewritten(files(folder)[0], format=1)
    rewritten(files(folder, "specification.json")[0], format=2)
    with pytest.raises(CheckpointError, match="has format 2, of a newer version"):
        carried_out(job, checkpoint=folder)


def test_a_folder_that_describes_another_job_is_refused(job, folder):
    calls_after(job, folder)
    rewritten(files(folder, "specification.json")[0], specification={"model": "another"})
    with pytest.raises(CheckpointError, match="describes another job"):
        carried_out(job, checkpoint=folder)


def test_a_specification_that_is_cut_off_is_written_again(job, folder):
    calls_after(job, folder)
    (path,) = files(folder, "specification.json")
    whole = path.read_text()
    path.write_text(whole[:20])
    assert calls_after(job, folder) == []
    assert path.read_text() == whole


def test_a_folder_that_cannot_be_made_is_an_error(job, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be used"):
        carried_out(job, checkpoint=tmp_path / "file" / "below")
    assert job.calls() == []


def test_what_was_set_aside_long_ago_is_removed(job, folder):
    calls_after(job, folder)
    (inner,) = folder.iterdir()
    old, new = inner / ".a.1.0.tmp", inner / ".b.1.0.tmp"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    calls_after(job, folder)
    assert not old.exists() and new.exists()


def test_numbers_come_back_bit_by_bit(job, folder):
    moments = job.run_shard(0)
    moments.mean[:] = 5e-324 * moments.mean.new_tensor([1.0, -0.0])
    moments.products[:] = moments.products.new_tensor([[float("nan"), float("inf")], [0.1, 1e308]])
    checkpoint = Checkpoint(folder, "digest")
    folder.mkdir()
    checkpoint.write(0, 0, moments)
    again = checkpoint.read(0, 0, 100)
    assert again is not None
    assert again.mean.numpy().tobytes() == moments.mean.numpy().tobytes()
    assert again.products.numpy().tobytes() == moments.products.numpy().tobytes()


def test_greeks_of_second_order_are_kept_and_resumed(folder):
    def run(**terms):
        return sdesens.greeks(
            BlackScholes(0.05, 0.2), Call(100.0, 1.0), [100.0], paths=3_000, steps=1, order=2,
            wrt=("spot", "sigma"), shard_size=1_000, **terms,
        ).entries  # fmt: skip

    alone = run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(checkpoint=folder) == alone
        names = [path.name for path in files(folder)]
        assert {name[:2] for name in names} == {"00", "01", "02"} and len(names) == 9
        for path in files(folder)[::2]:
            path.unlink()
        assert run(checkpoint=folder, executor="threads", workers=2) == alone

"""Who lives and who is gone: readers and owners that end, are killed, or are forked."""

import gc
import json
import os
import signal
import stat
import time

import numpy as np
import pytest
from distributed import Client, LocalCluster

from ecg_dask import InputError
from ecg_dask.share import attach, describe, leases, offer, owner, withdraw

OWNER = """
import json, sys
import numpy as np
from ecg_dask.share import describe, offer
piece = offer(np.arange(1000.0), hold_s={hold_s})
print(json.dumps(describe("ecg", "recording", [{{"signal": piece}}])), flush=True)
sys.stdin.read()
"""

READER = """
import sys
from ecg_dask.share import attach
shared = attach(sys.argv[1])
(signal,) = shared.signal
print("ready", float(signal.sum()), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.usefixtures("shares_apart")


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    for share in list(owner._offers):
        withdraw({"share": share})
    leases.sweep()
    assert owner._offers == {}
    assert list(leases.share_root().iterdir()) == []


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def offered(hold_s=60.0):
    piece = offer(np.arange(1000.0), hold_s=hold_s)
    return piece, json.dumps(describe("ecg", "recording", [{"signal": piece}]))


def test_a_reader_that_is_killed_leaves_nothing_behind(start_python):
    piece, descriptor = offered()
    folder = leases.find(piece["share"])
    reader, said = start_python(READER, descriptor)
    assert said == "ready 499500.0\n"
    withdraw(piece)
    # The lease keeps the data, and lets nobody else in.
    time.sleep(2.5)
    assert (folder / leases.DATA).stat().st_size == 8000
    with pytest.raises(InputError, match="one that was withdrawn"):
        attach(descriptor)
    assert len(list(folder.glob("reader-*"))) == 1
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    until(lambda: not owner._offers)
    assert not folder.exists()
    assert list(leases.share_root().iterdir()) == []
    until(lambda: owner._reaper is None)


def test_a_killed_reader_counts_no_longer_while_another_one_reads(start_python):
    piece, descriptor = offered()
    killed, _ = start_python(READER, descriptor)
    reader, _ = start_python(READER, descriptor)
    withdraw(piece)
    folder = leases.find(piece["share"])
    assert len(list(folder.glob("reader-*"))) == 2
    killed.kill()
    killed.wait()
    until(lambda: len(list(folder.glob("reader-*"))) == 1)
    assert leases.has_readers(folder)
    reader.communicate()
    assert reader.returncode == 0
    until(lambda: not owner._offers)


@pytest.fixture
def clock(monkeypatch):
    """Give the owner a clock that goes on by what is added to it; the reaper wakes as ever."""
    passed = [0.0]

    class Clock:
        sleep = staticmethod(time.sleep)

        @staticmethod
        def monotonic():
            return time.monotonic() + passed[0]

    monkeypatch.setattr(owner, "time", Clock)

    def go_on(seconds):
        passed[0] += seconds
        time.sleep(2.5 * owner._WAKE_S)

    return go_on


def test_without_a_reader_it_is_held_for_a_while(clock):
    piece, descriptor = offered(hold_s=600.0)
    clock(500)
    shared = attach(descriptor)
    clock(500)
    clock(500)
    # The time begins anew when the reader leaves.
    shared.close()
    gc.collect()
    clock(500)
    attach(descriptor).close()
    gc.collect()
    clock(601)
    until(lambda: not owner._offers)
    with pytest.raises(InputError, match="share ecg: found none of this user on this host, or one"):
        attach(descriptor)
    withdraw(piece)


def test_withdrawn_without_a_reader_it_is_gone_at_once():
    piece, descriptor = offered()
    other, _ = offered()
    folder = leases.find(piece["share"])
    withdraw(piece)
    assert not folder.exists()
    assert leases.find(other["share"]).exists()
    with pytest.raises(InputError, match="Share the name again, and attach on the same host"):
        attach(descriptor)


@pytest.mark.parametrize("has_another_reader", [False, True])
def test_a_reader_that_comes_while_the_owner_lets_go_is_turned_away(
    monkeypatch, has_another_reader
):
    piece, descriptor = offered()
    other = attach(descriptor) if has_another_reader else None
    take = leases.Lease

    def late(folder):
        withdraw(piece)
        return take(folder)

    # Between the reader's look and its lease, which no test meets by chance.
    monkeypatch.setattr(leases, "Lease", late)
    with pytest.raises(InputError, match="one that was withdrawn"):
        attach(descriptor)
    gc.collect()
    if other is not None:
        assert other.signal[0].sum() == 499500


def test_an_owner_that_is_killed_gives_the_reader_an_error_and_no_crash(start_python):
    process, descriptor = start_python(OWNER.format(hold_s=60))
    code = """
import sys
from ecg_dask import InputError
from ecg_dask.share import attach
with attach(sys.argv[1]) as shared:
    (signal,) = shared.signal
    print("ready", flush=True)
    sys.stdin.read()
    for access in (shared.check, lambda: shared.signal, lambda: shared.signal):
        try:
            access()
        except InputError as error:
            print(error)
    assert signal.sum() == 499500
"""
    reader, said = start_python(code, descriptor)
    assert said == "ready\n"
    process.kill()
    process.wait()
    told, _ = reader.communicate()
    assert reader.returncode == 0
    words = "share ecg: found that the process which held the data is gone; allowed: one whose "
    assert told.splitlines() == [f"{words}owner lives. Share the name again."] * 3
    # The reader that found it removed what was left.
    assert list(leases.share_root().iterdir()) == []
    with pytest.raises(InputError, match="Share the name again"):
        attach(descriptor)


def test_what_a_killed_owner_left_is_removed_by_the_next_offer(start_python):
    process, _ = start_python(OWNER.format(hold_s=60))
    (left,) = leases.share_root().iterdir()
    process.kill()
    process.wait()
    assert left.exists()
    offered()
    assert not left.exists()


def test_a_living_owner_is_left_alone_by_others(start_python):
    process, descriptor = start_python(OWNER.format(hold_s=60))
    offered()
    with attach(descriptor) as shared:
        assert shared.signal[0].sum() == 499500
    gc.collect()
    process.communicate()
    assert process.returncode == 0
    # It ended by itself, and took its folder with it.
    assert len(list(leases.share_root().iterdir())) == 1


def test_a_folder_in_the_making_is_left_alone_and_a_forgotten_one_is_not():
    young, old = (leases.share_root() / leases.new_name() for _ in range(2))
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (time.time() - 3600,) * 2)
    leases.sweep()
    assert young.exists()
    assert not old.exists()
    young.rmdir()


def test_a_process_forked_from_a_reader_does_not_end_its_lease(start_python):
    piece, descriptor = offered()
    code = """
import gc, os, sys
from ecg_dask.share import attach
shared = attach(sys.argv[1])
(signal,) = shared.signal
child = os.fork()
if not child:
    del shared, signal
    gc.collect()
    sys.exit(0)
os.waitpid(child, 0)
print("forked", flush=True)
sys.stdin.read()
"""
    reader, said = start_python(code, descriptor)
    assert said == "forked\n"
    withdraw(piece)
    assert leases.has_readers(leases.find(piece["share"]))
    reader.communicate()
    until(lambda: not owner._offers)


def test_a_process_forked_from_an_owner_is_not_taken_for_it(start_python):
    code = """
import json, os, sys, time
import numpy as np
from ecg_dask.share import describe, leases, offer, owner, withdraw
piece = offer(np.arange(1000.0))
child = os.fork()
if not child:
    # It owns what it offers itself, and nothing of its parent's.
    withdraw(piece)
    withdraw(offer(np.zeros(3)))
    assert not owner._offers
    print(json.dumps(describe("ecg", "recording", [{"signal": piece}])), flush=True)
    sys.stdin.read()
    sys.exit(0)
time.sleep(600)
"""
    process, descriptor = start_python(code)
    attach(descriptor).check()
    process.kill()
    process.wait()
    with pytest.raises(InputError, match="process which held the data is gone"):
        attach(descriptor)


def test_files_are_for_their_user_alone():
    piece, descriptor = offered()
    with attach(descriptor):
        folder = leases.find(piece["share"])
        paths = [folder, folder.parent, *folder.iterdir(), *folder.parent.iterdir()]
        modes = {stat.S_IMODE(path.lstat().st_mode) for path in paths if path.is_file()}
        assert modes == {0o600}
        assert {stat.S_IMODE(path.lstat().st_mode) for path in paths if path.is_dir()} == {0o700}
        assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == [
            *("data", "piece.json", "reader"),
        ]


def test_a_folder_that_others_may_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(leases.FOLDER, str(tmp_path))
    root = leases.share_root()
    assert root.parent == tmp_path
    root.chmod(0o777)
    with pytest.raises(InputError, match="something that is not this user's alone"):
        offer(np.zeros(3))
    root.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="something that is not this user's alone"):
        offer(np.zeros(3))
    root.unlink()
    root.mkdir(mode=0o700)


def test_a_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv(leases.FOLDER, str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"cannot be written .No such.*\(ECG_DASK_SHARE_DIR\)"):
        offer(np.zeros(3))
    monkeypatch.undo()


def test_without_shared_memory_files_are_taken(tmp_path, monkeypatch):
    monkeypatch.delenv(leases.FOLDER)
    monkeypatch.setattr(leases, "_SHARED_MEMORY", tmp_path / "none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    piece, descriptor = offered()
    with attach(descriptor) as shared:
        assert shared.signal[0].sum() == 499500
    gc.collect()
    assert leases.find(piece["share"]).is_relative_to(tmp_path)
    withdraw(piece)


def test_links_are_not_followed():
    piece, descriptor = offered()
    folder = leases.find(piece["share"])
    data = folder / leases.DATA
    data.rename(folder / "elsewhere")
    data.symlink_to(folder / "elsewhere")
    with attach(descriptor) as shared, pytest.raises(InputError, match="cannot be opened"):
        _ = shared.signal
    gc.collect()
    elsewhere = folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(elsewhere)
    with pytest.raises(InputError, match="none of this user on this host"):
        attach(descriptor)
    folder.unlink()


def test_a_file_of_another_size_is_refused():
    piece, descriptor = offered()
    os.truncate(leases.find(piece["share"]) / leases.DATA, 7000)
    with (
        attach(descriptor) as shared,
        pytest.raises(
            InputError, match="a file of 7000 bytes; allowed: the 8000 bytes that the ow"
        ),
    ):
        _ = shared.signal


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.cluster
def test_what_a_worker_holds_is_mapped_and_gone_with_it(client):
    held = client.submit(np.arange, 1000.0)
    piece = client.submit(offer, held, hold_s=60.0, pure=False).result(timeout=60)
    (address,) = client.has_what()
    del held
    descriptor = describe("ecg", "recording", [{"signal": piece}])
    with attach(descriptor) as shared:
        (signal_seen,) = shared.signal
        client.submit(withdraw, piece, pure=False).result(timeout=60)
        shared.check()
        os.kill(client.run(os.getpid)[address], signal.SIGKILL)
        deadline = time.monotonic() + 30
        with pytest.raises(InputError, match="the process which held the data is gone"):  # noqa: PT012
            while time.monotonic() < deadline:
                shared.check()
                time.sleep(0.05)
        assert signal_seen.sum() == 499500

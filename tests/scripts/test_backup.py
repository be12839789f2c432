"""scripts/backup.sh as cron runs it: empty environment, no terminal, no standard input."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clawmem_core.integrity.keys import PublicKey, keygen
from clawmem_core.model import MemoryEntry
from clawmem_core.store import MemoryStore

ROOT = Path(__file__).parents[2]


class Cron:
    """A user's home: the tool installed beside the script, a signed store, a backup folder."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder, self.store = home, home / "backups", home / "my store.h5"
        self.script = home / "clawmem" / "scripts" / "backup.sh"
        self.script.parent.mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "backup.sh", self.script)
        command = home / "clawmem" / ".venv" / "bin" / "clawmem"
        command.parent.mkdir(parents=True)
        command.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from clawmem_cli.entry import main\nsys.exit(main())\n"
        )
        command.chmod(0o755)
        self.key = str(home / "key.pem")
        self.public: PublicKey = keygen(self.key)

    def save(self, text: str, flush: bool = True) -> None:
        """One more memory, checkpointed and signed unless told otherwise."""
        with MemoryStore.open(self.store, signing_key=self.key) as store:
            store.save(MemoryEntry(text))
            if flush:
                store.flush_wal()

    def run(self, *options: str, key: bool = True) -> subprocess.CompletedProcess[str]:
        """The script, with nothing in its environment."""
        given = ["--public-key", self.public.hex] if key else []
        return subprocess.run(
            ["/bin/sh", str(self.script), str(self.store), str(self.folder), *given, *options],
            env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", check=False,
            start_new_session=True,
        )  # fmt: skip

    def backups(self) -> list[Path]:
        """Folders of the complete backups, oldest first."""
        return sorted(path for path in self.folder.iterdir() if not path.name.startswith("."))

    def move_back(self, name: str) -> Path:
        """Give the newest backup another time."""
        return self.backups()[-1].rename(self.folder / name)


@pytest.fixture
def cron(tmp_path: Path) -> Cron:
    """A home with a signed store of two records, one still in the log."""
    made = Cron(tmp_path)
    MemoryStore.create(made.store, dim=4).close()
    made.save("first")
    made.save("second", flush=False)
    return made


def refused(cron: Cron, code: int, says: str, *options: str, key: bool = True) -> None:
    """Fails with one line, and leaves the folder as it was."""
    before = sorted(cron.folder.iterdir()) if cron.folder.exists() else []
    done = cron.run(*options, key=key)
    assert (code, "") == (done.returncode, done.stdout), done.stderr
    assert 1 == done.stderr.count("\n")
    assert says in done.stderr
    assert before == (sorted(cron.folder.iterdir()) if cron.folder.exists() else [])


def test_makes_a_checked_backup_in_silence(cron: Cron) -> None:
    """File, log with the pending entry, note; private; the copy opens."""
    done = cron.run()
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    (backup,) = cron.backups()
    assert {"my store.h5", "my store.h5.wal", "note"} == {path.name for path in backup.iterdir()}
    assert (backup / "note").read_text().startswith("clawmem/")
    assert 0o700 == backup.stat().st_mode & 0o777
    with MemoryStore.open_read_only(backup / "my store.h5") as store:
        assert ["first", "second"] == [record.chunk for record in store.records()]
    assert [] == [path for path in cron.folder.iterdir() if path.name.startswith(".")]


def test_prints_the_note_for_the_mail(cron: Cron) -> None:
    """Exactly the note."""
    done = cron.run("--print-note")
    assert (cron.backups()[0] / "note").read_text() == done.stdout


def test_unsigned_stores_are_backed_up_too(cron: Cron) -> None:
    """Without a key the copy is read whole, and there is no note."""
    assert 0 == cron.run(key=False).returncode
    assert not (cron.backups()[0] / "note").exists()


def test_continues_the_history(cron: Cron) -> None:
    """A later backup extends the one before."""
    assert 0 == cron.run().returncode
    cron.move_back("2020-01-01T00-00-00Z_2020-W01")
    cron.save("third")
    assert 0 == cron.run().returncode
    assert 2 == len(cron.backups())


def test_rollback_is_noticed(cron: Cron) -> None:
    """An older state put back verifies by itself, but not against the last backup's note."""
    assert 0 == cron.run().returncode
    old = cron.move_back("2020-01-01T00-00-00Z_2020-W01")
    cron.save("third")
    assert 0 == cron.run().returncode
    cron.move_back("2020-01-02T00-00-00Z_2020-W01")
    for path in cron.home.glob("my store.h5*"):
        path.unlink()
    for name in ("my store.h5", "my store.h5.wal"):
        shutil.copy(old / name, cron.home)
    refused(cron, 13, "note-rolled-back")


def test_damage_is_noticed(cron: Cron) -> None:
    """A flipped byte in the store: exit 13, nothing kept."""
    data = bytearray(cron.store.read_bytes())
    at = data.index(b"first")
    data[at] ^= 1
    cron.store.write_bytes(data)
    refused(cron, 13, "record-changed")


def test_failures_are_one_line(cron: Cron, tmp_path: Path) -> None:
    """No store, a wrong key, bad options, a folder that cannot be made."""
    assert 0 == cron.run().returncode
    cron.move_back("2020-01-01T00-00-00Z_2020-W01")
    refused(cron, 12, "public key", "--public-key", "zz")
    refused(cron, 12, "no valid signature", "--public-key", "ab" * 32)
    for options in (["--daily"], ["--daily", "0"], ["--daily", "x"], ["--weekly", "-1"], ["--what"], ["more"]):
        refused(cron, 2, "backup:", *options)
    refused(cron, 2, "--print-note", "--print-note", key=False)
    cron.store.rename(tmp_path / "gone.h5")
    refused(cron, 10, "no store")
    cron.folder = tmp_path / "key.pem" / "sub"
    refused(cron, 1, "cannot make")


def test_without_the_command(cron: Cron) -> None:
    """A missing tool is one line as well."""
    shutil.rmtree(cron.home / "clawmem" / ".venv")
    refused(cron, 1, "no command")


def test_rotation(cron: Cron) -> None:
    """The newest of each of the last days and weeks stay; what is no backup is left alone."""
    cron.folder.mkdir()
    names = [
        "2020-03-01T01-00-00Z_2020-W09", "2020-03-02T01-00-00Z_2020-W10", "2020-03-09T01-00-00Z_2020-W11",
        "2020-03-10T01-00-00Z_2020-W11", "2020-03-10T02-00-00Z_2020-W11", "2020-03-11T01-00-00Z_2020-W11",
    ]  # fmt: skip
    for name in names:
        (cron.folder / name).mkdir()
    (cron.folder / "mine").mkdir()
    (cron.folder / "2020.txt").touch()
    stale = cron.folder / ".new-killed"
    stale.mkdir()
    os.utime(stale, (0, 0))
    assert 0 == cron.run("--daily", "3", "--weekly", "3").returncode
    kept = [path.name for path in cron.backups()]
    today = kept.pop(-2)  # before "mine"
    assert today > "2026"
    assert ["2020-03-02T01-00-00Z_2020-W10", "2020-03-10T02-00-00Z_2020-W11", "2020-03-11T01-00-00Z_2020-W11",
            "2020.txt", "mine"] == sorted(kept)  # fmt: skip
    assert not stale.exists()

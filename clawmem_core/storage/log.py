"""The writer's end of the log: find its end in constant time, append, commit in groups, look keys up.

Invariants (under the store's lock, docs/format.md § 3):
- nothing is appended behind bytes that were not verified: everything that may not be on the medium yet, from the last
  frame's `sync_off` to the end, is read and checked first, so a torn or lost tail never hides a good frame;
- `commit` writes all staged frames in one write and, with `sync`, returns only when they are on the medium;
- after a failed write the log is cut back to where it was and the handle refuses everything else;
- opening reads the header, 16 bytes of the HDF5 file and the last frames, whatever the size of log and store.
"""

from __future__ import annotations

from clawmem_core import clock
from clawmem_core.errors import (
    ClosedError,
    DamagedError,
    InternalError,
    NoStoreError,
    StorageError,
    UncertainWriteError,
)
from clawmem_core.storage import fs
from clawmem_core.storage.log_format import (
    HEADER_SIZE,
    KEY_SIZE,
    OVERHEAD,
    Key,
    LogHeader,
    encode_frame,
    last_frame_length,
    parse_frame,
)
from clawmem_core.storage.log_recovery import is_base, recover, write_log
from clawmem_core.storage.log_scan import BackwardReader, FrameReader, replay, understood

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clawmem_core.storage.lock import StoreLock
    from clawmem_core.storage.log_format import Frame, Identity, LogState
    from clawmem_core.storage.log_reports import Report
    from clawmem_core.storage.paths import StorePaths

UNSYNCED_LIMIT = 256 * 1024  # bytes --no-sync may leave unsynced, and so the bytes to verify when opening
_TAIL_READ = 4096


class _Staged:
    __slots__ = ("keys", "payload", "prev_key_off", "state", "state_flags")

    def __init__(
        self, payload: bytes, keys: Sequence[Key], state: LogState, prev_key_off: int, state_flags: int
    ) -> None:
        self.payload, self.keys, self.state = payload, keys, state
        self.prev_key_off, self.state_flags = prev_key_off, state_flags


class LogWriter:
    """Appends to the log of a locked store. Get one by `open`.

    `header`: of the log; `state`: counters after the last frame, staged ones included; `size`: bytes committed;
    `chain`: checksum at that point (with `header.log_id` and `size` the mark of a checkpoint); `state_flags`: of the
    last frame; `reports`: what recovery found and did.
    """

    __slots__ = (
        "_committed", "_committed_flags", "_durable", "_failed", "_fd", "_find_identity", "_keys", "_keys_from",
        "_lock", "_paths", "_rotation", "_staged", "_staged_end", "chain", "header", "reports", "size", "state",
        "state_flags",
    )  # fmt: skip

    def __init__(
        self, paths: StorePaths, lock: StoreLock, find_identity: Callable[[int], Identity], reports: list[Report]
    ) -> None:
        self._paths, self._lock, self._find_identity, self.reports = paths, lock, find_identity, reports
        self._fd = -1
        self._failed = ""
        self._rotation: Identity | None = None

    @classmethod
    def open(cls, paths: StorePaths, lock: StoreLock, find_identity: Callable[[int], Identity]) -> LogWriter:
        """Find the end of the log; repair it first where a crash or damage left it otherwise (see `reports`).

        `find_identity` is called, with a descriptor of the HDF5 file, only where the log does not continue that file.
        Raises CheckpointFirst (older kinds of file or log), NoStoreError, NewerFormatError, StorageError.
        """
        lock.check()
        writer = cls(paths, lock, find_identity, [])
        if not writer._attach():
            writer._repair(None)
        return writer

    def close(self) -> None:
        """Drop what is staged and close the file. What was committed without `sync` stays unsynced."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            fs.close(fd)

    # ------------------------------------------------------------ opening

    def _attach(self) -> bool:
        """Open the log and find its end from its last frame; False if the log needs repair."""
        fd = fs.open_existing(self._paths.log, fs.RDWR | fs.NOFOLLOW)
        if fd is None:
            return False
        attached = False
        try:
            header = LogHeader.unpack(fs.pread(fd, HEADER_SIZE, 0), self._paths.log)
            if header is not None and self._continues_file(header):
                attached = self._find_end(fd, header)
        finally:
            if not attached:
                fs.close(fd)
        return attached

    def _continues_file(self, header: LogHeader) -> bool:
        h5_fd = fs.open_existing(self._paths.real)
        if h5_fd is None:
            raise NoStoreError(path=self._paths.given)
        try:
            return is_base(h5_fd, header)
        finally:
            fs.close(h5_fd)

    def _find_end(self, fd: int, header: LogHeader) -> bool:
        """Take the last frame's word for everything before its sync_off, and verify everything behind that."""
        size = fs.fstat(fd).st_size
        durable, chain, state, state_flags = HEADER_SIZE, header.crc, header.state, 0
        if size != HEADER_SIZE:
            last = _last_frame(fd, header.salt, size)
            if last is None:
                return False
            understood(last, self._paths.log)
            durable, chain, state, state_flags = last.sync_off, last.chain, last.state, last.state_flags
            if durable < last.offset:
                first_chain = header.crc if durable == HEADER_SIZE else None
                window = FrameReader(fd, header.salt, size, durable, first_chain)
                for _ in window:
                    pass
                if window.offset != size:
                    return False
        self._fd, self.header = fd, header
        self.size, self.chain, self._durable = size, chain, durable
        self._committed, self._committed_flags = state, state_flags
        self._forget_staged()
        return True

    def _forget_staged(self) -> None:
        self.state, self.state_flags = self._committed.copy(), self._committed_flags
        self._staged: list[_Staged] = []
        self._staged_end = self.size
        self._keys: dict[bytes, bytes] = {}
        self._keys_from = self._committed.last_key_off

    def _repair(self, bad_at: int | None) -> None:
        """Run recovery, then open the log it leaves."""
        self.close()
        self._failed = "the log could not be repaired"
        self.reports.extend(recover(self._paths, self._find_identity, bad_at))
        if not self._attach():
            raise InternalError(detail=f"{self._paths.log} is unusable right after its repair")
        self._failed = ""

    def _ready(self) -> None:
        """Raise where nothing may be written or relied upon: forked, closed, failed before."""
        self._lock.check()
        if self._failed:
            raise StorageError(path=self._paths.log, detail=f"{self._failed}; open the store again", errno=0)
        if self._fd < 0:
            raise ClosedError(path=self._paths.given)
        if self._rotation is not None:
            self._rotate(self._rotation)

    # ------------------------------------------------------------ appending

    @property
    def pending(self) -> int:
        """Entries that no checkpoint holds, staged ones included."""
        return self.state.seq - self.header.state.seq

    def append(self, payload: bytes, keys: Sequence[Key], state: LogState, *, state_flags: int = 0) -> None:
        """Stage one frame. `state`: counters after it (`last_key_off` is the log's own). Nothing is written yet.

        `state_flags` stay set in all later frames of this log.
        """
        self._ready()
        state = state.copy()
        previous = self.state.last_key_off
        state.last_key_off = self._staged_end if keys else previous
        self.state_flags |= state_flags
        self._staged.append(_Staged(payload, keys, state, previous, self.state_flags))
        self._staged_end += OVERHEAD + KEY_SIZE * len(keys) + len(payload)
        for key in keys:
            packed = key.pack()
            self._keys[_name(packed)] = packed
        self.state = state

    def rollback(self) -> None:
        """Forget the staged frames."""
        self._forget_staged()

    def commit(self, sync: bool = True, unsynced: int = UNSYNCED_LIMIT) -> None:
        """Write every staged frame in one write; with `sync` they are on the medium when this returns.

        Without, up to `unsynced` bytes before them may not be there; who lets it be more calls `settle` at the end.

        Raises StorageError (none of them is stored) or UncertainWriteError (they may be); the handle is dead then.
        """
        self._ready()
        if not self._staged:
            if sync:
                self.sync()
            return
        stat = fs.fstat(self._fd)
        if stat.st_size != self.size or not stat.st_nlink:
            self._failed = "another program changed or removed the log"
            self._ready()
        if self._durable < self.size and (sync or self.size - self._durable > unsynced):
            self.sync()
        data, chain = self._encode()
        self._failed = "an earlier write to the log did not finish"  # also where an interrupt ends it
        self._write(data)
        size = self.size + len(data)
        if sync:
            try:
                self._make_durable()
            except StorageError as error:
                raise UncertainWriteError(path=self._paths.log, detail=error.fields["detail"]) from error
            self._durable = size
        self._failed = ""
        self._committed, self._committed_flags = self.state.copy(), self.state_flags
        self.size, self.chain = size, chain
        self._staged = []

    def _encode(self) -> tuple[bytes, int]:
        """The staged frames as bytes, and the chain behind them. Nothing changes if one is refused as too large."""
        chain = self.chain
        frames = []
        for frame in self._staged:
            data = encode_frame(
                self.header.salt, frame.payload, frame.keys, frame.state, prev_chain=chain, sync_off=self._durable,
                prev_key_off=frame.prev_key_off, state_flags=frame.state_flags,
            )  # fmt: skip
            chain = int.from_bytes(data[-8:-4], "little")
            frames.append(data)
        return b"".join(frames), chain

    def _write(self, data: bytes) -> None:
        try:
            fs.pwrite(self._fd, data, self.size)
        except StorageError as error:
            try:
                fs.truncate(self._fd, self.size)
            except StorageError:
                raise UncertainWriteError(path=self._paths.log, detail=error.fields["detail"]) from error
            raise

    def _make_durable(self) -> None:
        """Sync the log; before anything in it counts as durable also its name, whose maker may have died too early."""
        fs.fdatasync(self._fd)
        if self._durable == HEADER_SIZE:
            fs.sync_directory(self._paths.directory)

    def sync(self) -> None:
        """Everything committed so far is on the medium when this returns."""
        self._ready()
        if self._durable < self.size:
            self._failed = "the log could not be synced"
            self._make_durable()
            self._failed = ""
            self._durable = self.size

    def settle(self) -> None:
        """Sync where more than UNSYNCED_LIMIT is not on the medium, so that the next opening has little to verify."""
        if self.size - self._durable > UNSYNCED_LIMIT:
            self.sync()

    # ------------------------------------------------------------ reading

    def find_key(self, key: bytes, kind: str) -> Key | None:
        """The newest key of the log under (key, kind), staged ones included, or None.

        A damaged frame on the way is repaired like any other damage: `reports` grows and `state` goes back to what is
        left, so look keys up before staging. Raises DamagedError if something is staged, StorageError.
        """
        self._ready()
        wanted = key + kind.encode("ascii")
        window = BackwardReader(self._fd, self.header.salt, self.size)
        while True:
            found = self._keys.get(wanted)
            if found is not None:
                return Key.unpack(found)
            if not self._keys_from:
                return None
            frame = window.frame(self._keys_from)
            if frame is None or not frame.n_keys:
                self._damaged(None)
                window = BackwardReader(self._fd, self.header.salt, self.size)
                continue
            for packed in frame.packed_keys:
                self._keys.setdefault(_name(packed), packed)
            self._keys_from = frame.prev_key_off

    def frames(self) -> list[Frame]:
        """Every committed frame that the HDF5 file does not hold, in order, verified from the header on.

        Damage is repaired first, as in `find_key`. So is a checkpoint of this process that failed right after its file
        was in place: what that file holds is not given again.
        """
        self._ready()
        if not self._continues_file(self.header):
            self._damaged(None)
        found = replay(self._fd, self.header, None, self.size)
        if found.offset != self.size:
            self._damaged(None)
            found = replay(self._fd, self.header, None, self.size)
        return found.frames

    def reject(self, frame: Frame) -> None:
        """A frame of `frames` does not decode, or the door refuses it: quarantine the log, keep what is before it."""
        self._ready()
        self._damaged(frame.offset)

    def _damaged(self, bad_at: int | None) -> None:
        if self._staged:
            raise DamagedError(path=self._paths.log, detail="a frame before the staged ones is broken")
        known = len(self.reports)
        self._repair(bad_at)
        if len(self.reports) == known:
            raise DamagedError(path=self._paths.log, detail="whole frames that do not belong together")

    # ------------------------------------------------------------ after a checkpoint

    def rotate(self, identity: Identity) -> None:
        """Start a fresh log on the HDF5 file a checkpoint just put in place; entries behind its mark are carried over.

        If that fails (StorageError), the old log stays valid through the file's mark, and the rotation is tried again
        before anything else is done with this writer.
        """
        self._ready()
        self._rotate(identity)

    def _rotate(self, identity: Identity) -> None:
        self._rotation = identity
        if self._staged:
            raise InternalError(detail="a log cannot be rotated with frames staged")
        later = []
        if identity.mark_length < self.size:
            found = replay(self._fd, self.header, identity, self.size)
            if not found.found or found.offset != self.size:
                raise DamagedError(path=self._paths.log, detail="it does not hold the frame the checkpoint names")
            later = found.frames
        write_log(self._paths, LogHeader.after(identity, clock.random_bytes(16), clock.now_us()), later)
        self._failed = "the fresh log could not be opened"
        self.close()
        if not self._attach():
            raise InternalError(detail=f"{self._paths.log} is unusable right after its rotation")
        self._failed, self._rotation = "", None


def _name(packed: bytes) -> bytes:
    """What a packed key is looked up by: the key and its kind."""
    return packed[:16] + packed[40:41]


def _last_frame(fd: int, salt: bytes, size: int) -> Frame | None:
    """The frame that ends with the file, by its own trailer."""
    room = size - HEADER_SIZE
    if room < OVERHEAD:
        return None
    tail = fs.pread(fd, min(_TAIL_READ, room), size - min(_TAIL_READ, room))
    length = last_frame_length(tail)
    if not OVERHEAD <= length <= room:
        return None
    if length > len(tail):
        tail = fs.pread(fd, length, size - length)
    return parse_frame(tail, len(tail) - length, salt, size - length)

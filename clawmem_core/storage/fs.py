"""Every file operation of the product, through one replaceable object.

Invariants: no other module touches a file; everything goes through `layer`, which tests replace to fail, tear, delay or
simulate. An OSError becomes a StorageError with path and reason in one place (`_call`). Short reads and writes are
completed, EINTR is retried. Every descriptor is O_CLOEXEC; new files are 0600 or take mode and owner of the file they
belong to; names we make up ourselves are opened O_NOFOLLOW. Where a missing or an existing file is a normal answer, the
function says so in its return value.
"""

from __future__ import annotations

import errno
import os
import sys

from clawmem_core.errors import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable
    from typing import Any

RDONLY = os.O_RDONLY
RDWR = os.O_RDWR
NOFOLLOW = os.O_NOFOLLOW

_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_COPY_STEP = 1 << 20


class RealLayer:
    """The operating system. Same signatures and OSErrors as `os`; a test's layer offers the same methods."""

    __slots__ = ()

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    ftruncate = staticmethod(os.ftruncate)
    fchmod = staticmethod(os.fchmod)
    fchown = staticmethod(os.fchown)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    listdir = staticmethod(os.listdir)
    stat = staticmethod(os.stat)
    lstat = staticmethod(os.lstat)
    fstat = staticmethod(os.fstat)
    realpath = staticmethod(os.path.realpath)

    @staticmethod
    def flock(fd: int, how: int) -> None:
        import fcntl  # a reader takes no lock

        fcntl.flock(fd, how)

    @staticmethod
    def link(source: str, target: str) -> None:
        os.link(source, target)

    @staticmethod
    def fsync(fd: int) -> None:
        if sys.platform == "darwin":  # fsync alone leaves data in the drive's cache
            import fcntl

            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
                return
            except OSError:
                pass  # not every file system has it; fsync is then the best there is
        os.fsync(fd)

    @staticmethod
    def fdatasync(fd: int) -> None:
        if sys.platform == "darwin":
            RealLayer.fsync(fd)
        else:
            os.fdatasync(fd)

    @staticmethod
    def mmap(fd: int, size: int) -> mmap.mmap:
        import mmap

        return mmap.mmap(fd, size, access=mmap.ACCESS_READ)

    @staticmethod
    def copy_range(source: int, target: int, count: int, source_offset: int, target_offset: int) -> int:
        """Copy up to `count` bytes inside the kernel; 0 at the end of the source, OSError where it cannot."""
        if not hasattr(os, "copy_file_range"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return os.copy_file_range(source, target, count, source_offset, target_offset)


layer: Any = RealLayer()

#: path of each open descriptor, for messages
_paths: dict[int, str] = {}


def _call(path: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call one layer method; the one place where an OSError becomes a StorageError (its `fields["errno"]` is kept)."""
    while True:
        try:
            return function(*arguments)
        except InterruptedError:
            continue
        except OSError as error:
            detail = error.strerror or str(error)
            raise StorageError(path=path, detail=detail, errno=error.errno) from error


def path_of(fd: int) -> str:
    """The path a descriptor was opened with."""
    return _paths.get(fd, f"descriptor {fd}")


# ---------------------------------------------------------------- open, close


def open_file(path: str, flags: int = RDONLY, mode: int = 0o600) -> int:
    """A descriptor of `path`. Raises StorageError, also when the file is missing."""
    fd: int = _call(path, layer.open, path, flags | os.O_CLOEXEC, mode)
    _paths[fd] = path
    return fd


def open_existing(path: str, flags: int = RDONLY) -> int | None:
    """A descriptor of `path`, or None if there is no such file."""
    try:
        return open_file(path, flags)
    except StorageError as error:
        if error.fields["errno"] in _ABSENT:
            return None
        raise


def open_new(path: str, like: os.stat_result | None = None) -> int | None:
    """A read-write descriptor of a file made just now, or None if the name is taken (never follows a symlink).

    Mode 0600, or mode and, as far as permitted, owner of the file `like` describes.
    """
    try:
        fd = open_file(path, RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW)
    except StorageError as error:
        if error.fields["errno"] == errno.EEXIST:
            return None
        raise
    if like is not None:
        try:
            _dress(fd, path, like)
        except StorageError:
            close(fd)
            unlink(path)
            raise
    return fd


def _dress(fd: int, path: str, like: os.stat_result) -> None:
    """Give a new file the owner and mode of another."""
    mine = fstat(fd)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        try:
            _call(path, layer.fchown, fd, like.st_uid, like.st_gid)
        except StorageError as error:
            if error.fields["errno"] != errno.EPERM:  # only root may give files away; the mode below still holds
                raise
    _call(path, layer.fchmod, fd, like.st_mode & 0o777)


def set_mode(fd: int, mode: int) -> None:
    """Set the permission bits of an open file, whatever the umask was."""
    _call(path_of(fd), layer.fchmod, fd, mode)


def close(fd: int) -> None:
    """Close a descriptor. It is closed even where the system complains, and a second try could hit another file.

    Whatever must be on the medium was synced before, and that error told; one that comes only now is about nothing that
    was promised, and may not turn an acknowledged write into a failure.
    """
    _paths.pop(fd, None)
    try:
        layer.close(fd)
    except OSError:
        pass


# ---------------------------------------------------------------- read, write


def pread(fd: int, size: int, offset: int) -> bytes:
    """`size` bytes at `offset`; fewer only where the file ends. The caller bounds `size` by the file's size."""
    path = path_of(fd)
    data: bytes = _call(path, layer.pread, fd, size, offset)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        data = _call(path, layer.pread, fd, missing, offset + size - missing)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def read_all(path: str, limit: int) -> bytes | None:
    """The first `limit` bytes of a file, or None if it is missing."""
    fd = open_existing(path)
    if fd is None:
        return None
    try:
        return pread(fd, min(limit, fstat(fd).st_size), 0)
    finally:
        close(fd)


def pwrite(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`, in one system call unless the kernel cuts it short."""
    path = path_of(fd)
    written: int = _call(path, layer.pwrite, fd, data, offset)
    if written == len(data):
        return
    view = memoryview(data).cast("B")
    while written < len(view):
        step: int = _call(path, layer.pwrite, fd, view[written:], offset + written)
        if not step:
            raise StorageError(path=path, detail="wrote nothing", errno=errno.EIO)
        written += step


def truncate(fd: int, size: int) -> None:
    """Set the length of an open file."""
    _call(path_of(fd), layer.ftruncate, fd, size)


def copy_range(source: int, target: int, size: int, source_offset: int = 0, target_offset: int = 0) -> int:
    """Copy `size` bytes between two open files, inside the kernel where it can. Returns how many the source had."""
    path = path_of(target)
    done = 0
    in_kernel = True
    while done < size:
        if in_kernel:
            try:
                step: int = layer.copy_range(source, target, size - done, source_offset + done, target_offset + done)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
                    raise StorageError(path=path, detail=error.strerror or str(error), errno=error.errno) from error
                in_kernel = False
                continue
            if not step:
                in_kernel = False  # some file systems answer 0 for "cannot"; a plain read tells the end apart
                continue
        else:
            data = pread(source, min(_COPY_STEP, size - done), source_offset + done)
            if not data:
                break
            pwrite(target, data, target_offset + done)
            step = len(data)
        done += step
    return done


def map_file(fd: int, size: int) -> mmap.mmap:
    """The first `size` bytes of an open file, mapped read-only. Only for files that are replaced, never cut."""
    try:
        mapped: mmap.mmap = _call(path_of(fd), layer.mmap, fd, size)
    except ValueError as error:  # the file is shorter than `size`
        raise StorageError(path=path_of(fd), detail=str(error), errno=errno.EINVAL) from error
    return mapped


# ---------------------------------------------------------------- durability


def fsync(fd: int) -> None:
    """Data and metadata of an open file are on the medium when this returns."""
    _call(path_of(fd), layer.fsync, fd)


def fdatasync(fd: int) -> None:
    """Data and length of an open file are on the medium when this returns."""
    _call(path_of(fd), layer.fdatasync, fd)


def sync_directory(path: str) -> None:
    """Names made, renamed or removed in a directory are on the medium when this returns."""
    fd = open_file(path, RDONLY | os.O_DIRECTORY)
    try:
        fsync(fd)
    finally:
        close(fd)


# ---------------------------------------------------------------- names


def replace(source: str, target: str) -> None:
    """Rename over whatever has the target's name."""
    _call(target, layer.replace, source, target)


def link(source: str, target: str) -> bool:
    """Give a file a second name; False if that name is taken."""
    try:
        _call(target, layer.link, source, target)
    except StorageError as error:
        if error.fields["errno"] == errno.EEXIST:
            return False
        raise
    return True


def unlink(path: str) -> bool:
    """Remove a name; False if it was not there."""
    try:
        _call(path, layer.unlink, path)
    except StorageError as error:
        if error.fields["errno"] in _ABSENT:
            return False
        raise
    return True


def mkdir(path: str, mode: int = 0o700) -> bool:
    """Make a directory; False if the name is taken."""
    try:
        _call(path, layer.mkdir, path, mode)
    except StorageError as error:
        if error.fields["errno"] == errno.EEXIST:
            return False
        raise
    return True


def rmdir(path: str) -> None:
    """Remove an empty directory."""
    _call(path, layer.rmdir, path)


def listdir(path: str) -> list[str]:
    """Names in a directory, sorted."""
    return sorted(_call(path, layer.listdir, path))


def stat(path: str) -> os.stat_result | None:
    """What a path leads to, or None if nothing."""
    return _stat(path, layer.stat)


def lstat(path: str) -> os.stat_result | None:
    """What has this name (a symlink is not followed), or None."""
    return _stat(path, layer.lstat)


def _stat(path: str, function: Callable[[str], Any]) -> os.stat_result | None:
    try:
        found: os.stat_result = _call(path, function, path)
    except StorageError as error:
        if error.fields["errno"] in _ABSENT:
            return None
        raise
    return found


def fstat(fd: int) -> os.stat_result:
    """What a descriptor is open on."""
    found: os.stat_result = _call(path_of(fd), layer.fstat, fd)
    return found


def exists(path: str) -> bool:
    """Whether a path leads to something."""
    return stat(path) is not None


def is_regular(path: str) -> bool:
    """Whether a path leads to a regular file: opening a named pipe would wait for its other end."""
    found = stat(path)
    return found is not None and found.st_mode & 0o170000 == 0o100000


def is_directory(path: str) -> bool:
    """Whether a path leads to a directory."""
    found = stat(path)
    return found is not None and found.st_mode & 0o170000 == 0o040000


def size(path: str) -> int:
    """Length of a file in bytes, 0 if it is missing."""
    found = stat(path)
    return 0 if found is None else found.st_size


def same_file(fd: int, path: str) -> bool:
    """Whether `path` still names the file `fd` is open on (a symlink is not followed)."""
    mine, named = fstat(fd), lstat(path)
    return named is not None and (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)


def realpath(path: str) -> str:
    """The path without symlinks; parts that do not exist are kept."""
    found: str = _call(path, layer.realpath, path)
    return found


# ---------------------------------------------------------------- locks


def flock(fd: int, exclusive: bool = True, blocking: bool = False) -> bool:
    """Take an advisory lock on an open file; False if it is taken and `blocking` is off."""
    import fcntl

    how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if blocking else fcntl.LOCK_NB)
    try:
        _call(path_of(fd), layer.flock, fd, how)
    except StorageError as error:
        if error.fields["errno"] in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def unlock(fd: int) -> None:
    """Free the lock of an open file. Never in a forked child: it would free the parent's."""
    import fcntl

    _call(path_of(fd), layer.flock, fd, fcntl.LOCK_UN)

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Where the bytes of a recording come from: a file, possibly compressed with gzip, xz or zstd, or any object that reads.

Compression is found from the first bytes. Data is decoded while it is read, so there is never a whole copy.
"""
from __future__ import annotations

import ctypes
import gzip
import importlib
import io
import lzma
import os
import zlib
from typing import Any, BinaryIO, Callable, Optional, Union

from . import abi
from .stacks import Trace

Readable = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, BinaryIO]

BUFFER = 1 << 16
MEMORY = 16 << 30  # the most that a trace and its reader take, as the library's own default
MOST_READ = 1 << 20  # at once
XZ_MEMORY = 1 << 30  # the most that a decoder may take
# Limits on the decompressed size, as those of the tidemark command. Recordings compress to between a tenth and a
# thirtieth; a file that expands much more is probably an attack on memory and time.
UNPACKED_FIRST = 64 << 20
UNPACKED_TIMES = 256
UNPACKED_MOST = 16 << 30


class XzReader(io.RawIOBase):
    """Decodes xz with a limit on memory, which lzma.LZMAFile does not have. Consecutive streams are one file."""

    def __init__(self, file: BinaryIO, new: Callable[[], Any]) -> None:
        self._file, self._new = file, new
        self._decoder = new()
        self._data = b""

    def readable(self) -> bool:
        return True

    def readinto(self, out: Any) -> int:
        """Decodes at least one byte, unless the file ends."""
        while True:
            if self._decoder.eof and not self._next_stream():
                return 0
            if not self._data and self._decoder.needs_input:
                self._data = self._file.read(BUFFER)
                if not self._data:
                    raise EOFError("the data is truncated")
            got = self._decoder.decompress(self._data, len(out))
            self._data = b""
            if got:
                out[: len(got)] = got
                return len(got)

    def _next_stream(self) -> bool:
        """Begins the next stream, after zeros, if there is one."""
        self._data = (self._decoder.unused_data or b"").lstrip(b"\0")
        while not self._data:
            more = self._file.read(BUFFER)
            if not more:
                return False
            self._data = more.lstrip(b"\0")
        self._decoder = self._new()
        return True


def _gzip(file: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=file, mode="rb")


def _xz(file: BinaryIO) -> Any:
    return XzReader(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY))


def _zstd(file: BinaryIO) -> Any:
    """By the standard library from Python 3.14 on, otherwise by the package zstandard."""
    for name in ("compression.zstd", "zstandard"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if name == "zstandard":
            return module.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
        return module.ZstdFile(file)
    raise abi.TidemarkError("it is compressed with zstd; install the package zstandard to read it", "TIDE_ERR_UNSUPPORTED")


CODECS: dict[str, tuple[bytes, Callable[[BinaryIO], Any]]] = {
    "gzip": (b"\x1f\x8b", _gzip), "xz": (b"\xfd7zXZ\0", _xz), "zstd": (b"\x28\xb5\x2f\xfd", _zstd)}


class Counted:
    """A file that counts the bytes taken from it. The first ones may have been read already."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file
        self.taken = 0

    def read(self, size: int = -1) -> bytes:
        end = len(self._head) if size < 0 else size
        got, self._head = self._head[:end], self._head[end:]
        if not got or size < 0:
            got += self._file.read(size)
        self.taken += len(got)
        return got


class Feed:
    """Gives decoded bytes to the C library, and keeps what went wrong."""

    def __init__(self, file: BinaryIO, max_unpacked: Optional[int] = None) -> None:
        head = b""
        while len(head) < max(len(magic) for magic, _ in CODECS.values()):
            more = file.read(BUFFER)
            if not more:
                break
            head += more
        self._counted = Counted(head, file)
        self._codec = next((name for name, (magic, _) in CODECS.items() if head.startswith(magic)), None)
        packed: Any = self._counted
        self._stream = CODECS[self._codec][1](packed) if self._codec else packed
        self._unpacked = 0
        self._max_unpacked = max_unpacked
        self.error: Optional[BaseException] = None
        self.function = abi.SourceRead(self._read)

    def _limit(self) -> int:
        by_size = min(UNPACKED_TIMES * self._counted.taken, UNPACKED_MOST)
        return max(by_size, UNPACKED_FIRST) if self._max_unpacked is None else self._max_unpacked

    def _count(self, got: int) -> None:
        self._unpacked += got
        if self._codec and self._unpacked > self._limit():
            raise abi.TidemarkError(f"{self._counted.taken} bytes of {self._codec} data decompress to more than "
                                    f"{self._limit()}; max_unpacked allows more", "TIDE_ERR_LIMIT")

    def _read(self, _user: int, out: int, room: int, out_bytes: Any) -> int:
        """Called by the library, which cannot pass exceptions on."""
        try:
            got = bytes(memoryview(self._stream.read(min(room, MOST_READ))))
            if len(got) > room:
                raise ValueError(f"read() returned {len(got)} bytes instead of at most {room}")
            self._count(len(got))
            ctypes.memmove(out, got, len(got))
            out_bytes[0] = len(got)
            return 0
        except BaseException as error:  # whatever it is, it is raised again behind the library
            self.error = error
            return abi.STATE

    def explained(self) -> BaseException:
        """What went wrong, as an error of this package if the file is the reason."""
        assert self.error is not None
        is_data = isinstance(self.error, (EOFError, lzma.LZMAError, zlib.error)) or (
            self._codec is not None and isinstance(self.error, OSError) and self.error.errno is None)
        if not is_data and type(self.error).__name__ != "ZstdError":
            return self.error
        return abi.TidemarkError(f"the {self._codec} data cannot be decoded: {self.error}", "TIDE_ERR_FORMAT")


def read_trace(file: BinaryIO, memory: Optional[int], max_unpacked: Optional[int]) -> Trace:
    """Reads an open file to its end."""
    library = abi.load()
    feed = Feed(file, max_unpacked)
    source, trace = abi.Source(feed.function, None), ctypes.c_void_p()
    options = abi.ReadOptions(size=ctypes.sizeof(abi.ReadOptions), format=abi.FORMAT_COUNT,
                              memory=MEMORY if memory is None else memory)
    try:
        library.tide_trace_read(ctypes.byref(source), ctypes.byref(options), ctypes.byref(trace))
    except abi.TidemarkError:
        if feed.error is not None:
            raise feed.explained() from feed.error
        raise
    return Trace(trace)


def opened(source: Readable) -> tuple[BinaryIO, bool, str]:
    """A source as an open file, whether it must be closed, and its name for errors."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source), True, "the data"
    if hasattr(source, "read"):
        name = getattr(source, "name", None)
        return source, False, str(name) if isinstance(name, (str, os.PathLike)) else "the file"
    path = os.fspath(source)
    return open(path, "rb", buffering=0), True, str(path)

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Parts of PyTorch's wheels: what the shim is compiled against and linked with, 16 of some 550 to 900 MB.

A wheel is a zip file, whose end has a table of contents, and the server of pip's package index reads any range of bytes. The
parts are kept in a folder of the user's cache, laid out as an installation, so that libraries find each other.
"""
from __future__ import annotations

import html
import http.client
import io
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
import zipfile
import zlib
from typing import Any

FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "tidemark", "wheels")
TOTAL_S = 600.0  # that all downloads of a process take at most
SILENT_S = 30.0  # that a server may say nothing
CHUNK = 4 << 20
TAGS = r"cp311-cp311-manylinux\w*_x86_64"
# The versions, the most important first. Of the first ones it is also known what the largest library defines.
VERSIONS = ["2.15.0", "2.8.0", "2.11.0", "2.14.1", "2.13.0", "2.12.1", "2.10.0", "2.9.1"]
PARTS = r"torch/include/(c10|ATen/(core|cpu)|torch/headeronly)/.*\.h|torch/lib/libc10(_cuda)?\.so|torch-.*/METADATA"
LIBRARY, SYMBOLS, WITH_SYMBOLS = "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_cpu.symbols", VERSIONS[:3]
# CUDA's wheels by the number that the requirements of a wheel of PyTorch name: the package, its version, the parts.
CUDA = {"12": [("nvidia-cuda-runtime-cu12", "12.8.90", r".*/(include/.*|libcudart\.so\.12)"),
               ("nvidia-cuda-nvcc-cu12", "12.8.93", r"(.*)/include/crt/.*")],
        "13": [("nvidia-cuda-runtime", "13.0.96", r".*/(include/.*|libcudart\.so\.13)"),
               ("nvidia-cuda-crt", "13.0.88", r"(.*)/include/crt/.*")]}


# What goes wrong with servers, files and tools.
FAILURES = (OSError, ValueError, LookupError, StopIteration, EOFError, http.client.HTTPException, zipfile.BadZipFile, zlib.error,
            subprocess.SubprocessError)


class Missing(Exception):
    """Parts that cannot be had now, and why."""


_spent_s = 0.0
_down = ""  # why the index cannot be asked


class Remote(io.RawIOBase):
    """A file on a server, read in ranges, until the time for all downloads is up."""

    def __init__(self, address: str) -> None:
        self.address, self.at, self.got = address, 0, 0
        with self.ask(0, 0) as answer:
            self.size = int(answer.headers.get("Content-Range", "").rpartition("/")[2] or 0)

    def ask(self, first: int, last: int) -> Any:
        if _spent_s >= TOTAL_S:
            raise Missing(f"the downloads took {TOTAL_S:.0f} s")
        request = urllib.request.Request(self.address, headers={"Range": f"bytes={first}-{last}"})
        return urllib.request.urlopen(request, timeout=min(SILENT_S, TOTAL_S - _spent_s))

    def read_range(self, wanted: int) -> bytes:
        with self.ask(self.at, self.at + wanted - 1) as answer:
            return bytes(answer.read(wanted))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer: Any) -> int:
        global _spent_s
        began, wanted = time.monotonic(), min(len(buffer), self.size - self.at)
        if wanted <= 0:
            return 0
        try:
            data = self.read_range(wanted)
        except TimeoutError:
            data = self.read_range(wanted)  # once more: a busy server
        finally:
            _spent_s += time.monotonic() - began
        buffer[:len(data)] = data
        self.at += len(data)
        self.got += len(data)
        return len(data)


def page(package: str) -> tuple[str, str]:
    """The page of a package in the index, and its address. An index that fails once is not asked again."""
    global _down
    if _down:
        raise Missing(_down)
    try:
        from pip._internal.models.index import PyPI
        with urllib.request.urlopen(f"{PyPI.simple_url}/{package}/", timeout=SILENT_S) as answer:
            return answer.read().decode(), answer.url
    except (ImportError, *FAILURES) as error:
        _down = f"the package index cannot be asked: {error}"
        raise Missing(_down) from error


def address(package: str, version: str, tags: str) -> str:
    """Where the index has a wheel."""
    text, base = page(package)
    links = re.findall(r'<a[^>]*href="([^"]+)"[^>]*>([^<]+)</a>', text)
    name = rf"{package.replace('-', '_')}-{re.escape(version)}-(\d-)?{tags}\.whl"
    found = [link for link, text in links if re.fullmatch(name, text.strip())]
    if not found:
        raise Missing(f"the index has no wheel of {package} {version}")
    return urllib.parse.urljoin(base, html.unescape(found[-1])).partition("#")[0]


def opened(package: str, version: str, tags: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BufferedReader(Remote(address(package, version, tags)), CHUNK))


def extract(wheel: zipfile.ZipFile, parts: str, folder: pathlib.Path) -> None:
    """Takes the parts whose whole name matches, in the order of the file."""
    chosen = [each for each in wheel.infolist() if re.fullmatch(parts, each.filename) and not each.is_dir()]
    for each in sorted(chosen, key=lambda entry: entry.header_offset):
        wheel.extract(each, folder)


def symbols(wheel: zipfile.ZipFile, folder: pathlib.Path) -> str:
    """What the largest library that the shim is linked with defines. The table is at its end, so all of it is read."""
    extract(wheel, re.escape(LIBRARY), folder)
    path = folder / LIBRARY
    defined = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    path.unlink()
    return "".join(f"{line.split()[-1]}\n" for line in defined.splitlines() if " _ZN2at" in line)


def fill(folder: pathlib.Path, version: str) -> None:
    """Fetches all parts of a version into a new folder."""
    wheel = opened("torch", version, TAGS)
    extract(wheel, PARTS, folder)
    about = next(folder.glob("torch-*/METADATA")).read_text(encoding="utf-8")
    for package, of_version, parts in CUDA["12" if "nvidia-cuda-runtime-cu12" in about else "13"]:
        extract(opened(package, of_version, r"py3-none-manylinux[\w.]*_x86_64"), parts, folder)
    if version in WITH_SYMBOLS:
        (folder / SYMBOLS).write_text(symbols(wheel, folder), encoding="utf-8")
    for crt in folder.glob("nvidia/cuda_nvcc/include/crt"):  # the headers of CUDA 12 expect it beside them
        crt.rename(folder / "nvidia" / "cuda_runtime" / "include" / "crt")


def obtain(version: str) -> pathlib.Path:
    """The folder with the parts of a version. Raises Missing if they are not there and cannot be fetched."""
    folder = FOLDER / version
    if folder.is_dir():
        return folder
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = pathlib.Path(tempfile.mkdtemp(prefix=f"part-{version}-", dir=FOLDER))
    began = time.monotonic()
    try:
        fill(part, version)
        part.chmod(0o755)
        part.rename(folder)  # complete, or not at all
        print(f"fetched parts of torch {version} in {time.monotonic() - began:.0f} s", flush=True)
    except FAILURES as error:
        if not folder.is_dir():  # another process may have been faster
            raise Missing(f"{type(error).__name__}: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder

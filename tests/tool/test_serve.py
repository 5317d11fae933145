#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Tests `tidemark view --serve`: what it answers, and whom.

view_page.py reads the page and the answers as docs/view.md describes them. Which blocks a window has is known from the
oracle, which follows pickles without Tidemark. Requests come from Python's http.client and from plain sockets. Under a
sanitizer the program ends with another status if it found something.
"""
from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

sys.path.extend(str(pathlib.Path(__file__).resolve().parents[1] / part) for part in ("", "oracle"))
import command
import harness
import serving
import view_page
from harness import PROGRAM, Skip, check, equal, run, scaled
from lives import Lives, rows_of
from peers import wait_until
from serving import Server
from verbs import write

WAIT_S = 300  # of real time; nothing should take a tenth of it
CONNECTIONS = 64
PATIENCE_S = 0.5  # with slow clients
Row = tuple[Any, ...]


@functools.cache
def need_server() -> None:
    answer = run("view", os.devnull, "--serve")
    if "needs libmicrohttpd" in answer.err:
        answer.fails()
        raise Skip("the program was built without libmicrohttpd")


def short_page(folder: str, *, seed: int = 1, entries: int = 3000, more: int = 3) -> tuple[str, str]:
    """A recording, and a size of its page that most of its blocks do not fit."""
    need_server()
    path = serving.save(os.path.join(folder, f"short{seed}-{entries}.pickle"), serving.short_lives(seed, entries))
    return path, f"{serving.least_size(PROGRAM, path) + more}KiB"


def page_comes(server: Server) -> bool:
    try:
        return server.get()[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def stopped(server: Server, number: int = signal.SIGTERM) -> None:
    equal(server.stop(number), 0, f"the status after signal {number} ({server.output!r})")
    equal(server.output, "", "what it printed after the address")


@contextlib.contextmanager
def served(*words: str) -> Iterator[Server]:
    """A server of a short page, which ends well."""
    with tempfile.TemporaryDirectory() as folder:
        path, size = short_page(folder)
        with Server(PROGRAM, path, "--page-size", size, *words) as server:
            yield server
            stopped(server)


def hasty() -> contextlib.AbstractContextManager[Server]:
    """It has little patience. On a busy computer it may also end a request that was sent at once."""
    return served("--patience", str(PATIENCE_S))


# ---------------------------------------------------------------------------------------------------
# Blocks


class Truth:
    """The blocks that a served page of a device lacks."""

    def __init__(self, server: Server, device: view_page.Device, number: int, want: Lives) -> None:
        self.server, self.device, self.number = server, device, number
        self.behind = device.entries + 1
        below = device.facts["left_out"]["below_entries"] if device.facts["left_out"] else 0
        # A block that is there at the end belongs to the longest lives.
        length = lambda row: row[2] - row[0] if row[2] < self.behind else 1 << 20
        self.rows = [row for row in want.rows(self.behind) if length(row) < below]
        self.below = below

    def ask(self, question: str) -> tuple[int, list[Row] | None]:
        status, _, body = self.server.get(f"{question}&device={self.number}")
        equal(status, 200, question)
        count, blocks = self.device.left_out_of(body)
        if blocks is not None:
            equal([block.begin for block in blocks], sorted(block.begin for block in blocks), f"{question}: the order")
        return count, None if blocks is None else sorted(rows_of(self.device, blocks))

    def window_is_right(self, low: int, high: int) -> None:
        want = sorted(row for row in self.rows if row[0] < high and row[2] > low)
        equal(self.ask(f"blocks?from={low}&to={high}"), (len(want), want), f"blocks from {low} to {high}")

    def nearest_is_right(self, position: int, lane: int, low: int, high: int) -> None:
        base, unit = self.device.lanes[lane][0], self.device.unit
        inside = [row for row in self.rows if row[3] < base + high * unit and row[3] + row[4] > base + low * unit]
        last = max((row[2] for row in inside if row[2] <= position), default=None)
        first = min((row[0] for row in inside if row[0] > position), default=None)
        count, rows = self.ask(f"nearest?position={position}&lane={lane}&low={low}&high={high}")
        equal((count, len(rows or [])), ((last is not None) + (first is not None),) * 2, f"nearest to {position}: count")
        check(all(row in inside for row in rows or []), f"nearest to {position}: {rows}")
        equal(max((row[2] for row in rows or [] if row[2] <= position), default=None), last, f"last before {position}")
        equal(min((row[0] for row in rows or [] if row[0] > position), default=None), first, f"first after {position}")


def page_is_complete(server: Server, snapshot: command.Snapshot, chance: random.Random, name: str) -> int:
    """The page and the answers together have all blocks. Returns how many the page lacks."""
    page = view_page.Page(server.get()[2])
    equal(page.facts["details"], {"most": 500_000}, f"{name}: where details are")
    lacking = 0
    for number, device in enumerate(page.devices):
        want = Lives(snapshot, device.facts["device"])
        if not want.are_sizes_known:
            continue
        truth = Truth(server, device, number, want)
        lacking += len(truth.rows)
        equal(len(truth.rows), (device.facts["left_out"] or {"blocks": 0})["blocks"], f"{name}: blocks left out")
        rows = rows_of(device, device.blocks) + (truth.ask(f"blocks?from=0&to={truth.behind}")[1] or [])
        equal(sorted(rows), sorted(want.rows(truth.behind)), f"{name}: all blocks")
        for _ in range(scaled(25, 10)):
            low = chance.randrange(truth.behind)
            truth.window_is_right(low, low + 1 + chance.randrange(min(300, truth.behind)))
            lane = chance.randrange(len(device.lanes))
            units = (device.lanes[lane][1] - device.lanes[lane][0]) // device.unit
            first = chance.randrange(units)
            truth.nearest_is_right(low, lane, first, first + 1 + chance.randrange(min(2000, units - first)))
        truth.window_is_right(device.entries + 1, device.entries + 500)
    return lacking


def test_windows_have_the_blocks_of_the_oracle(folder: str) -> None:
    chance = random.Random(7)
    for seed, entries, more in ((1, 3000, 0), (2, 3000, 4), (3, 6000, 8), (4, 500, 100)):
        path, size = short_page(folder, seed=seed, entries=entries, more=more)
        with Server(PROGRAM, path, "--page-size", size) as server:
            lacking = page_is_complete(server, command.reference.load(path), chance, path)
            check(lacking > 100 or more == 100, f"{path}: the page lacks {lacking} blocks")
            stopped(server)


def test_windows_of_generated_recordings(folder: str) -> None:
    """Several devices; every third recording begins in the middle."""
    chance, lacking = random.Random(8), 0
    need_server()
    for seed in command.numbers(6):
        snapshot = command.generated(seed)
        path = write(os.path.join(folder, f"seed{seed}.pickle"), command.dumped(snapshot))
        size = f"{serving.least_size(PROGRAM, path) + chance.randrange(4)}KiB"
        with Server(PROGRAM, path, "--page-size", size) as server:
            lacking += page_is_complete(server, snapshot, chance, path)
            stopped(server)
    check(lacking > 0 or not harness.is_thorough(), "no page lacked a block")


def test_the_page_is_that_of_the_file(folder: str) -> None:
    path, size = short_page(folder)
    file = os.path.join(folder, "page.html")
    run("view", path, "--page-size", size, "-o", file).works()
    want = pathlib.Path(file).read_bytes()
    with Server(PROGRAM, path, "--page-size", size) as server:
        status, headers, body = server.get()
        head = server.get(method="HEAD")
        stopped(server)
    equal((status, headers["content-type"]), (200, "text/html; charset=utf-8"), "the page")
    equal(body.count(b"; connect-src 'self'\""), 1, "what the policy allows in addition")
    check(b"connect-src" not in want.split(b"<style>")[0], "a file connects to nothing")
    plain = body.replace(b"; connect-src 'self'\"", b'"', 1).replace(b'"details": { "most": 500000 }, ', b"", 1)
    equal(plain == want, True, "that the rest is that of the file")
    equal((head[0], head[2], head[1]["content-length"]), (200, b"", str(len(body))), "HEAD")


def test_every_answer_has_strict_headers(server: Server) -> None:
    for words in ((), ("blocks?device=0&from=0&to=9",), ("nothing",), ("blocks",), ("", "POST")):
        _, headers, _ = server.get(*words)
        equal({name: headers.get(name) for name in (
            "x-content-type-options", "referrer-policy", "cache-control", "cross-origin-resource-policy",
            "cross-origin-opener-policy", "content-security-policy", "access-control-allow-origin", "connection")},
            {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store",
             "cross-origin-resource-policy": "same-origin", "cross-origin-opener-policy": "same-origin",
             "content-security-policy": "frame-ancestors 'none'", "access-control-allow-origin": None,
             "connection": "close"}, f"headers of {words}")
    question = "blocks?device=0&from=0&to=3000"
    plain = server.get(question)
    packed = server.get(question, headers={"Accept-Encoding": "gzip, deflate, br"})
    equal(plain[1].get("content-encoding"), None, "the encoding that nobody asked for")
    if packed[1].get("content-encoding") == "deflate":
        check(len(packed[2]) < len(plain[2]), "it is shorter")
        equal(zlib.decompress(packed[2]), plain[2], "the compressed answer")


def test_many_windows_at_once(folder: str) -> None:
    path, size = short_page(folder, seed=9, entries=6000, more=6)
    with Server(PROGRAM, path, "--page-size", size) as server:
        questions = [f"blocks?device=0&from={low}&to={low + 400}" for low in range(0, 6000, 100)]
        want = {question: server.get(question) for question in questions}
        odd: list[str] = []

        def ask(seed: int) -> None:
            chance = random.Random(seed)
            for question in chance.sample(questions, 25):
                if server.get(question)[2] != want[question][2]:
                    odd.append(question)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        equal(odd, [], "questions with another answer when many ask")
        stopped(server)


# ---------------------------------------------------------------------------------------------------
# Who is refused


def raw(server: Server, data: bytes) -> bytes:
    """What comes back for these bytes until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65536), b""))
        except OSError:  # the server has ended it already
            return b""


def raw_status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


def test_requests_of_others_are_refused(server: Server) -> None:
    token, path = server.path.strip("/"), server.words[0]
    check(len(token) >= 32 and int(token, 16) >= 0, f"the token {token}")
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    other = f"127.0.0.1:{server.port + 1}"
    cases: list[tuple[str, str, dict[str, str | None], int]] = [
        ("GET", f"/{token}", {}, 404), ("GET", "/", {}, 404), ("GET", f"/{wrong}/", {}, 404),
        ("GET", f"/{token[1:]}/", {}, 404), ("GET", f"/{token}0/", {}, 404), ("GET", f"//{token}/", {}, 404),
        ("GET", f"/{token.upper()}/x", {}, 404), ("GET", "/favicon.ico", {}, 404), ("GET", "/" + "a" * 4000, {}, 404),
        ("GET", f"/{token}/../../etc/passwd", {}, 404), ("GET", f"/{token}/%2e%2e/%2e%2e/etc/passwd", {}, 404),
        ("GET", f"/{token}/{path}", {}, 404), ("GET", f"/{token}/blocks/", {}, 404),
        ("GET", f"/{token}/blocks%00?device=0&from=0&to=1", {}, 404),
        ("GET", f"/{wrong}/blocks?device=0&from=0&to=1", {}, 404), ("GET", f"/{token}/", {"Host": "evil.example"}, 403),
        ("GET", f"/{token}/", {"Host": f"evil.example:{server.port}"}, 403),
        ("GET", f"/{token}/", {"Host": "127.0.0.1"}, 403), ("GET", f"/{token}/", {"Host": other}, 403),
        ("GET", f"/{token}/", {"Host": f"127.0.0.1:{server.port}.evil.example"}, 403),
        ("GET", f"/{token}/", {"Host": f"[::1]:{server.port}"}, 403), ("GET", f"/{token}/", {"Host": ""}, 403),
        ("GET", f"/{token}/", {"Host": None}, 400), ("GET", f"/{token}/", {"Host": f"LOCALHOST:{server.port}"}, 403),
        ("GET", f"/{token}/", {"Origin": "https://evil.example"}, 403), ("GET", f"/{token}/", {"Origin": "null"}, 403),
        ("GET", f"/{token}/", {"Origin": f"http://{other}"}, 403), ("GET", f"/{token}/", {"Origin": ""}, 403),
        ("GET", f"/{token}/", {"Origin": f"https://{server.host}"}, 403),
        ("GET", f"/{token}/", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", f"/{token}/", {"Sec-Fetch-Site": "same-site"}, 403), ("GET", f"/{token}/", {"Sec-Fetch-Site": ""}, 403),
        *((method, f"/{token}/", {}, 405) for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "XYZ")),
        *(("GET", f"/{token}/blocks{query}", {}, 400) for query in (
            "", "?", "?device=0", "?device=0&from=0", "?device=0&from=1&to=1", "?device=0&from=2&to=1",
            "?device=1&from=0&to=1", "?device=-1&from=0&to=1", "?device=0&from=-1&to=1", "?device=0&from=0x1&to=9",
            "?device=0&from=0&to=99999999999999999999", "?device=0&from=0&to=4294967296", "?device=0&from=&to=1",
            "?device=0&from=%201&to=9", "?device=0&from=1.5&to=9", "?device=18446744073709551615&from=0&to=1")),
        *(("GET", f"/{token}/nearest{query}", {}, 400) for query in (
            "", "?device=0&position=1&lane=9999&low=0&high=1", "?device=0&position=1&lane=0&low=1&high=1",
            "?device=3&position=1&lane=0&low=0&high=1", "?device=0&position=1&lane=0&low=0&high=18446744073709551615")),
    ]
    for method, target, headers, want in cases:
        status, _, body = server.get(target, method, headers, is_whole=True)
        equal(status, want, f"{method} {target} {headers}")
        check(path.encode() not in body and b"tide" not in body.lower(), f"{target}: {body!r} tells something")
    for name, value in (("Host", server.host), ("Host", f"localhost:{server.port}"), ("Origin", f"http://{server.host}"),
                        ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "none")):
        equal(server.get(headers={name: value})[0], 200, f"our own request with {name}: {value}")


def test_requests_with_a_zero_byte_are_refused(hasty: Server) -> None:
    """What follows a zero byte must not be hidden from the comparison with our own names."""
    host, path = hasty.host.encode(), hasty.path.encode()

    def asked(target: bytes, *fields: bytes) -> int:
        return raw_status(raw(hasty, b"\r\n".join((b"GET " + target + b" HTTP/1.1", *fields, b"", b""))))

    wait_until(lambda: asked(path, b"Host: " + host) == 200)
    equal(asked(path, b"Host:" + host, b"Accept:  */*", b"Empty:"), 200, "blanks before a value")
    for fields in ([b"Host: " + host + b"\0.evil.example"], [b"Host:" + host + b"\0"], [b"Host: " + host + b"\0\0 "],
                   [b"Host: " + host, b"Origin: http://" + host + b"\0.evil.example"],
                   [b"Host: " + host, b"Sec-Fetch-Site: none\0"], [b"Host: " + host, b"X\0Y: z"],
                   [b"Host\0: " + host], [b"Host: " + host, b"X: \0"]):
        equal(asked(path, *fields), 400, str(fields))
    for target in (path + b"\0", path + b"\0/x", path + b"blocks?device=0&from=0&to=1\0"):
        equal(asked(target, b"Host: " + host), 400, str(target))


def test_odd_requests_are_refused(hasty: Server) -> None:
    host = f"Host: {hasty.host}\r\n".encode()
    line = f"GET {hasty.path} HTTP/1.1\r\n".encode()
    wait_until(lambda: raw_status(raw(hasty, line + host + b"\r\n")) == 200)
    for data in (line + b"Host: evil.example\r\n" + host + b"\r\n", line + host + b"Host: evil.example\r\n\r\n",
                 line + host + host + b"\r\n", line.replace(b"1.1", b"1.0") + b"\r\n",
                 line.replace(b"GET /", b"GET http://evil.example/") + b"Host: evil.example\r\n\r\n",
                 line + host + b"Origin: null\r\nOrigin: " + f"http://{hasty.host}".encode() + b"\r\n\r\n",
                 line + host + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n", b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n",
                 line + host + b"".join(b"X%d: y\r\n" % i for i in range(20000)) + b"\r\n",
                 b"\x00" * 1000, b"\r\n" * 5000, b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 30,
                 line + host + b"Content-Length: -1\r\n\r\n", line[:20], b"",
                 b"POST " + hasty.path.encode() + b" HTTP/1.1\r\n" + host + b"Content-Length: 99999999999\r\n\r\n"):
        answer = raw(hasty, data)
        check(raw_status(answer) != 200, f"{data[:60]!r} has the answer {answer[:60]!r}")
    chance = random.Random(3)
    good = line + host + b"Accept: */*\r\nSec-Fetch-Site: none\r\n\r\n"
    for _ in range(scaled(150, 3)):
        damaged = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        raw(hasty, bytes(damaged))
    wait_until(lambda: page_comes(hasty))


# ---------------------------------------------------------------------------------------------------
# Connections that do nothing


def sockets_of(server: Server) -> int:
    folder = f"/proc/{server.process.pid}/fd"
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(os.path.join(folder, name)).startswith("socket:")
        except FileNotFoundError:
            pass
    return count


def test_connections_are_bounded(hasty: Server) -> None:
    idle = sockets_of(hasty)
    clients = []
    for i in range(600):
        client = socket.create_connection(("127.0.0.1", hasty.port), timeout=WAIT_S)
        if i % 3:
            client.sendall(b"GET / HTTP/1.1\r\nX: " if i % 3 == 1 else b"G")
        clients.append(client)
        check(sockets_of(hasty) <= idle + CONNECTIONS + 1, f"{sockets_of(hasty)} sockets after {i} connections")
    wait_until(lambda: page_comes(hasty))  # those before it are ended
    for client in clients:
        client.close()
    wait_until(lambda: sockets_of(hasty) <= idle + 4)
    wait_until(lambda: page_comes(hasty))


def test_slow_clients_are_ended(hasty: Server) -> None:
    began = time.monotonic()
    silent = socket.create_connection(("127.0.0.1", hasty.port))
    slow = socket.create_connection(("127.0.0.1", hasty.port))
    slow.sendall(f"GET {hasty.path} HTTP/1.1\r\nHost: {hasty.host}\r\nX: ".encode())
    open_ = {silent, slow}
    while open_:
        check(time.monotonic() < began + WAIT_S, f"{len(open_)} slow connections are still open")
        ready, _, _ = select.select(list(open_), [], [], PATIENCE_S / 20)
        for client in ready:
            try:
                data = client.recv(4096)
            except ConnectionError:
                data = b""
            check(b"200 OK" not in data, "a request that never ended has an answer")
            if data == b"":
                open_.discard(client)
        if slow in open_:
            try:
                slow.sendall(b"a")  # it never rests
            except ConnectionError:
                open_.discard(slow)
    check(time.monotonic() >= began + PATIENCE_S, "they have less time than was said")
    silent.close()
    slow.close()


# ---------------------------------------------------------------------------------------------------
# Begin and end


def test_it_ends_by_signals(folder: str) -> None:
    path, size = short_page(folder)
    for number in (signal.SIGINT, signal.SIGTERM):
        with Server(PROGRAM, path, "--page-size", size) as server:
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(b"GET / HT")
            equal(server.get()[0], 200, "the page")
            stopped(server, number)
            client.close()


def test_ports(folder: str) -> None:
    path, _ = short_page(folder)
    with Server(PROGRAM, path) as server:
        with open("/proc/net/tcp", encoding="ascii") as file:
            local = [row.split()[1] for row in file.readlines()[1:] if row.split()[3] == "0A"]
        mine = [address for address in local if address.endswith(f":{server.port:04X}")]
        check(mine == ["0100007F:" + f"{server.port:04X}"] or sys.byteorder == "big", f"it listens at {mine}")
        run("view", path, "--serve", "--port", str(server.port)).fails(f"port {server.port} of 127.0.0.1")
        with Server(PROGRAM, path) as other:
            check(other.path != server.path and other.port != server.port, "two servers share nothing")
            equal(server.get(other.path, is_whole=True)[0], 404, "the token of another server")
        port = server.port
        stopped(server)
    with Server(PROGRAM, path, "--port", str(port)) as server:
        equal(server.address.split("/")[2], f"127.0.0.1:{port}", "the chosen port")
        stopped(server)


def test_wrong_command_lines(folder: str) -> None:
    path, _ = short_page(folder)
    page = os.path.join(folder, "page.html")
    for words, text in ((["--serve", "-o", page], "choose one"), (["-o", page, "--port", "8000"], "--port is for --serve"),
                        ([], "--serve"), *((["--serve", "--port", word], "from 1024") for word in ("80", "70000", "x")),
                        (["--serve", "--page-size", "1KiB"], "even without blocks"),
                        (["-o", page, "--patience", "1"], "--patience is for --serve"),
                        *((["--serve", "--patience", word], f"between 0.1 and 20 seconds, not '{word}'")
                          for word in ("0", "0.09", "21", "-1", "nan", "1s", ""))):
        run("view", path, *words).fails(text)
        check(not os.path.exists(page), f"{words} writes a page")
    run("view", os.path.join(folder, "missing"), "--serve").fails()


def test_a_terminal_is_told_how_to_stop(folder: str) -> None:
    path, _ = short_page(folder)
    terminal = harness.Terminal("view", path, "--serve")
    terminal.wait_for("http://127.0.0.1:(?s:.*)Ctrl-C")
    terminal.write(b"\x03")
    terminal.end()


def test_json_has_the_address(folder: str) -> None:
    path, size = short_page(folder)
    with harness.start("view", path, "--serve", "--page-size", size, "--json", stdout=subprocess.PIPE) as child:
        assert child.stdout
        said = json.loads(b"".join(iter(child.stdout.readline, b"}\n")) + b"}")
        child.send_signal(signal.SIGTERM)
    equal(child.returncode, 0, "the status")
    check(said["address"].startswith("http://127.0.0.1:") and said["left_out_blocks"] > 100 and said["files"] == 1, str(said))


if __name__ == "__main__":
    harness.main(server=served, hasty=hasty)

# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Recordings in a notebook: the page is the command's, and nothing in a file becomes markup of the notebook."""
import base64
import html.parser
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from unittest import mock

import command  # of tests/oracle
import recordings
import tidemark
from tidemark import command as runner
from tidemark import page, recording

HOSTILE = "</iframe></script><img src=x onerror=alert(1)>&\"'"


def tags_of(text):
    """Every tag with its attributes."""
    tags = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append((tag, dict(attributes)))
    parser.feed(text)
    return tags


def facts_of(data):
    return json.loads(re.search(r'<script type="application/json" id="facts">(.*?)</script>', data.decode(), re.DOTALL)[1])


def hostile_recording():
    frames = [{"filename": HOSTILE, "line": 3, "name": HOSTILE}]
    entries = [{"action": "segment_alloc", "addr": 1 << 30, "size": 2 << 20, "stream": 0, "time_us": 1, "frames": frames},
               {"action": "alloc", "addr": 1 << 30, "size": 4096, "stream": 0, "time_us": 2, "frames": frames}]
    return tidemark.read(json.dumps({"device_traces": [entries], "segments": [], "allocator_settings": {HOSTILE: HOSTILE},
                                     "external_annotations": [HOSTILE]}).encode())


class Pages(unittest.TestCase):
    def test_are_what_the_command_writes(self):
        for name in ("resnet_stacks", "graphs", "events"):
            path = pathlib.Path(recordings.native(name))
            done = subprocess.run([command.PROGRAM, "view", path.name, "-o", "-"], cwd=path.parent, capture_output=True, check=True)
            self.assertEqual(tidemark.read(path).view().data, done.stdout)

    def test_have_the_name_of_the_recording_and_its_figures(self):
        with tidemark.read(recordings.native("resnet_stacks")) as recorded:
            facts = facts_of(recorded.view().data)
            self.assertEqual(facts["files"][0]["name"], "resnet_stacks.tide")
            self.assertEqual(facts["files"][0]["devices"][0]["peaks"]["reserved"]["bytes"], recorded.peak("reserved").bytes)

    def test_save(self):
        made = tidemark.read(recordings.native("pools")).view()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.html"
            made.save(path)
            self.assertEqual(path.read_bytes(), made.data)

    def test_are_in_one_frame_without_rights(self):
        made = tidemark.read(recordings.native("resnet_stacks")).view(height=333, theme="dark")
        (tag, attributes), = tags_of(made._repr_html_())
        self.assertEqual((tag, attributes["sandbox"]), ("iframe", "allow-scripts"))
        self.assertIn("height:333px", attributes["style"])
        self.assertIn("color-scheme:dark", attributes["style"])
        self.assertEqual(attributes["srcdoc"].encode(), made.data)
        self.assertTrue(made._repr_html_().isascii())
        self.assertNotIn("color-scheme", tags_of(tidemark.Page(b"", "x")._repr_html_())[0][1]["style"])

    def test_of_hostile_texts(self):
        made = hostile_recording().view()
        made.name = HOSTILE
        (tag, attributes), = tags_of(made._repr_html_())
        self.assertEqual((tag, attributes["title"], attributes["srcdoc"].encode()), ("iframe", HOSTILE, made.data))

    def test_that_are_too_large_are_not_shown(self):
        large = tidemark.Page(b"x" * (page.INLINE_MOST + 1), HOSTILE)
        self.assertEqual({tag for tag, _ in tags_of(large._repr_html_())}, {"p", "code"})
        self.assertIn("47.68 MiB", large._repr_html_())
        self.assertIn(".save(", large._repr_html_())
        self.assertIn("<iframe", tidemark.Page(b"x" * page.INLINE_MOST, "x")._repr_html_())

    def test_page_size(self):
        recorded = tidemark.read(recordings.DATA / "varlen_oom.tide.xz")
        whole = recorded.view()
        small = recorded.view(page_size=len(whole.data) - 40_000)
        self.assertLess(len(small.data), len(whole.data) - 40_000 + 1)
        self.assertGreater(facts_of(small.data)["files"][0]["devices"][0]["left_out"]["blocks"], 0)
        with self.assertRaisesRegex(tidemark.TidemarkError, "even without blocks"):
            recorded.view(page_size=1000)

    def test_wrong_arguments(self):
        recorded = tidemark.read(recordings.native("pools"))
        for arguments in ({"height": 0}, {"theme": "blue"}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                recorded.view(**arguments)
        with self.assertRaises(TypeError):
            recorded.view(height="tall")
        recorded.close()
        with self.assertRaises(ValueError):
            recorded.view()

    def test_names_of_files(self):
        for name, wanted in (("a/b/c.pickle", "c.pickle"), ("the data", "the data"), ("-o", "_-o"), ("..", "_.."), ("a/", "_"),
                             ("ä\n<b>.tide", "___b_.tide"), ("x" * 300, "x" * 100)):
            self.assertEqual(runner._file_name(name), wanted)


class Cells(unittest.TestCase):
    """What a notebook shows for a recording."""

    def test_the_finding_and_a_picture(self):
        recorded = tidemark.read(recordings.native("resnet_stacks"))
        shown = recorded._repr_html_()
        self.assertEqual([tag for tag, _ in tags_of(shown)], ["div", "p", "img"])
        self.assertIn(html.escape(recorded.report()["finding"]), shown)
        kind, coded = tags_of(shown)[2][1]["src"].split(",")
        self.assertEqual(kind, "data:image/svg+xml;base64")
        picture = xml.etree.ElementTree.fromstring(base64.b64decode(coded))
        self.assertTrue(picture.tag.endswith("svg"))
        self.assertIn("3.29 GiB reserved", "".join(picture.itertext()))

    def test_hostile_texts(self):
        shown = hostile_recording()._repr_html_()
        self.assertEqual([tag for tag, _ in tags_of(shown)], ["div", "p", "img"])

    def test_text_where_a_picture_is_not_possible(self):
        recorded = tidemark.read(recordings.native("pools"))
        with mock.patch.object(recording, "SHOWN_ENTRIES", 3):
            self.assertIsNone(recorded._repr_html_())
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "tidemark"
            program.write_text("#!/bin/sh\nexit 2\n")
            program.chmod(0o755)
            with mock.patch.object(runner, "find", lambda: program):
                self.assertIsNone(recorded._repr_html_())
        with mock.patch.dict(os.environ, TIDEMARK_LIB="/nowhere/libtidemark.so"):
            self.assertIsNone(recorded._repr_html_())
        recorded.close()
        self.assertIsNone(recorded._repr_html_())


if __name__ == "__main__":
    unittest.main()

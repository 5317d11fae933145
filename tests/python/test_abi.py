# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""The declarations for ctypes, compared with the interface that scripts/check-abi records from the headers."""
import ctypes
import re
import unittest

import recordings
from tidemark import abi, device, timeline

LINES = (recordings.TREE / "tests" / "abi" / "interface.txt").read_text(encoding="utf-8").splitlines()
PROTOTYPES = {re.search(r"(tide_\w+)\(", line).group(1): line[len("function "):] for line in LINES
              if line.startswith("function ")}
PLAIN = {"void": None, "int": ctypes.c_int, "_Bool": ctypes.c_bool, "size_t": ctypes.c_size_t, "double": ctypes.c_double,
         "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "tide_pool": ctypes.c_uint32, "tide_backup": ctypes.c_uint32,
         "tide_stream": ctypes.c_void_p, "tide_observer": ctypes.c_uint64, "tide_pressure_fn": device.OnPressure}
OURS = (*abi.STRUCTS, *device.STRUCTS)
STRUCTS = {struct.__doc__: struct for struct in OURS}


def parts(text):
    """The parameters of a prototype; those of callbacks stay together."""
    found, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found if part.strip() not in ("", "void")]


def declared(words):
    """What a parameter or result should be for ctypes; `words` has its type and perhaps its name."""
    callback = re.fullmatch(r"(.+?) ?\(\*\w+\)\((.*)\)", words)
    if callback:
        return ("callback", declared(callback.group(1)), [declared(part) for part in parts(callback.group(2))])
    kind, stars = re.match(r"(?:const )?(\w+)(\**)", words).groups()
    stars += "*" * words.endswith("]")  # an array
    if kind == "char" and stars == "*":
        return "text"
    if stars == "":
        return PLAIN[kind] if kind in PLAIN else STRUCTS.get(kind, ctypes.c_int)
    if kind in STRUCTS:
        return ctypes.POINTER(STRUCTS[kind])
    if stars == "**":
        return ctypes.POINTER(ctypes.c_void_p)
    return ctypes.POINTER(PLAIN[kind]) if PLAIN.get(kind) else ctypes.c_void_p


def is_same(ours, wanted):
    if isinstance(wanted, tuple):
        return is_same(ours._restype_, wanted[1]) and len(ours._argtypes_) == len(wanted[2]) and all(
            map(is_same, ours._argtypes_, wanted[2]))
    if wanted == "text":
        return ours in (ctypes.c_char_p, ctypes.c_void_p)
    return ours is wanted


class Interface(unittest.TestCase):
    def test_structs(self):
        for ours in OURS:
            name = ours.__doc__
            with self.subTest(name):
                self.assertIn(f"struct {name} {ctypes.sizeof(ours)}", LINES)
                fields = [line.split()[1:] for line in LINES if line.startswith(f"field {name}.")]
                got = [[f"{name}.{field[0]}", str(getattr(ours, field[0]).offset), str(getattr(ours, field[0]).size)]
                       for field in ours._fields_]
                self.assertTrue(fields)
                self.assertEqual(got, fields)

    def test_every_struct_is_compared(self):
        for module in (abi, device):
            ours = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, ctypes.Structure)}
            self.assertLessEqual(ours - {ctypes.Structure}, set(OURS))

    def test_functions(self):
        for name, (result, parameters) in {**abi.FUNCTIONS, **device.FUNCTIONS}.items():
            with self.subTest(name):
                before, inside = re.fullmatch(r"(.+?)\b" + name + r"\((.*)\)", PROTOTYPES[name]).groups()
                wanted = abi.Status if before.strip() == "tide_status" else declared(before.strip())
                self.assertTrue(is_same(result, wanted), (result, wanted))
                self.assertEqual(len(parameters), len(parts(inside)), inside)
                for ours, words in zip(parameters, parts(inside)):
                    self.assertTrue(is_same(ours, declared(words)), (ours, words))

    def test_numbers(self):
        for kind, prefix in ((abi.Action, "TIDE_ACTION_"), (abi.BlockState, "TIDE_BLOCK_"), (abi.ValueKind, "TIDE_VALUE_")):
            listed = {line.split()[1][len(prefix):]: int(line.split()[2]) for line in LINES if line.startswith(f"enum {prefix}")}
            kept = {name: number for name, number in listed.items() if not name.endswith("COUNT")}
            self.assertEqual({member.name: member.value for member in kind}, kept)
        for line in ("enum TIDE_ERR_STATE 12", "enum TIDE_FORMAT_COUNT 8", "enum TIDE_FORMAT_NATIVE 2",
                     "constant TIDE_LEDGER_BEFORE -1", "enum TIDE_TIMELINE_ENTRIES 0", "enum TIDE_TIMELINE_TIME 1",
                     "constant TIDE_NO_LIMIT -1"):
            self.assertIn(line, LINES)
        self.assertEqual((abi.STATE, abi.FORMAT_COUNT, abi.NATIVE, abi.BEFORE, device.NO_LIMIT, timeline.AXES),
                         (12, 8, 2, 2**64 - 1, 2**64 - 1, {"entry": 0, "time": 1}))


if __name__ == "__main__":
    unittest.main()

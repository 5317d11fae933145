# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Budgets of tags as PyTorch programs call them, with real memory on host machines."""
import ctypes
import pathlib
import pickle
import tempfile
import threading
import unittest

import harness
import host_torch
import tidemark.torch
from tidemark import TidemarkError, abi, library
from tidemark.device import Budget
from tidemark.sizes import size_bytes
from tidemark.torch import budgets, regions

MIB = 1 << 20
LAYER = 4 * MIB
NO_BUDGET = {"limit": None, "soft_limit": None, "guarantee": 0, "priority": 0, "yields": False, "constant": False}


class WithTorch(unittest.TestCase):
    def setUp(self):
        self.torch = host_torch.put_in_place(self)

    def make(self, tag, value, size=LAYER, **options):
        with regions.region(tag, **options):
            return self.torch.make(size, value, options.get("device"))

    def budget_of(self, tag, device=None):
        return {name: regions.tags(device)[tag][name] for name in NO_BUDGET}

    def figure(self, tag, name):
        return regions.tags()[tag][name]

    def synchronize(self):
        self.torch.shim.caches[0].synchronize()


class Values(WithTorch):
    def test_sizes(self):
        for text, wanted in ((0, 0), (4096, 4096), ("4096", 4096), ("12B", 12), ("24GiB", 24 << 30), ("24g", 24 << 30),
                             ("1.5 MiB", 3 << 19), ("3KB", 3000), ("0.1TB", 10**11), ("2tib", 2 << 40), ("7 kib", 7168)):
            with self.subTest(text):
                self.assertEqual(size_bytes(text), wanted)
        for wrong in ("", "GiB", "-1", -1, 1.5, "1.5", "1.5B", "1..5G", "5 XiB", "1e3", None, True, 2**63, "9000000TiB"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "is not a size"):
                size_bytes(wrong)

    def test_a_region_with_a_budget(self):
        self.make("w", 1, limit="24GiB", yields=True)
        self.assertEqual(self.budget_of("w"), {**NO_BUDGET, "limit": 24 << 30, "yields": True})
        self.make("w", 1, soft_limit="1MiB", guarantee=77, priority=-3, constant=True)
        self.assertEqual(self.budget_of("w"), {"limit": 24 << 30, "soft_limit": MIB, "guarantee": 77, "priority": -3,
                                               "yields": True, "constant": True})
        self.make("w", 1)
        self.assertEqual(self.budget_of("w")["guarantee"], 77)
        self.make("other", 1)
        self.assertEqual(self.budget_of("other"), NO_BUDGET)

    def test_several_budgets(self):
        budgets.budget({"a": {"limit": "8MiB", "yields": True}, "a/b": {"priority": 2}})
        self.assertEqual(list(regions.tags()), ["a", "a/b"])
        self.assertEqual(self.figure("a", "pool_count"), 0)
        budgets.budget({"a": {"limit": None, "guarantee": MIB}, "a/b": None})
        self.assertEqual(self.budget_of("a"), {**NO_BUDGET, "guarantee": MIB, "yields": True})
        self.assertEqual(list(regions.tags()), ["a"])
        budgets.budget({"a": None})
        self.assertEqual(regions.tags(), {})
        self.make("a", 1)
        self.assertEqual(self.budget_of("a"), NO_BUDGET)

    def test_each_device_has_its_own(self):
        budgets.budget({"a": {"limit": 5}}, device=1)
        self.assertEqual(self.budget_of("a", 1)["limit"], 5)
        self.assertEqual(regions.tags(0), {})

    def test_a_wrong_value_changes_nothing(self):
        for wish, text in (({"limits": 1}, "no 'limits', but limit, soft_limit"), ({"limit": "much"}, "not a size"),
                           ({"guarantee": None}, "not a size"), ({"yields": "no"}, "True or False"),
                           ({"priority": 2**31}, "32 bits"), ({"priority": 0.5}, "32 bits"),
                           ({"limit": "1KiB", "guarantee": 1025}, "1025 bytes is above the limit of 1024 bytes")):
            with self.subTest(wish), self.assertRaisesRegex(ValueError, text):
                budgets.budget({"a": {"limit": 5}, "b": wish})
        with self.assertRaisesRegex(TidemarkError, "empty part"):
            budgets.budget({"a": {"limit": 5}, "b//c": None})
        with self.assertRaisesRegex(ValueError, "backup must be"), regions.region("a", limit=5, backup="disk"):
            pass
        self.assertEqual(regions.tags(), {})


class Limits(WithTorch):
    def test_a_request_beyond_a_limit_fails_and_names_the_tag(self):
        budgets.budget({"tenant": {"limit": 3 * LAYER}})
        kept = [self.make(f"tenant/{value}", value) for value in range(3)]
        with self.assertRaisesRegex(AssertionError, "tenant"):
            self.make("tenant/3", 3)
        self.assertEqual([tensor.has(value) for value, tensor in enumerate(kept)], [True] * 3)
        self.assertEqual((self.figure("tenant", "reserved_bytes"), self.figure("tenant", "limit")), (3 * LAYER, 3 * LAYER))
        self.make("elsewhere", 1)
        budgets.budget({"tenant": {"limit": 4 * LAYER}})
        self.assertTrue(self.make("tenant/3", 3).has(3))

    def test_the_report_names_the_tag(self):
        def report():
            return tidemark.torch.report_of(last_oom().contents)

        last_oom = abi.load().tide_device_last_oom
        last_oom.restype = ctypes.POINTER(library.Oom)
        budgets.budget({"tenant": {"limit": 2 * LAYER}, "tenant/sure": {"guarantee": MIB}})
        kept = self.make("tenant/a", 1)
        with self.assertRaises(AssertionError):
            self.make("tenant/b", 2)
        self.assertEqual((report().tag, report().tag_limit, report().tag_reserved), ("tenant", 2 * LAYER, LAYER))
        self.torch.shim.caches[0].set_limit(LAYER + MIB)
        with self.assertRaises(AssertionError):
            self.make("elsewhere", 2)
        self.assertEqual((report().tag, report().tag_limit, report().guaranteed), ("", None, MIB))
        self.assertTrue(kept.has(1))

    def test_a_use_without_room_fails_and_is_over(self):
        kept = self.make("t", 7)
        regions.park("t")
        budgets.budget({"t": {"limit": MIB, "yields": True}})
        with self.assertRaises(TidemarkError) as caught, budgets.use("t"):
            self.fail("the tag has no memory")
        self.assertEqual((caught.exception.status, self.figure("t", "use_count")), ("TIDE_ERR_NO_MEMORY", 0))
        budgets.budget({"t": {"limit": None}})
        with budgets.use("t"):
            self.synchronize()
            self.assertTrue(kept.has(7))


class Layers(WithTorch):
    """Ten layers, of which four have room."""
    COUNT, ROOM = 10, 4

    def layers(self, **wishes):
        budgets.budget({"model": {"limit": self.ROOM * LAYER, "yields": True, **wishes}})
        return [self.make(f"model/{number}", number + 1) for number in range(self.COUNT)]

    def round(self, layers, work):
        for number, layer in enumerate(layers):
            with budgets.use(f"model/{number}"):
                self.synchronize()
                work(number, layer)
            self.assertLessEqual(self.figure("model", "reserved_bytes"), self.ROOM * LAYER)

    def test_layers_yield_in_turn(self):
        layers, turns = self.layers(), harness.scaled(4, 2)
        for turn in range(turns):
            def work(number, layer):
                self.assertTrue(layer.has(number + 1 + turn), (number, turn))
                layer.fill(number + 2 + turn)
            self.round(layers, work)
        found = regions.tags()["model"]
        self.assertEqual(found["allocated_bytes"], self.COUNT * LAYER)
        self.assertGreaterEqual(found["parked_count"], turns * (self.COUNT - self.ROOM))
        self.assertEqual((found["sent_bytes"], found["fetched_bytes"]),
                         (found["parked_count"] * LAYER, found["fetched_count"] * LAYER))
        self.assertEqual(found["parked_pool_count"], found["parked_count"] - found["fetched_count"])

    def test_constant_layers_are_sent_once(self):
        layers = self.layers(constant=True)
        for _ in range(4):
            self.round(layers, lambda number, layer: self.assertTrue(layer.has(number + 1), number))
        found = regions.tags()["model"]
        self.assertLessEqual(found["sent_bytes"], self.COUNT * LAYER)
        self.assertGreater(found["fetched_bytes"], found["sent_bytes"])
        self.assertGreater(found["ahead_count"], 0)

    def test_what_is_in_use_stays(self):
        layers = self.layers()
        with budgets.use("model/0"), budgets.use("model/1"), budgets.use("model/2"), budgets.use("model/3"):
            self.synchronize()
            with self.assertRaises(TidemarkError), budgets.use("model/4"):
                self.fail("nothing yields")
            self.assertEqual([layer.has(number + 1) for number, layer in enumerate(layers[:4])], [True] * 4)
            self.assertEqual([self.figure(f"model/{number}", "use_count") for number in range(5)], [1, 1, 1, 1, 0])
        with budgets.use("model/4"):
            self.synchronize()
            self.assertTrue(layers[4].has(5))

    def test_priorities(self):
        budgets.budget({"t": {"limit": 2 * LAYER}, "t/low": {"yields": True}, "t/high": {"yields": True, "priority": 1}})
        high, low = self.make("t/high", 1), self.make("t/low", 2)
        self.make("t/new", 3)
        self.assertEqual((self.figure("t/high", "parked_count"), self.figure("t/low", "parked_count")), (0, 1))
        self.assertTrue(high.has(1))
        with budgets.use("t/low"):
            self.synchronize()
            self.assertTrue(low.has(2))

    def test_without_yielding_nothing_moves(self):
        with self.assertRaisesRegex(AssertionError, "model"):
            self.layers(yields=False)
        self.assertEqual(self.figure("model", "parked_count"), 0)


class Figures(WithTorch):
    """What stats() and snapshots say about tags."""

    def job(self):
        """Three layers with room for two, a request that is refused, and a tag on another device."""
        budgets.budget({"model": {"limit": 2 * LAYER, "soft_limit": 0, "guarantee": MIB, "priority": -5, "yields": True},
                        "spare": {"limit": 0}})
        kept = [self.make(f"model/{number}", number) for number in range(3)]
        with self.assertRaises(AssertionError):
            self.make("model/large", 1, 3 * LAYER)
        return [*kept, self.make("else/where", 1, device=1), self.torch.make(LAYER, 1)]

    def test_stats_have_tags(self):
        self.assertEqual(tidemark.torch.stats()["tags"], {})
        self.assertEqual(self.torch.shim.caches, {})
        kept = self.job()
        found = tidemark.torch.stats()["tags"]
        self.assertEqual(list(found), ["model", "model/0", "model/1", "model/2", "model/large", "spare"])
        wanted = {"allocated_bytes": 3 * LAYER, "reserved_bytes": 2 * LAYER, "parked_bytes": LAYER, "peak_reserved_bytes": 2 * LAYER,
                  "limit": 2 * LAYER, "soft_limit": 0, "guarantee": MIB, "priority": -5, "yields": True, "refused_count": 1,
                  "parked_count": 1, "sent_bytes": LAYER, "fetched_bytes": 0, "idle_bytes": 0, "use_count": 0}
        self.assertEqual({name: found["model"][name] for name in wanted}, wanted)  # nothing is parked for what can never fit
        self.assertEqual(found, regions.tags())
        self.assertEqual(list(tidemark.torch.stats(1)["tags"]), ["else/where"])
        del kept

    def written(self, name):
        """A snapshot in a file."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return tidemark.torch.snapshot(pathlib.Path(folder.name) / name)

    def test_a_snapshot_has_tags_and_budgets(self):
        kept = self.job()
        kept.append(self.make("model/0", 1))  # comes back for the request
        for name in ("run.pickle", "run.json"):
            with self.subTest(name), tidemark.read(self.written(name)) as recording:
                said = [device.tags for device in recording.devices]
                self.assertEqual([list(tags) for tags in said], [["model", "model/0", "model/1", "model/2", "model/large",
                                                                  "spare"], ["else", "else/where"]])
                for device, tags in enumerate(said):
                    for tag, figures in regions.tags(device).items():
                        same = [name for name in tags[tag]._fields if name in figures]
                        self.assertEqual({name: getattr(tags[tag], name) for name in same},
                                         {name: figures[name] for name in same}, tag)
                        self.assertGreater(len(same), 12)
                self.assertEqual((said[0]["spare"].limit, said[0]["model/1"].limit), (0, None))
                self.assertEqual([said[0][tag].has_budget for tag in ("model", "model/1", "spare")], [True, False, True])
                segments = recording.segments
                bytes_of = {}
                for device, tag, size, is_parked in zip(segments.device, segments.tag, segments.size, segments.is_parked):
                    bytes_of[device, tag, is_parked] = bytes_of.get((device, tag, is_parked), 0) + size
                tags = regions.tags()
                for tag in ("model/0", "model/1", "model/2"):
                    self.assertEqual(bytes_of.get((0, tag, False), 0), tags[tag]["reserved_bytes"], tag)
                    self.assertEqual(bytes_of.get((0, tag, True), 0), tags[tag]["parked_bytes"], tag)
                self.assertEqual(bytes_of[1, "else/where", False], regions.tags(1)["else/where"]["reserved_bytes"])
                self.assertIn((0, "", False), bytes_of)
                rows = {row["tag"]: row for row in recording.report(0)["tags"]}
                self.assertEqual((rows["model"]["limit"], rows["model"]["refused_count"]), (2 * LAYER, 1))

    def test_a_snapshot_without_tags_is_that_of_pytorch(self):
        kept = self.torch.make(LAYER, 1)
        with open(self.written("run.pickle"), "rb") as file:
            self.assertEqual(pickle.load(file), self.torch.cuda.memory._snapshot())
        self.assertTrue(kept.has(1))


class Modules(WithTorch):
    def stack(self):
        """Three modules whose weights yield, with room for one. Each looks at its weights."""
        budgets.budget({"m": {"limit": LAYER, "yields": True, "constant": True}})
        weights = [self.make(f"m/{number}", number + 1) for number in range(3)]

        def look(number):
            self.synchronize()
            self.assertEqual(self.figure(f"m/{number}", "use_count"), 1)
            return weights[number].has(number + 1)

        return [host_torch.Module(lambda number=number: look(number)) for number in range(3)]

    def test_a_forward_is_a_use(self):
        modules = self.stack()
        handles = [budgets.use_in(module, f"m/{number}") for number, module in enumerate(modules)]
        for _ in range(3):
            self.assertEqual([module() for module in modules], [True] * 3)
        self.assertEqual(self.figure("m/0", "use_count"), 0)
        for module, handle in zip(modules, handles):
            handle.remove()
            self.assertEqual((module.before, module.after), ([], []))

    def test_hooks_that_were_there_before_are_inside_the_use(self):
        module, seen = self.stack()[0], []
        module.register_forward_pre_hook(lambda _module, _given: seen.append(self.figure("m/0", "use_count")))
        module.register_forward_hook(lambda _module, _given, _got: seen.append(self.figure("m/0", "use_count")))
        budgets.use_in(module, "m/0")
        module()
        self.assertEqual(seen, [1, 1])

    def test_errors_end_the_use(self):
        others = self.stack()

        def fail():
            raise KeyError("forward")

        module = host_torch.Module(fail)
        budgets.use_in(module, "m/0")
        with self.assertRaisesRegex(KeyError, "forward"):
            module()
        self.assertEqual(self.figure("m/0", "use_count"), 0)
        with budgets.use("m/1"), self.assertRaises(TidemarkError) as caught:
            module()  # there is no room
        self.assertEqual((caught.exception.status, self.figure("m/0", "use_count")), ("TIDE_ERR_NO_MEMORY", 0))
        budgets.use_in(others[2], "m/2")
        self.assertTrue(others[2]())

    def test_a_wrong_tag(self):
        with self.assertRaisesRegex(KeyError, "no memory has the tag 'n'"):
            budgets.use_in(self.stack()[0], "n")


class Pressed(WithTorch):
    def setUp(self):
        super().setUp()
        budgets.budget({"t": {"limit": 2 * LAYER}})
        self.kept = [self.make("t/a", 1), self.make("t/a", 2)]
        self.calls = []

    def free(self, *call):
        self.calls.append(call)
        self.kept.clear()

    def test_a_callback_frees_memory(self):
        handle = budgets.on_pressure(self.free)
        self.assertTrue(self.make("t/b", 3).has(3))
        self.assertEqual(len(self.calls), 1)
        wanted, tag, limited = self.calls[0]
        self.assertEqual((tag, limited), ("t/b", "t"))
        self.assertTrue(LAYER <= wanted <= 2 * LAYER, wanted)
        handle.remove()
        handle.remove()

    def test_a_use_calls_it_too(self):
        away = self.make("away", 5)
        regions.park("away")
        self.torch.shim.caches[0].set_limit(2 * LAYER)
        with budgets.use("elsewhere"):
            self.assertEqual(self.calls, [])
        budgets.on_pressure(self.free)
        with budgets.use("away"):
            self.synchronize()
            self.assertTrue(away.has(5))
        self.assertEqual([(call[1], call[2]) for call in self.calls], [("away", "")])

    def test_after_its_removal_it_is_not_called(self):
        budgets.on_pressure(self.free).remove()
        with self.assertRaises(AssertionError):
            self.make("t/b", 3)
        self.assertEqual(self.calls, [])

    def test_it_may_remove_itself(self):
        def once(*call):
            self.free(*call)
            handle.remove()

        handle = budgets.on_pressure(once)
        self.kept.append(self.make("t/b", 3))
        self.kept.append(self.make("t/b", 4))
        with self.assertRaises(AssertionError):
            self.make("t/b", 5)
        self.assertEqual(len(self.calls), 1)

    def test_it_may_change_the_budget(self):
        budgets.on_pressure(lambda wanted, _tag, limited: budgets.budget({limited: {"limit": "16MiB"}}))
        self.assertTrue(self.make("t/b", 3).has(3))
        self.assertEqual([tensor.has(value) for tensor, value in zip(self.kept, (1, 2))], [True] * 2)

    def test_an_exception_is_a_warning(self):
        def fail(*_call):
            raise KeyError("in the callback")

        budgets.on_pressure(fail)
        budgets.on_pressure(self.free)
        with self.assertWarnsRegex(RuntimeWarning, "KeyError.*in the callback"):
            self.assertTrue(self.make("t/b", 3).has(3))
        self.assertEqual(len(self.calls), 1)

    def test_other_threads_call_it(self):
        budgets.on_pressure(self.free)
        made = []
        thread = threading.Thread(target=lambda: made.append(self.make("t/b", 3)))
        thread.start()
        thread.join()
        self.assertTrue(made[0].has(3))
        self.assertEqual(len(self.calls), 1)


class Library(unittest.TestCase):
    def test_a_budget_without_values_has_no_limits(self):
        self.assertEqual(vars(Budget()), NO_BUDGET)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""Writes a model of PyTorch's headers for each version, from facts.py. What no version changes is in model/.

    make_models.py FOLDER          writes FOLDER/VERSION/... for every version
"""
import pathlib
import re
import sys

import facts

ENTRIES = ["BlockInfo", "SegmentInfo", "TraceEntry", "AnnotationEntry"]
HEAD = "// Written by make_models.py.\n#pragma once\n"


def number(version):
    """A version as something that can be compared."""
    return tuple(map(int, version.split(".")))


def holds(version, first, last=""):
    """Is something that exists from `first` to `last` in a version?"""
    return number(first) <= number(version) and (not last or number(version) <= number(last))


def name_of(method):
    """The name of a method."""
    return re.findall(r"(\w+)\(", method)[0]


def body(method, kind):
    """What the base class has behind the signature."""
    if kind == facts.PURE:
        return " = 0;"
    if kind == facts.EMPTY:
        return " {}" if method.startswith("void ") else " { return {}; }"
    if kind == facts.REFUSE:
        return f' {{ throw c10::Error({{ "", "", 0 }}, "{name_of(method)} is not supported"); }}'
    return " " + kind


class Model:
    """The headers of one version; `other` replaces the methods of its name in CUDAAllocator: (signature, what it does)."""

    def __init__(self, version, *other):
        self.version, self.other = version, other

    def has(self, first):
        return holds(self.version, first)

    def methods(self, wanted):
        """The methods of a class: signature and what the base does."""
        other = self.other if wanted == "CUDAAllocator" else ()
        names = {name_of(text) for text, _ in other}
        return [(text, kind) for owner, text, first, last, kind in facts.METHODS
                if owner == wanted and holds(self.version, first, last) and name_of(text) not in names] + list(other)

    def declared(self, wanted):
        return "".join(f"  virtual {text}{body(text, kind)}\n" for text, kind in self.methods(wanted))

    def struct(self, wanted):
        lines = [text for owner, text, first, last in facts.FIELDS
                 if owner == wanted and holds(self.version, first, last)]
        return f"struct {wanted} {{\n" + "".join(f"  {line}\n" for line in lines) + "};\n"

    def version_h(self):
        major, minor = self.version.split(".")
        text = f"{self.version}.0" if not self.other else f"{self.version}.0+unknown"
        return (f'{HEAD}#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n'
                f'#define TORCH_VERSION "{text}"\n'
                f"#define MODEL_NATIVE_PRIORITY {facts.NATIVE_PRIORITY.get(self.version, 0)}\n")

    def allocator_h(self):
        pool = "using MempoolId_t = std::pair<unsigned long long, unsigned long long>;\n"
        return (f"{HEAD}#include <c10/core/DataPtr.h>\n\nnamespace c10 {{\n"
                f"{pool if self.has(facts.MOVED) else ''}"
                f"struct Allocator {{\n  virtual ~Allocator() = default;\n{self.declared('Allocator')}}};\n"
                "void SetAllocator(DeviceType type, Allocator* allocator, uint8_t priority);\n"
                "Allocator* GetAllocator(DeviceType type);\n}  // namespace c10\n")

    def entries(self):
        return ("using approx_time_t = int64_t;\nunion trace_time_ {\n  time_t t_;\n  approx_time_t approx_t_;\n};\n"
                "using CreateContextFn = std::shared_ptr<GatheredContext> (*)();\n"
                "enum struct RecordContext { NEVER, STATE, ALLOC, ALL };\n"
                + "".join(map(self.struct, ENTRIES))
                + "using AllocatorTraceTracker = std::function<void(const TraceEntry&)>;\n")

    def device_h(self):
        is_here = self.has(facts.MOVED)
        base = f"struct DeviceAllocator : Allocator {{\n{self.declared('DeviceAllocator')}}};\n" if is_here else ""
        return (f"{HEAD}#include <c10/core/Allocator.h>\n#include <c10/core/Stream.h>\n#include <cuda_runtime_api.h>\n\n"
                "namespace c10::CachingDeviceAllocator {\nusing CachingAllocator::StatArray;\n"
                f"{self.struct('DeviceStats')}{self.entries() if is_here else ''}"
                f"}}  // namespace c10::CachingDeviceAllocator\n\nnamespace c10 {{\n{base}}}  // namespace c10\n")

    def cuda_h(self):
        moved = ["BlockInfo", "SegmentInfo", "TraceEntry", "CreateContextFn", "RecordContext", "AllocatorTraceTracker"]
        uses = "".join(f"using CachingDeviceAllocator::{name};\n" for name in moved)
        where = "CachingDeviceAllocator::" if self.has(facts.MOVED) else ""
        pool = "using c10::MempoolId_t;" if self.has(facts.MOVED) else \
            "using MempoolId_t = std::pair<unsigned long long, unsigned long long>;"
        sizes = ("struct StreamSegmentSize {\n  StreamSegmentSize(cudaStream_t of, bool is_small, size_t bytes)"
                 " : stream(of), is_small_pool(is_small), total_size(bytes) {}\n"
                 "  cudaStream_t stream;\n  bool is_small_pool;\n  size_t total_size;\n};\n")
        rejection = "using OomRejectionObserver = std::function<void(int64_t, size_t, size_t, size_t)>;\n"
        base = "DeviceAllocator" if self.has(facts.MOVED) else "Allocator"
        return (f"{HEAD}#include <c10/core/CachingDeviceAllocator.h>\n#include <c10/cuda/CUDACallbacks.h>\n"
                "#include <c10/cuda/CUDAStream.h>\n\n"
                f"namespace c10::cuda {{\n{pool}\n}}\n\nnamespace c10::cuda::CUDACachingAllocator {{\n"
                "using CachingDeviceAllocator::DeviceStats;\n"
                f"{uses if where else self.entries()}"
                "struct AllocatorState {\n  virtual ~AllocatorState() = default;\n};\n"
                f"{self.struct('AllocatorConfigInfo')}"
                f"struct SnapshotInfo {{\n  std::vector<SegmentInfo> segments;\n"
                "  std::vector<std::vector<TraceEntry>> device_traces;\n"
                f"  std::vector<{where}AnnotationEntry> external_annotations;\n"
                "  AllocatorConfigInfo config_metadata;\n};\n"
                "struct CheckpointDelta {\n  std::vector<void*> ptrs_freed;\n  std::vector<DataPtr> dataptrs_allocd;\n};\n"
                "using OutOfMemoryObserver = std::function<void(int64_t, size_t, size_t, size_t)>;\n"
                f"{rejection if self.has(facts.OOM_REJECTION) else ''}"
                "struct ShareableHandle {\n  ptrdiff_t offset;\n  std::string handle;\n};\n"
                f"{sizes if self.has(facts.MOVED) else ''}"
                f"class CUDAAllocator : public {base} {{\npublic:\n{self.declared('CUDAAllocator')}}};\n"
                "extern std::atomic<CUDAAllocator*> allocator;\n"
                "inline CUDAAllocator* get() { return allocator.load(); }\n"
                "}  // namespace c10::cuda::CUDACachingAllocator\n")

    def host_h(self):
        return (f"{HEAD}#include <c10/core/Allocator.h>\n#include <c10/core/Stream.h>\n\nnamespace at {{\n"
                "struct DurationStat {\n  int64_t total = 0, max = 0, min = 0, count = 0;\n};\n"
                f"{self.struct('HostStats')}"
                f"struct HostAllocator : c10::Allocator {{\n{self.declared('HostAllocator')}}};\n"
                "void setHostAllocator(c10::DeviceType type, HostAllocator* allocator, uint8_t priority = 0);\n"
                "HostAllocator* getHostAllocator(c10::DeviceType type);\n}  // namespace at\n")

    def derived(self, space, name, says, where):
        """A class that implements what is pure: inside the class, or outside, so that its symbols are exported."""
        pure = {}
        for owner in ("Allocator", "DeviceAllocator", "CUDAAllocator"):
            for text, kind in self.methods(owner):
                if kind == facts.PURE:
                    pure[text] = ' { throw c10::Error({ "", "", 0 }, "' + name_of(text) + ' of a model"); }\n'
                else:
                    pure.pop(text, None)  # implemented by a class between
        pure["std::string name()"] = f' {{ return "{says}"; }}\n'
        pure["bool initialized()"] = " { return false; }\n"
        inside = "".join(f"  {text} override{code if where == 'inside' else chr(59) + chr(10)}"
                         for text, code in pure.items())
        outside = "".join(re.sub(r"(\w+)\(", rf"{name}::\1(", text, count=1) + code for text, code in pure.items())
        return (f"namespace {space} {{\nusing namespace c10;\nusing namespace c10::cuda;\n"
                f"using namespace c10::cuda::CUDACachingAllocator;\n"
                f"struct {name} : CUDAAllocator {{\n  using CUDAAllocator::recordStream;\n{inside}}};\n"
                f"{outside if where == 'outside' else ''}}}  // namespace {space}\n")

    def files(self):
        """All files, by path."""
        include = "#include <c10/cuda/CUDACachingAllocator.h>\n\n"
        return {
            "torch/headeronly/version.h": self.version_h(),
            "c10/core/Allocator.h": self.allocator_h(),
            "c10/core/CachingDeviceAllocator.h": self.device_h(),
            "c10/cuda/CUDACachingAllocator.h": self.cuda_h(),
            "ATen/core/CachingHostAllocator.h": self.host_h(),
            "native.h": HEAD + include + self.derived("model", "Native", "native", "inside"),
            "pluggable.cpp": include + self.derived("torch::cuda::CUDAPluggableAllocator", "CUDAPluggableAllocator",
                                                    "pluggable", "outside"),
        }


def write(folder, model):
    """Writes the files that changed, so that nothing else is compiled again."""
    for path, text in model.files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    for version in facts.VERSIONS:
        write(folder / version, Model(version))


if __name__ == "__main__":
    main()

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics, snapshots and history, compared with what the test itself did.
#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

#include "drive.h"

namespace drive {
namespace {

// A gathered stack: the number of the request that the thread makes.
struct Tag final : c10::GatheredContext {
  explicit Tag(int value) : number(value) {}
  int number;
};
thread_local int current_tag = 0;

std::shared_ptr<c10::GatheredContext> gather() { return std::make_shared<Tag>(current_tag); }
int tag_of(const std::shared_ptr<c10::GatheredContext>& context) {
  const auto* const tag = dynamic_cast<const Tag*>(context.get());
  return tag != nullptr ? tag->number : -1;
}

struct Request {
  c10::DataPtr data;
  size_t bytes;
};

std::vector<Request> make_requests(int count) {
  std::vector<Request> all;
  for (int i = 0; i < count; i++) {
    const size_t bytes = 700 + static_cast<size_t>(i) * 30000;
    current_tag = 100 + i;
    all.push_back({ cuda()->allocate(bytes), bytes });
  }
  return all;
}

void counts_requests() {
  Stream stream;
  cuda()->emptyCache({ 0, 0 });
  cuda()->resetAccumulatedStats(0);
  cuda()->resetPeakStats(0);
  {
    const std::vector<Request> all = make_requests(40);
    int64_t requested = 0;
    for (const Request& request : all) requested += static_cast<int64_t>(request.bytes);
    const ca::DeviceStats stats = cuda()->getDeviceStats(0);
    CHECK(stats.allocation[0].current == 40 && stats.allocation[0].allocated == 40);
    CHECK(stats.allocation[0].current == stats.allocation[1].current + stats.allocation[2].current);
    CHECK(stats.requested_bytes[0].current == requested);
    CHECK(stats.allocated_bytes[0].current >= requested);
    CHECK(static_cast<size_t>(stats.reserved_bytes[0].current) == used());
  }
  const ca::DeviceStats stats = cuda()->getDeviceStats(0);
  CHECK(stats.allocation[0].current == 0 && stats.allocation[0].freed == 40);
  CHECK(stats.allocation[0].peak == 40);
  cuda()->resetPeakStats(0);
  CHECK(cuda()->getDeviceStats(0).allocation[0].peak == 0);
}

// Four holes serve a request that is as long as all of them: with `tide`, by a view. There is no room for new
// memory.
void counts_time_of_views() {
  int64_t counts[6];
  cuda()->emptyCache({ 0, 0 });
  cuda()->resetAccumulatedStats(0);
  cuda()->resetPeakStats(0);
  tidemark_torch_counts(0, counts);
  CHECK(std::all_of(counts, counts + 6, [](int64_t count) { return count == 0; }));
  {
    std::vector<c10::DataPtr> all;
    for (int i = 0; i < 8; i++) all.push_back(cuda()->allocate(capacity / 10));
    for (size_t i = 0; i < 8; i += 2) all[i].clear();
    all.push_back(cuda()->allocate(4 * (capacity / 10)));
  }
  tidemark_torch_counts(0, counts);
  CHECK((counts[4] > 0) == is_tide());
  CHECK(counts[5] == 0);
  tidemark_torch_counts(1, counts);  // there is no such device
  CHECK(std::all_of(counts, counts + 6, [](int64_t count) { return count == 0; }));
  cuda()->emptyCache({ 0, 0 });
}

void shows_every_block() {
  Stream stream;
  const std::vector<Request> all = make_requests(30);
  const ca::SnapshotInfo info = snapshot();
  std::map<uintptr_t, size_t> shown;  // what is handed out, by address
  size_t reserved = 0;
  for (const ca::SegmentInfo& segment : info.segments) {
    size_t at = segment.address;
    size_t active = 0;
    reserved += segment.total_size;
    for (const ca::BlockInfo& block : segment.blocks) {
      if (block.allocated) shown[at] = block.requested_size;
      active += block.active ? block.size : 0;
      at += block.size;
    }
    CHECK(at == segment.address + segment.total_size);
    CHECK(active == segment.active_size);
  }
  CHECK(shown.size() == all.size());
  for (const Request& request : all)
    CHECK(shown.at(reinterpret_cast<uintptr_t>(request.data.get())) == request.bytes);
  CHECK(reserved == used());
  CHECK(info.config_metadata.last_allocator_settings.find("policy") != std::string::npos || !is_tide());
#if TORCH_VERSION_MINOR >= 10
  size_t expandable = 0;
  for (const ca::StreamSegmentSize& size : cuda()->getExpandableSegmentSizes(0))
    expandable += size.total_size;
  CHECK(expandable == (is_tide() ? reserved : 0));
#endif
}

void check_entries(const std::vector<Request>& all, const ca::SnapshotInfo& info) {
  std::map<uintptr_t, const ca::TraceEntry*> allocs;
  for (const ca::TraceEntry& entry : info.device_traces.at(0)) {
    if (entry.action_ == ca::TraceEntry::ALLOC) allocs[entry.addr_] = &entry;
  }
  CHECK(allocs.size() == all.size());
  for (size_t i = 0; i < all.size(); i++) {
    const ca::TraceEntry& entry = *allocs.at(reinterpret_cast<uintptr_t>(all[i].data.get()));
    CHECK(tag_of(entry.context_) == 100 + static_cast<int>(i));
    CHECK(entry.size_ >= all[i].bytes && entry.device_ == 0);
    CHECK(entry.stream_ == model::stream);
    CHECK(entry.compile_context_ == "graph 3");
#if TORCH_VERSION_MINOR >= 10
    CHECK(entry.user_metadata_ == "step 5");
#endif
  }
}

void check_blocks(const std::vector<Request>& all, const ca::SnapshotInfo& info) {
  std::map<uintptr_t, int> tags;
  for (const ca::SegmentInfo& segment : info.segments) {
    size_t at = segment.address;
    for (const ca::BlockInfo& block : segment.blocks) {
      if (block.allocated) tags[at] = tag_of(block.context_when_allocated);
      at += block.size;
    }
  }
  for (size_t i = 0; i < all.size(); i++)
    CHECK(tags.at(reinterpret_cast<uintptr_t>(all[i].data.get())) == 100 + static_cast<int>(i));
}

void check_annotations(const ca::SnapshotInfo& info) {
  CHECK(info.external_annotations.size() == 1);
  CHECK(info.external_annotations[0].metadata_.at("name") == "forward");
  CHECK(info.external_annotations[0].metadata_.at("stage") == "START");
}

void records_history() {
  Stream stream;
  CHECK(!cuda()->isHistoryEnabled());
  record_history(true, gather, 1000, ca::RecordContext::ALL);
  CHECK(cuda()->isHistoryEnabled());
  std::string context = "graph 3";
  cuda()->pushCompileContext(context);
#if TORCH_VERSION_MINOR >= 10
  cuda()->setUserMetadata("step 5");
  CHECK(cuda()->getUserMetadata() == "step 5");
#endif
  cuda()->recordAnnotation({ { "name", "forward" }, { "stage", "START" } });
  {
    const std::vector<Request> all = make_requests(25);
    const ca::SnapshotInfo info = snapshot();
    check_entries(all, info);
    check_blocks(all, info);
    check_annotations(info);
#if TORCH_VERSION_MINOR >= 12
    CHECK(tag_of(cuda()->getContextForPointer(all[7].data.get())) == 107);
    CHECK(cuda()->getContextForPointer(&current_tag) == nullptr);
#endif
  }
  cuda()->popCompileContext();
#if TORCH_VERSION_MINOR >= 10
  cuda()->setUserMetadata("");
#endif
  record_history(false, nullptr, 0, ca::RecordContext::NEVER);
  CHECK(!cuda()->isHistoryEnabled());
  CHECK(snapshot().device_traces.at(0).empty());
}

std::string text_of_oom() {
  try {
    (void)cuda()->allocate(2 * capacity);
  } catch (const c10::OutOfMemoryError& error) {
    return error.what();
  }
  throw Failure("the request did not run out of memory");
}

// The writer looks at a snapshot, as that of Python does, and the largest text fits.
void names_holders() {
  const auto write = [](int device, char* text, size_t capacity_of_text) {
    const std::string live = std::to_string(snapshot().segments.size());
    (void)std::snprintf(text, capacity_of_text, "holders of %d: %s%*s", device, live.c_str(), 100000, "end");
  };
  const std::string plain = text_of_oom();
  tidemark_torch_name_holders(write);
  CHECK(text_of_oom().find("holders") == std::string::npos);
  record_history(true, gather, 100, ca::RecordContext::STATE);
  const c10::DataPtr data = cuda()->allocate(mib);
  const std::string named = text_of_oom();
  record_history(false, nullptr, 0, ca::RecordContext::NEVER);
  tidemark_torch_name_holders(nullptr);
  CHECK(named.find("\nholders of 0: 1 ") != std::string::npos &&
        named.find("Tried to allocate") == plain.find("Tried to allocate"));
}

void skips_actions() {
#if TORCH_VERSION_MINOR >= 11
  Stream stream;
  const ca::RecordContext when = ca::RecordContext::ALL;
  CHECK(throws<c10::Error>([&] { cuda()->recordHistory(true, gather, 10, when, true, { "no_such" }); }));
  cuda()->recordHistory(true, gather, 1000, when, true, { "alloc" });
  (void)make_requests(5);
  const ca::SnapshotInfo info = snapshot();
  CHECK(!info.device_traces.at(0).empty());
  for (const ca::TraceEntry& entry : info.device_traces.at(0)) CHECK(entry.action_ != ca::TraceEntry::ALLOC);
  record_history(false, nullptr, 0, ca::RecordContext::NEVER);
#endif
}

#if TORCH_VERSION_MINOR >= 16
// What a snapshot says of blocks: addresses and texts.
std::map<size_t, std::string> remarks() {
  std::map<size_t, std::string> found;
  const ca::SnapshotInfo info = snapshot();
  for (const ca::TraceEntry& entry : info.device_traces.at(0)) {
    if (entry.action_ == ca::TraceEntry::ANNOTATE) found[entry.addr_] += entry.user_metadata_;
  }
  CHECK(info.external_annotations.empty());
  return found;
}

// Remarks on live blocks are entries, but for skipped ones, foreign addresses and without a history.
void keeps_remarks() {
  const c10::DataPtr data = cuda()->allocate(mib);
  int local = 0;
  cuda()->annotateMemory(data.get(), "too early");
  record_history(true, nullptr, 1000, ca::RecordContext::NEVER);
  CHECK(cuda()->supportsUserMetadata());
  cuda()->annotateMemory(data.get(), "weights: \x1f, \x1e");
  cuda()->annotateMemory(data.get(), std::string(9999, '.'));
  cuda()->annotateMemory(&local, "foreign");
  cuda()->annotateMemory(nullptr, "nothing");
  const auto found = remarks();
  const std::string& text = found.at(reinterpret_cast<uintptr_t>(data.get()));
  CHECK(found.size() == 1 && text.find("weights: \x1f, \x1e....") == 0 && text.size() > 4000);
  cuda()->recordHistory(true, nullptr, 1000, ca::RecordContext::NEVER, true, { "annotate" });
  cuda()->annotateMemory(data.get(), "skipped");
  CHECK(remarks().empty());
  record_history(false, nullptr, 0, ca::RecordContext::NEVER);
}
#endif

// Trackers see each block begin and end, as often as there were requests.
std::mutex tracked_lock;
std::map<size_t, int> tracked;

void calls_trackers() {
  cuda()->attachAllocatorTraceTracker([](const ca::TraceEntry& entry) {
    const std::lock_guard<std::mutex> guard(tracked_lock);
    if (entry.action_ == ca::TraceEntry::ALLOC) tracked[entry.addr_]++;
    if (entry.action_ == ca::TraceEntry::FREE_REQUESTED) tracked[entry.addr_]--;
  });
  Stream stream;
  {
    const std::vector<Request> all = make_requests(20);
    for (const Request& request : all)
      CHECK(tracked.at(reinterpret_cast<uintptr_t>(request.data.get())) == 1);
  }
  CHECK(!tracked.empty());
  CHECK(std::all_of(tracked.begin(), tracked.end(), [](const auto& each) { return each.second == 0; }));
}

}  // namespace

const std::vector<Test> look_tests = {
  { "counts_requests", counts_requests },
  { "shows_every_block", shows_every_block },
  { "records_history", records_history },
  { "skips_actions", skips_actions },
#if TORCH_VERSION_MINOR >= 16
  { "keeps_remarks", keeps_remarks },
#endif
  { "calls_trackers", calls_trackers },
  { "names_holders", names_holders },
  { "counts_time_of_views", counts_time_of_views },
};

}  // namespace drive

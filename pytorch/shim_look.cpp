// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Converts the library's segments, blocks and history to PyTorch's structs. PyTorch gathers a call stack as
// an object, and our history keeps a number for it. The objects are kept here, because PyTorch expects the
// same ones back.
#include "shim_look.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "shim_stacks.h"

namespace tidemark {
namespace {

using c10::DeviceIndex;

constexpr size_t entries_limit = size_t{ 1 } << 20;  // of a history: 64 MiB, allocated at once

// ---------------------------------------------------------------------------------------------------
// Call stacks

constexpr size_t stacks_least = size_t{ 1 } << 16;  // with fewer, a sweep is not worthwhile

Stacks<c10::GatheredContext>& stacks = *new Stacks<c10::GatheredContext>(stacks_least);
std::atomic<ca::CreateContextFn> recorder{ nullptr };

void look_for_stacks(std::unordered_set<uint32_t>& used) {
  const auto add = [](void* user, uint32_t stack) {
    guarded([&] { static_cast<std::unordered_set<uint32_t>*>(user)->insert(stack); });
  };
  each_device([&](tide_device_cache* device) {
    checked([&] { return tide_device_visit_stacks(device, add, &used); });  // all of them, or none is dropped
  });
}

uint32_t number_stack(void*) {
  uint32_t number = 0;
  guarded([&] {
    auto context = recorder.load()();
    if (context) number = stacks.add(std::move(context));
    if (stacks.is_due()) stacks.sweep(look_for_stacks);
  });
  return number;
}

// ---------------------------------------------------------------------------------------------------
// Entries

std::mutex labels_lock;
std::map<std::pair<tide_device_cache*, tide_pool>, MempoolId_t>& labels =
    *new std::map<std::pair<tide_device_cache*, tide_pool>, MempoolId_t>;

// Pools that PyTorch did not make, such as those of regions, are shown with labels from here on. Its own
// labels are small numbers.
constexpr uint64_t first_own_label = uint64_t{ 1 } << 32;

MempoolId_t label_of(tide_device_cache* device, tide_pool pool) {
  if (pool == TIDE_POOL_DEFAULT) return { 0, 0 };
  const std::lock_guard<std::mutex> guard(labels_lock);
  const auto found = labels.find({ device, pool });
  return found != labels.end() ? found->second : MempoolId_t{ 0, first_own_label + pool };
}

// Actions have the same order on both sides, as far as PyTorch knows them.
static_assert(int{ TIDE_ACTION_ALLOC } == int{ ca::TraceEntry::ALLOC });
static_assert(int{ TIDE_ACTION_SEGMENT_UNMAP } == int{ ca::TraceEntry::SEGMENT_UNMAP });
static_assert(int{ TIDE_ACTION_OOM } == int{ ca::TraceEntry::OOM });

std::string words(const tide_intern* names, uint32_t text) {
  const char* const found = text != 0 ? tide_intern_text(names, text, nullptr) : nullptr;
  return found != nullptr ? found : "";
}

// Separators in the text of an annotation, which names and values cannot contain.
constexpr char between = '\x1f';
constexpr char behind = '\x1e';

SHIM_FIELD_SETTER(user_metadata_)

// The action of a remark on a block; since 2.14.
template <typename Entry> constexpr auto remark_action(int) -> decltype(Entry::ANNOTATE) {
  return Entry::ANNOTATE;
}
template <typename Entry> constexpr typename Entry::Action remark_action(long) { return Entry::OOM; }
constexpr ca::TraceEntry::Action remark = remark_action<ca::TraceEntry>(0);
std::atomic<bool> skips_remarks{ false };

// The text of a remark is `behind`, the address, `between`, and what the user wrote.
ca::TraceEntry remark_of(tide_device_cache* device, const tide_trace_entry& from, int64_t epoch,
                         const std::string& text) {
  ca::TraceEntry entry = entry_of(device, from, epoch);
  const size_t middle = text.find(between);
  entry.action_ = remark;
  entry.addr_ = std::stoull(text.substr(1, middle - 1));
  set_user_metadata_(entry, text.substr(middle + 1));
  return entry;
}

using Annotation = decltype(ca::SnapshotInfo::external_annotations)::value_type;

Annotation annotation_of(const tide_trace_entry& from, int64_t epoch, const std::string& text) {
  Annotation entry(static_cast<DeviceIndex>(from.device), 0);
  entry.time_.t_ = (static_cast<int64_t>(from.time_ns) + epoch) / 1000;
  size_t at = 0;
  for (size_t end = text.find(behind); end != std::string::npos; at = end + 1, end = text.find(behind, at)) {
    const size_t middle = text.find(between, at);
    entry.recordUserMetadata(text.substr(at, middle - at), text.substr(middle + 1, end - middle - 1));
  }
  return entry;
}

// ---------------------------------------------------------------------------------------------------
// Segments and blocks

// A snapshot under construction.
struct Snapshot {
  ca::SnapshotInfo& info;
  tide_device_cache* device;
  int64_t epoch;
  uint32_t segment_stack;  // of the last segment, until its first block
};

SHIM_FIELD_SETTER(registration_counter)

void add_segment(Snapshot& snapshot, const tide_segment_info* from) {
  ca::SegmentInfo segment{};
  segment.device = static_cast<DeviceIndex>(from->device);
  set_registration_counter(segment, static_cast<int32_t>(from->ordinal));
  segment.address = from->address;
  segment.total_size = from->bytes;
  segment.requested_size = from->requested_bytes;
  segment.allocated_size = from->allocated_bytes;
  segment.active_size = from->active_bytes;
  segment.stream = stream_of(from->stream);
  segment.is_large = from->is_large;
  segment.is_expandable = from->is_expandable;
  segment.owner_private_pool_id = label_of(snapshot.device, from->pool);
  snapshot.info.segments.push_back(std::move(segment));
  snapshot.segment_stack = from->stack;
}

void add_block(Snapshot& snapshot, const tide_block_info* from) {
  ca::BlockInfo block{};
  block.size = from->bytes;
  block.requested_size = from->requested_bytes;
  block.allocated = from->state == TIDE_BLOCK_ALLOCATED;
  block.active = from->state != TIDE_BLOCK_INACTIVE;
  block.context_when_allocated = stacks.find(from->stack);
  // PyTorch loses the stack of a segment when that is split, and its tests depend on that.
  ca::SegmentInfo& segment = snapshot.info.segments.back();
  const bool is_whole = block.active && block.size == segment.total_size;
  if (is_whole) segment.context_when_allocated = stacks.find(snapshot.segment_stack);
  segment.blocks.push_back(std::move(block));
}

void add_entry(Snapshot& snapshot, const tide_trace_entry& from) {
  auto& [info, device, epoch, stack] = snapshot;
  (void)stack;
  auto& traces = info.device_traces[from.device];
  if (from.action != TIDE_ACTION_USER_DEFINED) {
    traces.push_back(entry_of(device, from, epoch));
    return;
  }
  const tide_intern* const names = tide_device_names(device);
  const std::string text = words(names, tide_intern_note(names, from.note).metadata);
  if (!text.empty() && text[0] == behind) traces.push_back(remark_of(device, from, epoch, text));
  else info.external_annotations.push_back(annotation_of(from, epoch, text));
}

// What the library calls; a visit ends at the first exception.
bool show_segment(void* user, const tide_segment_info* segment) {
  guarded([&] { add_segment(*static_cast<Snapshot*>(user), segment); });
  return !pending;
}
bool show_block(void* user, const tide_block_info* block) {
  guarded([&] { add_block(*static_cast<Snapshot*>(user), block); });
  return !pending;
}
bool show_entries(void* user, const tide_trace_entry* entries, size_t count) {
  guarded([&] {
    for (size_t i = 0; i < count; i++) add_entry(*static_cast<Snapshot*>(user), entries[i]);
  });
  return !pending;
}

// Remarks have no action of their own in the library.
bool is_remarks(const std::string& name) { return remark != ca::TraceEntry::OOM && name == "annotate"; }

// The actions that a history skips, as bits.
uint32_t skips_of(const std::vector<std::string>& names) {
  uint32_t skips = 0;
  for (const auto& name : names) {
    if (is_remarks(name)) continue;
    const int action = tide_action_from_name(name.c_str());
    if (action < 0 || action > TIDE_ACTION_OOM) raise_error("Unknown TraceEntry action: %s", name.c_str());
    skips |= 1u << action;
  }
  return skips;
}

}  // namespace

int64_t epoch_ns() {
  uint64_t now = 0;
  check(tide_machine_clock(machine(), &now));
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() - static_cast<int64_t>(now);
}

ca::TraceEntry entry_of(tide_device_cache* device, const tide_trace_entry& from, int64_t epoch) {
  const tide_intern* const names = tide_device_names(device);
  const tide_note note = tide_intern_note(names, from.note);
  ca::TraceEntry entry(
      static_cast<ca::TraceEntry::Action>(from.action), static_cast<DeviceIndex>(from.device), from.address,
      from.bytes, reinterpret_cast<cudaStream_t>(from.stream), label_of(device, from.pool), 0,
      stacks.find(from.stack), note.compile_context != 0 ? words(names, note.compile_context) : "N/A");
  set_user_metadata_(entry, words(names, note.metadata));
  entry.time_.t_ = (static_cast<int64_t>(from.time_ns) + epoch) / 1000;
  return entry;
}

void add_to_snapshot(tide_device_cache* device, MempoolId_t id, bool has_traces, ca::SnapshotInfo& info) {
  Snapshot snapshot = { info, device, epoch_ns(), 0 };
  const tide_device_visitor visitor = { show_segment, show_block, &snapshot };
  if (has_traces) checked([&] { return tide_device_history_visit(device, show_entries, &snapshot); });
  const uint64_t label[2] = { id.first, id.second };
  tide_pool pool = 0;
  if (id == MempoolId_t{ 0, 0 }) checked([&] { return tide_device_visit(device, &visitor); });
  else if (tide_device_pool_find(device, label, &pool) == TIDE_OK)
    checked([&] { return tide_device_visit_pool(device, pool, &visitor); });
}

SHIM_FIELD_SETTER(graph_capture_record_stream_reuse)

ca::AllocatorConfigInfo config_of(const tide_device_options& from) {
  ca::AllocatorConfigInfo to{};
  to.garbage_collection_threshold = from.collect_threshold;
  to.max_split_size = from.max_split_bytes;
  to.pinned_num_register_threads = from.pinned_register_threads;
  to.expandable_segments = from.expandable_segments;
  to.release_lock_on_malloc = from.releases_lock;
  to.pinned_use_host_register = from.pinned_uses_register;
  set_graph_capture_record_stream_reuse(to, from.is_capture_reuse);
  to.last_allocator_settings.resize(tide_device_options_print(&from, nullptr, 0) + 1);
  (void)tide_device_options_print(&from, &to.last_allocator_settings[0], to.last_allocator_settings.size());
  to.last_allocator_settings.pop_back();
  to.roundup_power2_divisions.assign(from.roundup_divisions, from.roundup_divisions + TIDE_ROUNDUP_SLOTS);
  return to;
}

// The bytes that a version may want for each private pool: those that it has now.
template <typename Stats>
auto add_pools(Stats& to, tide_device_cache* device, int)
    -> decltype(to.reserved_bytes_by_private_pools.size(), void()) {
  const std::lock_guard<std::mutex> guard(labels_lock);
  for (const auto& [key, label] : labels) {
    uint64_t bytes = 0;
    const bool is_there = key.first == device &&
                          tide_device_pool_reserved(device, key.second, &bytes) == TIDE_OK;
    if (is_there)
      to.reserved_bytes_by_private_pools[label][TIDE_STAT_ALL].current += static_cast<int64_t>(bytes);
  }
}
template <typename Stats> void add_pools(Stats&, tide_device_cache*, long) {}

SHIM_FIELD_SETTER(num_oom_rejections)

ca::DeviceStats stats_of(tide_device_cache* device) {
  tide_device_stats from = TIDE_DEVICE_STATS_INIT;
  ca::DeviceStats to;
  if (device != nullptr) check(tide_device_get_stats(device, &from));
  else from.max_split_bytes = options().max_split_bytes;
#define COPY_STAT(stat) \
  for (size_t i = 0; i < TIDE_STAT_KINDS; i++) copy(to.stat[i], from.stat[i]);
  TIDE_DEVICE_STAT_MAP(COPY_STAT)
#undef COPY_STAT
  copy(to.oversize_allocations, from.oversize_allocations);
  copy(to.oversize_segments, from.oversize_segments);
  to.num_alloc_retries = from.num_alloc_retries;
  to.num_ooms = from.num_ooms;
  to.num_sync_all_streams = from.num_sync_all_streams;
  to.num_device_alloc = from.num_device_alloc;
  to.num_device_free = from.num_device_free;
  set_num_oom_rejections(to, from.num_oom_rejections);
  to.max_split_size = static_cast<int64_t>(from.max_split_bytes);
  if (device != nullptr) add_pools(to, device, 0);
  return to;
}

std::vector<ca::StreamSegmentSize> expandable_sizes_of(tide_device_cache* device) {
  std::vector<ca::StreamSegmentSize> sizes;
  const auto add = [](void* user, const tide_segment_info* segment) {
    auto& all = *static_cast<std::vector<ca::StreamSegmentSize>*>(user);
    guarded([&] {
      if (segment->is_expandable)
        all.emplace_back(stream_of(segment->stream), !segment->is_large, segment->bytes);
    });
    return !pending;
  };
  const tide_device_visitor visitor = { add, nullptr, &sizes };
  checked([&] { return tide_device_visit(device, &visitor); });
  return sizes;
}

std::shared_ptr<c10::GatheredContext> stack_at(tide_device_cache* device, const void* address) {
  return stacks.find(tide_device_stack(device, address));
}

tide_history_options history_of(ca::CreateContextFn wanted, size_t most_entries, ca::RecordContext when,
                                const std::vector<std::string>& skipped) {
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  history.level = wanted != nullptr ? static_cast<uint8_t>(when) : uint8_t{ TIDE_HISTORY_NEVER };
  history.max_entries = std::clamp(most_entries, size_t{ 1 }, entries_limit);
  history.skips = skips_of(skipped);
  skips_remarks.store(std::any_of(skipped.begin(), skipped.end(), is_remarks));
  history.number = wanted != nullptr ? number_stack : nullptr;
  if (wanted != nullptr) recorder.store(wanted);
  return history;
}

void remember_label(tide_device_cache* device, tide_pool pool, MempoolId_t label) {
  const std::lock_guard<std::mutex> guard(labels_lock);
  labels[{ device, pool }] = label;
}

void forget_stacks() { stacks.sweep(look_for_stacks, 1); }

std::string annotation_text(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string text;
  for (const auto& [key, value] : pairs) text += key + between + value + behind;
  return text;
}

void add_remark(tide_device_cache* device, const void* address, const std::string& text) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (!skips_remarks.load())
    (void)!tide_device_annotate(device, (behind + std::to_string(number) + between + text).c_str());
}

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the Python package needs for parking. The last tests, because afterwards all memory has a tag.
#include "drive.h"

namespace drive {
namespace {

uint64_t allocated_bytes(const char* tag) {
  tide_tag_stats stats = TIDE_TAG_STATS_INIT;
  CHECK(tide_device_tag_stats(tidemark_torch_device(0), tag, &stats) == TIDE_OK);
  return stats.allocated_bytes;
}

void makes_devices() {
  const char* failure = nullptr;
  CHECK(tidemark_torch_make_device(0, &failure) != nullptr && failure == nullptr);
  CHECK(tidemark_torch_make_device(0, &failure) == tidemark_torch_device(0));
  for (const int index : { 7, -1 }) {
    CHECK(tidemark_torch_make_device(index, &failure) == nullptr);
    CHECK(std::string(failure).find("Invalid device argument " + std::to_string(index)) != std::string::npos);
  }
}

// Parks a tag, and looks at the memory of the device meanwhile.
void step_aside(const char* tag) {
  tide_device_cache* const device = tidemark_torch_device(0);
  cuda()->emptyCache({ 0, 0 });
  CHECK(used() >= allocated_bytes(tag));
  CHECK(tide_device_park(device, tag, nullptr, nullptr) == TIDE_OK);
  CHECK(used() == 0);
  CHECK(tide_device_unpark(device, tag, nullptr, nullptr) == TIDE_OK);
  CHECK(tide_device_trim_backups(device, tag) == TIDE_OK);  // ends the threads that made the backup
}

// The pool of a graph, which PyTorch names by its id.
void parks_a_pool_by_its_id() {
  const uint64_t id[2] = { 0, 9 };
  tide_pool pool = 0;
  Stream stream;
  join_pool({ id[0], id[1] });
  c10::DataPtr data;
  {
    const Scope scope({ id[0], id[1] });
    data = cuda()->allocate(5 * mib);
  }
  stream.fill(data.get(), 6, 5 * mib);
  CHECK(tide_device_pool_find(tidemark_torch_device(0), id, &pool) == TIDE_OK);
  CHECK(tide_device_pool_set_tag(tidemark_torch_device(0), pool, "graph") == TIDE_OK);
  CHECK(allocated_bytes("graph") == 5 * mib);
  if (is_tide()) step_aside("graph");
  CHECK(is_filled(data.get(), 6, 5 * mib));
  data.clear();
  cuda()->releasePool(0, { id[0], id[1] });
  cuda()->emptyCache({ 0, 0 });
}

// A pool that PyTorch does not know has an id of its own in snapshots, the same for segments and entries.
void shows_a_region_as_a_pool() {
  tide_device_cache* const device = tidemark_torch_device(0);
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_scope scope = TIDE_SCOPE_INIT;
  tide_pool pool = 0;
  options.tag = "region";
  scope.is_region = true;
  CHECK(tide_device_pool_new(device, &options, &pool) == TIDE_OK);
  record_history(true, nullptr, 100, ca::RecordContext::NEVER, true);
  const c10::DataPtr outside = cuda()->allocate(3 * mib);
  CHECK(tide_device_pool_begin(device, pool, &scope) == TIDE_OK);
  c10::DataPtr data = cuda()->allocate(5 * mib);
  CHECK(tide_device_pool_end(device, pool) == TIDE_OK);
  const PoolId id = { 0, (uint64_t{ 1 } << 32) + pool };
  const auto address = reinterpret_cast<uintptr_t>(data.get());
  const ca::SnapshotInfo info = snapshot();
  size_t seen = 0;
  for (const ca::SegmentInfo& segment : info.segments) {
    const bool is_ours = address >= segment.address && address < segment.address + segment.total_size;
    CHECK((segment.owner_private_pool_id == id) == is_ours);
    seen += is_ours;
  }
  for (const ca::TraceEntry& entry : info.device_traces.at(0)) {
    if (entry.action_ != ca::TraceEntry::ALLOC) continue;
    CHECK((entry.mempool_ == id) == (entry.addr_ == address));
    seen += entry.addr_ == address;
  }
  CHECK(seen == 2);
  record_history(false, nullptr, 0, ca::RecordContext::NEVER, true);
  data.clear();
  CHECK(tide_device_pool_drop(device, pool) == TIDE_OK);
  cuda()->emptyCache({ 0, 0 });
}

void gives_all_memory_a_tag() {
  CHECK(tidemark_torch_tag_all("not//a/tag", TIDE_BACKUP_PINNED) != nullptr);
  CHECK(tidemark_torch_tag_all("all", TIDE_BACKUP_PINNED) == nullptr);
  Stream stream;
  c10::DataPtr data = cuda()->allocate(5 * mib);
  stream.fill(data.get(), 7, 5 * mib);
  CHECK(allocated_bytes("all") == 5 * mib);
  if (is_tide()) step_aside("all");
  CHECK(is_filled(data.get(), 7, 5 * mib));
  const Scope newer({ 0, 10 });
  const c10::DataPtr other = cuda()->allocate(mib);
  CHECK(other.get() != nullptr && allocated_bytes("all") == 5 * mib);
}

}  // namespace

const std::vector<Test> park_tests = {
  { "makes_devices", makes_devices },
  { "parks_a_pool_by_its_id", parks_a_pool_by_its_id },
  { "shows_a_region_as_a_pool", shows_a_region_as_a_pool },
  { "gives_all_memory_a_tag", gives_all_memory_a_tag },
};

}  // namespace drive

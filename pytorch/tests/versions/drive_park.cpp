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
  CHECK(tidemark_torch_make_device(0) != nullptr);
  CHECK(tidemark_torch_make_device(0) == tidemark_torch_device(0));
  CHECK(tidemark_torch_make_device(7) == nullptr);
  CHECK(tidemark_torch_make_device(-1) == nullptr);
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
  { "gives_all_memory_a_tag", gives_all_memory_a_tag },
};

}  // namespace drive

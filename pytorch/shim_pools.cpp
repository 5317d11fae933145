// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pools as PyTorch names them: by a label, with users, filters of streams and allocators of their own.
#include "shim_pools.h"

#include <mutex>
#include <utility>

#include "shim_devices.h"

namespace tidemark {

tide_pool pool_find(tide_device_cache* device, MempoolId_t id) {
  const uint64_t label[2] = { id.first, id.second };
  uint32_t users = 0;
  tide_pool pool = 0;
  if (tide_device_pool_find(device, label, &pool) != TIDE_OK) return 0;
  const bool is_there = tide_device_pool_users(device, pool, &users) == TIDE_OK;  // it may have been dropped
  return is_there && users != 0 ? pool : 0;
}

tide_pool pool_of(tide_device_cache* device, MempoolId_t id) {
  const tide_pool pool = pool_find(device, id);
  if (C10_UNLIKELY(pool == 0)) raise_error("Could not find pool of id (%llu, %llu)", id.first, id.second);
  return pool;
}

// ---------------------------------------------------------------------------------------------------
// Making

namespace {

void* pool_segment(void* user, size_t bytes, int, tide_stream) {
  void* address = nullptr;
  guarded([&] { address = (*static_cast<Source*>(user))->raw_alloc(bytes); });
  return address;
}

void pool_segment_end(void* user, void* address, size_t, int, tide_stream) {
  guarded([&] { (*static_cast<Source*>(user))->raw_delete(address); });
}

void pool_closed(void* user) {
  guarded([&] { delete static_cast<Source*>(user); });
}

tide_pool pool_make(tide_device_cache* device, MempoolId_t id, const Source& source) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = id.first;
  options.label[1] = id.second;
  auto kept = source ? std::make_unique<Source>(source) : nullptr;
  if (kept) {
    options.segment_alloc = pool_segment;
    options.segment_release = pool_segment_end;
    options.user = kept.get();
    options.closed = pool_closed;
  }
  tide_pool pool = 0;
  check(tide_device_pool_new(device, &options, &pool));
  (void)kept.release();
  remember_label(device, pool, id);
  return pool;
}

std::mutex pools_lock;  // only one thread creates a missing pool

}  // namespace

void pool_join(int index, MempoolId_t id, const Source& source) {
  tide_device_cache* const device = devices.at(index);
  const std::lock_guard<std::mutex> guard(pools_lock);
  const tide_pool known = pool_find(device, id);
  if (known != 0) check(tide_device_pool_retain(device, known));
  else (void)pool_make(device, id, source);
}

void pool_begin_tagged(tide_device_cache* device, const char* tag, uint32_t backup) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = tag;
  options.backup = backup;
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_ALL;
  scope.is_region = true;
  tide_pool pool = 0;
  check(tide_device_pool_new(device, &options, &pool));
  check(tide_device_pool_begin(device, pool, &scope));
}

tide_status pool_trim(tide_device_cache* device, MempoolId_t id) {
  const uint64_t label[2] = { id.first, id.second };
  tide_pool pool = 0;
  const tide_status status = tide_device_pool_find(device, label, &pool);
  return status == TIDE_OK ? tide_device_trim_pool(device, pool) : status;
}

void pool_lend(int index, MempoolId_t id, bool is_on) {
  if (is_forked()) return;
  tide_device_cache* const device = devices.at(index);
  if (!is_on && pool_find(device, id) == 0) return;  // a dropped pool calls this in any case
  check(tide_device_pool_set_use_on_oom(device, pool_of(device, id), is_on));
}

// ---------------------------------------------------------------------------------------------------
// Filters of scopes

namespace {

Filters<Filter>& filters = *new Filters<Filter>;

bool filter_takes(void* user, tide_stream stream) {
  bool takes = false;
  const std::shared_ptr<Filter> filter = filters.find(user);
  if (filter) guarded([&] { takes = (*filter)(stream_of(stream)); });
  return takes;
}

}  // namespace

void pool_begin(int index, MempoolId_t id, Filter filter) {
  tide_device_cache* const device = devices.at(index);
  const std::lock_guard<std::mutex> guard(pools_lock);
  const tide_pool known = pool_find(device, id);
  const tide_pool pool = known != 0 ? known : pool_make(device, id, nullptr);
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_FILTER;
  scope.filter = filter_takes;
  scope.user = filters.add(std::move(filter));
  if (known != 0) check(tide_device_pool_retain(device, pool));  // each begin adds a user
  const tide_status status = tide_device_pool_begin(device, pool, &scope);
  filters.opened(index, pool, scope.user, status == TIDE_OK);
  if (status != TIDE_OK) (void)tide_device_pool_drop(device, pool);
  if (status == TIDE_ERR_STATE) raise_error("beginAllocateToPool: already recording to mempool_id");
  check(status);
}

void pool_end(int index, MempoolId_t id) {
  tide_device_cache* const device = devices.at(index);
  const tide_pool pool = pool_of(device, id);
  void* const filter = filters.of_scope(index, pool);
  const tide_status status = tide_device_pool_end(device, pool);
  if (status == TIDE_ERR_STATE) raise_error("endAllocatePool: not currently recording to mempool_id");
  check(status);
  filters.drop(filter);
}

}  // namespace tidemark

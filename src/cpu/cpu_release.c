// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Refused releases, and releases that do not use the calling thread's thread cache.
#include "cpu/cpu_release.h"

#include "base/arith.h"
#include "base/error.h"

tide_status tide__release_twice(tide_cpu_cache* cache, uint64_t address) {
  tide__cpu_count(cache, TIDE__CPU_num_double_releases, 1);
  return TIDE_FAIL(TIDE_ERR_STATE, "the block at 0x%llx was released already", (unsigned long long)address);
}

tide_status tide__release_foreign(uint64_t address) {
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "no block of a cache begins at 0x%llx", (unsigned long long)address);
}

// Adjacent idle blocks are joined, so any page of idle memory may have been the first of a block. The lock of
// the zone keeps others from joining blocks meanwhile.
tide_status tide__pages_refuse(const tide__region* region, uint64_t address) {
  tide__zone* const zone = region->zone;
  tide__zone_lock(zone);
  const tide_cpu_info info = tide_cpu_find(tide__pointer(address));
  tide__zone_unlock(zone);
  const bool is_idle = info.is_ours && info.address != NULL && !info.is_live;
  return is_idle ? tide__release_twice(zone->cache, address) : tide__release_foreign(address);
}

static tide_status small_release_slowly(tide__slab* slab, uint64_t address, tide__release_how how) {
  uint32_t index = 0;
  if (!tide__slab_index(slab, address, &index)) return tide__release_foreign(address);
  if (!tide__slab_claim(slab, index)) return tide__release_twice(slab->cache, address);
  const uint64_t bytes = slab->object_bytes;
  if (how != TIDE__RELEASE_ORPHAN) tide__cpu_count_release(slab->cache, bytes);
  tide__slabs_put(slab, index);
  return TIDE_OK;
}

tide_status tide__cpu_release_slowly(tide__region* region, uint64_t address, tide__release_how how) {
  tide__zone* const zone = region->zone;
  const uint64_t page = tide__region_page(region, address);
  tide__slab* const slab = tide__region_slab(region, page);
  uint64_t pages = 0;
  if (slab != NULL) return small_release_slowly(slab, address, how);
  if (!tide__is_aligned(address, TIDE__PAGE_BYTES)) return tide__release_foreign(address);
  if (!tide__pages_claim(region, page, &pages)) return tide__pages_refuse(region, address);
  if (how == TIDE__RELEASE_ORPHAN) {
    tide__zone_put_back(zone, region, page);
    return TIDE_OK;
  }
  tide__cpu_count_release(zone->cache, pages << TIDE__PAGE_SHIFT);
  tide__zone_forget(zone, region, page);
  return TIDE_OK;
}

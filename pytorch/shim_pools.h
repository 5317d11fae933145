// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pools as PyTorch names them: by a label, with users, filters of streams and allocators of their own.
#pragma once

#include <functional>
#include <memory>

#include "shim_look.h"

namespace tidemark {

using Filter = std::function<bool(cudaStream_t)>;

// The allocator that provides the segments of a pool; it lives as long as the pool.
using Source = std::shared_ptr<ca::CUDAAllocator>;

// The pool with an id, if it has users; 0 otherwise.
tide_pool pool_find(tide_device_cache* device, MempoolId_t id);
// The same; throws if there is none.
tide_pool pool_of(tide_device_cache* device, MempoolId_t id);

// Adds a user to a pool, which is made if it does not exist.
void pool_join(int index, MempoolId_t id, const Source& source);
// From now on requests go to the pool whose stream the filter takes; this adds a user as well.
void pool_begin(int index, MempoolId_t id, Filter filter);
void pool_end(int index, MempoolId_t id);
// From now on all requests that no newer scope takes go to a new pool with a tag and a tide_backup.
void pool_begin_tagged(tide_device_cache* device, const char* tag, uint32_t backup);
// May the pool's idle memory serve others before they run out of memory?
void pool_lend(int index, MempoolId_t id, bool is_on);
// Returns TIDE_ERR_HANDLE if there is no such pool.
tide_status pool_trim(tide_device_cache* device, MempoolId_t id);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What PyTorch sees of an allocator: snapshots, history entries, and their call stacks.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <string>
#include <utility>
#include <vector>

#include "shim.h"

namespace tidemark {

namespace ca = c10::cuda::CUDACachingAllocator;

inline tide_stream stream_of(cudaStream_t stream) { return reinterpret_cast<tide_stream>(stream); }
inline cudaStream_t stream_of(tide_stream stream) { return reinterpret_cast<cudaStream_t>(stream); }

// The difference between the time of day and the machine's clock.
int64_t epoch_ns();

ca::TraceEntry entry_of(tide_device_cache* device, const tide_trace_entry& from, int64_t epoch);

// Adds the segments of a device, or those of one pool, and its history.
void add_to_snapshot(tide_device_cache* device, MempoolId_t pool, bool has_traces, ca::SnapshotInfo& info);

ca::AllocatorConfigInfo config_of(const tide_device_options& from);

// The statistics of a device; with nullptr, those of one that was not used yet.
ca::DeviceStats stats_of(tide_device_cache* device);
std::vector<ca::StreamSegmentSize> expandable_sizes_of(tide_device_cache* device);

// The stack of the block that is handed out at an address, if one was gathered.
std::shared_ptr<c10::GatheredContext> stack_at(tide_device_cache* device, const void* address);

// The label of a pool, which is known even after the pool is gone.
void remember_label(tide_device_cache* device, tide_pool pool, MempoolId_t label);

// Starts a history as PyTorch requests it. `recorder` gathers stacks, which are kept while they are referred
// to.
tide_history_options history_of(ca::CreateContextFn recorder, size_t most_entries, ca::RecordContext when,
                                const std::vector<std::string>& skipped);
// Drops the stacks that nothing refers to any more.
void forget_stacks();

// An annotation as one text, which add_to_snapshot() splits into pairs again.
std::string annotation_text(const std::vector<std::pair<std::string, std::string>>& pairs);

// Adds a remark on the block at an address to the history, unless that skips remarks.
void add_remark(tide_device_cache* device, const void* address, const std::string& text);

}  // namespace tidemark

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What tests can set and see of the model of PyTorch.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace model {

inline thread_local int device = 0;  // the current ones of the calling thread
inline thread_local cudaStream_t stream = nullptr;
inline thread_local bool is_external = false;  // the stream belongs to another library

inline std::atomic<bool> is_profiling{ false };
inline std::atomic<int64_t> profiled_bytes{ 0 };  // the sum of all reports
inline std::atomic<int64_t> profiled_ooms{ 0 };
inline std::atomic<int64_t> warnings{ 0 };
inline std::string last_warning;

// Puts PyTorch's own allocators in place, as at its start.
void start();

}  // namespace model

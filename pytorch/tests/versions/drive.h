// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Drives the shim through the pointers to base classes that PyTorch uses, in a model of one version of
// PyTorch and on the host machine. What is true comes from the machine, from the contents of memory, and from
// counts of the test itself.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"
#include "tidemark/tidemark.h"

extern "C" {
const char* tidemark_torch_install(const char* settings, int has_host);
const char* tidemark_torch_configure(const char* settings);
const char* tidemark_torch_replaced_by(void);
const char* tidemark_torch_fallback(int index);
void tidemark_torch_counts(int index, int64_t out[6]);
const char* tidemark_torch_slots(void);
void tidemark_torch_name_holders(void (*write)(int device, char* text, size_t capacity));
void tidemark_torch_use_machine(tide_machine* machine);
tide_device_cache* tidemark_torch_device(int index);
tide_device_cache* tidemark_torch_make_device(int index, const char** failure);
const char* tidemark_torch_join(int index, const tide_quota_options* options);
const char* tidemark_torch_tag_all(const char* tag, uint32_t backup);
}

namespace drive {

namespace ca = c10::cuda::CUDACachingAllocator;
using PoolId = std::pair<unsigned long long, unsigned long long>;

struct Test {
  const char* name;
  void (*run)();
};
extern const std::vector<Test> place_tests;   // installing
extern const std::vector<Test> memory_tests;  // memory, streams, pools, limits, pinned memory
extern const std::vector<Test> look_tests;    // statistics, snapshots, history
extern const std::vector<Test> throw_tests;   // exceptions of user functions, and memory that runs out
extern const std::vector<Test> thread_tests;
extern const std::vector<Test> park_tests;  // the last ones

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Refused {};                  // nothing was installed, as it should be: the other tests do not apply
struct Boom : std::runtime_error {  // what user functions throw
  Boom() : std::runtime_error("boom") {}
};

#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition))                                                                                 \
      throw ::drive::Failure(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #condition); \
  } while (false)

// Calls a function and returns whether it threw an exception of this type; any other one goes on.
template <typename Exception, typename Function> bool throws(const Function& function) {
  try {
    function();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

constexpr size_t mib = size_t{ 1 } << 20;
constexpr size_t capacity = 256 * mib;  // of the only device

extern tide_machine* machine;
extern std::string settings;
extern std::string folder;  // of the pluggable classes

inline ca::CUDAAllocator* cuda() { return ca::get(); }
inline at::HostAllocator* host() { return at::getHostAllocator(c10::kCUDA); }
inline bool is_tide() { return settings.find("tide") != std::string::npos; }

// Bytes that the machine's device lacks.
size_t used();

// Signatures that differ between versions, in the newest form.
ca::SnapshotInfo snapshot(PoolId id = { 0, 0 });
void record_history(bool is_on, ca::CreateContextFn recorder, size_t entries, ca::RecordContext when,
                    bool clears = true);
void join_pool(PoolId id, std::shared_ptr<ca::CUDAAllocator> source = nullptr);
void lend_pool(PoolId id);

// A stream of the machine; the thread's current one while it lives.
class Stream {
public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void fill(void* address, uint8_t value, size_t bytes);
  void wait();
  c10::Stream wrapped() const;

  // Holds the stream until the gate is opened.
  struct Gate;
  std::shared_ptr<Gate> hold();

  tide_stream handle = nullptr;

private:
  cudaStream_t outer;
};
struct Stream::Gate {
  ~Gate() { open(); }
  void open();
  struct State;
  std::shared_ptr<State> state;
};

// Is the memory filled with a value, after all work of the device?
bool is_filled(const void* address, uint8_t value, size_t bytes);

// A request that the current stream makes for a pool.
class Scope {
public:
  explicit Scope(PoolId pool);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

private:
  PoolId id;
};

// An allocator that counts, for pools with one of their own.
std::shared_ptr<ca::CUDAAllocator> counting_source(int* alive);

// Lets the N-th operator new of this thread fail from now on; 0: none.
void fail_new(int64_t countdown);
bool has_failed_new();  // and did it?

}  // namespace drive

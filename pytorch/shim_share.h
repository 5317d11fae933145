// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// CUDA memory for other processes as byte strings, in the formats of PyTorch itself, so that processes with
// and without Tidemark can exchange tensors. Needs nothing of PyTorch.
//
//   plain memory    version, 'c', 64 bytes that name a driver allocation
//   handles         version, 'e', process, bytes of a handle, number of handles, a descriptor for each
//
// PyTorch copies the descriptors out of the process that shares (pidfd_getfd) and maps the handles one behind
// the other. All handles have one size there, while those of the policy `tide` may differ: such memory goes
// as 't', which only Tidemark opens. PyTorch ignores what follows a string of handles. Tidemark writes an
// offer there, so that two of its processes need not be allowed to trace each other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tidemark/device.h"

namespace tidemark {

// How PyTorch writes handles, by its version: the first byte of a string, and the size of what follows.
constexpr int share_format(int major, int minor) { return major > 2 || minor >= 13 ? 3 : minor >= 8 ? 2 : 1; }

// What a byte string says.
struct Shared {
  enum class Kind { plain, handles, offer };
  Kind kind = Kind::plain;
  tide_raw_share raw = {};  // plain
  // Of handles.
  int32_t process = 0;
  uint64_t handle_bytes = 0;
  std::vector<int32_t> descriptors;
  // Of handles that Tidemark shares, and of an offer: the block begins at `offset`.
  bool has_offer = false;
  uint64_t offset = 0;
  tide_offer offer = {};
};

std::string write_shared(const Shared& shared, int format);
// Returns an empty string, or why the bytes cannot be opened. The bytes may be anything.
std::string read_shared(const std::string& bytes, Shared& out);

// The bytes that name the memory around an address, which begins at `offset` in it. Sets `is_for_all` to
// whether a PyTorch of this format can open them without Tidemark. Errors: those of tide_device_offer().
tide_status share_memory(tide_device_cache* device, const void* address, int format, std::string& bytes,
                         uint64_t& offset, bool& is_for_all);

// Opens shared memory. Equal bytes are opened once for a device, and closed by `close` with the last copy of
// the pointer. If they cannot be opened, the pointer is empty: `why` says why, or is empty and the error is
// that of the thread.
std::shared_ptr<void> open_memory(tide_device_cache* device, const std::string& bytes,
                                  void (*close)(tide_device_cache*, void*), std::string& why);

}  // namespace tidemark

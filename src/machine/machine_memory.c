// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of a machine as a source of arenas. Queued work may still use an arena when it is released, so a
// release waits for the device first, as cudaFree does.
#include "base/arith.h"
#include "base/error.h"
#include "machine/machine.h"
#include "tidemark/machine.h"

static tide_machine* memory_machine(const tide_memory* memory) { return memory->user; }

static int memory_device(const tide_memory* memory) { return (int)(int64_t)memory->detail; }

static tide_status memory_require_aligned(void** address, size_t alignment) {
  if (tide__is_aligned(tide__address(*address), alignment)) return TIDE_OK;
  *address = NULL;
  return TIDE_FAIL(TIDE_ERR_UNSUPPORTED, "the machine does not align memory to %zu bytes", alignment);
}

static tide_status raw_memory_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  tide_machine* const machine = memory_machine(memory);
  TIDE_TRY(tide_machine_raw_alloc(machine, memory_device(memory), bytes, out));
  void* const address = *out;
  const tide_status status = memory_require_aligned(out, alignment);
  if (status != TIDE_OK) tide__ignore(tide_machine_raw_release(machine, memory_device(memory), address));
  return status;
}

static tide_status raw_memory_release(const tide_memory* memory, void* address) {
  TIDE_TRY(tide_machine_device_synchronize(memory_machine(memory), memory_device(memory)));
  return tide_machine_raw_release(memory_machine(memory), memory_device(memory), address);
}

static tide_status pinned_memory_alloc(const tide_memory* memory, size_t bytes, size_t alignment,
                                       void** out) {
  TIDE_TRY(tide_machine_pinned_alloc(memory_machine(memory), bytes, out));
  void* const address = *out;
  const tide_status status = memory_require_aligned(out, alignment);
  if (status != TIDE_OK) tide__ignore(tide_machine_pinned_release(memory_machine(memory), address));
  return status;
}

static tide_status pinned_memory_release(const tide_memory* memory, void* address) {
  TIDE_TRY(tide_machine_device_synchronize(memory_machine(memory), memory_device(memory)));
  return tide_machine_pinned_release(memory_machine(memory), address);
}

// Can the CPU read and write pinned memory, or the memory of devices?
static bool memory_is_host(const tide_machine* machine, bool is_pinned) {
  if (machine == NULL) return false;
  const uint32_t flags = machine->ops.flags;
  return is_pinned ? (flags & TIDE_MACHINE_NO_MEMORY) == 0 : (flags & TIDE_MACHINE_HOST_READABLE) != 0;
}

tide_memory tide_machine_memory(tide_machine* machine, int device) {
  return (tide_memory){ raw_memory_alloc, raw_memory_release, machine, (uint64_t)(int64_t)device,
                        memory_is_host(machine, false) };
}

tide_memory tide_machine_pinned_memory(tide_machine* machine, int device) {
  return (tide_memory){ pinned_memory_alloc, pinned_memory_release, machine, (uint64_t)(int64_t)device,
                        memory_is_host(machine, true) };
}

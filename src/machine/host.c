// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The host machine: the memory of this computer as devices. Physical memory is ranges of one memory file a
// device, so that mapping, aliasing and sharing are mappings of real pages; what is released is punched out
// of the file. Pages appear when they are first touched.
#include "machine/host.h"

#include <errno.h>
#include <stdio.h>

#include "base/arith.h"
#include "base/sized.h"
#include "base/sys.h"

tide_status tide__host_fail(const char* name, const char* what, uint64_t bytes, int error) {
  const bool is_mapping = error == ENOMEM;
  const bool is_descriptor = error == EMFILE || error == ENFILE;
  const bool is_memory = is_mapping || is_descriptor || error == EAGAIN || error == EFBIG || error == ENOSPC;
  return TIDE_FAIL_NATIVE(is_memory ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE, error,
                          "%s: %s of %llu bytes failed: %s (errno %d)", name, what, (unsigned long long)bytes,
                          is_descriptor ? "the process has no file descriptor left"
                          : is_mapping  ? "no memory, no address range or no mapping left (vm.max_map_count)"
                                        : "the system refused",
                          error);
}

// ---------------------------------------------------------------------------------------------------
// Physical memory

// Makes the file of a device at its first use.
static tide_status file_open(tide__host_file* file, const char* name) {
  if (file->descriptor >= 0) return TIDE_OK;
  int descriptor = -1;
  int error = tide__sys_file_new("tidemark-device", &descriptor);
  if (error != 0) return tide__host_fail(name, "a new file", 0, error);
  error = tide__sys_file_grow(descriptor, TIDE__HOST_LEDGER_BYTES);
  if (error == 0) error = tide__sys_file_write(descriptor, 0, TIDE__HOST_MARK);
  if (error == 0) error = tide__sys_file_seal(descriptor);
  if (error != 0) {
    tide__sys_file_close(descriptor);
    return tide__host_fail(name, "the ledger", TIDE__HOST_LEDGER_BYTES, error);
  }
  file->descriptor = descriptor;
  file->next_offset = file->bytes = TIDE__HOST_LEDGER_BYTES;
  return TIDE_OK;
}

static tide_status file_grow(tide__host_file* file, const char* name, uint64_t end, uint64_t bytes) {
  if (end <= file->bytes) return TIDE_OK;
  const int error = tide__sys_file_grow(file->descriptor, end);
  if (error != 0) return tide__host_fail(name, "growth", bytes, error);
  file->bytes = end;
  return TIDE_OK;
}

static tide_status host_physical_take(tide__soft* soft, const char* name, tide__physical* physical) {
  tide__host_file* file = &tide__host_of(soft)->files[physical->device];
  TIDE_TRY(file_open(file, name));
  uint64_t end = 0;
  const bool is_first = soft->devices[physical->device].used_bytes ==
                        physical->bytes;  // it is counted already
  if (is_first && tide__list_is_empty(&soft->lingering)) file->next_offset = TIDE__HOST_LEDGER_BYTES;
  TIDE_REQUIRE(tide__add(file->next_offset, physical->bytes, &end) && end <= INT64_MAX, TIDE_ERR_NO_MEMORY,
               "%s: the file of device %d has reached its largest size", name, physical->device);
  TIDE_TRY(file_grow(file, name, end, physical->bytes));
  physical->offset = file->next_offset;
  file->next_offset = end;
  return TIDE_OK;
}

static bool host_physical_give(tide__soft* soft, tide__physical* physical) {
  if (physical->descriptor >= 0) {  // another process's memory: ending our use is closing its file
    tide__sys_file_close(physical->descriptor);
    return true;
  }
  const int file = tide__host_of(soft)->files[physical->device].descriptor;
  const bool is_shared = (physical->flags & TIDE_PHYSICAL_SHAREABLE) != 0;
  if (is_shared && tide__sys_file_is_locked(file, physical->offset, physical->bytes)) return false;
  (void)tide__sys_file_punch(file, physical->offset, physical->bytes);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Addresses

static tide_status host_reserve(tide__soft* soft, int device, tide_call call, uint64_t bytes,
                                uint64_t alignment, uint64_t hint, uint64_t* out) {
  (void)soft;
  (void)device;
  const int error = tide__sys_reserve(bytes, alignment, hint, out);
  return error == 0 ? TIDE_OK : tide__host_fail(tide_call_name(call), "an address range", bytes, error);
}

static void host_unreserve(tide__soft* soft, uint64_t address, uint64_t bytes) {
  (void)soft;
  (void)tide__sys_release(address, bytes);
}

static tide_status host_map(tide__soft* soft, const tide__physical* physical, uint64_t address) {
  const int own = tide__host_of(soft)->files[physical->device].descriptor;
  const int file = physical->descriptor >= 0 ? physical->descriptor : own;
  const int error = tide__sys_map_file(address, physical->bytes, file, physical->offset);
  return error == 0 ? TIDE_OK : tide__host_fail("map", "a mapping", physical->bytes, error);
}

static tide_status host_unmap(tide__soft* soft, uint64_t address, uint64_t bytes) {
  (void)soft;
  const int error = tide__sys_map_nothing(address, bytes);
  return error == 0 ? TIDE_OK : tide__host_fail("unmap", "a mapping", bytes, error);
}

static tide_status host_protect(tide__soft* soft, uint64_t address, uint64_t bytes, bool can_read,
                                bool can_write) {
  (void)soft;
  const int error = tide__sys_protect(address, bytes, can_read, can_write);
  return error == 0 ? TIDE_OK : tide__host_fail("set_access", "a mapping", bytes, error);
}

// ---------------------------------------------------------------------------------------------------
// Pinned memory: locked where the system permits it, and used all the same where it does not

static tide_status host_pinned_take(tide__soft* soft, tide__range* range) {
  if (!range->is_registered) {
    const int error = tide__sys_map_private(range->span, &range->node.key);
    if (error != 0) return tide__host_fail("pinned_alloc", "a mapping", range->span, error);
  } else {
    TIDE_REQUIRE(tide__sys_is_mapped(range->node.key, range->bytes), TIDE_ERR_ARGUMENT,
                 "pinned_register: not all of the %llu bytes at %p are memory of this process",
                 (unsigned long long)range->bytes, tide__pointer(range->node.key));
  }
  range->is_locked = tide__sys_lock_pages(range->node.key, range->bytes) == 0;
  if (!range->is_locked) tide__store_relaxed(&tide__host_of(soft)->is_lock_refused, 1);
  return TIDE_OK;
}

// Unlocks the pages of a registration, except those it shares with a neighbour: page locks do not nest.
static void pages_unlock(tide__soft* soft, const tide__range* range) {
  const uint64_t page = tide__sys_page_bytes();
  const uint64_t begin = range->node.key;
  const uint64_t end = begin + range->bytes;
  uint64_t first = begin & ~(page - 1);
  uint64_t last = (end + page - 1) & ~(page - 1);
  if (tide__soft_has_pinned(soft, first, begin)) first += page;
  if (tide__soft_has_pinned(soft, end, last)) last -= page;
  if (first < last) tide__sys_unlock_pages(first, last - first);
}

static void host_pinned_give(tide__soft* soft, tide__range* range) {
  if (!range->is_registered) {
    (void)tide__sys_release(range->node.key, range->span);
  } else if (range->is_locked) {
    pages_unlock(soft, range);
  }
}

// ---------------------------------------------------------------------------------------------------
// The machine

static const tide__soft_backend host_backend = {
  .reserve = host_reserve,
  .unreserve = host_unreserve,
  .physical_take = host_physical_take,
  .physical_give = host_physical_give,
  .map = host_map,
  .unmap = host_unmap,
  .protect = host_protect,
  .export_end = tide__host_export_end,
  .pinned_take = host_pinned_take,
  .pinned_give = host_pinned_give,
  .stream_start = tide__host_stream_start,
  .stream_kick = tide__host_stream_kick,
  .stream_stop = tide__host_stream_stop,
  .drain = tide__host_drain,
  .await = tide__host_await,
  .move = tide__host_move,
};

static void host_free(void* self) {
  tide__host* host = self;
  const tide_heap* heap = host->soft.heap;
  const size_t device_count = (size_t)host->soft.device_count;
  tide__soft_fini(&host->soft);
  for (size_t i = 0; i < device_count; i++) {
    if (host->files[i].descriptor >= 0) tide__sys_file_close(host->files[i].descriptor);
  }
  tide__heap_release(heap, host->files, device_count, sizeof *host->files);
  tide__signal_fini(&host->worker_ended);
  tide__mutex_fini(&host->workers_lock);
  tide__heap_release(heap, host, 1, sizeof *host);
}

static void host_delay(void* self, uint64_t ns) {
  (void)self;
  tide__sys_sleep_ns(ns);
}

static tide_status host_clock(void* self, uint64_t* out_ns) {
  (void)self;
  *out_ns = tide__sys_clock_ns();
  return TIDE_OK;
}

static tide_status host_device_info(void* self, int device, tide_device_info* out) {
  tide__host* host = self;
  out->total_bytes = host->soft.capacity;
  out->granularity = host->soft.granularity;
  out->is_host_readable = true;
  out->is_pinned_locked = tide__load_relaxed(&host->is_lock_refused) == 0;
  out->has_raw_sharing = out->has_physical_sharing = true;
  (void)snprintf(out->name, sizeof out->name, "host memory %d", device);
  return TIDE_OK;
}

static const tide__machine_ops host_ops = {
  TIDE__SOFT_OPS,
  .name = "host",
  .free = host_free,
  .delay = host_delay,
  .device_info = host_device_info,
  .clock = host_clock,
  .raw_export = tide__host_raw_export,
  .raw_import = tide__host_raw_import,
  .physical_export = tide__host_physical_export,
  .physical_import = tide__host_physical_import,
};

// What each device has by default.
static uint64_t host_share(const tide_host_options* options) {
  return (tide__sys_memory_bytes() / 2 / options->device_count) & ~(options->granularity - 1);
}

static tide_status options_check(const tide_host_options* options) {
  TIDE_REQUIRE(options->device_count >= 1 && options->device_count <= TIDE_DEVICE_MAX, TIDE_ERR_ARGUMENT,
               "machine_new_host: %u devices: 1 to %d are possible", (unsigned)options->device_count,
               TIDE_DEVICE_MAX);
  const uint64_t page = tide__sys_page_bytes();
  TIDE_REQUIRE(tide__is_power_of_two(options->granularity) && options->granularity >= page, TIDE_ERR_ARGUMENT,
               "machine_new_host: a granularity of %llu: it must be a power of two and at least %llu",
               (unsigned long long)options->granularity, (unsigned long long)page);
  TIDE_REQUIRE(options->capacity <= INT64_MAX, TIDE_ERR_ARGUMENT, "machine_new_host: a capacity of %llu",
               (unsigned long long)options->capacity);
  TIDE_REQUIRE(options->capacity != 0 || host_share(options) != 0, TIDE_ERR_ARGUMENT,
               "machine_new_host: half of the memory is less than the granularity %llu for each device",
               (unsigned long long)options->granularity);
  TIDE_REQUIRE(tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT,
               "machine_new_host: the heap lacks a function");
  return TIDE_OK;
}

static tide_status host_init(tide__host* host, const tide_host_options* options, const tide_heap* heap) {
  const int count = (int)options->device_count;
  host->files = tide__heap_alloc(heap, (size_t)count, sizeof *host->files);
  TIDE_REQUIRE(host->files != NULL, TIDE_ERR_NO_MEMORY, "machine_new_host: no memory for its records");
  for (int i = 0; i < count; i++) host->files[i].descriptor = -1;
  const uint64_t capacity = options->capacity != 0 ? options->capacity : host_share(options);
  const tide_status status = tide__soft_init(&host->soft, &host_backend, heap, count, capacity,
                                             options->granularity, tide__sys_page_bytes());
  if (status != TIDE_OK) {
    tide__heap_release(heap, host->files, (size_t)count, sizeof *host->files);
    return status;
  }
  tide__mutex_init(&host->workers_lock, TIDE__RANK_LEAF);
  tide__signal_init(&host->worker_ended);
  tide__list_init(&host->ended);
  return TIDE_OK;
}

tide_status tide_machine_new_host(const tide_host_options* options, tide_machine** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "machine_new_host: needs out != NULL");
  *out = NULL;
  tide_host_options whole = TIDE_HOST_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("machine_new_host", options, &whole, sizeof whole));
  options = &whole;
  TIDE_TRY(options_check(options));
  const tide_heap* heap = tide__heap_or_system(options->heap);
  tide__host* host = tide__heap_alloc(heap, 1, sizeof *host);
  TIDE_REQUIRE(host != NULL, TIDE_ERR_NO_MEMORY, "machine_new_host: no memory for its records");
  tide_status status = host_init(host, options, heap);
  if (status != TIDE_OK) {
    tide__heap_release(heap, host, 1, sizeof *host);
    return status;
  }
  status = tide__machine_new(&host_ops, host, (int)options->device_count, heap, &host->soft.machine);
  if (status != TIDE_OK) {
    host_free(host);
    return status;
  }
  *out = host->soft.machine;
  return TIDE_OK;
}

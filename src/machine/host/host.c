// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The host machine: devices in this computer's memory. Physical memory is ranges of one memory file for each
// device, so mapping, aliasing and sharing are mappings of real pages. Freeing memory punches a hole into the
// file. Pages are allocated when they are first touched.
#include "machine/host/host.h"

#include <stdio.h>

#include "base/arith.h"
#include "base/sized.h"
#include "base/sys.h"

#define HOST_ENTRY(name) .name = tide__host_##name,
static const tide__soft_backend host_backend = { TIDE__HOST_BACKEND_MAP(HOST_ENTRY) };

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

static tide_status host_device_info(void* self, int device, tide_device_info* out) {
  tide__host* host = self;
  out->total_bytes = host->soft.capacity;
  out->granularity = host->soft.granularity;
  out->is_pinned_locked = tide__load_relaxed(&host->is_lock_refused) == 0;
  out->has_raw_sharing = out->has_physical_sharing = true;
  out->has_rdma = out->has_fabric = true;
  (void)snprintf(out->name, sizeof out->name, "host memory %d", device);
  return TIDE_OK;
}

// clang-format off
static const tide_machine_ops host_ops = {
  .size = sizeof(tide_machine_ops),
  .version = TIDE_MACHINE_OPS_VERSION,
  .flags = TIDE_MACHINE_HOST_READABLE | TIDE_MACHINE_TRUSTED,
  .name = "host",
  .free = host_free,
  .device_info = host_device_info,
  .is_in_callback = tide__soft_is_in_callback,
  TIDE__HOST_CALL_MAP(HOST_ENTRY) TIDE__SOFT_CALL_MAP(TIDE__SOFT_ENTRY)
};
// clang-format on

// The default capacity of a device.
static uint64_t host_share(const tide_host_options* options) {
  return (tide__sys_memory_bytes() / 2 / options->device_count) & ~(options->granularity - 1);
}

static tide_status options_check(const tide_host_options* options) {
  TIDE_TRY(tide__soft_check_options("machine_new_host", options->device_count, options->capacity,
                                    options->granularity, tide__sys_page_bytes(), options->heap));
  TIDE_REQUIRE(options->capacity != 0 || host_share(options) != 0, TIDE_ERR_ARGUMENT,
               "machine_new_host: half of the memory is less than the granularity %llu for each device",
               (unsigned long long)options->granularity);
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
  status = tide_machine_new(&host_ops, host, (int)options->device_count, heap, &host->soft.machine);
  if (status != TIDE_OK) {
    host_free(host);
    return status;
  }
  *out = host->soft.machine;
  return TIDE_OK;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Creating and freeing the shared part of the host and dry machines.
#include "machine/soft/soft.h"

#include "base/arith.h"
#include "machine/soft/capture.h"

tide_status tide__soft_check_options(const char* call, uint32_t device_count, uint64_t capacity,
                                     uint64_t granularity, uint64_t least_granularity,
                                     const tide_heap* heap) {
  TIDE_REQUIRE(device_count >= 1 && device_count <= TIDE_DEVICE_MAX, TIDE_ERR_ARGUMENT,
               "%s: the device count is %u; it must be 1 to %d", call, (unsigned)device_count,
               TIDE_DEVICE_MAX);
  TIDE_REQUIRE(tide__is_power_of_two(granularity) && granularity >= least_granularity, TIDE_ERR_ARGUMENT,
               "%s: the granularity is %llu; it must be a power of two and at least %llu", call,
               (unsigned long long)granularity, (unsigned long long)least_granularity);
  TIDE_REQUIRE(capacity <= INT64_MAX, TIDE_ERR_ARGUMENT, "%s: a capacity of %llu bytes is too large", call,
               (unsigned long long)capacity);
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "%s: the heap lacks a function", call);
  return TIDE_OK;
}

static tide_status devices_init(tide__soft* soft) {
  soft->devices = tide__heap_alloc(soft->heap, (size_t)soft->device_count, sizeof *soft->devices);
  TIDE_REQUIRE(soft->devices != NULL, TIDE_ERR_NO_MEMORY,
               "machine_new: no memory for the records of %d devices", soft->device_count);
  for (int i = 0; i < soft->device_count; i++) {
    tide__mutex_init(&soft->devices[i].streams_lock, TIDE__RANK_STREAMS);
    tide__mutex_init(&soft->devices[i].error_lock, TIDE__RANK_LEAF);
    tide__list_init(&soft->devices[i].streams);
  }
  return TIDE_OK;
}

static void devices_fini(tide__soft* soft) {
  for (int i = 0; i < soft->device_count; i++) {
    tide__mutex_fini(&soft->devices[i].streams_lock);
    tide__mutex_fini(&soft->devices[i].error_lock);
  }
  tide__heap_release(soft->heap, soft->devices, (size_t)soft->device_count, sizeof *soft->devices);
}

tide_status tide__soft_init(tide__soft* soft, const tide__soft_backend* backend, const tide_heap* heap,
                            int device_count, uint64_t capacity, uint64_t granularity, uint64_t page_bytes) {
  soft->backend = backend;
  soft->heap = heap;
  soft->device_count = device_count;
  soft->capacity = capacity;
  soft->granularity = granularity;
  soft->page_bytes = page_bytes;
  TIDE_TRY(devices_init(soft));
  tide__mutex_init(&soft->memory_lock, TIDE__RANK_MEMORY);
  tide__mutex_init(&soft->capture_lock, TIDE__RANK_CAPTURE);
  tide__signal_init(&soft->quiet);
  tide__list_init(&soft->lingering);
  tide__list_init(&soft->busy);
  tide__list_init(&soft->captures);
  tide__slots_init(&soft->physicals, heap, TIDE__KIND_PHYSICAL, sizeof(tide__physical), NULL, NULL);
  tide__slots_init(&soft->streams, heap, TIDE__KIND_STREAM, sizeof(tide__stream), tide__stream_item_init,
                   tide__stream_item_fini);
  tide__slots_init(&soft->events, heap, TIDE__KIND_EVENT, sizeof(tide__event), tide__event_item_init,
                   tide__event_item_fini);
  tide__slots_init(&soft->graphs, heap, TIDE__KIND_LAUNCH, sizeof(tide__graph), NULL, NULL);
  tide__soft_register(soft);
  return TIDE_OK;
}

// The order matters: streams leave their captures before they end, and all work is done before graphs and
// memory are freed.
void tide__soft_fini(tide__soft* soft) {
  tide__soft_unregister(soft);
  tide__captures_fini(soft);
  tide__soft_streams_fini(soft);
  soft->backend->drain(soft);
  tide__soft_memory_fini(soft);
  tide__slots_fini(&soft->graphs);
  tide__slots_fini(&soft->events);
  tide__slots_fini(&soft->streams);
  tide__slots_fini(&soft->physicals);
  tide__signal_fini(&soft->quiet);
  tide__mutex_fini(&soft->capture_lock);
  tide__mutex_fini(&soft->memory_lock);
  devices_fini(soft);
}

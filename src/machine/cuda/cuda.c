// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cuda machine: the CUDA driver, opened at run time. It uses the primary context of each device, which
// other code may use as well.
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/sys.h"
#include "machine/cuda/cuda.h"

// ---------------------------------------------------------------------------------------------------
// Devices

// A driver that does not know an attribute does not offer it.
static bool device_has(const tide__cuda* cuda, int device, tide__cu_attribute attribute) {
  int value = 0;
  const tide__cu_result result = cuda->api.device_attribute(&value, attribute, cuda->devices[device].ordinal);
  return result == TIDE__CU_SUCCESS && value != 0;
}

static tide_status cuda_device_info(void* self, int device, tide_device_info* out) {
  tide__cuda* cuda = self;
  const tide__cu_device ordinal = cuda->devices[device].ordinal;
  size_t bytes = 0;
  tide__cu_result result = 0;
  TIDE_TRY(tide__cuda_status(cuda, "device_info", cuda->api.device_bytes(&bytes, ordinal)));
  TIDE_TRY(tide__cuda_status(cuda, "device_info",
                             cuda->api.device_name(out->name, (int)sizeof out->name, ordinal)));
  TIDE_TRY(tide__cuda_granularity(cuda, device, &out->granularity));
  int node = -1;
  if (cuda->api.device_attribute(&node, TIDE__CU_DEVICE_HOST_NODE, ordinal) == 0) out->numa_node = node;
  CUDA_IN_DEVICE(cuda, device, result,
                 cuda->api.priority_range(&out->least_priority, &out->greatest_priority));
  const bool is_virtual = out->granularity != 0;
  out->total_bytes = bytes;
  out->is_pinned_locked = out->has_raw_sharing = out->waits_on_release = true;
  out->has_physical_sharing = is_virtual && device_has(cuda, device, TIDE__CU_DEVICE_HAS_DESCRIPTORS);
  out->has_rdma = is_virtual && device_has(cuda, device, TIDE__CU_DEVICE_HAS_RDMA);
  out->has_fabric = is_virtual && device_has(cuda, device, TIDE__CU_DEVICE_HAS_FABRIC);
  return tide__cuda_status(cuda, "device_info", result);
}

static tide_status cuda_peer_query(void* self, int device, int peer, bool* out) {
  tide__cuda* cuda = self;
  int is_possible = 0;
  const tide__cu_result result =
      cuda->api.peer_query(&is_possible, cuda->devices[device].ordinal, cuda->devices[peer].ordinal);
  *out = is_possible != 0;
  return tide__cuda_status(cuda, "peer_query", result);
}

static tide_status cuda_peer_enable(void* self, int device, int peer) {
  tide__cuda* cuda = self;
  tide__cu_context context = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(tide__cuda_context(cuda, peer, &context));
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.peer_enable(context, 0));
  return result == TIDE__CU_PEER_ALREADY_ENABLED ? TIDE_OK : tide__cuda_status(cuda, "peer_enable", result);
}

static tide_status cuda_peer_disable(void* self, int device, int peer) {
  tide__cuda* cuda = self;
  tide__cu_context context = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(tide__cuda_context(cuda, peer, &context));
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.peer_disable(context));
  return result == TIDE__CU_PEER_NOT_ENABLED ? TIDE_OK : tide__cuda_status(cuda, "peer_disable", result);
}

// ---------------------------------------------------------------------------------------------------
// The machine

static void cuda_free(void* self) {
  tide__cuda* cuda = self;
  tide__cuda_memory_fini(cuda);
  for (int i = 0; i < cuda->device_count; i++) {
    if (tide__load_relaxed(&cuda->devices[i].context) == NULL) continue;
    (void)cuda->api.context_release(cuda->devices[i].ordinal);
  }
  tide__slots_fini(&cuda->events);
  tide__slots_fini(&cuda->physicals);
  tide__slots_fini(&cuda->launches);
  tide__mutex_fini(&cuda->ranges_lock);
  tide__heap_release(cuda->heap, cuda->devices, (size_t)cuda->device_count, sizeof *cuda->devices);
  tide__heap_release(cuda->heap, cuda, 1, sizeof *cuda);
}

static const tide_machine_ops cuda_ops = { .size = sizeof(tide_machine_ops),
                                           .version = TIDE_MACHINE_OPS_VERSION,
                                           .name = "cuda",
                                           .free = cuda_free,
                                           .device_info = cuda_device_info,
                                           .launch = tide__cuda_launch_graph,
                                           .peer_query = cuda_peer_query,
                                           .peer_enable = cuda_peer_enable,
                                           .peer_disable = cuda_peer_disable,
#define CUDA_ENTRY(name) .name = tide__cuda_##name,
                                           TIDE__CUDA_CALL_MAP(CUDA_ENTRY)
#undef CUDA_ENTRY
};

// The place of each driver function in our table.
static const struct {
  const char* symbol;
  size_t offset;
  bool is_optional;
} functions[] = {
#define FUNCTION(name, symbol, parameters) { #symbol, offsetof(tide__cuda_api, name), false },
#define NEWER(name, symbol, parameters) { #symbol, offsetof(tide__cuda_api, name), true },
  TIDE__CUDA_FUNCTION_MAP(FUNCTION) TIDE__CUDA_NEWER_MAP(NEWER)
#undef FUNCTION
#undef NEWER
};

// Fills the table from the driver's library, which stays open, because other users of CUDA need it.
static tide_status api_load(const char* library_name, tide__cuda_api* api) {
  char reason[160];
  void* library = tide__sys_library_open(library_name, reason, sizeof reason);
  TIDE_REQUIRE(library != NULL, TIDE_ERR_UNSUPPORTED, "machine_new_cuda: no CUDA driver: %s", reason);
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    void* function = tide__sys_library_symbol(library, functions[i].symbol);
    TIDE_REQUIRE(function != NULL || functions[i].is_optional, TIDE_ERR_UNSUPPORTED,
                 "machine_new_cuda: the CUDA driver is older than 11.3: it has no %s", functions[i].symbol);
    memcpy((char*)api + functions[i].offset, &function, sizeof function);
  }
  return TIDE_OK;
}

static tide_status driver_start(const tide__cuda_api* api, int* out_count) {
  tide__cu_result result = api->init(0);
  if (result == TIDE__CU_SUCCESS) result = api->device_count(out_count);
  TIDE_REQUIRE(result == TIDE__CU_SUCCESS, TIDE_ERR_UNSUPPORTED,
               "machine_new_cuda: the driver returned %s (%u)", tide__cuda_result_name(api, result),
               (unsigned)result);
  TIDE_REQUIRE(*out_count > 0, TIDE_ERR_UNSUPPORTED, "machine_new_cuda: the driver sees no device");
  if (*out_count > TIDE_DEVICE_MAX) *out_count = TIDE_DEVICE_MAX;
  return TIDE_OK;
}

static tide_status devices_find(tide__cuda* cuda) {
  cuda->devices = tide__heap_alloc(cuda->heap, (size_t)cuda->device_count, sizeof *cuda->devices);
  TIDE_REQUIRE(cuda->devices != NULL, TIDE_ERR_NO_MEMORY, "machine_new_cuda: no memory for its records");
  tide_status status = TIDE_OK;
  for (int i = 0; i < cuda->device_count && status == TIDE_OK; i++) {
    status = tide__cuda_status(cuda, "machine_new_cuda", cuda->api.device_get(&cuda->devices[i].ordinal, i));
  }
  if (status != TIDE_OK) {
    tide__heap_release(cuda->heap, cuda->devices, (size_t)cuda->device_count, sizeof *cuda->devices);
  }
  return status;
}

static tide_status cuda_make(const tide__cuda_api* api, int device_count, const tide_heap* heap,
                             tide__cuda** out) {
  tide__cuda* cuda = tide__heap_alloc(heap, 1, sizeof *cuda);
  TIDE_REQUIRE(cuda != NULL, TIDE_ERR_NO_MEMORY, "machine_new_cuda: no memory for its records");
  cuda->api = *api;
  cuda->heap = heap;
  cuda->device_count = device_count;
  const tide_status status = devices_find(cuda);
  if (status != TIDE_OK) {
    tide__heap_release(heap, cuda, 1, sizeof *cuda);
    return status;
  }
  tide__slots_init(&cuda->events, heap, TIDE__KIND_EVENT, sizeof(tide__cuda_event), NULL, NULL);
  tide__slots_init(&cuda->physicals, heap, TIDE__KIND_PHYSICAL, sizeof(tide__cuda_physical), NULL, NULL);
  tide__slots_init(&cuda->launches, heap, TIDE__KIND_LAUNCH, sizeof(tide__cuda_launch), NULL, NULL);
  tide__mutex_init(&cuda->ranges_lock, TIDE__RANK_LEAF);
  *out = cuda;
  return TIDE_OK;
}

tide_status tide_machine_new_cuda(const tide_cuda_options* options, tide_machine** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "machine_new_cuda: needs out != NULL");
  *out = NULL;
  tide_cuda_options whole = TIDE_CUDA_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("machine_new_cuda", options, &whole, sizeof whole));
  options = &whole;
  TIDE_REQUIRE(tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT,
               "machine_new_cuda: the heap lacks a function");
  tide__cuda_api api = { 0 };
  int device_count = 0;
  TIDE_TRY(api_load(options->library != NULL ? options->library : "libcuda.so.1", &api));
  TIDE_TRY(driver_start(&api, &device_count));
  const tide_heap* heap = tide__heap_or_system(options->heap);
  tide__cuda* cuda = NULL;
  TIDE_TRY(cuda_make(&api, device_count, heap, &cuda));
  const tide_status status = tide_machine_new(&cuda_ops, cuda, device_count, heap, out);
  if (status != TIDE_OK) cuda_free(cuda);
  return status;
}

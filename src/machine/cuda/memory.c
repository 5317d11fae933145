// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of the cuda machine. The driver checks addresses and ranges. We keep what it does not report: the
// reserved addresses, and the size of physical memory.
#include "machine/cuda/cuda.h"

tide_status tide__cuda_memory_info(void* self, int device, size_t* out_free, size_t* out_total) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.memory_info(out_free, out_total));
  return tide__cuda_status(cuda, "memory_info", result);
}

// ---------------------------------------------------------------------------------------------------
// Raw and pinned memory

tide_status tide__cuda_raw_alloc(void* self, int device, size_t bytes, void** out) {
  tide__cuda* cuda = self;
  tide__cu_pointer address = 0;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.raw_alloc(&address, bytes));
  *out = result == TIDE__CU_SUCCESS ? tide__pointer(address) : NULL;
  TIDE_REQUIRE(result != TIDE__CU_OUT_OF_MEMORY, TIDE_ERR_NO_MEMORY,
               "raw_alloc: device %d has no %zu bytes free", device, bytes);
  return tide__cuda_status(cuda, "raw_alloc", result);
}

tide_status tide__cuda_raw_release(void* self, int device, void* address) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.raw_free(tide__cuda_pointer(address)));
  return tide__cuda_status(cuda, "raw_release", result);
}

tide_status tide__cuda_pinned_alloc(void* self, size_t bytes, void** out) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  void* address = NULL;
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.host_alloc(&address, bytes, TIDE__CU_HOST_PORTABLE));
  *out = result == TIDE__CU_SUCCESS ? address : NULL;
  return tide__cuda_status(cuda, "pinned_alloc", result);
}

tide_status tide__cuda_pinned_release(void* self, void* address) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.host_free(address));
  return tide__cuda_status(cuda, "pinned_release", result);
}

tide_status tide__cuda_pinned_register(void* self, void* address, size_t bytes) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.host_register(address, bytes, TIDE__CU_REGISTER_PORTABLE));
  return tide__cuda_status(cuda, "pinned_register", result);
}

tide_status tide__cuda_pinned_unregister(void* self, void* address) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.host_unregister(address));
  return tide__cuda_status(cuda, "pinned_unregister", result);
}

// ---------------------------------------------------------------------------------------------------
// Reservations

static tide__cuda_range* cuda_range_of(tide__tree_node* node) {
  return node != NULL ? (tide__cuda_range*)(void*)node : NULL;
}

// The reservation that contains an address, or NULL.
static tide__cuda_range* cuda_range_around_locked(tide__cuda* cuda, uint64_t address) {
  tide__cuda_range* range = cuda_range_of(tide__tree_floor(&cuda->ranges, address));
  return range != NULL && address - range->node.key < range->bytes ? range : NULL;
}

tide_status tide__cuda_address_reserve(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                       void** out) {
  tide__cuda* cuda = self;
  tide__cuda_range* range = tide__heap_alloc(cuda->heap, 1, sizeof *range);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_NO_MEMORY, "address_reserve: no memory for its records");
  tide__cu_pointer address = 0;
  bool is_pushed = false;
  tide_status status = tide__cuda_enter(cuda, device, &is_pushed);
  if (status == TIDE_OK) {
    const tide__cu_result result = cuda->api.reserve(&address, bytes, alignment, tide__cuda_pointer(hint), 0);
    tide__cuda_leave(cuda, is_pushed);
    status = tide__cuda_status(cuda, "address_reserve", result);
  }
  if (status != TIDE_OK) {
    tide__heap_release(cuda->heap, range, 1, sizeof *range);
    return status;
  }
  range->node.key = address;
  range->bytes = bytes;
  tide__mutex_lock(&cuda->ranges_lock);
  (void)tide__tree_insert(&cuda->ranges, &range->node);
  tide__mutex_unlock(&cuda->ranges_lock);
  *out = tide__pointer(address);
  return TIDE_OK;
}

// The record of exactly this reservation, or NULL.
static tide__cuda_range* cuda_range_at_locked(tide__cuda* cuda, const void* address, size_t bytes) {
  tide__cuda_range* range = cuda_range_around_locked(cuda, tide__address(address));
  return range != NULL && range->node.key == tide__address(address) && range->bytes == bytes ? range : NULL;
}

static bool cuda_range_has(tide__cuda* cuda, const void* address, size_t bytes) {
  tide__mutex_lock(&cuda->ranges_lock);
  const bool is_there = cuda_range_at_locked(cuda, address, bytes) != NULL;
  tide__mutex_unlock(&cuda->ranges_lock);
  return is_there;
}

static void cuda_range_forget(tide__cuda* cuda, const void* address, size_t bytes) {
  tide__mutex_lock(&cuda->ranges_lock);
  tide__cuda_range* range = cuda_range_at_locked(cuda, address, bytes);
  if (range != NULL) tide__tree_remove(&cuda->ranges, &range->node);
  tide__mutex_unlock(&cuda->ranges_lock);
  tide__heap_release(cuda->heap, range, 1, sizeof *range);
}

tide_status tide__cuda_address_release(void* self, void* address, size_t bytes) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  TIDE_REQUIRE(cuda_range_has(cuda, address, bytes), TIDE_ERR_ARGUMENT,
               "address_release: %zu bytes at %p are not a reservation", bytes, address);
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.unreserve(tide__cuda_pointer(address), bytes));
  // The range is valid, so the driver can only refuse because memory is mapped in it.
  TIDE_REQUIRE(result != TIDE__CU_INVALID_VALUE, TIDE_ERR_STATE,
               "address_release: memory is still mapped in the %zu bytes at %p", bytes, address);
  TIDE_TRY(tide__cuda_status(cuda, "address_release", result));
  cuda_range_forget(cuda, address, bytes);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Physical memory and mappings

static tide__cu_memory memory_kind(const tide__cuda* cuda, int device, uint32_t flags) {
  tide__cu_memory memory = { .type = TIDE__CU_ALLOCATION_PINNED };
  if ((flags & TIDE_PHYSICAL_SHAREABLE) != 0) memory.handle_types |= TIDE__CU_HANDLE_DESCRIPTOR;
  if ((flags & TIDE_PHYSICAL_FABRIC) != 0) memory.handle_types |= TIDE__CU_HANDLE_FABRIC;
  memory.flags.rdma = (flags & TIDE_PHYSICAL_RDMA) != 0;
  memory.location = (tide__cu_location){ TIDE__CU_LOCATION_DEVICE, cuda->devices[device].ordinal };
  return memory;
}

tide_status tide__cuda_granularity(tide__cuda* cuda, int device, uint64_t* out) {
  int has_virtual_memory = 0;
  size_t granularity = 0;
  tide__cu_result result = cuda->api.device_attribute(&has_virtual_memory, TIDE__CU_DEVICE_HAS_VIRTUAL_MEMORY,
                                                      cuda->devices[device].ordinal);
  if (result == TIDE__CU_SUCCESS && has_virtual_memory != 0) {
    const tide__cu_memory memory = memory_kind(cuda, device, 0);
    result = cuda->api.granularity(&granularity, &memory, TIDE__CU_GRANULARITY_MINIMUM);
  }
  *out = granularity;
  return tide__cuda_status(cuda, "device_info", result);
}

// Wraps a handle of the driver in a handle of ours, which owns it on success.
static tide_status physical_wrap(tide__cuda* cuda, const char* name, int device, uint64_t bytes,
                                 tide__cu_handle handle, tide_physical* out) {
  tide__cuda_physical* physical = tide__slots_take(&cuda->physicals);
  if (physical == NULL) {
    (void)cuda->api.release(handle);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%s: no memory for its records", name);
  }
  physical->device = device;
  physical->bytes = bytes;
  physical->handle = handle;
  *out = (tide_physical)tide__pointer(tide__slots_publish(&cuda->physicals, physical));
  return TIDE_OK;
}

tide_status tide__cuda_physical_new(void* self, int device, size_t bytes, uint32_t flags,
                                    tide_physical* out) {
  tide__cuda* cuda = self;
  const tide__cu_memory memory = memory_kind(cuda, device, flags);
  tide__cu_handle handle = 0;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.create(&handle, bytes, &memory, 0));
  TIDE_REQUIRE(result != TIDE__CU_OUT_OF_MEMORY, TIDE_ERR_NO_MEMORY,
               "physical_new: device %d has no %zu bytes free", device, bytes);
  TIDE_TRY(tide__cuda_status(cuda, "physical_new", result));
  return physical_wrap(cuda, "physical_new", device, bytes, handle, out);
}

static tide_status cuda_physical_find(tide__cuda* cuda, const char* name, tide_physical handle,
                                      tide__cuda_physical** out) {
  *out = tide__slots_find(&cuda->physicals, tide__address(handle));
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "%s: %p is not physical memory of this machine", name,
               (void*)handle);
  return TIDE_OK;
}

tide_status tide__cuda_physical_free(void* self, tide_physical handle) {
  tide__cuda* cuda = self;
  tide__cuda_physical* physical = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(cuda_physical_find(cuda, "physical_free", handle, &physical));
  CUDA_IN_DEVICE(cuda, physical->device, result, cuda->api.release(physical->handle));
  TIDE_TRY(tide__cuda_status(cuda, "physical_free", result));
  if (tide__slots_retire(physical)) tide__slots_give(&cuda->physicals, physical);
  return TIDE_OK;
}

tide_status tide__cuda_map(void* self, void* address, tide_physical handle) {
  tide__cuda* cuda = self;
  tide__cuda_physical* physical = NULL;
  tide__cu_result result = 0;
  TIDE_TRY(cuda_physical_find(cuda, "map", handle, &physical));
  CUDA_IN_DEVICE(cuda, physical->device, result,
                 cuda->api.map(tide__cuda_pointer(address), physical->bytes, 0, physical->handle, 0));
  return tide__cuda_status(cuda, "map", result);
}

tide_status tide__cuda_unmap(void* self, void* address, size_t bytes) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.unmap(tide__cuda_pointer(address), bytes));
  return tide__cuda_status(cuda, "unmap", result);
}

tide_status tide__cuda_set_access(void* self, void* address, size_t bytes, int device, tide_access access) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  tide__cu_access wanted = { .location = { TIDE__CU_LOCATION_DEVICE, cuda->devices[device].ordinal } };
  wanted.flags = (uint32_t)access;  // the same numbers: see tide_access
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.set_access(tide__cuda_pointer(address), bytes, &wanted, 1));
  return tide__cuda_status(cuda, "set_access", result);
}

// ---------------------------------------------------------------------------------------------------
// Information about pointers

static uint64_t pointer_number(tide__cuda* cuda, tide__cu_pointer_attribute attribute,
                               tide__cu_pointer address) {
  uint64_t number = 0;
  return cuda->api.pointer_attribute(&number, attribute, address) == TIDE__CU_SUCCESS ? number : 0;
}

static void pointer_describe(tide__cuda* cuda, tide__cu_pointer address, uint32_t type,
                             tide_pointer_info* out) {
  tide__cu_handle handle = 0;
  int device = -1;
  out->base = tide__pointer(pointer_number(cuda, TIDE__CU_POINTER_RANGE_BEGIN, address));
  out->bytes = pointer_number(cuda, TIDE__CU_POINTER_RANGE_BYTES, address);
  out->kind = TIDE_MEMORY_PINNED;
  if (type != TIDE__CU_MEMORY_DEVICE) return;
  out->kind = TIDE_MEMORY_RAW;
  if (cuda->api.pointer_attribute(&device, TIDE__CU_POINTER_DEVICE, address) == TIDE__CU_SUCCESS)
    out->device = device;
  if (cuda->api.retain(&handle, tide__pointer(address)) != TIDE__CU_SUCCESS) return;
  out->kind = TIDE_MEMORY_MAPPED;  // only mapped memory has a handle to retain
  (void)cuda->api.release(handle);
}

static void reservation_describe(tide__cuda* cuda, uint64_t address, tide_pointer_info* out) {
  tide__mutex_lock(&cuda->ranges_lock);
  const tide__cuda_range* range = cuda_range_around_locked(cuda, address);
  if (range != NULL) {
    out->kind = TIDE_MEMORY_RESERVED;
    out->base = tide__pointer(range->node.key);
    out->bytes = range->bytes;
  }
  tide__mutex_unlock(&cuda->ranges_lock);
}

tide_status tide__cuda_pointer_info(void* self, const void* pointer, tide_pointer_info* out) {
  tide__cuda* cuda = self;
  const tide__cu_pointer address = tide__cuda_pointer(pointer);
  uint32_t type = 0;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.pointer_attribute(&type, TIDE__CU_POINTER_MEMORY_TYPE, address));
  if (result == TIDE__CU_SUCCESS && type != 0) {
    CUDA_IN_DEVICE(cuda, -1, result, (pointer_describe(cuda, address, type, out), TIDE__CU_SUCCESS));
    return TIDE_OK;
  }
  if (result != TIDE__CU_SUCCESS && result != TIDE__CU_INVALID_VALUE) {
    return tide__cuda_status(cuda, "pointer_info", result);
  }
  reservation_describe(cuda, tide__address(pointer), out);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Other processes

TIDE_STATIC_ASSERT(sizeof(tide_raw_share) == sizeof(tide__cu_share));

tide_status tide__cuda_raw_export(void* self, int device, void* address, tide_raw_share* out) {
  tide__cuda* cuda = self;
  tide__cu_share share;
  tide__cu_pointer base = 0;
  size_t bytes = 0;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.raw_range(&base, &bytes, tide__cuda_pointer(address)));
  TIDE_REQUIRE(result == TIDE__CU_SUCCESS && base == tide__cuda_pointer(address), TIDE_ERR_ARGUMENT,
               "raw_export: no raw memory of device %d begins at %p", device, address);
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.share_get(&share, tide__cuda_pointer(address)));
  TIDE_TRY(tide__cuda_status(cuda, "raw_export", result));
  for (size_t i = 0; i < sizeof share.bytes; i++) out->bytes[i] = (unsigned char)share.bytes[i];
  return TIDE_OK;
}

tide_status tide__cuda_raw_import(void* self, int device, const tide_raw_share* share, void** out) {
  tide__cuda* cuda = self;
  tide__cu_share theirs;
  tide__cu_pointer address = 0;
  tide__cu_result result = 0;
  for (size_t i = 0; i < sizeof theirs.bytes; i++) theirs.bytes[i] = (char)share->bytes[i];
  CUDA_IN_DEVICE(cuda, device, result, cuda->api.share_open(&address, theirs, TIDE__CU_IPC_LAZY_PEER));
  TIDE_TRY(tide__cuda_status(cuda, "raw_import", result));
  *out = tide__pointer(address);
  return TIDE_OK;
}

tide_status tide__cuda_raw_unimport(void* self, void* address) {
  tide__cuda* cuda = self;
  tide__cu_result result = 0;
  CUDA_IN_DEVICE(cuda, -1, result, cuda->api.share_close(tide__cuda_pointer(address)));
  return tide__cuda_status(cuda, "raw_unimport", result);
}

tide_status tide__cuda_physical_export(void* self, tide_physical handle, tide_physical_share* out) {
  tide__cuda* cuda = self;
  tide__cuda_physical* physical = NULL;
  tide__cu_result result = 0;
  int descriptor = -1;
  TIDE_TRY(cuda_physical_find(cuda, "physical_export", handle, &physical));
  CUDA_IN_DEVICE(cuda, physical->device, result,
                 cuda->api.handle_export(&descriptor, physical->handle, TIDE__CU_HANDLE_DESCRIPTOR, 0));
  TIDE_TRY(tide__cuda_status(cuda, "physical_export", result));
  *out = (tide_physical_share){ descriptor, 0, physical->bytes };
  return TIDE_OK;
}

tide_status tide__cuda_physical_import(void* self, int device, const tide_physical_share* share,
                                       tide_physical* out) {
  tide__cuda* cuda = self;
  tide__cu_handle handle = 0;
  tide__cu_result result = 0;
  TIDE_REQUIRE(share->offset == 0, TIDE_ERR_ARGUMENT,
               "physical_import: the driver cannot share a part of a handle");
  void* descriptor = tide__pointer((uint64_t)share->descriptor);
  CUDA_IN_DEVICE(cuda, device, result,
                 cuda->api.handle_import(&handle, descriptor, TIDE__CU_HANDLE_DESCRIPTOR));
  TIDE_TRY(tide__cuda_status(cuda, "physical_import", result));
  return physical_wrap(cuda, "physical_import", device, share->bytes, handle, out);
}

// Frees our records. The driver's objects stay.
void tide__cuda_memory_fini(tide__cuda* cuda) {
  while (cuda->ranges.root != NULL) {
    tide__cuda_range* range = cuda_range_of(cuda->ranges.root);
    tide__tree_remove(&cuda->ranges, &range->node);
    tide__heap_release(cuda->heap, range, 1, sizeof *range);
  }
}

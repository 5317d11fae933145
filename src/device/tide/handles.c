// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Handles of the policy `tide`: physical memory in several sizes, made, mapped one behind the other, and
// given back. The caller has the gate, and no lock is held.
#include "device/tide/home.h"

// ---------------------------------------------------------------------------------------------------
// Making

void tide__handles_free(tide_device_cache* device, tide__handle** handles, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (handles[i] == NULL) continue;
    if (handles[i]->physical != NULL) tide__physical_give(device, handles[i]->physical);
    tide__heap_release(device->heap, handles[i], 1, sizeof **handles);
  }
  tide__heap_release(device->heap, handles, count, sizeof *handles);
}

static tide_status handle_make(tide_device_cache* device, uint64_t bytes, tide__handle** out) {
  tide__handle* const handle = tide__heap_alloc(device->heap, 1, sizeof *handle);
  TIDE_REQUIRE(handle != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a handle");
  *out = handle;
  handle->bytes = bytes;
  return tide__physical_new(device, bytes, &handle->physical);
}

tide_status tide__handles_make(tide_device_cache* device, uint64_t bytes, uint64_t handle_bytes,
                               tide__handle*** out, size_t* out_count) {
  const size_t count = (size_t)((bytes + handle_bytes - 1) / handle_bytes);
  *out = NULL;
  *out_count = 0;
  if (count == 0) return TIDE_OK;
  TIDE_TRY(tide__orphans_reserve(device, count));
  tide__handle** const handles = tide__heap_alloc(device->heap, count, sizeof *handles);
  TIDE_REQUIRE(handles != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", count);
  tide_status status = TIDE_OK;
  uint64_t left = bytes;
  for (size_t i = 0; i < count && status == TIDE_OK; i++) {
    const uint64_t own = tide__min(left, handle_bytes);
    status = handle_make(device, own, &handles[i]);
    left -= own;
  }
  if (status != TIDE_OK) {
    const tide_error error = *tide_last_error();
    tide__handles_free(device, handles, count);
    tide__error_restore(&error);
    return status;
  }
  *out = handles;
  *out_count = count;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Mapping

// Maps handles one behind the other; how many are is counted in *out_mapped, also on failure.
static tide_status handles_map_at(tide_device_cache* device, tide__handle* const* handles, size_t count,
                                  uint64_t address, size_t* out_mapped) {
  uint64_t at = address;
  for (*out_mapped = 0; *out_mapped < count; (*out_mapped)++) {
    TIDE_TRY(tide_machine_map(device->machine, tide__pointer(at), handles[*out_mapped]->physical));
    at += handles[*out_mapped]->bytes;
  }
  return tide__access_give(device, address, at - address);
}

void tide__stuck_keep(tide__stuck* stuck, tide__handle** handles, size_t count) {
  if (stuck == NULL) return;
  for (size_t i = 0; i < count; i++) {
    stuck->handles[stuck->count++] = handles[i]->physical;
    handles[i]->physical = NULL;
  }
}

tide_status tide__handles_map(tide_device_cache* device, tide__handle* const* handles, size_t count,
                              uint64_t address, tide__stuck** out_stuck) {
  uint64_t bytes = 0;
  size_t mapped = 0;
  *out_stuck = NULL;
  for (size_t i = 0; i < count; i++) bytes += handles[i]->bytes;
  TIDE_TRY(tide__range_clear(device, address, bytes));
  tide__stuck* const stuck = tide__stuck_new(device, count);
  if (stuck == NULL) return TIDE_ERR_NO_MEMORY;
  stuck->address = address;
  const tide_status status = handles_map_at(device, handles, count, address, &mapped);
  if (status != TIDE_OK) {
    const tide_error error = *tide_last_error();
    for (size_t i = 0; i < mapped; i++) stuck->bytes += handles[i]->bytes;
    if (!tide__stuck_try(device, stuck)) *out_stuck = stuck;
    if (*out_stuck != NULL) tide__stuck_add(device, stuck);
    tide__error_restore(&error);
  }
  if (*out_stuck == NULL) tide__stuck_free(device, stuck);
  return status;
}

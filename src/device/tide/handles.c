// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Handles of the policy `tide`: records of physical memory in several sizes, made and mapped one behind the
// other. The caller has the gate, and no lock is held.
#include "device/tide/home.h"

void tide__handles_free(tide_device_cache* device, tide__handle** handles, size_t count) {
  if (handles == NULL) return;
  for (size_t i = 0; i < count; i++) {
    if (handles[i] != NULL) tide__heap_release(device->heap, handles[i], 1, sizeof **handles);
  }
  tide__heap_release(device->heap, handles, count, sizeof *handles);
}

// A block lies at the low end of its hole, so that what it leaves is at the high end. There handles are
// small, so that few bytes of a handle are left beside the block.
#define PART_OF_RANGE 0.3

static uint64_t first_bytes(uint64_t range, tide__handle_sizes sizes) {
  const uint64_t part = tide__round_up((uint64_t)(PART_OF_RANGE * (double)range), sizes.unit);
  return tide__min(range, tide__max(sizes.least, tide__min(part, sizes.most)));
}

size_t tide__handles_for(uint64_t bytes, tide__handle_sizes sizes) {
  size_t count = 0;
  for (uint64_t left = bytes; left > 0; left -= first_bytes(left, sizes)) count++;
  return count;
}

static tide_status handle_make(tide_device_cache* device, tide__mapping* mapping, uint64_t bytes,
                               tide__handle** out) {
  tide__handle* const handle = tide__heap_alloc(device->heap, 1, sizeof *handle);
  TIDE_REQUIRE(handle != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a handle");
  *out = handle;
  handle->bytes = bytes;
  return tide__mapping_make(device, mapping, bytes, &handle->physical);
}

tide_status tide__handles_make(tide_device_cache* device, tide__mapping* mapping, uint64_t bytes,
                               tide__handle_sizes sizes, tide__handle*** out) {
  const size_t count = tide__handles_for(bytes, sizes);
  tide__handle** const handles = tide__heap_alloc(device->heap, count, sizeof *handles);
  TIDE_REQUIRE(handles != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", count);
  tide_status status = TIDE_OK;
  uint64_t left = bytes;
  for (size_t i = 0; i < count && status == TIDE_OK; i++) {
    const uint64_t own = first_bytes(left, sizes);
    status = handle_make(device, mapping, own, &handles[i]);
    left -= own;
  }
  if (status != TIDE_OK) tide__handles_free(device, handles, count);
  else *out = handles;
  return status;
}

tide_status tide__handles_map(tide_device_cache* device, tide__mapping* mapping, tide__handle* const* handles,
                              size_t count) {
  for (size_t i = 0; i < count; i++) {
    TIDE_TRY(tide__mapping_add(device, mapping, handles[i]->physical, handles[i]->bytes));
  }
  return tide__mapping_commit(device, mapping);
}

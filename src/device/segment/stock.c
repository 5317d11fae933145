// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The stock: physical memory that passes from pools that give way to a pool that comes.
#include "device/segment/virtual.h"

typedef struct tide__stocked {
  tide_physical handle;
  uint64_t bytes;
} tide__stocked;

void tide__stock_open(tide_device_cache* device) { device->stock_users++; }

void tide__stock_close(tide_device_cache* device) {
  tide__stock_empty(device);
  device->stock_users--;
}

// A process that was given a descriptor might still use the memory.
bool tide__stock_put(tide_device_cache* device, tide_physical handle, uint64_t bytes) {
  if (device->stock_users == 0 || device->kept.count > 0) return false;
  if (!tide__heap_grow(device->heap, (void**)&device->stock, &device->stock_capacity, device->stock_count + 1,
                       sizeof *device->stock)) {
    return false;
  }
  device->stock[device->stock_count++] = (tide__stocked){ handle, bytes };
  return true;
}

static void last_give(tide_device_cache* device) {
  const tide_physical handle = device->stock[--device->stock_count].handle;
  tide__physical_give(device, handle);
}

tide_physical tide__stock_take(tide_device_cache* device, uint64_t bytes) {
  for (size_t i = device->stock_count; i-- > 0;) {
    const tide__stocked found = device->stock[i];
    if (found.bytes != bytes) continue;
    device->stock[i] = device->stock[--device->stock_count];
    return found.handle;
  }
  for (uint64_t given = 0; given < bytes && device->stock_count > 0;) {
    given += device->stock[device->stock_count - 1].bytes;
    last_give(device);
  }
  return NULL;
}

void tide__stock_empty(tide_device_cache* device) {
  while (device->stock_count > 0) last_give(device);
}

void tide__stock_free(tide_device_cache* device) {
  tide__heap_release(device->heap, device->stock, device->stock_capacity, sizeof *device->stock);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Addresses of views. A range that a view no longer needs is kept for the next view of its size class. So the
// reservations, and the map of addresses, which only grows, are bounded by what views had at once. The gate
// is the caller's.
#include "core/classes.h"
#include "device/tide/tide.h"

static uint64_t class_bytes(tide_device_cache* device, uint64_t bytes) {
  const uint64_t unit = device->granularity;
  return tide__class_units(tide__class_of(bytes / unit + (bytes % unit != 0))) * unit;
}

static tide_status addresses_make(tide_device_cache* device, uint64_t bytes, tide__addresses** out) {
  tide__addresses* const made = tide__heap_alloc(device->heap, 1, sizeof *made);
  TIDE_REQUIRE(made != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of addresses");
  void* address = NULL;
  const tide_status status =
      tide_machine_address_reserve(device->machine, device->index, bytes, 0, NULL, &address);
  if (status != TIDE_OK) {
    tide__heap_release(device->heap, made, 1, sizeof *made);
    return status;
  }
  made->node.key = bytes;
  made->node.tie = tide__address(address);
  *out = made;
  return TIDE_OK;
}

tide_status tide__addresses_take(tide_device_cache* device, uint64_t bytes, tide__addresses** out) {
  const uint64_t wanted = class_bytes(device, bytes);
  tide__tree_node* const node = tide__tree_ceiling(&device->idle_addresses, wanted);
  *out = NULL;
  if (node == NULL || node->key != wanted) return addresses_make(device, wanted, out);
  tide__tree_remove(&device->idle_addresses, node);
  *out = TIDE_OWNER(node, tide__addresses, node);
  return TIDE_OK;
}

void tide__addresses_give(tide_device_cache* device, tide__addresses* addresses) {
  if (addresses != NULL) (void)tide__tree_insert(&device->idle_addresses, &addresses->node);
}

void tide__addresses_forget(tide_device_cache* device, tide__addresses* addresses) {
  tide__heap_release(device->heap, addresses, 1, sizeof *addresses);
}

void tide__addresses_trim(tide_device_cache* device) {
  const tide_error before = *tide_last_error();
  tide__tree_node* next = NULL;
  for (tide__tree_node* node = tide__tree_first(&device->idle_addresses); node != NULL; node = next) {
    next = tide__tree_next(node);
    if (tide_machine_address_release(device->machine, tide__pointer(node->tie), node->key) != TIDE_OK)
      continue;
    tide__tree_remove(&device->idle_addresses, node);
    tide__addresses_forget(device, TIDE_OWNER(node, tide__addresses, node));
  }
  tide__error_restore(&before);
}

void tide__addresses_fini(tide_device_cache* device) {
  tide__tree_node* node = NULL;
  tide__addresses_trim(device);
  while ((node = tide__tree_first(&device->idle_addresses)) !=
         NULL) {  // the machine will not have them at all
    tide__tree_remove(&device->idle_addresses, node);
    tide__addresses_forget(device, TIDE_OWNER(node, tide__addresses, node));
  }
}

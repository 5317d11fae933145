// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Costs, virtual time, and errors of work that failed after its call had returned.
#include "machine/soft/state.h"

void tide__soft_charge(tide__soft* soft, tide_call call, uint64_t mappings, uint64_t bytes) {
  if (soft->backend->charge != NULL) soft->backend->charge(soft, call, mappings, bytes);
}

void tide__soft_settle(tide__soft* soft) {
  if (soft->backend->settle != NULL) soft->backend->settle(soft);
}

void tide__soft_note_error(tide__soft* soft, int device) {
  tide__soft_device* owner = &soft->devices[device];
  tide__mutex_lock(&owner->error_lock);
  if (!owner->has_error) owner->error = *tide_last_error();
  owner->has_error = true;
  tide__mutex_unlock(&owner->error_lock);
}

tide_status tide__soft_report_error(tide__soft* soft, int device) {
  tide__soft_device* owner = &soft->devices[device];
  tide__mutex_lock(&owner->error_lock);
  const bool has_error = owner->has_error;
  const tide_error error = owner->error;
  owner->has_error = false;
  tide__mutex_unlock(&owner->error_lock);
  if (!has_error) return TIDE_OK;
  return tide_error_set(TIDE_ERR_MACHINE, error.native, error.file, error.line,
                        "earlier work on device %d failed: %s", device, error.text);
}

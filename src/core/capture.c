// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Questions about captures, and the capture mode RELAXED around calls of the machine.
#include "core/capture.h"

#include "base/error.h"

// Asks without changing the thread's error record.
static tide_status state_ask(tide_machine* machine, int device, tide_stream stream, tide_capture_state* out,
                             uint64_t* out_id) {
  tide_error before;
  tide__error_keep(&before);
  const tide_status status = tide_machine_capture_info(machine, device, stream, out, out_id);
  if (status != TIDE_OK) tide__error_restore(&before);
  return status;
}

uint64_t tide__capture_of(tide_machine* machine, int device, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  const tide_status status = state_ask(machine, device, stream, &state, &id);
  return status == TIDE_OK && state == TIDE_CAPTURE_ACTIVE ? id : 0;
}

tide_status tide__capture_ask(tide_machine* machine, int device, tide_stream stream, bool* out) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  tide_error before;
  tide__error_keep(&before);
  const tide_status status = tide_machine_capture_info(machine, device, stream, &state, &id);
  *out = status == TIDE_OK ? state != TIDE_CAPTURE_NONE : status != TIDE_ERR_HANDLE;
  if (status != TIDE_ERR_HANDLE) return status;
  tide__error_restore(&before);
  return TIDE_OK;
}

bool tide__capture_has(tide_machine* machine, int device, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  const tide_status status = state_ask(machine, device, stream, &state, &id);
  return status == TIDE_OK ? state != TIDE_CAPTURE_NONE : status != TIDE_ERR_HANDLE;
}

bool tide__capture_is_outside(tide_machine* machine, int device, tide_stream stream) {
  tide_capture_state state = TIDE_CAPTURE_NONE;
  uint64_t id = 0;
  return state_ask(machine, device, stream, &state, &id) == TIDE_OK && state == TIDE_CAPTURE_NONE;
}

tide_status tide__relax(tide_machine* machine, tide__relaxed* out) {
  *out = (tide__relaxed){ NULL, TIDE_CAPTURE_GLOBAL };
  TIDE_TRY(tide_machine_capture_exchange(machine, TIDE_CAPTURE_RELAXED, &out->before));
  out->machine = machine;
  return TIDE_OK;
}

tide__relaxed tide__relax_or_not(tide_machine* machine) {
  tide__relaxed relaxed;
  tide_error before;
  tide__error_keep(&before);
  if (tide__relax(machine, &relaxed) != TIDE_OK) tide__error_restore(&before);
  return relaxed;
}

void tide__relax_end(const tide__relaxed* relaxed) {
  enum { ATTEMPTS = 3 };
  tide_capture_mode ignored = TIDE_CAPTURE_RELAXED;
  if (relaxed->machine == NULL) return;
  tide_error before;
  tide__error_keep(&before);
  for (int i = 0; i < ATTEMPTS; i++) {
    if (tide_machine_capture_exchange(relaxed->machine, relaxed->before, &ignored) == TIDE_OK) break;
  }
  tide__error_restore(&before);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Results of the driver as statuses, and the primary context of each device. A call restores the thread's
// current context before it returns.
#include "machine/cuda/cuda.h"

// ---------------------------------------------------------------------------------------------------
// Results of the driver

static tide_status status_of(tide__cu_result result) {
  if (result >= TIDE__CU_CAPTURE_FIRST && result <= TIDE__CU_CAPTURE_LAST) return TIDE_ERR_CAPTURE;
  switch (result) {
    case TIDE__CU_SUCCESS: return TIDE_OK;
    case TIDE__CU_OUT_OF_MEMORY: return TIDE_ERR_NO_MEMORY;
    case TIDE__CU_INVALID_VALUE:
    case TIDE__CU_ALREADY_REGISTERED:
    case TIDE__CU_NOT_REGISTERED: return TIDE_ERR_ARGUMENT;
    case TIDE__CU_NO_DEVICE:
    case TIDE__CU_INVALID_DEVICE: return TIDE_ERR_DEVICE;
    case TIDE__CU_INVALID_HANDLE: return TIDE_ERR_HANDLE;
    case TIDE__CU_INVALID_CONTEXT:
    case TIDE__CU_ILLEGAL_STATE:
    case TIDE__CU_NOT_PERMITTED: return TIDE_ERR_STATE;
    case TIDE__CU_NOT_SUPPORTED:
    case TIDE__CU_PEER_UNSUPPORTED: return TIDE_ERR_UNSUPPORTED;
    default: return TIDE_ERR_MACHINE;
  }
}

const char* tide__cuda_result_name(const tide__cuda_api* api, tide__cu_result result) {
  const char* name = NULL;
  return api->error_name(result, &name) == TIDE__CU_SUCCESS && name != NULL ? name : "an unknown error";
}

tide_status tide__cuda_status(const tide__cuda* cuda, const char* name, tide__cu_result result) {
  if (result == TIDE__CU_SUCCESS) return TIDE_OK;
  return TIDE_FAIL_NATIVE(status_of(result), result, "%s: the driver returned %s (%u)", name,
                          tide__cuda_result_name(&cuda->api, result), (unsigned)result);
}

// ---------------------------------------------------------------------------------------------------
// Contexts

tide_status tide__cuda_context(tide__cuda* cuda, int device, tide__cu_context* out) {
  tide__cuda_device* owner = &cuda->devices[device];
  *out = tide__load_acquire(&owner->context);
  if (*out != NULL) return TIDE_OK;
  tide__cu_context made = NULL;
  tide__cu_context first = NULL;
  TIDE_TRY(tide__cuda_status(cuda, "primary context", cuda->api.context_retain(&made, owner->ordinal)));
  if (!atomic_compare_exchange_strong(&owner->context, &first, made)) {
    (void)cuda->api.context_release(owner->ordinal);  // another thread was faster; one retain is enough
  }
  *out = first != NULL ? first : made;
  return TIDE_OK;
}

// A device whose context is retained, or the first device.
static int device_in_use(const tide__cuda* cuda) {
  for (int i = 0; i < cuda->device_count; i++) {
    if (tide__load_relaxed(&cuda->devices[i].context) != NULL) return i;
  }
  return 0;
}

tide_status tide__cuda_enter(tide__cuda* cuda, int device, bool* out_pushed) {
  tide__cu_context current = NULL;
  tide__cu_context wanted = NULL;
  *out_pushed = false;
  TIDE_TRY(tide__cuda_status(cuda, "current context", cuda->api.context_current(&current)));
  if (device < 0 && current != NULL) return TIDE_OK;
  TIDE_TRY(tide__cuda_context(cuda, device < 0 ? device_in_use(cuda) : device, &wanted));
  if (current == wanted) return TIDE_OK;
  TIDE_TRY(tide__cuda_status(cuda, "current context", cuda->api.context_push(wanted)));
  *out_pushed = true;
  return TIDE_OK;
}

void tide__cuda_leave(tide__cuda* cuda, bool is_pushed) {
  tide__cu_context popped = NULL;
  if (is_pushed) (void)cuda->api.context_pop(&popped);
}

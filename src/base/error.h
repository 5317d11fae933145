// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How a function fails, passes a failure on, and refuses bad input.
#ifndef TIDEMARK_SRC_BASE_ERROR_H
#define TIDEMARK_SRC_BASE_ERROR_H

#include "tidemark/base.h"

// The public function, marked as rarely called.
// NOLINTNEXTLINE(readability-redundant-declaration)
tide_status tide_error_set(tide_status status, int64_t native, const char* file, int line, const char* format,
                           ...) __attribute__((cold));

// Ignores a status, for calls that undo another call.
static inline void tide__ignore(tide_status status) { (void)status; }

// Saves the thread's error record, to restore it after calls whose failure is not reported. Without an
// earlier failure only the status is copied, which is cheap.
static inline void tide__error_keep(tide_error* out) {
  const tide_error* const last = tide_last_error();
  out->status = last->status;
  if (last->status != TIDE_OK) *out = *last;
}
void tide__error_restore(const tide_error* error);

// For a call that goes on after a failure, and returns the first one. A later failure writes over the record
// of the thread, so the record that belongs to the first is kept; until there is one, that from before.
typedef struct tide__first_failure {
  tide_status status;
  tide_error record;
} tide__first_failure;

static inline void tide__first_failure_begin(tide__first_failure* first) {
  first->status = TIDE_OK;
  tide__error_keep(&first->record);
}

static inline void tide__first_failure_note(tide__first_failure* first, tide_status status) {
  if (first->status != TIDE_OK || status == TIDE_OK) return;
  first->status = status;
  tide__error_keep(&first->record);
}

static inline tide_status tide__first_failure_end(const tide__first_failure* first) {
  tide__error_restore(&first->record);
  return first->status;
}

#define TIDE_FAIL(status, ...) TIDE_FAIL_NATIVE((status), 0, __VA_ARGS__)
#define TIDE_FAIL_NATIVE(status, native, ...) \
  ((void)tide_error_set((status), (native), __FILE__, __LINE__, __VA_ARGS__), (status))

// Returns from the calling function if `expr` fails.
#define TIDE_TRY(expr)                                        \
  do {                                                        \
    const tide_status tide_try_status_ = (expr);              \
    if (tide_try_status_ != TIDE_OK) return tide_try_status_; \
  } while (0)

// Returns `status` with the given text unless `cond` holds. Never compiled out.
#define TIDE_REQUIRE(cond, status, ...)                   \
  do {                                                    \
    if (!(cond)) return TIDE_FAIL((status), __VA_ARGS__); \
  } while (0)

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Call stacks of this process, gathered for a history and named for a snapshot.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sys.h"
#include "tidemark/report.h"

enum { STACK_NAME = 256 };

size_t tide_stack_gather(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  return frames != NULL ? tide__sys_stack(frames, capacity, 1) : 0;
}

bool tide_stack_describe(void* user, uint64_t frame, tide_frame_words* out) {
  static _Thread_local char name[STACK_NAME];
  tide__symbol symbol;
  (void)user;
  if (out == NULL) return false;
  *out = (tide_frame_words){ NULL, NULL, 0 };
  // A return address is behind the call, and may belong to the next function.
  if (frame == 0 || !tide__sys_symbol(frame - 1, &symbol)) return false;
  if (symbol.name == NULL) {
    const char* const slash = strrchr(symbol.file, '/');
    (void)snprintf(name, sizeof name, "%.200s+0x%" PRIx64, slash != NULL ? slash + 1 : symbol.file,
                   symbol.offset);
  }
  out->name = symbol.name != NULL ? symbol.name : name;
  out->file = symbol.file;
  return true;
}

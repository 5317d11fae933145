// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the reader of planning problems.
#include "rewrite.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_rewrite(TIDE_FORMAT_MINIMALLOC, data, bytes);
  return 0;
}

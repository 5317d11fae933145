// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the reader of RMM's logs.
#include "rewrite.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_rewrite(TIDE_FORMAT_RMM, data, bytes);
  return 0;
}

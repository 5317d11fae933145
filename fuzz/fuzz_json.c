// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the reader of snapshots as JSON, and the writers with whatever it reads.
#include "snapshots.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_snapshot(TIDE_FORMAT_JSON, data, bytes);
  return 0;
}

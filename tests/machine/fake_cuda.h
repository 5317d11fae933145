// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A driver library without a device, for what a machine must ask of the driver where there are several GPUs.
// It has all functions that the cuda machine looks up. Those that fake_cuda.c does not write fail.
#ifndef TIDEMARK_TESTS_FAKE_CUDA_H
#define TIDEMARK_TESTS_FAKE_CUDA_H

#include "machine/cuda/api.h"

// Device d has the addresses from FAKE_CUDA_DEVICE_BYTES * (d + 1) on, as many as the name says. All others
// are host memory. The context of the device is the number d + 1.
#define FAKE_CUDA_DEVICE_BYTES ((uint64_t)1 << 40)

// The variable `fake_cuda` of the library: set by the test, and what was asked last.
typedef struct fake_cuda_state {
  int device_count;
  int plain_copies;
  int peer_copies;
  tide__cu_pointer destination;
  tide__cu_pointer source;
  tide__cu_context contexts[2];  // of destination and source; NULL for a plain copy
  tide__cu_context current;      // at the copy
  size_t bytes;
  tide__cu_stream stream;
} fake_cuda_state;

#endif

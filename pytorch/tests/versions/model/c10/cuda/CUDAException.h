// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's check of CUDA's results.
#pragma once

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#define C10_CUDA_CHECK(call)                                         \
  do {                                                               \
    if ((call) != cudaSuccess) C10_THROW_ERROR(Error, "CUDA error"); \
  } while (false)

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// All functions of the fake driver, as weak symbols that fail. fake_cuda.c replaces some of them.
#include "machine/fake_cuda.h"

enum { NOT_SUPPORTED = 801 };

#define REFUSE(name, symbol, parameters)                   \
  __attribute__((weak)) tide__cu_result symbol parameters; \
  tide__cu_result symbol parameters { return NOT_SUPPORTED; }
#pragma GCC diagnostic ignored "-Wunused-parameter"
// NOLINTNEXTLINE(misc-unused-parameters): they fail whatever they get
TIDE__CUDA_FUNCTION_MAP(REFUSE)

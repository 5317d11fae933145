// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What tests of tensors share: taking one, a profile that has recorded one, and a cache around a test.
#ifndef TIDEMARK_TESTS_TENSOR_TENSORS_H
#define TIDEMARK_TESTS_TENSOR_TENSORS_H

#include "cpu/blocks.h"
#include "memory/memory_table.h"
#include "stats.h"
#include "tidemark/profile.h"
#include "tidemark/tensor.h"

static inline uint8_t* tensor_take(size_t bytes) {
  void* address = NULL;
  T_OK(tide_tensor_alloc(bytes, &address));
  T_CHECK(address != NULL);
  T_EQ((uintptr_t)address % 64, 0);
  return address;
}

static inline tide_profile* profile_open(const tide_profile_options* options) {
  tide_profile* profile = NULL;
  T_OK(tide_profile_new(options, &profile));
  return profile;
}

static inline void profile_record_one(tide_profile* profile, size_t bytes) {
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));
  T_OK(tide_tensor_release(tensor_take(bytes)));
  T_OK(tide_profile_end(profile, NULL));
}

// A test with one cache, which is opened before and closed after it.
#define CACHE_TEST(function)                         \
  static void function##_in(tide_cpu_cache* cache);  \
  T_TEST(function) {                                 \
    tide_cpu_cache* const opened = cache_open(NULL); \
    function##_in(opened);                           \
    cache_close(opened);                             \
  }                                                  \
  static void function##_in(tide_cpu_cache* cache)

#endif

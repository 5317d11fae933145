// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Several allocators side by side, the default allocator of an index, and changing options.
#define T_THREADS
#include "device/devices.h"

DEVICE_TEST(test_device__allocators_on_one_device_do_not_share_memory) {
  tide_device_cache* const other = device_new(m, 0, NULL);
  const tide_block a = take(d, NULL, 3 * MIB);
  const tide_block b = take(other, NULL, 3 * MIB);
  device_fill(m, 0, bytes_of(a), 1, 3 * MIB);
  device_fill(m, 0, bytes_of(b), 2, 3 * MIB);
  give(other, b);

  const tide_block c = take(d, NULL, 3 * MIB);

  T_CHECK(c.address != b.address);
  expect_filled(m, 0, bytes_of(a), 1, 3 * MIB);
  T_EQ(current(d, allocation), 2);
  T_EQ(current(other, allocation), 0);
  tide_device_free(other);
}

DEVICE_TEST(test_device__allocators_have_options_and_limits_of_their_own) {
  tide_device_cache* const other = device_new(m, 0, NULL);
  limit_to(other, 10 * MIB);
  configure(other, "max_split_size_mb:40");
  limit_to(other, 10 * MIB);

  expect_oom(other, NULL, 12 * MIB);
  (void)take(d, NULL, 12 * MIB);

  T_EQ(tide_device_limit(d), TIDE_NO_LIMIT);
  T_EQ(counter(d, num_ooms), 0);
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_get_options(d, &options);
  T_EQ(options.max_split_bytes, TIDE_NO_LIMIT);
  tide_device_free(other);
}

DEVICE_TEST(test_device__more_than_64_allocators_count_rightly) {
  enum { COUNT = 70 };
  tide_device_cache* devices[COUNT];
  for (size_t i = 0; i < COUNT; ++i) devices[i] = device_new(m, 0, NULL);

  for (size_t round = 0; round < 3; ++round) {
    for (size_t i = 0; i < COUNT; ++i) (void)take(devices[i], NULL, 512 * (i + 1));
  }

  for (size_t i = 0; i < COUNT; ++i) {
    T_EQ(current(devices[i], allocation), 3);
    T_EQ(current(devices[i], allocated_bytes), 3 * 512 * (i + 1));
    device_expect_valid(devices[i]);
    tide_device_free(devices[i]);
  }
  T_EQ(current(d, allocation), 0);
}

DEVICE_TEST(test_device__an_allocator_of_device_1_has_its_memory_there) {
  need_two_devices(m);
  const size_t before = free_bytes(m, 1);
  tide_device_cache* const other = device_new(m, 1, NULL);

  const tide_block block = take(other, NULL, 12 * MIB);

  T_EQ(tide_device_index(other), 1);
  T_EQ(pointer_info(m, block.address).device, 1);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 1), before - 12 * MIB);
  device_fill(m, 1, bytes_of(block), 1, 12 * MIB);
  expect_filled(m, 1, bytes_of(block), 1, 12 * MIB);
  tide_device_free(other);
}

DEVICE_TEST(test_device__a_default_is_kept_for_each_index) {
  tide_device_cache* const other = device_new(m, 0, NULL);
  T_PTR_EQ(tide_device_default(0), NULL);

  T_OK(tide_device_set_default(0, d));
  T_OK(tide_device_set_default(3, d));
  T_OK(tide_device_set_default(5, other));
  T_OK(tide_device_set_default(TIDE_DEVICE_MAX - 1, other));
  T_PTR_EQ(tide_device_default(0), d);
  T_PTR_EQ(tide_device_default(5), other);
  T_PTR_EQ(tide_device_default(1), NULL);
  T_OK(tide_device_set_default(0, NULL));
  T_PTR_EQ(tide_device_default(0), NULL);
  tide_device_free(other);

  T_PTR_EQ(tide_device_default(3), d);
  T_PTR_EQ(tide_device_default(5), NULL);
  T_PTR_EQ(tide_device_default(TIDE_DEVICE_MAX - 1), NULL);
  T_STATUS(tide_device_set_default(-1, d), TIDE_ERR_DEVICE);
  T_STATUS(tide_device_set_default(TIDE_DEVICE_MAX, d), TIDE_ERR_DEVICE);
  T_PTR_EQ(tide_device_default(-1), NULL);
  T_PTR_EQ(tide_device_default(TIDE_DEVICE_MAX), NULL);
}

DEVICE_TEST(test_device__words_of_a_thread_reach_every_allocator) {
  tide_device_cache* const devices[2] = { d, device_new(m, 0, NULL) };
  for (size_t i = 0; i < 2; ++i) history_on(devices[i]);
  T_OK(tide_thread_set_metadata("both"));

  for (size_t i = 0; i < 6; ++i) (void)take(devices[i % 2], NULL, 512);

  for (size_t i = 0; i < 2; ++i) {
    const tide_intern* const names = tide_device_names(devices[i]);
    const story s = read_story(devices[i]);
    for (size_t k = 0; k < s.count; ++k) {
      const uint32_t text = tide_intern_note(names, s.entries[k].note).metadata;
      T_STR_EQ(tide_intern_text(names, text, NULL), "both");
    }
  }
  tide_device_free(devices[1]);
}

// ---------------------------------------------------------------------------------------------------
// Options in force

DEVICE_TEST(test_device__configure_refuses_what_is_out_of_range_and_changes_nothing) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  configure(d, "max_split_size_mb:64");
  options.collect_threshold = 1.2;
  T_STATUS(tide_device_configure(d, &options), TIDE_ERR_ARGUMENT);
  options = (tide_device_options)TIDE_DEVICE_OPTIONS_INIT;
  options.max_split_bytes = 2 * MIB;
  T_STATUS(tide_device_configure(d, &options), TIDE_ERR_ARGUMENT);

  tide_device_get_options(d, &options);

  T_EQ(options.max_split_bytes, 64 * MIB);
  T_CHECK(options.collect_threshold == 0.0);
}

DEVICE_TEST(test_device__configure_keeps_heap_and_limit_and_reports_the_rest) {
  tide_device_options before = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_options after = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_get_options(d, &before);
  limit_to(d, 100 * MIB);

  configure(d, "release_lock_on_cudamalloc:True,pinned_num_register_threads:8,roundup_power2_divisions:4,"
               "per_process_memory_fraction:0.25");

  tide_device_get_options(d, &after);
  T_PTR_EQ(after.heap, before.heap);
  T_CHECK(after.heap != NULL);
  T_CHECK(after.releases_lock);
  T_EQ(after.pinned_register_threads, 8);
  T_EQ(after.roundup_divisions[3], 4);
  T_CHECK(after.memory_fraction == 1.0);
  T_EQ(tide_device_limit(d), 100 * MIB);
}

static tide_status new_from_environment(tide_machine* m, const char* text, double* out_fraction) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_cache* d = NULL;
  T_EQ(setenv("PYTORCH_CUDA_ALLOC_CONF", text, 1), 0);
  const tide_status status = tide_device_options_from_env(&options);
  T_EQ(unsetenv("PYTORCH_CUDA_ALLOC_CONF"), 0);
  if (status != TIDE_OK) return status;
  T_OK(tide_device_new(m, 0, &options, &d));
  *out_fraction = tide_device_fraction(d);
  tide_device_free(d);
  return TIDE_OK;
}

MACHINE_TEST(test_device__fraction_comes_from_the_environment) {
  double fraction = -1;

  T_OK(new_from_environment(m, "per_process_memory_fraction:0.5", &fraction));
  T_CHECK(fraction > 0.499 && fraction <= 0.5);
  T_OK(new_from_environment(m, "per_process_memory_fraction:0", &fraction));
  T_CHECK(fraction == 0.0);
  T_OK(new_from_environment(m, "per_process_memory_fraction:1", &fraction));
  T_CHECK(fraction == 1.0);

  T_STATUS(new_from_environment(m, "per_process_memory_fraction:-0.1", &fraction), TIDE_ERR_ARGUMENT);
  T_STATUS(new_from_environment(m, "per_process_memory_fraction:1.1", &fraction), TIDE_ERR_ARGUMENT);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The text of an out-of-memory report: it is never cut, and names the machine.
#include "device/policy/policy.h"
#include "t.h"

// A report with every part, each as long as it can be.
static tide_oom oom_of_extremes(void) {
  tide_oom oom = { .size = sizeof oom, .device = INT32_MIN };
  oom.requested_bytes = oom.rounded_bytes = oom.segment_bytes = UINT64_MAX;
  oom.device_free = oom.device_total = UINT64_MAX;
  oom.limit = UINT64_MAX - 1;
  oom.allocated_bytes = UINT64_MAX / 4;
  oom.private_idle_bytes = UINT64_MAX / 4;
  oom.reserved_bytes = UINT64_MAX;
  oom.pending_bytes = oom.largest_idle_bytes = UINT64_MAX;
  oom.tag_limit = oom.tag_reserved_bytes = oom.guaranteed_bytes = UINT64_MAX;
  memset(oom.tag, 't', sizeof oom.tag - 1);
  oom.rung_count = TIDE_OOM_RUNGS;
  for (uint32_t i = 0; i < TIDE_OOM_RUNGS; ++i) {
    oom.rungs[i] = (tide_oom_rung){ "gave back idle segments of all pools, large and small", UINT64_MAX };
  }
  oom.pin_count = 1;
  oom.pins[0] = (tide_oom_pin){ UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
  return oom;
}

static bool text_ends_with(const char* text, const char* end) {
  const size_t bytes = strlen(text);
  return bytes >= strlen(end) && strcmp(text + bytes - strlen(end), end) == 0;
}

T_TEST(test_oom__the_longest_text_is_whole) {
  tide_oom oom = oom_of_extremes();
  char name[200];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';

  tide__oom_write(&oom, name);

  T_LE(strlen(oom.text) + 1, sizeof oom.text - 1);
  T_STR_HAS(oom.text, "Out of memory on the machine \"nnn");
  T_CHECK(text_ends_with(oom.text, "keep 17179869184.00 GiB idle."));
  T_EQ(TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%s", oom.text), TIDE_ERR_NO_MEMORY);
  T_STR_EQ(tide_last_error()->text, oom.text);
}

T_TEST(test_oom__cuda_has_the_words_of_torch) {
  tide_oom oom = { .size = sizeof oom, .device = 3, .segment_bytes = 20 << 20, .limit = TIDE_NO_LIMIT };
  oom.device_total = (uint64_t)80 << 30;
  oom.device_free = (uint64_t)1 << 30;

  tide__oom_write(&oom, "cuda");

  T_STR_HAS(
      oom.text,
      "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 80.00 GiB of which "
      "1024.00 MiB is free. Of the allocated memory ");
}

T_TEST(test_oom__other_machines_are_named) {
  tide_oom oom = { .size = sizeof oom, .device = 1, .segment_bytes = 4096, .limit = TIDE_NO_LIMIT };

  tide__oom_write(&oom, "host");

  T_STR_HAS(oom.text, "Out of memory on the machine \"host\". Tried to allocate 4.00 KiB. Device 1 has");
  T_CHECK(strstr(oom.text, "CUDA") == NULL);
}

// The error of a thread has the whole text, not its beginning.
T_TEST(test_oom__the_error_of_a_request_has_the_whole_text) {
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  tide_machine* machine = NULL;
  tide_device_cache* device = NULL;
  tide_block block;
  options.capacity = (uint64_t)8 << 20;
  T_OK(tide_machine_new_host(&options, &machine));
  T_OK(tide_device_new(machine, 0, NULL, &device));

  T_STATUS(tide_device_alloc(device, NULL, (size_t)1 << 40, &block), TIDE_ERR_NO_MEMORY);

  T_STR_EQ(tide_last_error()->text, tide_device_last_oom()->text);
  T_STR_HAS(tide_last_error()->text, "\"host\"");
  T_STR_HAS(tide_last_error()->text, "Tried: ");
  tide_device_free(device);
  tide_machine_free(machine);
}

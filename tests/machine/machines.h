// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The machines for the tests of this folder. Checks that every machine must pass are in tests/conformance;
// tests here are about details of our own machines.
//
//   MACHINE_TEST(test_stream__runs_in_order) { ... tide_machine* m ... }     host, dry and cuda
//   EMULATED_TEST(test_stream__knows_stale_handles) { ... }                  host and dry
//
// A test gets a new machine `m` with two devices of 256 MiB. On cuda it gets the existing devices, or is
// skipped. It need not free its objects: tide_machine_free() does. After that, no descriptor, no thread and
// no byte of the machine's heap may remain.
#ifndef TIDEMARK_TESTS_MACHINES_H
#define TIDEMARK_TESTS_MACHINES_H

#include "machine/counting_heap.h"
#include "tidemark/machine.h"

#include "conformance/tools.h"  // behind t.h

#define MACHINE_CAPACITY (256 * MIB)

static const char* const machine_names[] = { "host", "dry", "cuda", NULL };
static const char* const machine_emulated[] = { "host", "dry", NULL };
static const char* const machine_real[] = { "host", "cuda", NULL };
static const char* const machine_host[] = { "host", NULL };
static const char* const machine_dry[] = { "dry", NULL };

// ---------------------------------------------------------------------------------------------------
// Creating machines

static inline tide_status machine_new(const char* name, const tide_heap* heap, tide_machine** out) {
  if (strcmp(name, "host") == 0) {
    tide_host_options options = TIDE_HOST_OPTIONS_INIT;
    options.device_count = 2;
    options.capacity = MACHINE_CAPACITY;
    options.heap = heap;
    return tide_machine_new_host(&options, out);
  }
  if (strcmp(name, "dry") == 0) {
    tide_dry_options options = TIDE_DRY_OPTIONS_INIT;
    options.device_count = 2;
    options.capacity = MACHINE_CAPACITY;
    options.heap = heap;
    return tide_machine_new_dry(&options, out);
  }
  tide_cuda_options options = TIDE_CUDA_OPTIONS_INIT;
  options.heap = heap;
  return tide_machine_new_cuda(&options, out);
}

// The name of the machine is the first word of the variant. The rest is for the test.
static inline const char* machine_variant(void) {
  static char name[8];
  (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(t_variant(), " "), t_variant());
  return name;
}

static inline tide_machine* machine_open(const char* name, const tide_heap* heap) {
  tide_machine* m = NULL;
  const tide_status status = machine_new(name, heap, &m);
  if (status == TIDE_ERR_UNSUPPORTED) t_skip("%s", tide_last_error()->text);
  T_OK(status);
  T_CHECK(m != NULL);
  window_forget(m);
  return m;
}

// The system may list a joined thread for a short time. The thread sanitizer starts one thread of its own.
static inline void machine_expect_threads(size_t count) {
  const size_t most = count + T_HAS_THREAD_SANITIZER;
  T_WAIT(t_count_threads() <= most);
}

static inline void machine_run(void (*body)(tide_machine* m)) {
  const bool is_emulated = strcmp(machine_variant(), "cuda") != 0;
  const size_t descriptors = t_count_descriptors();
  const size_t threads = t_count_threads();
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, false);

  tide_machine* const m = machine_open(machine_variant(), &records.heap);
  if (!is_emulated) window_prepare(m, 0);  // later, with blocked work, the driver could wait
  body(m);
  tide_machine_free(m);

  T_EQ(atomic_load(&records.outstanding), 0);
  if (is_emulated) T_EQ(t_count_descriptors(), descriptors);
  if (is_emulated) machine_expect_threads(threads);
}

#define MACHINE_TEST_OVER(function, names)                    \
  static void function(tide_machine* m);                      \
  static void function##_run(void) { machine_run(function); } \
  T_REGISTER(function, function##_run, names)                 \
  static void function(tide_machine* m)
#define MACHINE_TEST(function) MACHINE_TEST_OVER(function, machine_names)
#define EMULATED_TEST(function) MACHINE_TEST_OVER(function, machine_emulated)
#define REAL_TEST(function) MACHINE_TEST_OVER(function, machine_real)
#define HOST_TEST(function) MACHINE_TEST_OVER(function, machine_host)
#define DRY_TEST(function) MACHINE_TEST_OVER(function, machine_dry)

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which copy of the driver the cuda machine asks for, with a driver that only notes what it is asked.
#include <dlfcn.h>

#include "machine/fake_cuda.h"
#include "machine/machines.h"

static fake_cuda_state* driver;

static tide_machine* machine_with(int device_count) {
  tide_cuda_options options = TIDE_CUDA_OPTIONS_INIT;
  tide_machine* m = NULL;
  void* const library = dlopen(FAKE_CUDA, RTLD_NOW);
  if (library == NULL) T_FAIL("%s", dlerror());
  driver = dlsym(library, "fake_cuda");
  T_CHECK(driver != NULL);
  driver->device_count = device_count;
  options.library = FAKE_CUDA;
  T_OK(tide_machine_new_cuda(&options, &m));
  T_EQ(tide_machine_device_count(m), device_count);
  return m;
}

static void* address_on(int device) {
  return (void*)(uintptr_t)(FAKE_CUDA_DEVICE_BYTES * (uint64_t)(device + 1) + 4096);
}

static uintptr_t context_of(int device) { return (uintptr_t)device + 1; }

// Copies on a stream of a device and looks at what the driver was asked for.
static void expect_copy(tide_machine* m, int device, void* to, const void* from, bool is_between) {
  static int stream;
  const int copies[2] = { driver->plain_copies, driver->peer_copies };
  T_OK(tide_machine_copy(m, device, (tide_stream)(void*)&stream, to, from, 1000));
  T_EQ(driver->plain_copies, copies[0] + !is_between);
  T_EQ(driver->peer_copies, copies[1] + is_between);
  T_EQ(driver->destination, (uintptr_t)to);
  T_EQ(driver->source, (uintptr_t)from);
  T_EQ(driver->bytes, 1000);
  T_PTR_EQ((void*)driver->stream, (void*)&stream);
  T_EQ((uintptr_t)driver->current, context_of(device));
}

T_TEST(test_cuda_copy__only_a_copy_between_devices_names_their_contexts) {
  char host[2][1000];
  tide_machine* const m = machine_with(2);
  for (int device = 0; device < 2; device++) {
    for (int to = 0; to < 2; to++) {
      expect_copy(m, device, address_on(to), host[0], false);
      expect_copy(m, device, host[0], address_on(to), false);
      for (int from = 0; from < 2; from++) {
        expect_copy(m, device, address_on(to), address_on(from), to != from);
        if (to == from) continue;
        T_EQ((uintptr_t)driver->contexts[0], context_of(to));
        T_EQ((uintptr_t)driver->contexts[1], context_of(from));
      }
    }
    expect_copy(m, device, host[0], host[1], false);
  }
  tide_machine_free(m);
}

// Streams of a machine with one device see memory of that device only.
T_TEST(test_cuda_copy__one_device_has_plain_copies) {
  char host[1000];
  tide_machine* const m = machine_with(1);
  expect_copy(m, 0, address_on(0), host, false);
  expect_copy(m, 0, address_on(0), address_on(0), false);
  tide_machine_free(m);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The device allocator on a machine of the program's own: does it wait for the device before it gives memory
// back? The machine here says whether its release waits, and counts the calls that reach it.
#include "tidemark/device.h"
#include "tidemark/machine_ops.h"
#include "t.h"

typedef struct plain {
  bool waits_on_release;  // what device_info says
  bool is_idle;           // the device was synchronised since the last allocation
  int allocated;          // memory that was not released
  int waits;
  int released_busy;  // releases while work may still run
} plain;

static tide_status plain_device_info(void* self, int device, tide_device_info* out) {
  const plain* const p = self;
  (void)device;
  out->total_bytes = 1u << 30;
  out->waits_on_release = p->waits_on_release;
  return TIDE_OK;
}

static tide_status plain_memory_info(void* self, int device, size_t* out_free, size_t* out_total) {
  (void)self;
  (void)device;
  *out_free = *out_total = 1u << 30;
  return TIDE_OK;
}

static tide_status plain_raw_alloc(void* self, int device, size_t bytes, void** out) {
  plain* const p = self;
  (void)device;
  *out = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
  if (*out == NULL) return TIDE_ERR_NO_MEMORY;
  p->allocated++;
  p->is_idle = false;
  return TIDE_OK;
}

static tide_status plain_raw_release(void* self, int device, void* address) {
  plain* const p = self;
  (void)device;
  free(address);
  p->allocated--;
  if (!p->is_idle) p->released_busy++;
  return TIDE_OK;
}

static tide_status plain_device_synchronize(void* self, int device) {
  plain* const p = self;
  (void)device;
  p->waits++;
  p->is_idle = true;
  return TIDE_OK;
}

static void plain_free(void* self) { (void)self; }

// Allocates, releases and trims on a machine with that name; returns what the machine saw.
static plain trimmed(const char* name, bool waits_on_release, bool is_cached) {
  const tide_machine_ops ops = {
    .size = sizeof ops,
    .version = TIDE_MACHINE_OPS_VERSION,
    .name = name,
    .free = plain_free,
    .device_info = plain_device_info,
    .memory_info = plain_memory_info,
    .raw_alloc = plain_raw_alloc,
    .raw_release = plain_raw_release,
    .device_synchronize = plain_device_synchronize,
  };
  plain p = { .waits_on_release = waits_on_release };
  tide_machine* m = NULL;
  tide_device_cache* d = NULL;
  tide_block block;
  T_OK(tide_machine_new(&ops, &p, 1, NULL, &m));
  T_OK(tide_device_new(m, 0, NULL, &d));
  tide_device_set_caching(d, is_cached);

  T_OK(tide_device_alloc(d, NULL, 4u << 20, &block));
  T_OK(tide_device_release(d, block));
  T_OK(tide_device_trim(d, 0));

  const plain seen = p;
  tide_device_free(d);
  tide_machine_free(m);
  return seen;
}

T_TEST(test_own_machine__memory_goes_back_when_the_device_is_idle) {
  static const char* const names[] = { "plain", "cuda", "careful" };
  for (size_t i = 0; i < 6; ++i) {
    const plain seen = trimmed(names[i % 3], false, i < 3);
    T_EQ(seen.allocated, 0);
    T_EQ(seen.released_busy, 0);
  }
}

T_TEST(test_own_machine__a_release_that_waits_is_not_waited_for_twice) {
  for (int i = 0; i < 2; ++i) {
    const plain seen = trimmed("plain", true, i == 0);
    T_EQ(seen.allocated, 0);
    T_EQ(seen.released_busy, 1);
    T_EQ(seen.waits, 0);
  }
}

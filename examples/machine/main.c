// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A device allocator and a pinned cache on the small machine: data is copied to the device and back.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small.h"
#include "tidemark/device.h"
#include "tidemark/pinned.h"

#define BYTES ((size_t)1 << 20)
#define ROUNDS 100

// Ends the program with the reason if a call fails.
static void must(tide_status status) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "machine: %s: %s\n", tide_status_name(status), tide_last_error()->text);
  exit(1);
}

// Sends a value to the device and back. Both blocks are released while the copies may still run.
static void round_trip(tide_device_cache* device, tide_pinned_cache* pinned, tide_stream stream,
                       uint8_t value) {
  tide_machine* machine = tide_device_machine(device);
  tide_block there = { NULL, 0 };
  tide_block out = { NULL, 0 };
  tide_block back = { NULL, 0 };
  must(tide_device_alloc(device, stream, BYTES, &there));
  must(tide_pinned_alloc(pinned, BYTES, &out));
  must(tide_pinned_alloc(pinned, BYTES, &back));
  memset(out.address, value, BYTES);
  must(tide_pinned_copy(pinned, out, 0, stream, there.address, out.address, BYTES));
  must(tide_pinned_release(pinned, out));
  must(tide_pinned_copy(pinned, back, 0, stream, back.address, there.address, BYTES));
  must(tide_device_release(device, there));
  must(tide_machine_stream_synchronize(machine, 0, stream));
  const uint8_t* bytes = back.address;
  if (bytes[0] != value || bytes[BYTES - 1] != value) {
    (void)fprintf(stderr, "machine: the data did not come back\n");
    exit(1);
  }
  must(tide_pinned_release(pinned, back));
}

int main(void) {
  tide_machine* machine = NULL;
  tide_device_cache* device = NULL;
  tide_pinned_cache* pinned = NULL;
  tide_stream stream = NULL;
  must(small_machine_new((uint64_t)64 << 20, &machine));
  must(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &stream));
  must(tide_device_new(machine, 0, NULL, &device));
  must(tide_pinned_new(machine, NULL, &pinned));
  for (int i = 0; i < ROUNDS; i++) round_trip(device, pinned, stream, (uint8_t)i);
  const tide_call_stats raw = tide_machine_call_stats(machine, TIDE_CALL_RAW_ALLOC);
  (void)printf("%d round trips on the %s machine took %llu raw allocations\n", ROUNDS,
               tide_machine_name(machine), (unsigned long long)raw.calls);
  tide_pinned_free(pinned, NULL);
  tide_device_free(device);
  tide_machine_free(machine);
  return raw.calls < ROUNDS ? 0 : 1;
}

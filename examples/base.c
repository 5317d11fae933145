// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// base.h: the version, how a call fails, and where the library keeps its own records.
#include "example.h"

// A heap of the program that counts the bytes that the library keeps.
static void* counted_alloc(void* user, size_t bytes, size_t alignment) {
  size_t* const live = user;
  void* const address = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (address != NULL) *live += bytes;
  return address;
}

static void counted_release(void* user, void* address, size_t bytes) {
  size_t* const live = user;
  *live -= bytes;
  free(address);
}

int main(void) {
  size_t live = 0;
  const tide_heap heap = { counted_alloc, counted_release, &live };
  tide_dry_options options = TIDE_DRY_OPTIONS_INIT;
  tide_machine* machine = NULL;
  void* address = NULL;
  if (tide_version_number() < TIDE_VERSION_NUMBER) {
    (void)fprintf(stderr, "the library is older than the headers of this program\n");
    return 1;
  }
  options.capacity = 64 * MIB;
  options.heap = &heap;
  must(tide_machine_new_dry(&options, &machine));
  (void)printf("Tidemark %s keeps %zu bytes of records\n", tide_version(), live);

  // Out of memory is an ordinary result.
  const tide_status status = tide_machine_raw_alloc(machine, 0, 65 * MIB, &address);
  (void)printf("%s (%s)\n  %s\n", tide_status_name(status), tide_status_text(status),
               tide_last_error()->text);

  tide_machine_free(machine);
  return status == TIDE_ERR_NO_MEMORY && live == 0 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the text of a device allocator's options: any text is read whole or leaves the options alone, what
// was read is in range, and printing it gives a text that reads back to the same.
#include <stdlib.h>
#include <string.h>

#include "device/options.h"

#define FUZZ_REQUIRE(cond) \
  do {                     \
    if (!(cond)) abort();  \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

// Options have no padding, so equal ones are equal bytes.
static bool has_same_bytes(const void* a, const void* b, size_t bytes) { return memcmp(a, b, bytes) == 0; }

static void check_printed(const tide_device_options* options) {
  const size_t length = tide_device_options_print(options, NULL, 0);
  char* text = malloc(length + 1);
  FUZZ_REQUIRE(text != NULL);
  FUZZ_REQUIRE(tide_device_options_print(options, text, length + 1) == length && strlen(text) == length);
  tide_device_options again = TIDE_DEVICE_OPTIONS_INIT;
  FUZZ_REQUIRE(tide_device_options_parse(text, &again) == TIDE_OK);
  FUZZ_REQUIRE(has_same_bytes(&again, options, sizeof again));
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  char* text = malloc(bytes + 1);
  FUZZ_REQUIRE(text != NULL);
  if (bytes > 0) memcpy(text, data, bytes);
  text[bytes] = '\0';
  const tide_device_options before = TIDE_DEVICE_OPTIONS_INIT;
  tide_device_options options = before;
  if (tide_device_options_parse(text, &options) == TIDE_OK) {
    tide_device_options taken;
    FUZZ_REQUIRE(tide__device_options_take(&options, "fuzz", &taken) == TIDE_OK);
    check_printed(&options);
  } else {
    FUZZ_REQUIRE(has_same_bytes(&options, &before, sizeof options));
  }
  free(text);
  return 0;
}

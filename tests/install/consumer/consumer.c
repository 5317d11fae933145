// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A program that uses an installed Tidemark. It is compiled as C and as C++, so it uses only what both have.
#include <stdio.h>

#include "tidemark/tidemark.h"

int main(void) {
  tide_machine* machine = NULL;
  void* memory = NULL;
  tide_status status = tide_machine_new_dry(NULL, &machine);
  if (status == TIDE_OK) status = tide_machine_raw_alloc(machine, 0, (size_t)64 << 30, &memory);
  if (status == TIDE_OK) status = tide_machine_raw_release(machine, 0, memory);
  if (status != TIDE_OK) {
    (void)fprintf(stderr, "%s: %s\n", tide_status_name(status), tide_last_error()->text);
    return 1;
  }
  (void)printf("%s %s\n", tide_machine_name(machine), tide_version());
  tide_machine_free(machine);
  return tide_version_number() == TIDE_VERSION_NUMBER ? 0 : 1;
}

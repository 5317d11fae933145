// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Call stacks, and symbols of code addresses.
#include <dlfcn.h>
#include <string.h>

#include "base/sys.h"
#if defined(__GLIBC__)
#include <execinfo.h>
#endif

enum { STACK_MOST = 128 };

size_t tide__sys_stack(uint64_t* frames, size_t capacity, size_t skipped) {
#if defined(__GLIBC__)
  void* addresses[STACK_MOST];
  const int found = backtrace(addresses, STACK_MOST);
  size_t count = 0;
  for (size_t i = skipped + 1; i < (size_t)(found > 0 ? found : 0) && count < capacity; i++) {
    frames[count++] = (uint64_t)(uintptr_t)addresses[i];
  }
  return count;
#else
  (void)frames, (void)capacity, (void)skipped;
  return 0;
#endif
}

bool tide__sys_symbol(uint64_t address, tide__symbol* out) {
  Dl_info info;
  void* place = NULL;
  const uintptr_t number = (uintptr_t)address;
  memcpy(&place, &number, sizeof place);
  *out = (tide__symbol){ NULL, NULL, 0 };
  if (dladdr(place, &info) == 0 || info.dli_fname == NULL) return false;
  out->name = info.dli_sname;
  out->file = info.dli_fname;
  out->offset = address - (uint64_t)(uintptr_t)info.dli_fbase;
  return true;
}

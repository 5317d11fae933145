// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tensor.h: a kernel allocates memory, and its caller decides where that comes from.
#include <string.h>

#include "example.h"

// A kernel that does not know about caches.
static void* make_tensor(size_t bytes) {
  void* address = NULL;
  must(tide_tensor_alloc(bytes, &address));
  memset(address, 0, bytes);
  return address;
}

int main(void) {
  tide_cpu_cache* cache = NULL;
  must(tide_cpu_new(NULL, &cache));
  void* const outside = make_tensor(MIB);

  must(tide_tensor_enter(cache));
  void* const inside = make_tensor(MIB);
  tide_tensor_leave(cache);

  const bool is_right = !tide_cpu_owns(outside) && tide_cpu_owns(inside);
  (void)printf("outside: %s, inside: %s\n", tide_cpu_owns(outside) ? "the cache" : "the system",
               tide_cpu_owns(inside) ? "the cache" : "the system");
  tide_tensor_release(inside);  // in any scope, or none
  tide_tensor_release(outside);
  tide_cpu_free(cache, NULL);
  return is_right ? 0 : 1;
}

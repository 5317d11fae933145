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

// A source of the program's own: it counts the bytes and passes the request on.
static tide_status counting_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  const tide_memory system = tide_memory_cpu();
  *(size_t*)memory->user += bytes;
  return system.alloc(&system, bytes, alignment, out);
}

static tide_status counting_release(const tide_memory* memory, void* address) {
  const tide_memory system = tide_memory_cpu();
  (void)memory;
  return system.release(&system, address);
}

int main(void) {
  size_t counted = 0;
  const tide_memory counting = { counting_alloc, counting_release, &counted, 0, true };
  tide_cpu_cache* cache = NULL;
  must(tide_cpu_new(NULL, &cache));
  must(tide_tensor_set_raw(TIDE_RAW_HUGE_PAGES));  // for tensors outside all scopes
  void* const outside = make_tensor(4 * MIB);

  must(tide_tensor_enter(cache));
  void* const inside = make_tensor(MIB);
  must(tide_tensor_enter_source(&counting));  // scopes nest
  const uint32_t depth = tide_tensor_depth();
  void* const innermost = make_tensor(MIB);
  must(tide_tensor_leave_source(&counting));
  must(tide_tensor_leave(cache));

  (void)printf("outside: %s, inside: %s; %u scopes, of which the inner one has served %zu bytes\n",
               tide_cpu_owns(outside) ? "the cache" : "the system",
               tide_cpu_owns(inside) ? "the cache" : "the system", depth, counted);
  const bool is_right = !tide_cpu_owns(outside) && tide_cpu_owns(inside) && !tide_cpu_owns(innermost);
  tide_tensor_release(innermost);  // in any scope, or none
  tide_tensor_release(inside);
  tide_tensor_release(outside);
  tide_cpu_free(cache, NULL);
  return is_right && depth == 2 && tide_tensor_depth() == 0 && counted > MIB ? 0 : 1;
}

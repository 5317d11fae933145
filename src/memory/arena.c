// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Arenas that are kept from run to run, and how large they should be.
#include "memory/arena.h"

#include "base/arith.h"
#include "base/error.h"

uint64_t tide__recent_max_add(tide__recent_max* recent, uint64_t number) {
  recent->largest = tide__max(recent->largest, number);
  if (recent->window == 0) return recent->largest;
  recent->numbers[recent->count++ % recent->window] = number;
  uint64_t largest = 0;
  for (uint32_t i = 0; i < recent->window; i++) largest = tide__max(largest, recent->numbers[i]);
  return largest;
}

static tide_status arena_try(tide__arena_memory* arena, const tide_memory* memory, uint64_t bytes,
                             uint64_t alignment) {
  void* base = NULL;
  if (bytes == 0) return TIDE_OK;
  TIDE_TRY(memory->alloc(memory, bytes, alignment, &base));
  *arena = (tide__arena_memory){ base, bytes };
  return TIDE_OK;
}

tide_status tide__arena_memory_alloc(tide__arena_memory* arena, const tide_memory* memory,
                                     const tide__arena_need* need) {
  *arena = (tide__arena_memory){ NULL, 0 };
  const tide_status status = arena_try(arena, memory, need->most, need->alignment);
  if (status == TIDE_OK || need->most == need->bytes) return status;
  return arena_try(arena, memory, need->bytes, need->alignment);
}

void tide__arena_memory_release(tide__arena_memory* arena, const tide_memory* memory) {
  if (arena->base != NULL) tide__ignore(memory->release(memory, arena->base));
  *arena = (tide__arena_memory){ NULL, 0 };
}

bool tide__arena_memory_fits(const tide__arena_memory* arena, const tide__arena_need* need) {
  return arena->bytes >= need->bytes && arena->bytes <= need->most &&
         tide__is_aligned(tide__address(arena->base), need->alignment);
}

bool tide__arena_memory_has(const tide__arena_memory* arena, const void* address) {
  return tide__address(address) - tide__address(arena->base) < arena->bytes;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Announcing that streams use a block, and copies that announce themselves. Calls release.c for the block
// that a caller names, and the rooms `stream`, `pool` and `idle`.
#include "pinned/calls.h"
#include "pinned/idle/idle.h"
#include "pinned/pool/pool.h"
#include "pinned/stream/stream.h"

static __attribute__((noinline)) tide_status record_slow(tide_pinned_cache* pinned, const char* call,
                                                         tide_block block, int device, tide_stream stream,
                                                         bool is_now) {
  tide__pin* found = NULL;
  tide__wait* use = NULL;
  uint32_t generation = 0;
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "%s: no cache", call);
  TIDE_REQUIRE(device >= 0 && device < pinned->device_count, TIDE_ERR_DEVICE, "%s: there is no device %d",
               call, device);
  if (block.address == NULL) return TIDE_OK;
  TIDE__PIN_REQUIRE_OWN(pinned, call);
  TIDE_TRY(tide__pin_name(pinned, call, block, &found, &generation));
  TIDE_TRY(tide__pin_record_take(pinned, device, stream, &use));
  if (is_now && !tide__capture_has(pinned->machine, device, stream)) {
    const tide_status status = tide__wait_record_early(&pinned->waits, use);
    if (status != TIDE_OK) {
      tide__pin_records_give(pinned, use);
      return status;
    }
  }
  TIDE_REQUIRE(tide__pin_use_add(pinned, found, generation, use), TIDE_ERR_STATE,
               "%s: the block at %p was released meanwhile", call, block.address);
  return TIDE_OK;
}

// The block has a record from its last use, and was not announced since it was handed out.
static inline bool record_fast(tide_pinned_cache* pinned, tide_block name, int device, tide_stream stream) {
  tide__pin* const block = tide__pin_named(pinned, name);
  return block != NULL && tide__pin_use_again(block, (uint32_t)(name.handle >> 32), device, stream);
}

tide_status tide_pinned_record(tide_pinned_cache* pinned, tide_block block, int device, tide_stream stream) {
  const bool is_now = stream == TIDE_STREAM_PER_THREAD;
  if (pinned != NULL && !is_now && record_fast(pinned, block, device, stream)) return TIDE_OK;
  return record_slow(pinned, "pinned_record", block, device, stream, is_now);
}

tide_status tide_pinned_record_now(tide_pinned_cache* pinned, tide_block block, int device,
                                   tide_stream stream) {
  return record_slow(pinned, "pinned_record_now", block, device, stream, true);
}

static bool block_has(const tide__pin* block, const void* address, uint64_t bytes) {
  const uint64_t begin = tide__address(address);
  const uint64_t first = tide__pin_address(block);
  uint64_t end = 0;
  return tide__add(begin, bytes, &end) && begin >= first && end <= first + tide__pin_bytes(block);
}

tide_status tide_pinned_copy(tide_pinned_cache* pinned, tide_block block, int device, tide_stream stream,
                             void* destination, const void* source, size_t bytes) {
  tide__pin* found = NULL;
  uint32_t generation = 0;
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "pinned_copy: no cache");
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(block.address != NULL, TIDE_ERR_ARGUMENT, "pinned_copy: no block");
  TIDE_TRY(tide__pin_name(pinned, "pinned_copy", block, &found, &generation));
  const bool is_read = block_has(found, source, bytes);
  TIDE_REQUIRE(is_read || block_has(found, destination, bytes), TIDE_ERR_ARGUMENT,
               "pinned_copy: neither %p nor %p has %zu bytes inside the block at %p", destination, source,
               bytes, block.address);
  const bool is_thread_stream = stream == TIDE_STREAM_PER_THREAD;
  if (!is_thread_stream) TIDE_TRY(tide_pinned_record(pinned, block, device, stream));
  TIDE_TRY(tide_machine_copy(pinned->machine, device, stream, destination, source, bytes));
  if (is_read) tide__pin_copy_note(pinned, found, device, stream, source, bytes);
  return is_thread_stream ? tide_pinned_record_now(pinned, block, device, stream) : TIDE_OK;
}

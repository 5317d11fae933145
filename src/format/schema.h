// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The known words of a memory snapshot, shared by the readers and writers of pickle and JSON. A reader
// interns them first, in this order, so that the number of a known text is its constant here.
#ifndef TIDEMARK_SRC_FORMAT_SCHEMA_H
#define TIDEMARK_SRC_FORMAT_SCHEMA_H

#include "tidemark/trace.h"

// The keys come first, then the words that are values.
#define TIDE__WORD_MAP(X)                         \
  X(SEGMENTS, "segments")                         \
  X(DEVICE_TRACES, "device_traces")               \
  X(ALLOCATOR_SETTINGS, "allocator_settings")     \
  X(EXTERNAL_ANNOTATIONS, "external_annotations") \
  X(DEVICE, "device")                             \
  X(ADDRESS, "address")                           \
  X(TOTAL_SIZE, "total_size")                     \
  X(ALLOCATED_SIZE, "allocated_size")             \
  X(ACTIVE_SIZE, "active_size")                   \
  X(REQUESTED_SIZE, "requested_size")             \
  X(STREAM, "stream")                             \
  X(SEGMENT_TYPE, "segment_type")                 \
  X(SEGMENT_POOL_ID, "segment_pool_id")           \
  X(IS_EXPANDABLE, "is_expandable")               \
  X(FRAMES, "frames")                             \
  X(BLOCKS, "blocks")                             \
  X(SIZE, "size")                                 \
  X(STATE, "state")                               \
  X(NAME, "name")                                 \
  X(FILENAME, "filename")                         \
  X(LINE, "line")                                 \
  X(ACTION, "action")                             \
  X(ADDR, "addr")                                 \
  X(DEVICE_FREE, "device_free")                   \
  X(TIME_US, "time_us")                           \
  X(COMPILE_CONTEXT, "compile_context")           \
  X(USER_METADATA, "user_metadata")               \
  X(POOL_ID, "pool_id")                           \
  X(SMALL, "small")                               \
  X(LARGE, "large")                               \
  X(INACTIVE, "inactive")                         \
  X(ACTIVE_ALLOCATED, "active_allocated")         \
  X(ACTIVE_PENDING_FREE, "active_pending_free")   \
  X(ALLOC, "alloc")                               \
  X(FREE_REQUESTED, "free_requested")             \
  X(FREE_COMPLETED, "free_completed")             \
  X(SEGMENT_ALLOC, "segment_alloc")               \
  X(SEGMENT_FREE, "segment_free")                 \
  X(SEGMENT_MAP, "segment_map")                   \
  X(SEGMENT_UNMAP, "segment_unmap")               \
  X(SNAPSHOT, "snapshot")                         \
  X(OOM, "oom")                                   \
  X(USER_DEFINED, "user_defined")                 \
  X(OTHER, "other")

typedef enum tide__word {
  TIDE__WORD_NONE = 0,
#define TIDE__WORD_ENUM(name, text) TIDE__WORD_##name,
  TIDE__WORD_MAP(TIDE__WORD_ENUM)
#undef TIDE__WORD_ENUM
      TIDE__WORD_COUNT
} tide__word;

// The text of a word.
const char* tide__word_text(tide__word word);

// Interns all words into an empty table, so that each gets its number.
tide_status tide__words_intern(tide_intern* names);

// The words of states and of actions are in the order of their constants.
static inline tide__word tide__word_of_action(uint32_t action) {
  return (tide__word)(TIDE__WORD_ALLOC + action);
}
static inline tide__word tide__word_of_state(uint32_t state) {
  return (tide__word)(TIDE__WORD_INACTIVE + state);
}

#endif

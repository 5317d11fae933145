// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: steps, the repeated parts of a recorded run such as the iterations of a training loop; and leaks,
// which grow from step to step. docs/leaks.md describes how steps are found and when growth is a leak.
//
//   tide_ledger* ledger = NULL;
//   tide_steps* steps = NULL;
//   tide_status status = tide_ledger_new(trace, 0, &ledger);
//   if (status == TIDE_OK) status = tide_steps_find(trace, 0, ledger, NULL, &steps);
//   size_t count = 0;
//   const tide_leak* leaks = tide_steps_leaks(steps, &count);
//   for (size_t i = 0; i < count; i++) printf("%.0f bytes a step\n", leaks[i].bytes_per_step);
//   tide_steps_free(steps);
//   tide_ledger_free(ledger);
#ifndef TIDEMARK_STEPS_H
#define TIDEMARK_STEPS_H

#include "tidemark/ledger.h"

TIDE_BEGIN_DECLS

// How steps were found: constant, value, name. The values never change.
#define TIDE_STEPS_SOURCE_MAP(X)                                                         \
  X(NONE, 0, "none")             /* there are none */                                    \
  X(ANNOTATION, 1, "annotation") /* a range of the program: the profiler's or its own */ \
  X(METADATA, 2, "metadata")     /* the metadata of entries */                           \
  X(OPTIMIZER, 3, "optimizer")   /* the step of an optimizer, in stacks */               \
  X(FRAME, 4, "frame")           /* the frame that `name` names */                       \
  X(SEQUENCE, 5, "sequence")     /* the same sequence of lifetimes comes again */        \
  X(LEVEL, 6, "level")           /* live memory returns to the same level */             \
  X(ENTRIES, 7, "entries")       /* every `entries` entries */

typedef enum tide_steps_source {
#define TIDE_STEPS_SOURCE_ENUM(name, value, text) TIDE_STEPS_##name = value,
  TIDE_STEPS_SOURCE_MAP(TIDE_STEPS_SOURCE_ENUM)
#undef TIDE_STEPS_SOURCE_ENUM
} tide_steps_source;

// The name of a source, or NULL if it is not a tide_steps_source.
TIDE_API const char* tide_steps_source_name(uint32_t source);

typedef struct tide_steps_options {
  uint32_t size;  // set by TIDE_STEPS_OPTIONS_INIT
  // Names what marks a step: a part of the name of an annotation, of the metadata of entries, or of a frame
  // "file:line function"; the first of these kinds that occurs counts. NULL: look for steps.
  const char* name;
  uint64_t entries;  // instead: the length of every step; 0: not given
  // The call site of a stack, as any number; 0 if it has none. NULL: the number of the stack. Called often.
  uint64_t (*site)(void* user, uint32_t stack);
  void* user;  // passed to site
} tide_steps_options;
#define TIDE_STEPS_OPTIONS_INIT TIDE_SIZED(tide_steps_options)

// A step. The first and the last item may be no whole steps: what precedes the first one and what follows
// the last one. All sizes are those of the ledger; `live` and `peak` are of live_bytes.
typedef struct tide_step {
  uint64_t first;  // number of its first entry
  uint64_t end;    // number of the entry after its last
  bool is_whole;
  uint64_t live_before;     // before the first entry
  uint64_t live_bytes;      // after the last entry
  uint64_t peak_bytes;      // the most after any entry
  uint64_t peak_at;         // the first entry after which it was reached
  uint64_t reserved_bytes;  // the most of reserved_bytes
} tide_step;

// Blocks that are suspected to be leaked at one place: they were allocated in many steps and none was freed.
typedef struct tide_leak {
  uint64_t site;      // the call site; 0: unknown, then the blocks have stream and sizes in common
  uint64_t stream;    // of the last block
  uint64_t smallest;  // sizes of the blocks as requested
  uint64_t largest;
  uint64_t blocks;  // suspected blocks, and their bytes, each rounded up to 512
  uint64_t bytes;
  double blocks_per_step;
  double bytes_per_step;
  double certainty;        // 0 to 1: how likely it goes on, see docs/leaks.md
  uint32_t stack;          // of the last block
  uint32_t growing_steps;  // steps in which a suspected block was allocated
  uint64_t first_step;     // numbers of whole steps, from 1: where the growth began, and the last such step
  uint64_t last_step;
} tide_leak;

// Below this number of whole steps, leaks are not looked for.
#define TIDE_LEAK_STEPS 8

typedef struct tide_steps tide_steps;  // opaque; freed by tide_steps_free()

// Finds the steps of one device, measures them, and looks for leaks. `ledger` must be of this trace and
// device; if the recording begins in the middle, the call moves it. NULL options are the defaults. The trace
// is borrowed until the steps are freed. That there are no steps is not an error: see
// tide_steps_get_source().
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_LIMIT for 2^31 or more entries; TIDE_ERR_NO_MEMORY.
// Cost:    O(n), and O(n log n) if neither annotations nor stacks show the steps.
TIDE_API TIDE_NODISCARD tide_status tide_steps_find(const tide_trace* trace, size_t device,
                                                    tide_ledger* ledger, const tide_steps_options* options,
                                                    tide_steps** out);
TIDE_API void tide_steps_free(tide_steps* steps);

// How the steps were found, and the name of the annotation, metadata or frame (the first one's), or NULL.
TIDE_API tide_steps_source tide_steps_get_source(const tide_steps* steps);
TIDE_API const char* tide_steps_name(const tide_steps* steps);

// All steps in order, and how many of them are whole. Without steps there are no items.
// Owner:   the steps, like all below.
TIDE_API const tide_step* tide_steps_items(const tide_steps* steps, size_t* out_count);
TIDE_API size_t tide_steps_whole(const tide_steps* steps);

// The suspected leaks, most bytes per step first.
TIDE_API const tide_leak* tide_steps_leaks(const tide_steps* steps, size_t* out_count);

TIDE_END_DECLS
#endif

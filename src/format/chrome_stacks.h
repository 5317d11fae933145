// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The stacks of a timeline: the names of slices, and the tree of frames that slices refer to.
#ifndef TIDEMARK_SRC_FORMAT_CHROME_STACKS_H
#define TIDEMARK_SRC_FORMAT_CHROME_STACKS_H

#include "base/stack_tree.h"
#include "format/frames.h"
#include "format/numbers.h"
#include "format/output.h"

#define TIDE__CHROME_NAME 96u  // bytes of a name; longer ones are cut

typedef struct tide__chrome_stack {
  uint32_t node;        // of its innermost shown frame in the tree; 0: it has none
  uint16_t name_bytes;  // the innermost line outside of PyTorch, for the name of a slice; 0: there is none
  uint16_t from_bytes;  // the program's own line, if the name is a line of a package; 0 otherwise
  size_t texts;         // offset of the name, and behind it of the other line
} tide__chrome_stack;

typedef struct tide__chrome_stacks {
  const tide_heap* heap;  // borrowed until fini
  tide_frames frames;
  tide__stack_tree tree;
  tide__bytes texts;
  tide__chrome_stack* items;  // owned; by the number of the stack
  bool* is_known;             // owned
  size_t count;
} tide__chrome_stacks;

// Errors: TIDE_ERR_NO_MEMORY. fini is needed also after a failure.
// Cost:   that of tide__frames_init(); 17 bytes for each stack.
tide_status tide__chrome_stacks_init(tide__chrome_stacks* stacks, const tide_intern* names,
                                     const tide_heap* heap);
void tide__chrome_stacks_fini(tide__chrome_stacks* stacks);

// Examines a stack once, and adds it to the tree.
// Errors: as of tide__stack_tree_add().
tide_status tide__chrome_stacks_find(tide__chrome_stacks* stacks, uint32_t stack, tide__chrome_stack* out);

static inline const char* tide__chrome_stacks_text(const tide__chrome_stacks* stacks, size_t offset) {
  return (const char*)stacks->texts.data + offset;
}

// Writes the tree as the member "stackFrames", with a comma before it; nothing if it is empty.
void tide__chrome_stacks_write(const tide__chrome_stacks* stacks, tide__output* output);

#endif

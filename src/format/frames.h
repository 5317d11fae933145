// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What of a call stack is shown to people: which frames, and as which text. PyTorch's viewers leave out
// frames that tell of the interpreter or of the recording itself; so do we.
#ifndef TIDEMARK_SRC_FORMAT_FRAMES_H
#define TIDEMARK_SRC_FORMAT_FRAMES_H

#include "tidemark/trace.h"

#define TIDE__FRAME_TEXT 512u              // bytes; longer ones are cut
#define TIDE__SHOWN_REPAIR "\xef\xbf\xbd"  // U+FFFD, for each byte that is no UTF-8

// Copies a text to show it on one line: repaired, with spaces for control characters, and cut between two
// characters where there is no more room. Returns how many bytes were written; no zero byte is.
size_t tide__shown_copy(char* out, size_t room, const char* text, size_t bytes);

typedef struct tide__frames {
  const tide_heap* heap;     // borrowed until fini
  const tide_intern* names;  // borrowed until fini
  bool* is_hidden;           // owned; by the number of the frame
  size_t count;              // frames have numbers below it
} tide__frames;

// Looks at every frame once.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__frames_init(tide__frames* frames, const tide_intern* names, const tide_heap* heap);
void tide__frames_fini(tide__frames* frames);

// Is it a frame of a file? A live recording has stacks of plain addresses.
static inline bool tide__frames_has(const tide__frames* frames, uint64_t frame) {
  return frame != 0 && frame < frames->count;
}
static inline bool tide__frames_is_shown(const tide__frames* frames, uint64_t frame) {
  return !tide__frames_has(frames, frame) || !frames->is_hidden[frame];
}

// A frame on one line, "model.py:12:forward", without the folders of the file; an address as "0x7f00".
// Returns its length; no zero byte is written.
size_t tide__frames_text(const tide__frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]);

#endif

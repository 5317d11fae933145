// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Call stacks for display: which frames are shown, and as which text. Like PyTorch's viewers, we hide frames
// of the interpreter and of the recording itself.
#ifndef TIDEMARK_SRC_FORMAT_FRAMES_H
#define TIDEMARK_SRC_FORMAT_FRAMES_H

#include "tidemark/trace.h"

#define TIDE__FRAME_TEXT 512u              // bytes; longer ones are cut
#define TIDE__SHOWN_REPAIR "\xef\xbf\xbd"  // U+FFFD, for each byte that is no UTF-8

// Copies a text for display on one line: invalid UTF-8 is repaired, control characters become spaces, and the
// text is truncated between characters. Returns the bytes written; there is no zero byte.
size_t tide__shown_copy(char* out, size_t room, const char* text, size_t bytes);

typedef struct tide__frames {
  const tide_heap* heap;     // borrowed until fini
  const tide_intern* names;  // borrowed until fini
  bool* is_hidden;           // owned; by the number of the frame
  size_t count;              // frames have numbers below it
} tide__frames;

// Decides for every frame once.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__frames_init(tide__frames* frames, const tide_intern* names, const tide_heap* heap);
void tide__frames_fini(tide__frames* frames);

// Is it a frame of a file? The stacks of a live recording are plain addresses.
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

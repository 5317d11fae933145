// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Call stacks for display: the frames that are shown, and as which text.
#ifndef TIDEMARK_SRC_FORMAT_FRAMES_H
#define TIDEMARK_SRC_FORMAT_FRAMES_H

#include "tidemark/format.h"

#define TIDE__FRAME_TEXT 512u              // bytes; longer ones are cut
#define TIDE__SHOWN_REPAIR "\xef\xbf\xbd"  // U+FFFD, for each byte that is no UTF-8

// Copies a text for display on one line: invalid UTF-8 is repaired, control characters become spaces, and the
// text is truncated between characters. Returns the bytes written; there is no zero byte.
size_t tide__shown_copy(char* out, size_t room, const char* text, size_t bytes);

struct tide_frames {
  const tide_heap* heap;     // borrowed until fini
  const tide_intern* names;  // borrowed until fini
  uint8_t* kinds;            // owned; by the number of the frame
  size_t count;              // frames have numbers below it
  uint32_t root_file;  // a text; its first `root_bytes` are the folder of all of the program's own files
  size_t root_bytes;
};

// Decides for every frame once.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__frames_init(tide_frames* frames, const tide_intern* names, const tide_heap* heap);
void tide__frames_fini(tide_frames* frames);

// Is it a frame of a file? The stacks of a live recording are plain addresses.
static inline bool tide__frames_has(const tide_frames* frames, uint64_t frame) {
  return frame != 0 && frame < frames->count;
}
static inline tide_frame_kind tide__frames_kind(const tide_frames* frames, uint64_t frame) {
  return tide__frames_has(frames, frame) ? (tide_frame_kind)frames->kinds[frame] : TIDE_FRAME_KIND_NATIVE;
}
static inline bool tide__frames_is_shown(const tide_frames* frames, uint64_t frame) {
  return tide__frames_kind(frames, frame) != TIDE_FRAME_KIND_HIDDEN;
}
static inline bool tide__frames_is_own(const tide_frames* frames, uint64_t frame) {
  return tide__frames_kind(frames, frame) >= TIDE_FRAME_KIND_OWN_NATIVE;
}

// A frame on one line, "models/net.py:12:forward"; without a known file "at::empty"; an address "0x7f00".
// Returns its length; no zero byte is written.
size_t tide__frames_text(const tide_frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]);
// Does a name identify a function without its file, as names of C++ do? Also if no file is known. And the
// name of a function with its file: "models/net.py:forward". Both take a frame of a file.
bool tide__frames_is_qualified(const tide_frames* frames, uint64_t frame);
size_t tide__frames_function(const tide_frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Call stacks for display: whose code a frame is, which frames are shown, and as which text. Like PyTorch's
// viewers, we hide frames of the interpreter and of the recording itself.
#ifndef TIDEMARK_SRC_FORMAT_FRAMES_H
#define TIDEMARK_SRC_FORMAT_FRAMES_H

#include "tidemark/trace.h"

#define TIDE__FRAME_TEXT 512u              // bytes; longer ones are cut
#define TIDE__SHOWN_REPAIR "\xef\xbf\xbd"  // U+FFFD, for each byte that is no UTF-8

// Copies a text for display on one line: invalid UTF-8 is repaired, control characters become spaces, and the
// text is truncated between characters. Returns the bytes written; there is no zero byte.
size_t tide__shown_copy(char* out, size_t room, const char* text, size_t bytes);

// Whose code a frame is. A later kind says more about what the program was doing.
typedef enum tide__frame_kind {
  TIDE__FRAME_HIDDEN,      // the interpreter's or the recording's; not shown
  TIDE__FRAME_NATIVE,      // C or C++ of PyTorch, or of an unknown file
  TIDE__FRAME_STANDARD,    // Python's standard library, or a script that starts programs
  TIDE__FRAME_TORCH,       // PyTorch, in Python
  TIDE__FRAME_PACKAGE,     // another installed package
  TIDE__FRAME_OWN_NATIVE,  // the program's own, in C or C++
  TIDE__FRAME_OWN,         // the program's own, in Python
} tide__frame_kind;

typedef struct tide__frames {
  const tide_heap* heap;     // borrowed until fini
  const tide_intern* names;  // borrowed until fini
  uint8_t* kinds;            // owned; by the number of the frame
  size_t count;              // frames have numbers below it
  uint32_t root_file;  // a text; its first `root_bytes` are the folder of all of the program's own files
  size_t root_bytes;
} tide__frames;

// Decides for every frame once.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__frames_init(tide__frames* frames, const tide_intern* names, const tide_heap* heap);
void tide__frames_fini(tide__frames* frames);

// Is it a frame of a file? The stacks of a live recording are plain addresses.
static inline bool tide__frames_has(const tide__frames* frames, uint64_t frame) {
  return frame != 0 && frame < frames->count;
}
static inline tide__frame_kind tide__frames_kind(const tide__frames* frames, uint64_t frame) {
  return tide__frames_has(frames, frame) ? (tide__frame_kind)frames->kinds[frame] : TIDE__FRAME_NATIVE;
}
static inline bool tide__frames_is_shown(const tide__frames* frames, uint64_t frame) {
  return tide__frames_kind(frames, frame) != TIDE__FRAME_HIDDEN;
}
static inline bool tide__frames_is_own(const tide__frames* frames, uint64_t frame) {
  return tide__frames_kind(frames, frame) >= TIDE__FRAME_OWN_NATIVE;
}

// The place in a stack where the program asked for memory, and the line of a library behind it. Both are
// indices of the stack, whose frames are innermost first; `count` of it means none.
typedef struct tide__frames_site {
  // The innermost frame of the program's own. Without one, the innermost frame of an installed package other
  // than PyTorch; without one, the outermost frame of PyTorch: the innermost is the same for all programs.
  size_t own;
  size_t called;  // among the frames inside that one, the best by the same rules
} tide__frames_site;
tide__frames_site tide__frames_find_site(const tide__frames* frames, const uint64_t* stack, size_t count);

// The part of a file's name that identifies it: without the folder where packages are installed, or the
// folder of all of the program's own files. It ends where the name ends. Empty if the file is unknown.
const char* tide__frames_path(const tide__frames* frames, uint32_t file, size_t* out_bytes);

// A frame on one line, "models/net.py:12:forward"; without a known file "at::empty"; an address "0x7f00".
// Returns its length; no zero byte is written.
size_t tide__frames_text(const tide__frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]);
// Does a name identify a function without its file, as names of C++ do? Also if no file is known. And the
// name of a function with its file: "models/net.py:forward". Both take a frame of a file.
bool tide__frames_is_qualified(const tide__frames* frames, uint64_t frame);
size_t tide__frames_function(const tide__frames* frames, uint64_t frame, char out[TIDE__FRAME_TEXT]);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the allocators ask a machine about captures, and how they call it beside one. A question never changes
// the calling thread's error record, unless it returns a status.
#ifndef TIDEMARK_SRC_CORE_CAPTURE_H
#define TIDEMARK_SRC_CORE_CAPTURE_H

#include "tidemark/machine.h"

// The id of the active capture that a stream is in; 0 if it is in none, or if the machine does not tell.
uint64_t tide__capture_of(tide_machine* machine, int device, tide_stream stream);

// Is a stream in a capture, active or invalidated? A stream that no longer exists is in none. If the machine
// does not tell, the stream counts as captured; tide__capture_ask() returns the failure as well.
tide_status tide__capture_ask(tide_machine* machine, int device, tide_stream stream, bool* out);
bool tide__capture_has(tide_machine* machine, int device, tide_stream stream);
// Does a stream exist, outside every capture? False if the machine does not tell.
bool tide__capture_is_outside(tide_machine* machine, int device, tide_stream stream);

// The capture mode that a thread had before tide__relax().
typedef struct tide__relaxed {
  tide_machine* machine;  // borrowed; NULL: the mode was not changed
  tide_capture_mode before;
} tide__relaxed;

// Puts the calling thread into the mode RELAXED, in which calls that are unsafe during a capture of its own
// succeed. A failure changes nothing, and tide__relax_end() does nothing then.
tide_status tide__relax(tide_machine* machine, tide__relaxed* out);
// The same for callers that go on after a failure: the thread's error record is kept.
tide__relaxed tide__relax_or_not(tide_machine* machine);
// Restores the mode. Tries three times, because a thread must not stay in the mode RELAXED.
void tide__relax_end(const tide__relaxed* relaxed);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How the allocators query a machine about captures, and call it during one. A query leaves the calling
// thread's error record unchanged, unless it returns a failure.
#ifndef TIDEMARK_SRC_CORE_CAPTURE_H
#define TIDEMARK_SRC_CORE_CAPTURE_H

#include "tidemark/machine.h"

// The id of the active capture that a stream is in; 0 if it is in none, or if the call of the machine fails.
uint64_t tide__capture_of(tide_machine* machine, int device, tide_stream stream);

// Is a stream in a capture, active or invalidated? A stream that no longer exists is in none. If the call of
// the machine fails otherwise, the stream counts as captured, and tide__capture_ask() returns the failure.
tide_status tide__capture_ask(tide_machine* machine, int device, tide_stream stream, bool* out);
bool tide__capture_has(tide_machine* machine, int device, tide_stream stream);
// Does a stream exist outside of every capture? False if the call of the machine fails.
bool tide__capture_is_outside(tide_machine* machine, int device, tide_stream stream);

// The capture mode that a thread had before tide__relax().
typedef struct tide__relaxed {
  tide_machine* machine;  // borrowed; NULL: the mode was not changed
  tide_capture_mode before;
} tide__relaxed;

// Puts the calling thread into the mode RELAXED, in which calls that are unsafe during a capture of its own
// succeed. After a failure the mode is unchanged, and tide__relax_end() does nothing.
tide_status tide__relax(tide_machine* machine, tide__relaxed* out);
// The same for callers that ignore a failure; it leaves the thread's error record unchanged.
tide__relaxed tide__relax_or_not(tide_machine* machine);
// Restores the mode. Tries three times, because a thread must not stay in the mode RELAXED.
void tide__relax_end(const tide__relaxed* relaxed);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a thread says about itself, for the entries of every allocator: see tide_thread_set_metadata().
#ifndef TIDEMARK_SRC_TRACE_WORDS_H
#define TIDEMARK_SRC_TRACE_WORDS_H

#include "tidemark/trace.h"

// The note of the calling thread's words in a table; 0 when there are none, or no memory for it, which leaves
// the thread's error as it was. With no lock held.
// Cost: O(1) as long as the words stay the same.
uint32_t tide__words_note(tide_intern* names);

// The note of a remark: its text is the metadata, the rest is as in the thread's own note.
// Errors: as tide_intern_add_text().
tide_status tide__words_remark(tide_intern* names, const char* text, uint32_t* out);

#endif

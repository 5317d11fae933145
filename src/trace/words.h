// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The metadata and context of threads, for the entries of every cache: see tide_thread_set_metadata().
#ifndef TIDEMARK_SRC_TRACE_WORDS_H
#define TIDEMARK_SRC_TRACE_WORDS_H

#include "tidemark/trace.h"

// The number of the calling thread's note in a table; 0 if the thread has none, or without memory, which does
// not change the thread's last error. Call it with no lock held.
// Cost: O(1) as long as metadata and context do not change.
uint32_t tide__words_note(tide_intern* names);

// The note of a remark: its text is the metadata, and the context is that of the thread.
// Errors: as tide_intern_add_text().
tide_status tide__words_remark(tide_intern* names, const char* text, uint32_t* out);

#endif

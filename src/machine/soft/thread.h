// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// State of the calling thread: its number, its capture mode, whether it runs a callback, and its default
// streams. Uses only the addresses of streams.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_THREAD_H
#define TIDEMARK_SRC_MACHINE_SOFT_THREAD_H

#include "machine/soft/state.h"

// A number that is unique in the process and not 0.
uint64_t tide__thread_token(void);
// The capture mode of the calling thread.
tide_capture_mode* tide__thread_capture_mode(void);
// Calls a tide_call_fn. During the call, tide__soft_is_in_callback() is true on this thread.
void tide__thread_callback(tide_call_fn function, void* user);
bool tide__soft_is_in_callback(const void* self);

// The default stream of this thread on a device, or NULL if it has none yet.
tide__stream* tide__thread_stream(const tide__soft* soft, int device);
// Keeps a default stream for this thread. When the thread ends, `end` is called if the machine still exists.
bool tide__thread_stream_note(tide__soft* soft, int device, tide__stream* stream,
                              void (*end)(tide__stream* stream));
// While a machine is registered, threads that end free their streams on it.
void tide__soft_register(tide__soft* soft);
void tide__soft_unregister(tide__soft* soft);

#endif

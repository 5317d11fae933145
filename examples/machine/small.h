// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A small machine: one device made of ordinary memory, and a thread for each stream.
#ifndef SMALL_H
#define SMALL_H

#include "tidemark/machine_ops.h"

// Makes a small machine with one device of `capacity` bytes.
tide_status small_machine_new(uint64_t capacity, tide_machine** out);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Operations on streams: queueing copies, fills and calls, and executing them. Uses stream.h, memory.h and
// the rules of capture.h.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_WORK_H
#define TIDEMARK_SRC_MACHINE_SOFT_WORK_H

#include "machine/soft/stream.h"

// Queues work, or adds it to the capture of the stream.
tide_status tide__stream_submit(tide__stream* stream, const char* name, const tide__op* op);
// Executes one operation, which is not a wait; and drops the references that an operation holds.
void tide__op_execute(tide__stream* stream, const tide__op* op);
void tide__op_drop(tide__soft* soft, const tide__op* op);

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The settings a recording was made with.
#ifndef TIDEMARK_SRC_REPLAY_RECORDED_H
#define TIDEMARK_SRC_REPLAY_RECORDED_H

#include "tidemark/device.h"
#include "tidemark/trace.h"

// As far as the trace tells them in a form that an allocator takes; the rest has its default.
tide_device_options tide__recorded_options(const tide_trace* trace);

#endif

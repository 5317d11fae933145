// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The settings of a recording.
#ifndef TIDEMARK_SRC_REPLAY_RECORDED_H
#define TIDEMARK_SRC_REPLAY_RECORDED_H

#include "tidemark/device.h"
#include "tidemark/trace.h"

// The settings in a trace, as far as a cache accepts them; all others have their defaults.
tide_device_options tide__recorded_options(const tide_trace* trace);

#endif

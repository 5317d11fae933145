// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What tests ask of the interned values beyond the public interface.
#ifndef TIDEMARK_SRC_TRACE_INTERN_H
#define TIDEMARK_SRC_TRACE_INTERN_H

#include "tidemark/trace.h"

// The number of the first invariant that does not hold, 0 if all do. O(n), with a lock held.
int tide__intern_check(tide_intern* names);

#endif

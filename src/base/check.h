// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Assertions about internal invariants. Mistakes of the caller get a status instead. TIDE_ASSERT costs O(1)
// and is on from TIDE_CHECK=1; TIDE_AUDIT may walk a structure and is on from TIDE_CHECK=2.
#ifndef TIDEMARK_SRC_BASE_CHECK_H
#define TIDEMARK_SRC_BASE_CHECK_H

#ifndef TIDE_CHECK
#define TIDE_CHECK 0
#endif

#define TIDE_STATIC_ASSERT(cond) _Static_assert(cond, #cond)

// Prints the broken assertion and aborts. No other code of the library does either.
_Noreturn void tide__assert_failed(const char* text, const char* file, int line);

#if TIDE_CHECK >= 1
#define TIDE_ASSERT(cond) ((cond) ? (void)0 : tide__assert_failed(#cond, __FILE__, __LINE__))
#else
#define TIDE_ASSERT(cond) ((void)sizeof(!(cond)))
#endif

#if TIDE_CHECK >= 2
#define TIDE_AUDIT(cond) TIDE_ASSERT(cond)
#else
#define TIDE_AUDIT(cond) ((void)sizeof(!(cond)))
#endif

#endif

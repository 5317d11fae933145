// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The words of a memory snapshot.
#include "format/schema.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"

static const char* const words[] = { "",
#define WORD_TEXT(name, text) text,
                                     TIDE__WORD_MAP(WORD_TEXT)
#undef WORD_TEXT
};

_Static_assert(TIDE__WORD_OTHER - TIDE__WORD_ALLOC == TIDE_ACTION_OTHER,
               "actions lie in the order of their values");
_Static_assert(TIDE__WORD_OTHER - TIDE__WORD_ALLOC + 1 == TIDE_ACTION_COUNT, "every action has its word");
_Static_assert(TIDE__WORD_ACTIVE_PENDING_FREE - TIDE__WORD_INACTIVE == TIDE_BLOCK_PENDING,
               "states do so as well");

const char* tide__word_text(tide__word word) { return words[word]; }

tide_status tide__words_intern(tide_intern* names) {
  for (uint32_t word = 1; word < TIDE__WORD_COUNT; word++) {
    uint32_t number = 0;
    TIDE_TRY(tide_intern_add_text(names, words[word], strlen(words[word]), &number));
    TIDE_ASSERT(number == word);
  }
  return TIDE_OK;
}

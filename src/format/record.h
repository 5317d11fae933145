// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Packs complete parts of a snapshot away: into the trace, where they have a place there, or as plain data.
#ifndef TIDEMARK_SRC_FORMAT_RECORD_H
#define TIDEMARK_SRC_FORMAT_RECORD_H

#include "format/assemble.h"

// Fails because of the file, at the place of the part.
#define TIDE__FILE_FAIL(a, words, ...)                                                              \
  TIDE_FAIL(TIDE_ERR_FORMAT, "%s: byte %llu: " words, (a)->format, (unsigned long long)(a)->offset, \
            __VA_ARGS__)

// What a part is that stands in a list or dict of some role; `key` is TIDE__WORD_NONE in a list.
tide__role tide__role_within(tide__role role, uint32_t key, bool is_dict);

// Packs a complete list or dict, and may change its items on the way. Its parts are complete themselves.
tide_status tide__pack(tide__assembler* a, tide__open* open, tide__item* out);

// One more device gets a list of entries.
tide_status tide__pack_device(tide__assembler* a, uint32_t* out);

// Packs plain data as what its place asks for.
tide_status tide__pack_value(tide__assembler* a, uint32_t value, tide__role role, uint32_t device,
                             tide__item* out);

// The plain data of a complete part.
tide_status tide__item_value(tide__assembler* a, const tide__item* item, uint32_t* out);

// A part that plain data is, and the word for a part in errors ("a list").
tide__item tide__value_item(const tide_intern* names, uint32_t value);
const char* tide__item_name(const tide__item* item);

// A word for the second stack, and a key with a complete part.
tide_status tide__assembler_word(tide__assembler* a, uint64_t word);
tide_status tide__words_add_pair(tide__assembler* a, uint32_t key, const tide__item* item);

// The words from `begin` on become the extra of a record, and are gone; 0 if there are none. Of a key that
// comes several times, the last counts.
tide_status tide__words_extra(tide__assembler* a, size_t begin, uint32_t* out);

// Packs a list, tuple or dict as plain data.
tide_status tide__pack_plain(tide__assembler* a, const tide__open* open, tide__item* out);

// Parts are packed anew because they stand in another place too. That must not cost more than the file is
// long.
tide_status tide__unshare(tide__assembler* a, size_t parts);

#endif

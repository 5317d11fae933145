// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Packs complete items of a snapshot: as records of the trace, or as plain data.
#ifndef TIDEMARK_SRC_FORMAT_RECORD_H
#define TIDEMARK_SRC_FORMAT_RECORD_H

#include "format/assemble.h"

// Fails with TIDE_ERR_FORMAT and the offset of the item.
#define TIDE__FILE_FAIL(a, words, ...)                                                              \
  TIDE_FAIL(TIDE_ERR_FORMAT, "%s: byte %llu: " words, (a)->format, (unsigned long long)(a)->offset, \
            __VA_ARGS__)

// The role of an item in a list or dict of some role. `key` is TIDE__WORD_NONE in a list.
tide__role tide__role_within(tide__role role, uint32_t key, bool is_dict);

// Packs a list or dict whose items are complete. May change the items.
tide_status tide__pack(tide__assembler* a, tide__open* open, tide__item* out);

// Begins the list of entries of the next device.
tide_status tide__pack_device(tide__assembler* a, uint32_t* out);

// Packs plain data as the role of its position.
tide_status tide__pack_value(tide__assembler* a, uint32_t value, tide__role role, uint32_t device,
                             tide__item* out);

// Converts a complete item to plain data.
tide_status tide__item_value(tide__assembler* a, const tide__item* item, uint32_t* out);

// The item of a value; and the name of an item for errors, such as "a list".
tide__item tide__value_item(const tide_intern* names, uint32_t value);
const char* tide__item_name(const tide__item* item);

// Push a word, or a key with a complete item, on the second stack.
tide_status tide__assembler_word(tide__assembler* a, uint64_t word);
tide_status tide__words_add_pair(tide__assembler* a, uint32_t key, const tide__item* item);

// Pops the words from `begin` on and makes them the extra of a record; 0 if there are none. If a key occurs
// several times, the last one counts.
tide_status tide__words_extra(tide__assembler* a, size_t begin, uint32_t* out);

// Packs a list, tuple or dict as plain data.
tide_status tide__pack_plain(tide__assembler* a, const tide__open* open, tide__item* out);

// Counts items that are packed again because they are shared. Fails if they are too many for the length of
// the file.
tide_status tide__unshare(tide__assembler* a, size_t parts);

#endif

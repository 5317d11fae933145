// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The stack of items. A list or dict is open until it is used: as an item of another, or when it is read from
// the memo. Then it is packed (record.c), and the memo refers to the packed item. So nothing can contain
// itself: it would have to be filled after it was used, which is an error.
//
// The role of a list or dict follows from the stack when it is opened: below it are the list or dict that it
// will be appended to, and in a dict its key. If several are possible, their kinds decide. A wrong guess
// costs only time, because plain data is packed again in its right place later.
//
// Cost: O(1) per item, apart from interning texts. An open dict is closed as soon as something that cannot be
//       its key is pushed, so a list of any length has at most one open dict.
#include "format/assemble.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "format/record.h"
#include "format/schema.h"
#include "trace/limit.h"

#define MEMO_GONE UINT64_MAX
#define MARKS_MAX 256u  // lists are nested less deep

void tide__assembler_fini(tide__assembler* a) {
  for (size_t i = 0; i < a->open_count; i++) {
    tide__heap_release(a->heap, a->opens[i].items, a->opens[i].room, sizeof *a->opens[i].items);
  }
  tide__heap_release(a->heap, a->opens, a->open_room, sizeof *a->opens);
  tide__heap_release(a->heap, a->stack, a->stack_room, sizeof *a->stack);
  tide__heap_release(a->heap, a->marks, a->mark_room, sizeof *a->marks);
  tide__heap_release(a->heap, a->memo, a->memo_room, sizeof *a->memo);
  tide__heap_release(a->heap, a->blocks, a->block_room, sizeof *a->blocks);
  tide__heap_release(a->heap, a->words, a->word_room, sizeof *a->words);
}

// ---------------------------------------------------------------------------------------------------
// Room

static tide_status grow(const tide__assembler* a, void* array, size_t* room, size_t need, size_t bytes) {
  void** const items = array;
  TIDE_REQUIRE(tide__heap_grow(a->heap, items, room, need, bytes), TIDE_ERR_NO_MEMORY,
               "%s: byte %llu: no memory for %zu parts", a->format, (unsigned long long)a->offset, need);
  return TIDE_OK;
}
#define GROW(a, array, room, need) \
  ((need) <= *(room) ? TIDE_OK : grow((a), (void*)(array), (room), (need), sizeof **(array)))

tide_status tide__assembler_init(tide__assembler* a, tide_trace* trace, const char* format) {
  *a = (tide__assembler){ .trace = trace, .names = tide_trace_names(trace), .format = format };
  a->heap = tide__trace_heap(trace);
  // Both stacks exist from the start, so that an empty range has an address.
  TIDE_TRY(GROW(a, &a->stack, &a->stack_room, 1));
  TIDE_TRY(GROW(a, &a->words, &a->word_room, 1));
  return tide__words_intern(a->names);
}

tide_status tide__assembler_word(tide__assembler* a, uint64_t word) {
  TIDE_TRY(GROW(a, &a->words, &a->word_room, a->word_count + 1));
  a->words[a->word_count++] = word;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The memo: kind, role, device and number in 64 bits

static uint64_t memo_pack(const tide__item* item) {
  const uint64_t small = item->kind == TIDE__ITEM_OPEN ? 0 : (uint64_t)item->as.integer & 0xffff;
  return item->kind | (uint64_t)item->role << 8 | small << 16 | (uint64_t)item->id << 32;
}

static tide__item memo_unpack(uint64_t memo) {
  return (tide__item){ .kind = memo & 0xff,
                       .role = memo >> 8 & 0xff,
                       .id = (uint32_t)(memo >> 32),
                       .as.integer = (int64_t)(memo >> 16 & 0xffff) };
}

// ---------------------------------------------------------------------------------------------------
// Lists and dicts that are being filled

static tide_status open_take(tide__assembler* a, uint32_t* out) {
  if (a->free_open != 0) {
    *out = a->free_open - 1;
    a->free_open = a->opens[*out].next_free;
    return TIDE_OK;
  }
  TIDE_TRY(GROW(a, &a->opens, &a->open_room, a->open_count + 1));
  *out = (uint32_t)a->open_count++;
  return TIDE_OK;
}

static void open_give(tide__assembler* a, uint32_t index, uint64_t memo) {
  tide__open* const open = &a->opens[index];
  if (open->memo != 0) a->memo[open->memo - 1] = memo;
  open->next_free = a->free_open;
  a->free_open = index + 1;
}

// Packs an open item.
static tide_status item_close(tide__assembler* a, tide__item* item) {
  if (item->kind != TIDE__ITEM_OPEN) return TIDE_OK;
  tide__item packed = { 0 };
  TIDE_TRY(tide__pack(a, &a->opens[item->id], &packed));
  open_give(a, item->id, memo_pack(&packed));
  *item = packed;
  return TIDE_OK;
}

static tide_status open_add(tide__assembler* a, tide__open* open, const tide__item* items, size_t count) {
  TIDE_TRY(GROW(a, &open->items, &open->room, open->count + count));
  if (count > 0) memcpy(open->items + open->count, items, count * sizeof *items);
  open->count += count;
  return TIDE_OK;
}

static bool role_is_counted(tide__role role) {
  return role == TIDE__ROLE_TRACES || role == TIDE__ROLE_TRACK || role == TIDE__ROLE_SEGMENTS ||
         role == TIDE__ROLE_BLOCKS;
}

// Appends a complete item to a list. A list of records keeps only their count. A call stack with an item that
// is not a frame becomes a plain list.
static tide_status list_take(tide__assembler* a, tide__open* open, tide__item* item) {
  const tide__role role = (tide__role)open->role;
  if (role == TIDE__ROLE_PLAIN) return open_add(a, open, item, 1);
  const tide__role want = tide__role_within(role, TIDE__WORD_NONE, true) != TIDE__ROLE_PLAIN
                              ? tide__role_within(role, TIDE__WORD_NONE, true)
                              : tide__role_within(role, TIDE__WORD_NONE, false);
  if (item->kind == TIDE__ITEM_VALUE) TIDE_TRY(tide__pack_value(a, item->id, want, open->device, item));
  const bool is_right = item->kind == TIDE__ITEM_PACKED && item->role == want;
  if (role == TIDE__ROLE_STACK) {
    if (!is_right) open->role = TIDE__ROLE_PLAIN;
    return open_add(a, open, item, 1);
  }
  if (!is_right) return TIDE__FILE_FAIL(a, "%s is not allowed here", tide__item_name(item));
  open->count += role_is_counted(role);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Parts

static const tide__open* open_at(const tide__assembler* a, size_t place) {
  const tide__item* const item = &a->stack[place];
  return item->kind == TIDE__ITEM_OPEN ? &a->opens[item->id] : NULL;
}

// Does the top item belong into a list of this role?
static bool top_is_within(const tide__assembler* a, tide__role role, bool is_dict) {
  const tide__item* const top = &a->stack[a->depth - 1];
  const tide__open* const open = open_at(a, a->depth - 1);
  const tide__role have = (tide__role)(open != NULL ? open->role : top->role);
  return have != TIDE__ROLE_PLAIN && have == tide__role_within(role, TIDE__WORD_NONE, is_dict);
}

// The role that follows from the item below the mark. In a list, the first item is directly above the mark,
// and the others follow one of their kind. In a dict, a value follows its key.
static tide__role role_above_mark(const tide__assembler* a, size_t mark, bool is_dict) {
  const tide__open* const open = mark > 0 ? open_at(a, mark - 1) : NULL;
  if (open == NULL) return TIDE__ROLE_PLAIN;
  const tide__role role = (tide__role)open->role;
  const tide__item* const top = &a->stack[a->depth - 1];
  const bool is_value = top->kind == TIDE__ITEM_TEXT && (a->depth - mark) % 2 == 1;
  if (open->is_dict) return is_value ? tide__role_within(role, top->id, is_dict) : TIDE__ROLE_PLAIN;
  const bool is_beside = a->depth == mark || top_is_within(a, role, is_dict);
  return is_beside ? tide__role_within(role, TIDE__WORD_NONE, is_dict) : TIDE__ROLE_PLAIN;
}

// The role of a list or dict that is opened now. It belongs to the item below it, or below its key; or else
// to the item below the mark. In doubt it is plain data, which does no harm.
static tide__role role_here(const tide__assembler* a, bool is_dict) {
  const size_t mark = a->mark_count > 0 ? a->marks[a->mark_count - 1] : 0;
  if (a->depth == 0 && a->mark_count == 0) return is_dict ? TIDE__ROLE_ROOT : TIDE__ROLE_SEGMENTS;
  if (a->depth == 0) return TIDE__ROLE_PLAIN;
  const tide__item* const top = &a->stack[a->depth - 1];
  const bool is_keyed = top->kind == TIDE__ITEM_TEXT;
  const uint32_t key = is_keyed ? top->id : TIDE__WORD_NONE;
  const tide__open* const near = a->depth > is_keyed ? open_at(a, a->depth - 1 - is_keyed) : NULL;
  if (near != NULL && near->is_dict == is_keyed) {
    const tide__role role = tide__role_within((tide__role)near->role, key, is_dict);
    if (is_keyed || role != TIDE__ROLE_PLAIN || near->role == TIDE__ROLE_PLAIN) return role;
  }
  return role_above_mark(a, mark, is_dict);
}

// Called before a push. Only a text can be a key of the dict on top; anything else means that it is complete.
static tide_status below_close(tide__assembler* a, uint8_t kind) {
  const tide__open* const below = a->depth > 0 && kind != TIDE__ITEM_TEXT ? open_at(a, a->depth - 1) : NULL;
  return below != NULL && below->is_dict ? item_close(a, &a->stack[a->depth - 1]) : TIDE_OK;
}

tide_status tide__assemble_item(tide__assembler* a, tide__item item) {
  TIDE_TRY(below_close(a, item.kind));
  TIDE_TRY(GROW(a, &a->stack, &a->stack_room, a->depth + 1));
  a->stack[a->depth++] = item;
  return TIDE_OK;
}

tide_status tide__assemble_text(tide__assembler* a, const void* text, size_t bytes) {
  tide__item item = { .kind = TIDE__ITEM_TEXT };
  TIDE_TRY(tide_intern_add_text(a->names, text, bytes, &item.id));
  return tide__assemble_item(a, item);
}

tide_status tide__assemble_open(tide__assembler* a, bool is_dict) {
  tide__item item = { .kind = TIDE__ITEM_OPEN };
  const tide__role role = role_here(a, is_dict);
  TIDE_TRY(tide__assemble_item(a, (tide__item){ .kind = TIDE__ITEM_NONE }));
  TIDE_TRY(open_take(a, &item.id));
  tide__open* const open = &a->opens[item.id];
  *open = (tide__open){ .items = open->items, .room = open->room, .place = a->depth - 1 };
  open->role = (uint8_t)role;
  open->is_dict = is_dict;
  if (role == TIDE__ROLE_ENTRY) open->device = (uint32_t)a->track_count - 1;
  if (role == TIDE__ROLE_TRACK) TIDE_TRY(tide__pack_device(a, &open->device));
  a->stack[a->depth - 1] = item;
  return TIDE_OK;
}

tide_status tide__assemble_mark(tide__assembler* a) {
  if (a->mark_count == MARKS_MAX) return TIDE__FILE_FAIL(a, "more than %u marks on the stack", MARKS_MAX);
  TIDE_TRY(GROW(a, &a->marks, &a->mark_room, a->mark_count + 1));
  a->marks[a->mark_count++] = a->depth;
  return TIDE_OK;
}

// Where the top items begin. Items below a mark that stays cannot be reached.
static tide_status parts_find(tide__assembler* a, size_t count, bool to_mark, size_t* out) {
  const size_t mark = a->mark_count > 0 ? a->marks[a->mark_count - 1] : 0;
  if (to_mark) {
    if (a->mark_count == 0) return TIDE__FILE_FAIL(a, "%s", "no mark is on the stack");
    if (mark > a->depth) return TIDE__FILE_FAIL(a, "%s", "the stack is shorter than at the mark");
    a->mark_count--;
    *out = mark;
    return TIDE_OK;
  }
  if (a->depth < count || a->depth - count < mark)
    return TIDE__FILE_FAIL(a, "fewer than %zu items on the stack", count);
  *out = a->depth - count;
  return TIDE_OK;
}

static tide_status parts_close(tide__assembler* a, size_t begin) {
  for (size_t i = begin; i < a->depth; i++) TIDE_TRY(item_close(a, &a->stack[i]));
  return TIDE_OK;
}

// The list or dict below some items.
static tide_status parts_owner(tide__assembler* a, size_t begin, bool is_dict, tide__open** out) {
  const tide__open* const open = begin > 0 ? open_at(a, begin - 1) : NULL;
  if (open == NULL || open->is_dict != is_dict)
    return TIDE__FILE_FAIL(a, "there is no open %s below the items", is_dict ? "dict" : "list");
  *out = &a->opens[a->stack[begin - 1].id];
  return TIDE_OK;
}

tide_status tide__assemble_append(tide__assembler* a, size_t count, bool to_mark) {
  size_t begin = 0;
  tide__open* open = NULL;
  TIDE_TRY(parts_find(a, count, to_mark, &begin));
  TIDE_TRY(parts_close(a, begin));
  for (size_t i = begin; i < a->depth; i++) {
    // Looked up each time, because packing an item may move the array.
    TIDE_TRY(parts_owner(a, begin, false, &open));
    TIDE_TRY(list_take(a, open, &a->stack[i]));
  }
  TIDE_TRY(parts_owner(a, begin, false, &open));
  a->depth = begin;
  return TIDE_OK;
}

static tide_status keys_check(tide__assembler* a, size_t begin) {
  if ((a->depth - begin) % 2 != 0) return TIDE__FILE_FAIL(a, "%s", "a key has no value");
  for (size_t i = begin; i < a->depth; i += 2) {
    if (a->stack[i].kind != TIDE__ITEM_TEXT)
      return TIDE__FILE_FAIL(a, "%s is not a valid key", tide__item_name(&a->stack[i]));
  }
  return TIDE_OK;
}

tide_status tide__assemble_set(tide__assembler* a, size_t count, bool to_mark) {
  size_t begin = 0;
  tide__open* open = NULL;
  TIDE_TRY(parts_find(a, count, to_mark, &begin));
  TIDE_TRY(parts_close(a, begin));
  TIDE_TRY(keys_check(a, begin));
  TIDE_TRY(parts_owner(a, begin, true, &open));
  TIDE_TRY(open_add(a, open, a->stack + begin, a->depth - begin));
  a->depth = begin;
  return TIDE_OK;
}

tide_status tide__assemble_gather(tide__assembler* a, tide_value_kind kind, size_t count, bool to_mark) {
  size_t begin = 0;
  tide__item item = { 0 };
  TIDE_TRY(parts_find(a, count, to_mark, &begin));
  TIDE_TRY(parts_close(a, begin));
  if (kind == TIDE_VALUE_DICT) TIDE_TRY(keys_check(a, begin));
  tide__open open = { .items = a->stack + begin,
                      .count = a->depth - begin,
                      .is_dict = kind == TIDE_VALUE_DICT,
                      .is_tuple = kind == TIDE_VALUE_TUPLE };
  TIDE_TRY(tide__pack(a, &open, &item));
  a->depth = begin;
  return tide__assemble_item(a, item);
}

// Records that are in the trace cannot be removed.
static tide_status part_drop(tide__assembler* a) {
  const tide__item* const item = &a->stack[a->depth - 1];
  const bool is_open = item->kind == TIDE__ITEM_OPEN;
  const tide__role role = (tide__role)(is_open ? a->opens[item->id].role : item->role);
  const bool is_free = role == TIDE__ROLE_PLAIN || role == TIDE__ROLE_STACK || role == TIDE__ROLE_FRAME;
  if (!is_free) return TIDE__FILE_FAIL(a, "%s", "an instruction discards a part of the snapshot");
  if (is_open) open_give(a, item->id, MEMO_GONE);
  a->depth--;
  return TIDE_OK;
}

tide_status tide__assemble_pop(tide__assembler* a) {
  size_t begin = 0;
  TIDE_TRY(parts_find(a, 1, false, &begin));
  return part_drop(a);
}

tide_status tide__assemble_pop_mark(tide__assembler* a) {
  size_t begin = 0;
  TIDE_TRY(parts_find(a, 0, true, &begin));
  while (a->depth > begin) TIDE_TRY(part_drop(a));
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The memo

// The number is reused: an item that is still open loses it.
static void memo_forget(tide__assembler* a, size_t number) {
  const tide__item item = memo_unpack(a->memo[number]);
  if (a->memo[number] != MEMO_GONE && item.kind == TIDE__ITEM_OPEN) a->opens[item.id].memo = 0;
}

tide_status tide__assemble_remember(tide__assembler* a, size_t number) {
  if (number == SIZE_MAX) number = a->memo_count;
  if (a->depth == 0) return TIDE__FILE_FAIL(a, "%s", "there is nothing to store in the memo");
  if (number > a->memo_count || number >= UINT32_MAX)
    return TIDE__FILE_FAIL(a, "memo number %zu is stored after %zu others", number, a->memo_count);
  tide__item item = a->stack[a->depth - 1];
  if (item.kind == TIDE__ITEM_OPEN) {
    if (a->opens[item.id].memo != 0) return TIDE__FILE_FAIL(a, "%s", "an item is stored in the memo twice");
  } else if (item.kind == TIDE__ITEM_INT || item.kind == TIDE__ITEM_UINT || item.kind == TIDE__ITEM_FLOAT) {
    TIDE_TRY(tide__item_value(a, &item, &item.id));
    item = (tide__item){ .kind = TIDE__ITEM_VALUE, .id = item.id };
  }
  TIDE_TRY(GROW(a, &a->memo, &a->memo_room, number + 1));
  if (number < a->memo_count) memo_forget(a, number);
  a->memo[number] = memo_pack(&item);
  if (item.kind == TIDE__ITEM_OPEN) a->opens[item.id].memo = (uint32_t)number + 1;
  if (number == a->memo_count) a->memo_count++;
  return TIDE_OK;
}

// A repeated entry is one more entry of the list that is being filled.
static tide_status entry_repeat(tide__assembler* a, tide__item* item) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(a->trace, (size_t)item->as.integer, &count);
  if (a->track_count == 0 || item->id >= count) return TIDE__FILE_FAIL(a, "%s", "the entry no longer exists");
  tide_trace_entry entry = entries[item->id];
  entry.device = (uint8_t)(a->track_count - 1);
  TIDE_TRY(tide_trace_add_entry(a->trace, &entry));
  tide_trace_entries(a->trace, entry.device, &count);
  item->id = (uint32_t)(count - 1);
  item->as.integer = entry.device;
  return TIDE_OK;
}

// Devices without entries may share one empty list.
static tide_status track_repeat(tide__assembler* a, tide__item item) {
  size_t count = 0;
  (void)tide_trace_entries(a->trace, item.id, &count);
  if (count > 0) return TIDE__FILE_FAIL(a, "%s occurs twice", tide__item_name(&item));
  TIDE_TRY(tide__pack_device(a, &item.id));
  return tide__assemble_item(a, item);
}

tide_status tide__assemble_recall(tide__assembler* a, size_t number) {
  if (number >= a->memo_count || a->memo[number] == MEMO_GONE)
    return TIDE__FILE_FAIL(a, "memo number %zu is not set", number);
  TIDE_TRY(below_close(a, memo_unpack(a->memo[number]).kind));
  tide__item item = memo_unpack(a->memo[number]);
  if (item.kind == TIDE__ITEM_OPEN) {
    // It is used, so it is complete.
    const size_t place = a->opens[item.id].place;
    TIDE_TRY(item_close(a, &a->stack[place]));
    item = a->stack[place];
  }
  if (item.kind == TIDE__ITEM_PACKED && item.role == TIDE__ROLE_TRACK) return track_repeat(a, item);
  const bool is_shared = item.kind != TIDE__ITEM_PACKED || item.role == TIDE__ROLE_STACK ||
                         item.role == TIDE__ROLE_FRAME || item.role == TIDE__ROLE_ENTRY;
  if (!is_shared) return TIDE__FILE_FAIL(a, "%s occurs twice", tide__item_name(&item));
  if (item.kind == TIDE__ITEM_PACKED && item.role == TIDE__ROLE_ENTRY) TIDE_TRY(entry_repeat(a, &item));
  return tide__assemble_item(a, item);
}

tide_status tide__assemble_end(tide__assembler* a) {
  if (a->depth != 1 || a->mark_count != 0)
    return TIDE__FILE_FAIL(a, "the pickle ends with %zu items and %zu marks on the stack", a->depth,
                           a->mark_count);
  tide__item* const item = &a->stack[0];
  TIDE_TRY(item_close(a, item));
  if (item->kind == TIDE__ITEM_VALUE) {
    const bool is_list = tide_intern_value(a->names, item->id).kind == TIDE_VALUE_LIST;
    TIDE_TRY(tide__pack_value(a, item->id, is_list ? TIDE__ROLE_SEGMENTS : TIDE__ROLE_ROOT, 0, item));
  }
  const bool is_packed = item->kind == TIDE__ITEM_PACKED;
  if (!is_packed || (item->role != TIDE__ROLE_ROOT && item->role != TIDE__ROLE_SEGMENTS))
    return TIDE__FILE_FAIL(a, "%s is not a memory snapshot", tide__item_name(item));
  if (item->role == TIDE__ROLE_SEGMENTS) {
    const tide_trace_about about = { .has_segments = true, .is_segments_only = true };
    tide_trace_set_about(a->trace, &about);
  }
  return TIDE_OK;
}

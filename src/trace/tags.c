// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A tag is a dict, and its keys are the names of the fields. What has its default is left out, so a file of a
// newer version with more fields, or an older one with fewer, is read as well.
#include "trace/tags.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"

typedef enum field_kind { FIELD_BOOL, FIELD_INT32, FIELD_UINT32, FIELD_UINT64 } field_kind;

typedef struct tag_field {
  const char* key;
  size_t offset;
  field_kind kind;
} tag_field;

#define FIELD(name, kind) \
  { #name, offsetof(tide_trace_tag, name), kind }
static const tag_field fields[] = {
  FIELD(device, FIELD_UINT32),
  FIELD(has_budget, FIELD_BOOL),
  FIELD(yields, FIELD_BOOL),
  FIELD(is_constant, FIELD_BOOL),
  FIELD(priority, FIELD_INT32),
  FIELD(limit, FIELD_UINT64),
  FIELD(soft_limit, FIELD_UINT64),
  FIELD(guarantee, FIELD_UINT64),
  FIELD(reserved_bytes, FIELD_UINT64),
  FIELD(claimed_bytes, FIELD_UINT64),
  FIELD(peak_reserved_bytes, FIELD_UINT64),
  FIELD(parked_count, FIELD_UINT64),
  FIELD(fetched_count, FIELD_UINT64),
  FIELD(ahead_count, FIELD_UINT64),
  FIELD(sent_bytes, FIELD_UINT64),
  FIELD(fetched_bytes, FIELD_UINT64),
  FIELD(idle_bytes, FIELD_UINT64),
  FIELD(refused_count, FIELD_UINT64),
};
#undef FIELD
enum { FIELDS = sizeof fields / sizeof fields[0] };

static const char tag_key[] = "tag";

// A dict with more keys is none of ours. Values may be shared, so each of many tags could be a large dict.
#define TAG_KEYS_MOST 64

// The value under a key; 0: none.
static uint32_t key_find(const tide_intern* names, uint32_t dict, const char* key) {
  if (dict == 0 || tide_intern_value(names, dict).count > TAG_KEYS_MOST) return 0;
  return tide_intern_value_find(names, dict, key);
}

// ---------------------------------------------------------------------------------------------------
// Fields

static tide_trace_tag tag_default(void) {
  tide_trace_tag tag = TIDE_TRACE_TAG_INIT;
  tag.tag = "";
  tag.limit = tag.soft_limit = UINT64_MAX;
  return tag;
}

static tide_value field_get(const tide_trace_tag* tag, const tag_field* field) {
  const char* const at = (const char*)tag + field->offset;
  tide_value value = { .kind = field->kind == FIELD_BOOL ? TIDE_VALUE_BOOL : TIDE_VALUE_INT };
  switch (field->kind) {
    case FIELD_BOOL: value.integer = *(const bool*)(const void*)at; break;
    case FIELD_INT32: value.integer = *(const int32_t*)(const void*)at; break;
    case FIELD_UINT32: value.integer = *(const uint32_t*)(const void*)at; break;
    case FIELD_UINT64:
      value.integer = (int64_t) * (const uint64_t*)(const void*)at;
      if (value.integer < 0) value.kind = TIDE_VALUE_UINT;
      break;
  }
  return value;
}

static void field_set(tide_trace_tag* tag, const tag_field* field, const tide_value* value) {
  char* const at = (char*)tag + field->offset;
  const bool is_small = value->kind == TIDE_VALUE_INT && value->integer >= 0;
  const int64_t number = value->integer;
  switch (field->kind) {
    case FIELD_BOOL:
      if (value->kind == TIDE_VALUE_BOOL) *(bool*)(void*)at = number != 0;
      break;
    case FIELD_INT32:
      if (value->kind == TIDE_VALUE_INT && number >= INT32_MIN && number <= INT32_MAX)
        *(int32_t*)(void*)at = (int32_t)number;
      break;
    case FIELD_UINT32:
      if (is_small && number <= UINT32_MAX) *(uint32_t*)(void*)at = (uint32_t)number;
      break;
    case FIELD_UINT64:
      if (is_small || value->kind == TIDE_VALUE_UINT) *(uint64_t*)(void*)at = (uint64_t)number;
      break;
  }
}

// ---------------------------------------------------------------------------------------------------
// Writing

static tide_status item_add(tide_intern* names, const char* key, const tide_value* value, uint64_t* out) {
  uint32_t text = 0;
  uint32_t number = 0;
  TIDE_TRY(tide_intern_add_text(names, key, strlen(key), &text));
  TIDE_TRY(tide_intern_add_value(names, value, &number));
  *out = (uint64_t)text << 32 | number;
  return TIDE_OK;
}

static tide_status tag_add(tide_intern* names, const tide_trace_tag* tag, uint64_t* out) {
  const tide_trace_tag defaults = tag_default();
  uint64_t items[FIELDS + 1];
  uint32_t number = 0;
  tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items };
  tide_value path = { .kind = TIDE_VALUE_TEXT };
  TIDE_TRY(tide_intern_add_text(names, tag->tag, strlen(tag->tag), &path.text));
  TIDE_TRY(item_add(names, tag_key, &path, &items[dict.count++]));
  for (size_t i = 0; i < FIELDS; i++) {
    const tide_value value = field_get(tag, &fields[i]);
    if (i > 0 && value.integer == field_get(&defaults, &fields[i]).integer)
      continue;  // the device is always there
    TIDE_TRY(item_add(names, fields[i].key, &value, &items[dict.count++]));
  }
  TIDE_TRY(tide_intern_add_value(names, &dict, &number));
  *out = number;
  return TIDE_OK;
}

// The list of tags; that of NONE if there is none.
static tide_value tags_list(const tide_trace* trace) {
  const tide_value none = { .kind = TIDE_VALUE_NONE };
  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t found = key_find(names, tide_trace_get_about(trace).extra, TIDE_TRACE_KEY_TAGS);
  const tide_value list = tide_intern_value(names, found);
  return found != 0 && list.kind == TIDE_VALUE_LIST ? list : none;
}

// Puts a value under the key, beside what else the snapshot has.
static tide_status extra_put(tide_trace* trace, const tide_heap* heap, const tide_value* list) {
  tide_intern* const names = tide_trace_names(trace);
  tide_trace_about about = tide_trace_get_about(trace);
  const tide_value old = tide_intern_value(names, about.extra);
  const size_t room = about.extra != 0 ? old.count + 1 : 1;
  uint64_t* const items = tide__heap_alloc(heap, room, sizeof *items);
  TIDE_REQUIRE(items != NULL, TIDE_ERR_NO_MEMORY, "no memory for the tags of a snapshot");
  tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items };
  tide_status status = item_add(names, TIDE_TRACE_KEY_TAGS, list, &items[room - 1]);
  for (size_t i = 0; i + 1 < room && status == TIDE_OK; i++) {
    if (old.items[i] >> 32 != items[room - 1] >> 32) items[dict.count++] = old.items[i];
  }
  items[dict.count++] = items[room - 1];
  if (status == TIDE_OK) status = tide_intern_add_value(names, &dict, &about.extra);
  if (status == TIDE_OK) tide_trace_set_about(trace, &about);
  tide__heap_release(heap, items, room, sizeof *items);
  return status;
}

tide_status tide__trace_add_tags(tide_trace* trace, const tide_heap* heap, const tide_trace_tag* tags,
                                 size_t count) {
  const tide_value old = tags_list(trace);
  const size_t room = old.count + count;
  if (count == 0) return TIDE_OK;
  uint64_t* const items = tide__heap_alloc(heap, room, sizeof *items);
  TIDE_REQUIRE(items != NULL, TIDE_ERR_NO_MEMORY, "no memory for the tags of a snapshot");
  tide_status status = TIDE_OK;
  for (size_t i = 0; i < old.count; i++) items[i] = old.items[i];
  for (size_t i = 0; i < count && status == TIDE_OK; i++)
    status = tag_add(tide_trace_names(trace), &tags[i], &items[old.count + i]);
  const tide_value list = { .kind = TIDE_VALUE_LIST, .items = items, .count = room };
  if (status == TIDE_OK) status = extra_put(trace, heap, &list);
  tide__heap_release(heap, items, room, sizeof *items);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Reading

size_t tide_trace_tag_count(const tide_trace* trace) { return trace != NULL ? tags_list(trace).count : 0; }

tide_status tide_trace_get_tag(const tide_trace* trace, size_t number, tide_trace_tag* out) {
  tide_trace_tag tag = tag_default();
  TIDE_TRY(tide__sized_check("trace_get_tag", out, sizeof *out));
  tide__sized_clear(out);
  const tide_value none = { .kind = TIDE_VALUE_NONE };
  const tide_value list = trace != NULL ? tags_list(trace) : none;
  TIDE_REQUIRE(list.items != NULL && number < list.count, TIDE_ERR_ARGUMENT,
               "trace_get_tag: there is no trace, or no tag %zu in it", number);
  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t dict = (uint32_t)list.items[number];
  const tide_value path = tide_intern_value(names, key_find(names, dict, tag_key));
  if (path.kind == TIDE_VALUE_TEXT && path.text != 0) tag.tag = tide_intern_text(names, path.text, NULL);
  for (size_t i = 0; i < FIELDS; i++) {
    const uint32_t found = key_find(names, dict, fields[i].key);
    const tide_value value = tide_intern_value(names, found);
    if (found != 0) field_set(&tag, &fields[i], &value);
  }
  return tide__sized_write("trace_get_tag", &tag, out, sizeof tag);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Options are read before the recording, so that a wrong one is reported at once. Tags of the options and of
// the recording are then put into one list, sorted as a tree, and looked up by their names.
#include "budgeting.h"

#include <stdlib.h>
#include <string.h>

#include "patterns.h"
#include "tags.h"

// ---------------------------------------------------------------------------------------------------
// Options

bool tool_budgeting_is_given(const tool_call* call) {
  return tool_option_value(call, "tag") != NULL || tool_option_value(call, "budget") != NULL;
}

// Names are paths of parts that are not empty.
static bool tag_is_valid(const char* name) {
  const size_t length = strlen(name);
  if (length == 0 || length > TIDE_TAG_MOST || name[length - 1] == '/') return false;
  for (size_t i = 0; i < length; i++) {
    const unsigned char letter = (unsigned char)name[i];
    const bool is_empty_part = letter == '/' && (i == 0 || name[i - 1] == '/');
    if (letter < 0x20 || letter == 0x7f || is_empty_part) return false;
  }
  return true;
}

// Copies the name of a tag, or reports that it is none.
static int tag_take(const char* option, const char* text, size_t length, char** out) {
  char* const name = tool_alloc(length + 1, 1);
  memcpy(name, text, length);
  *out = name;
  if (tag_is_valid(name)) return TOOL_DONE;
  return tool_fail("%s: '%s' is not a tag: it has parts between /, none of them empty, and at most %d bytes",
                   option, name, TIDE_TAG_MOST);
}

static int rule_add(tool_budgeting* b, const char* text) {
  const char* const sign = strchr(text, '=');
  if (sign == NULL || sign[1] == '\0')
    return tool_fail("--tag must be NAME=PATTERN, such as weights=model.py:*, not '%s'", text);
  if (b->rule_count == TIDE_REPLAY_TAGS) return tool_fail("--tag: more than %d patterns", TIDE_REPLAY_TAGS);
  b->rules = tool_grow(b->rules, b->rule_count + 1, sizeof *b->rules);
  tool_tag_rule* const rule = &b->rules[b->rule_count++];
  *rule = (tool_tag_rule){ .pattern = sign + 1 };
  return tag_take("--tag", text, (size_t)(sign - text), &rule->name);
}

typedef enum value_kind { VALUE_SIZE, VALUE_NUMBER, VALUE_NONE } value_kind;

// What a budget consists of, and where that is.
static const struct {
  const char* key;
  value_kind kind;
  size_t offset;
} keys[] = {
  { "limit", VALUE_SIZE, offsetof(tide_budget, limit) },
  { "soft", VALUE_SIZE, offsetof(tide_budget, soft_limit) },
  { "guarantee", VALUE_SIZE, offsetof(tide_budget, guarantee) },
  { "priority", VALUE_NUMBER, offsetof(tide_budget, priority) },
  { "yields", VALUE_NONE, offsetof(tide_budget, yields) },
  { "constant", VALUE_NONE, offsetof(tide_budget, is_constant) },
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])
#define KEY_NAMES "limit, soft, guarantee, priority, yields and constant"

static int size_put(const char* key, const char* value, uint64_t* out) {
  char option[64];
  uint64_t bytes = 0;
  if (!tool_size_parse(value, &bytes))
    return tool_fail("--budget: %s must be a size such as 24GiB, not '%s'", key, value);
  (void)snprintf(option, sizeof option, "--budget: %s", key);
  *out = bytes;
  return bytes > 0 ? tool_size_ask(option, value, bytes) : TOOL_DONE;
}

static int priority_put(const char* value, int32_t* out) {
  const bool is_below = *value == '-';
  uint64_t number = 0;
  if (!tool_number_parse(value + is_below, INT32_MAX, &number))
    return tool_fail("--budget: priority must be a number, not '%s'", value);
  *out = is_below ? -(int32_t)number : (int32_t)number;
  return TOOL_DONE;
}

static int value_put(tide_budget* budget, size_t key, const char* value) {
  void* const field = (char*)budget + keys[key].offset;
  const char* const name = keys[key].key;
  if (keys[key].kind == VALUE_NONE) {
    if (value != NULL) return tool_fail("--budget: %s takes no value", name);
    *(bool*)field = true;
    return TOOL_DONE;
  }
  if (value == NULL) return tool_fail("--budget: %s needs a value", name);
  return keys[key].kind == VALUE_SIZE ? size_put(name, value, field) : priority_put(value, field);
}

// Takes "limit=8G" or "yields". The word is changed.
static int word_take(tide_budget* budget, char* word) {
  char* const sign = strchr(word, '=');
  if (sign != NULL) *sign = '\0';
  for (size_t i = 0; i < KEY_COUNT; i++) {
    if (strcmp(keys[i].key, word) == 0) return value_put(budget, i, sign != NULL ? sign + 1 : NULL);
  }
  return tool_fail("--budget: there is no '%s'; the rules are " KEY_NAMES, word);
}

static int words_take(tide_budget* budget, const char* words) {
  char* const copy = tool_text_copy(words);
  int status = TOOL_DONE;
  for (char* word = copy; word != NULL && status == TOOL_DONE;) {
    char* const comma = strchr(word, ',');
    if (comma != NULL) *comma = '\0';
    status = word_take(budget, word);
    word = comma != NULL ? comma + 1 : NULL;
  }
  free(copy);
  return status;
}

static int budget_check(const tool_budgeting* b, const tool_tag_budget* given) {
  char sizes[2][TOOL_SIZE_TEXT];
  for (const tool_tag_budget* other = b->budgets; other < given; other++) {
    if (strcmp(other->name, given->name) == 0)
      return tool_fail("--budget: the tag '%s' is given twice", given->name);
  }
  if (given->budget.guarantee <= given->budget.limit) return TOOL_DONE;
  tool_size_pair(given->budget.guarantee, given->budget.limit, sizes[0], sizes[1]);
  return tool_fail("--budget: '%s' has a guarantee of %s above its limit of %s", given->name, sizes[0],
                   sizes[1]);
}

// A name may contain a colon; rules do not.
static int budget_add(tool_budgeting* b, const char* text) {
  const char* const colon = strrchr(text, ':');
  if (colon == NULL || colon[1] == '\0')
    return tool_fail("--budget must be TAG:RULES, such as weights:limit=8G,yields, not '%s'", text);
  b->budgets = tool_grow(b->budgets, b->budget_count + 1, sizeof *b->budgets);
  tool_tag_budget* const given = &b->budgets[b->budget_count++];
  *given = (tool_tag_budget){ .budget = TIDE_BUDGET_INIT };
  int status = tag_take("--budget", text, (size_t)(colon - text), &given->name);
  if (status == TOOL_DONE) status = words_take(&given->budget, colon + 1);
  b->yields |= given->budget.yields;
  return status == TOOL_DONE ? budget_check(b, given) : status;
}

static int uses_parse(tool_budgeting* b, const tool_call* call) {
  const char* const text = tool_option_value(call, "uses");
  const bool has_step = tool_option_value(call, "step") != NULL;
  const bool has_budgets = tool_budgeting_is_given(call);
  if (has_step && !has_budgets && tool_option_value(call, "park") == NULL)
    return tool_fail("--step needs --budget");
  b->wants_steps = has_step && has_budgets;
  if (text == NULL) return TOOL_DONE;
  if (!has_budgets) return tool_fail("--uses needs --budget");
  b->wants_steps |= strcmp(text, "steps") == 0;
  b->wants_none = strcmp(text, "requests") == 0;
  if (b->wants_none && has_step) return tool_fail("--uses requests has no steps, so it takes no --step");
  if (b->wants_none || strcmp(text, "steps") == 0) return TOOL_DONE;
  return tool_fail("--uses must be steps or requests, not '%s'", text);
}

int tool_budgeting_parse(tool_budgeting* b, const tool_call* call) {
  size_t at = 0;
  int status = uses_parse(b, call);
  for (const char* text; status == TOOL_DONE && (text = tool_option_next(call, "tag", &at)) != NULL;)
    status = rule_add(b, text);
  at = 0;
  for (const char* text; status == TOOL_DONE && (text = tool_option_next(call, "budget", &at)) != NULL;)
    status = budget_add(b, text);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The list of tags

// A tag comes before those below it, and these before the next of its own level.
static int name_order(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    a++;
    b++;
  }
  if (*a == '/' && *b != '\0') return -1;
  if (*b == '/' && *a != '\0') return 1;
  return tool_compare((unsigned char)*a, (unsigned char)*b);
}

static int tag_order(const void* a, const void* b) {
  return name_order(((const tide_replay_tag*)a)->name, ((const tide_replay_tag*)b)->name);
}

static void tag_add(tool_budgeting* b, const char* name) {
  b->tags = tool_grow(b->tags, b->tag_count + 1, sizeof *b->tags);
  b->tags[b->tag_count++] = (tide_replay_tag){ .name = name };
}

static void tags_sort(tool_budgeting* b) {
  size_t kept = 0;
  if (b->tag_count > 1) qsort(b->tags, b->tag_count, sizeof *b->tags, tag_order);
  for (size_t i = 0; i < b->tag_count; i++) {
    if (kept == 0 || tag_order(&b->tags[kept - 1], &b->tags[i]) != 0) b->tags[kept++] = b->tags[i];
  }
  b->tag_count = kept;
}

size_t tool_budgeting_place(const tool_budgeting* b, const char* name) {
  size_t place = 0;
  while (place < b->tag_count && strcmp(b->tags[place].name, name) != 0) place++;
  return place;
}

static int tags_gather(tool_budgeting* b, const tide_trace* trace) {
  tool_pool_tags recorded;
  tool_pool_tags_find(trace, &recorded);
  for (size_t i = 0; i < recorded.count; i++) {
    if (recorded.tags[i] != NULL && tag_is_valid(recorded.tags[i])) tag_add(b, recorded.tags[i]);
  }
  tool_pool_tags_fini(&recorded);
  for (size_t i = 0; i < b->rule_count; i++) tag_add(b, b->rules[i].name);
  for (size_t i = 0; i < b->budget_count; i++) tag_add(b, b->budgets[i].name);
  tags_sort(b);
  for (size_t i = 0; i < b->budget_count; i++)
    b->tags[tool_budgeting_place(b, b->budgets[i].name)].budget = &b->budgets[i].budget;
  return b->tag_count <= TIDE_REPLAY_TAGS ? TOOL_DONE
                                          : tool_fail("there are more than %d tags", TIDE_REPLAY_TAGS);
}

// ---------------------------------------------------------------------------------------------------
// Which request has which tag

static void requests_count(tool_budgeting* b, const tool_recording* recording, const uint16_t* stack_rules) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(recording->trace, recording->device, &count);
  for (size_t i = 0; i < count; i++) {
    const bool is_request = entries[i].action == TIDE_ACTION_ALLOC || entries[i].action == TIDE_ACTION_OOM;
    const uint32_t stack = entries[i].stack;
    if (is_request && stack < b->stack_count && stack_rules[stack] != 0)
      b->rules[stack_rules[stack] - 1].requests++;
  }
}

static void stacks_find(tool_budgeting* b, const tool_recording* recording, const tool_sites* sites) {
  const char** const patterns = tool_alloc(b->rule_count, sizeof *patterns);
  for (size_t i = 0; i < b->rule_count; i++) patterns[i] = b->rules[i].pattern;
  b->stack_tags = tool_patterns_of_stacks(patterns, b->rule_count, sites);
  b->stack_count = sites->count;
  requests_count(b, recording, b->stack_tags);
  for (size_t i = 0; i < b->stack_count; i++) {
    if (b->stack_tags[i] == 0) continue;
    b->stack_tags[i] = (uint16_t)(tool_budgeting_place(b, b->rules[b->stack_tags[i] - 1].name) + 1);
  }
  free(patterns);
}

int tool_budgeting_find(tool_budgeting* b, const tool_call* call, const tool_recording* recording) {
  tool_sites sites;
  if (b->rule_count + b->budget_count == 0) return TOOL_DONE;
  int status = tags_gather(b, recording->trace);
  if (status != TOOL_DONE) return status;
  tool_sites_init(&sites, recording->trace);
  stacks_find(b, recording, &sites);
  status = tool_budgeting_find_uses(b, call, recording, &sites);
  tool_sites_fini(&sites);
  return status;
}

void tool_budgeting_fini(tool_budgeting* b) {
  for (size_t i = 0; i < b->rule_count; i++) free(b->rules[i].name);
  for (size_t i = 0; i < b->budget_count; i++) free(b->budgets[i].name);
  free(b->rules);
  free(b->budgets);
  free(b->tags);
  free(b->stack_tags);
  free(b->uses);
}

void tool_budgeting_set(const tool_budgeting* b, tide_replay_tag* tags, tide_replay_options* o) {
  o->tags = tags;
  o->tag_count = b->tag_count;
  o->stack_tags = b->stack_tags;
  o->stack_count = b->stack_count;
  o->uses = b->uses;
  o->use_count = b->use_count;
}

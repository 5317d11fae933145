// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Boxes are grouped into classes by width, in powers of two. In a class they are sorted by first section,
// under a tree with eight children per node. A node is one cache line, and has the highest priority and the
// lowest end below each child. A valley is a range of places in each class that is narrow enough. If few
// boxes begin in a valley, they are scanned without the trees. Nearly O(log n) per box, and some 70 bytes
// per box.
#include "plan/waiting.h"

#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "plan/radix.h"

#define WAITING_CLASSES 32u
#define WAITING_CHILDREN 8u
#define WAITING_LEVELS 11u
#define WAITING_FEW 64u         // boxes that are scanned instead of searched, and boxes per wall
#define WAITING_GONE (-1e30f)   // the priority of a box that was removed
#define WAITING_LEAST (-1e29f)  // below that of any other

typedef struct waiting_node {
  float highest[WAITING_CHILDREN];
  uint32_t soonest[WAITING_CHILDREN];
} waiting_node;

typedef struct waiting_class {
  uint32_t first;  // its boxes in `members`
  uint32_t count;
  unsigned levels;                      // of nodes; the last has one
  waiting_node* nodes[WAITING_LEVELS];  // of scratch
  uint32_t* places;  // of scratch; by section, shifted: the first of its boxes that begins there or later
  unsigned shift;
} waiting_class;

// What a scan needs of a box, side by side.
typedef struct waiting_box {
  float priority;
  uint32_t last;
} waiting_box;

struct tide__waiting {
  tide__scratch scratch;
  const tide__box* boxes;  // borrowed; of the part
  uint32_t count;
  uint32_t sections;
  uint32_t* first;       // by box; boxes are sorted by first, then last
  waiting_box* about;    // by box
  uint32_t* starts;      // by section, and one more: the first box that begins there or later
  uint32_t* by_last;     // boxes by last, then by falling first
  uint32_t* ends;        // by section, and one more: the first of by_last that ends there or later
  uint32_t* end_place;   // by box: its position in by_last
  uint32_t* next_start;  // of boxes, and
  uint32_t* next_end;    // of by_last: the next waiting one, or a link towards it
  uint32_t* place;       // by box: its position in its class
  uint32_t* members;     // boxes by class
  waiting_class classes[WAITING_CLASSES];
  tide__welcome welcome;
};

uint32_t tide__waiting_first(const tide__waiting* waiting, uint32_t box) { return waiting->first[box]; }
uint32_t tide__waiting_last(const tide__waiting* waiting, uint32_t box) { return waiting->about[box].last; }

static unsigned waiting_class_of(const tide__waiting* waiting, uint32_t box) {
  return 31u - (unsigned)__builtin_clz(waiting->about[box].last - waiting->first[box]);
}

// ---------------------------------------------------------------------------------------------------
// Tables that all passes share

static void waiting_fill_starts(tide__waiting* waiting) {
  uint32_t box = 0;
  for (uint32_t section = 0; section <= waiting->sections; section++) {
    while (box < waiting->count && waiting->first[box] < section) box++;
    waiting->starts[section] = box;
  }
}

static tide_status waiting_fill_ends(tide__waiting* waiting) {
  tide__scratch work;
  tide__scratch_init(&work, waiting->scratch.heap);
  tide__keyed* const keys = tide__scratch_alloc(&work, waiting->count, sizeof *keys);
  tide__keyed* const spare = tide__scratch_alloc(&work, waiting->count, sizeof *spare);
  if (work.is_short) {
    tide__scratch_fini(&work);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to sort %u buffers", (unsigned)waiting->count);
  }
  for (uint32_t i = 0; i < waiting->count; i++) {
    keys[i] = (tide__keyed){ (uint64_t)waiting->about[i].last << 32 | (UINT32_MAX - waiting->first[i]), i };
  }
  tide__radix_sort(keys, spare, waiting->count);
  uint32_t section = 0;
  for (uint32_t i = 0; i < waiting->count; i++) {
    const uint32_t box = keys[i].value;
    waiting->by_last[i] = box;
    waiting->end_place[box] = i;
    while (section <= waiting->about[box].last) waiting->ends[section++] = i;
  }
  while (section <= waiting->sections + 1) waiting->ends[section++] = waiting->count;
  tide__scratch_fini(&work);
  return TIDE_OK;
}

// About one known place for four boxes.
static void waiting_fill_places(tide__waiting* waiting, waiting_class* class) {
  class->shift = 0;
  while ((waiting->sections >> class->shift) > class->count / 4 + 1) class->shift++;
  const uint32_t count = (waiting->sections >> class->shift) + 2;
  class->places = tide__scratch_alloc(&waiting->scratch, count, sizeof *class->places);
  if (class->places == NULL) return;
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; i++) {
    while (at < class->count && waiting->first[waiting->members[class->first + at]] >> class->shift < i) at++;
    class->places[i] = at;
  }
}

static void waiting_shape(tide__waiting* waiting, waiting_class* class) {
  uint32_t nodes = class->count;
  do {
    nodes = (nodes + WAITING_CHILDREN - 1) / WAITING_CHILDREN;
    class->nodes[class->levels++] = tide__scratch_alloc(&waiting->scratch, nodes, sizeof(waiting_node));
  } while (nodes > 1);
}

static void waiting_fill_classes(tide__waiting* waiting) {
  for (uint32_t i = 0; i < waiting->count; i++) waiting->classes[waiting_class_of(waiting, i)].count++;
  uint32_t first = 0;
  for (unsigned i = 0; i < WAITING_CLASSES; i++) {
    waiting->classes[i].first = first;
    first += waiting->classes[i].count;
    if (waiting->classes[i].count > 0) waiting_shape(waiting, &waiting->classes[i]);
    waiting->classes[i].count = 0;
  }
  for (uint32_t i = 0; i < waiting->count; i++) {
    waiting_class* const class = &waiting->classes[waiting_class_of(waiting, i)];
    waiting->place[i] = class->count;
    waiting->members[class->first + class->count++] = i;
  }
  for (unsigned i = 0; i < WAITING_CLASSES; i++) {
    if (waiting->classes[i].count > 0) waiting_fill_places(waiting, &waiting->classes[i]);
  }
}

static void waiting_alloc(tide__waiting* waiting) {
  tide__scratch* const scratch = &waiting->scratch;
  const size_t count = waiting->count;
  const size_t sections = (size_t)waiting->sections + 2;
  waiting->first = tide__scratch_alloc(scratch, count, sizeof *waiting->first);
  waiting->about = tide__scratch_alloc(scratch, count, sizeof *waiting->about);
  waiting->starts = tide__scratch_alloc(scratch, sections, sizeof *waiting->starts);
  waiting->by_last = tide__scratch_alloc(scratch, count, sizeof *waiting->by_last);
  waiting->ends = tide__scratch_alloc(scratch, sections, sizeof *waiting->ends);
  waiting->end_place = tide__scratch_alloc(scratch, count, sizeof *waiting->end_place);
  waiting->next_start = tide__scratch_alloc(scratch, count + 1, sizeof *waiting->next_start);
  waiting->next_end = tide__scratch_alloc(scratch, count + 1, sizeof *waiting->next_end);
  waiting->place = tide__scratch_alloc(scratch, count, sizeof *waiting->place);
  waiting->members = tide__scratch_alloc(scratch, count, sizeof *waiting->members);
}

tide_status tide__waiting_new(const tide__model* model, const tide__part* part, const tide_heap* heap,
                              tide__waiting** out) {
  *out = NULL;
  tide__waiting* const waiting = tide__heap_alloc(heap, 1, sizeof *waiting);
  if (waiting == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass");
  waiting->boxes = &model->boxes[part->first_box];
  waiting->count = part->last_box - part->first_box;
  waiting->sections = part->last_section - part->first_section;
  tide__scratch_init(&waiting->scratch, heap);
  waiting_alloc(waiting);
  if (!waiting->scratch.is_short) {
    for (uint32_t i = 0; i < waiting->count; i++) {
      waiting->first[i] = waiting->boxes[i].first - part->first_section;
      waiting->about[i].last = waiting->boxes[i].last - part->first_section;
    }
    waiting_fill_starts(waiting);
    waiting_fill_classes(waiting);
  }
  if (waiting->scratch.is_short || waiting_fill_ends(waiting) != TIDE_OK) {
    const unsigned count = waiting->count;
    tide__waiting_free(waiting);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pass over %u buffers", count);
  }
  *out = waiting;
  return TIDE_OK;
}

void tide__waiting_free(tide__waiting* waiting) {
  if (waiting == NULL) return;
  const tide_heap* const heap = waiting->scratch.heap;
  tide__scratch_fini(&waiting->scratch);
  tide__heap_release(heap, waiting, 1, sizeof *waiting);
}

// ---------------------------------------------------------------------------------------------------
// Trees

static float waiting_highest(const waiting_node* node) {
  float highest = node->highest[0];
  for (unsigned i = 1; i < WAITING_CHILDREN; i++) {
    highest = node->highest[i] > highest ? node->highest[i] : highest;
  }
  return highest;
}

static uint32_t waiting_soonest(const waiting_node* node) {
  uint32_t soonest = node->soonest[0];
  for (unsigned i = 1; i < WAITING_CHILDREN; i++) {
    soonest = node->soonest[i] < soonest ? node->soonest[i] : soonest;
  }
  return soonest;
}

static void waiting_set(waiting_class* class, unsigned level, uint32_t child, float highest,
                        uint32_t soonest) {
  waiting_node* const node = &class->nodes[level][child / WAITING_CHILDREN];
  node->highest[child % WAITING_CHILDREN] = highest;
  node->soonest[child % WAITING_CHILDREN] = soonest;
}

static void waiting_plant(const tide__waiting* waiting, waiting_class* class) {
  uint32_t count = class->count;
  for (unsigned level = 0; level < class->levels; level++) {
    const uint32_t nodes = (count + WAITING_CHILDREN - 1) / WAITING_CHILDREN;
    for (uint32_t i = 0; i < nodes * WAITING_CHILDREN; i++) {
      if (i >= count) {
        waiting_set(class, level, i, WAITING_GONE, UINT32_MAX);
      } else if (level == 0) {
        const waiting_box* const box = &waiting->about[waiting->members[class->first + i]];
        waiting_set(class, level, i, box->priority, box->last);
      } else {
        const waiting_node* const below = &class->nodes[level - 1][i];
        waiting_set(class, level, i, waiting_highest(below), waiting_soonest(below));
      }
    }
    count = nodes;
  }
}

void tide__waiting_begin(tide__waiting* waiting, const float* priorities, tide__welcome welcome) {
  waiting->welcome = welcome;
  for (uint32_t i = 0; i < waiting->count; i++) waiting->about[i].priority = priorities[i];
  for (uint32_t i = 0; i <= waiting->count; i++) waiting->next_start[i] = waiting->next_end[i] = i;
  for (unsigned i = 0; i < WAITING_CLASSES; i++) {
    if (waiting->classes[i].count > 0) waiting_plant(waiting, &waiting->classes[i]);
  }
}

// Updates ancestors as long as something changes.
void tide__waiting_remove(tide__waiting* waiting, uint32_t box) {
  waiting_class* const class = &waiting->classes[waiting_class_of(waiting, box)];
  uint32_t child = waiting->place[box];
  waiting_set(class, 0, child, WAITING_GONE, UINT32_MAX);
  for (unsigned level = 1; level < class->levels; level++) {
    child /= WAITING_CHILDREN;
    const waiting_node* const below = &class->nodes[level - 1][child];
    const float highest = waiting_highest(below);
    const uint32_t soonest = waiting_soonest(below);
    const waiting_node* const node = &class->nodes[level][child / WAITING_CHILDREN];
    const bool is_same = node->highest[child % WAITING_CHILDREN] == highest &&
                         node->soonest[child % WAITING_CHILDREN] == soonest;
    if (is_same) break;
    waiting_set(class, level, child, highest, soonest);
  }
  waiting->about[box].priority = WAITING_GONE;
  waiting->next_start[box] = box + 1;
  waiting->next_end[waiting->end_place[box]] = waiting->end_place[box] + 1;
}

bool tide__waiting_has(const tide__waiting* waiting, uint32_t box) {
  return waiting->about[box].priority > WAITING_LEAST;
}

// ---------------------------------------------------------------------------------------------------
// Choice

typedef struct waiting_query {
  const tide__valley* valley;
  uint32_t section;  // that the box must live in; WAITING_NONE: any
  float priority;    // to be exceeded
  uint32_t box;      // the best so far
} waiting_query;

static void waiting_consider(waiting_query* query, float priority, uint32_t box) {
  if (priority <= query->priority) return;
  query->priority = priority;
  query->box = box;
}

static bool waiting_covers(const waiting_query* query, uint32_t first, uint32_t last) {
  return query->section == TIDE__WAITING_NONE || (first <= query->section && last > query->section);
}

static uint32_t waiting_skip(uint32_t* next, uint32_t at) {
  while (next[at] != at) {
    next[at] = next[next[at]];
    at = next[at];
  }
  return at;
}

static float waiting_welcome(const tide__waiting* waiting, const tide__valley* valley, uint32_t box) {
  float more = 0;
  const int64_t height = waiting->boxes[box].height;
  if (waiting->first[box] == valley->first) {
    more += waiting->welcome.wall + (height == valley->left_wall ? waiting->welcome.flush : 0);
  }
  if (waiting->about[box].last == valley->last) {
    more += waiting->welcome.wall + (height == valley->right_wall ? waiting->welcome.flush : 0);
  }
  return more;
}

// Boxes that touch the left wall, then those that touch the right one.
static void waiting_search_walls(tide__waiting* waiting, waiting_query* query) {
  const tide__valley* const valley = query->valley;
  uint32_t at = waiting_skip(waiting->next_start, waiting->starts[valley->first]);
  for (unsigned i = 0; i < WAITING_FEW && at < waiting->starts[valley->first + 1]; i++) {
    if (waiting->about[at].last > valley->last) break;
    if (waiting_covers(query, valley->first, waiting->about[at].last)) {
      waiting_consider(query, waiting->about[at].priority + waiting_welcome(waiting, valley, at), at);
    }
    at = waiting_skip(waiting->next_start, at + 1);
  }
  at = waiting_skip(waiting->next_end, waiting->ends[valley->last]);
  for (unsigned i = 0; i < WAITING_FEW && at < waiting->ends[valley->last + 1]; i++) {
    const uint32_t box = waiting->by_last[at];
    if (waiting->first[box] < valley->first) break;
    if (waiting_covers(query, waiting->first[box], valley->last)) {
      waiting_consider(query, waiting->about[box].priority + waiting_welcome(waiting, valley, box), box);
    }
    at = waiting_skip(waiting->next_end, at + 1);
  }
}

// The first place in the class whose box begins at `section` or later.
static uint32_t waiting_place(const tide__waiting* waiting, const waiting_class* class, uint32_t section) {
  const uint32_t box = waiting->starts[section];
  uint32_t low = class->places[section >> class->shift];
  uint32_t high = class->places[(section >> class->shift) + 1];
  const uint32_t* const members = &waiting->members[class->first];
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (members[middle] < box) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The places [from, to) of a class.
typedef struct waiting_range {
  const waiting_class* class;
  const uint32_t* members;
  uint32_t from;
  uint32_t to;
} waiting_range;

static void waiting_look(const tide__waiting* waiting, const waiting_range* range, uint32_t place,
                         waiting_query* query) {
  const uint32_t box = range->members[place];
  if (waiting_covers(query, waiting->first[box], waiting->about[box].last)) {
    waiting_consider(query, waiting->about[box].priority, box);
  }
}

// Searches below a node, the most promising children first.
static void waiting_descend(const tide__waiting* waiting, const waiting_range* range, unsigned level,
                            uint32_t index, waiting_query* query) {
  const waiting_node* const node = &range->class->nodes[level][index];
  const uint32_t base = index * WAITING_CHILDREN;
  const uint32_t from = range->from >> (3 * level);
  const uint32_t to = (range->to - 1) >> (3 * level);
  uint32_t left = 0;  // children to be looked at, a bit for each
  for (unsigned i = 0; i < WAITING_CHILDREN; i++) {
    const bool is_good = base + i >= from && base + i <= to && node->highest[i] > query->priority &&
                         node->soonest[i] <= query->valley->last;
    left |= (uint32_t)is_good << i;
  }
  while (left != 0) {
    unsigned best = (unsigned)__builtin_ctz(left);
    for (uint32_t rest = left & (left - 1); rest != 0; rest &= rest - 1) {
      const unsigned child = (unsigned)__builtin_ctz(rest);
      if (node->highest[child] > node->highest[best]) best = child;
    }
    if (node->highest[best] <= query->priority) return;
    left &= ~((uint32_t)1 << best);
    if (level == 0) {
      waiting_look(waiting, range, base + best, query);
    } else {
      waiting_descend(waiting, range, level - 1, base + best, query);
    }
  }
}

static void waiting_search_class(const tide__waiting* waiting, unsigned index, waiting_query* query) {
  const waiting_class* const class = &waiting->classes[index];
  if (class->count == 0) return;
  if (waiting_highest(class->nodes[class->levels - 1]) <= query->priority) return;
  const tide__valley* const valley = query->valley;
  const uint32_t narrowest = (uint32_t)1 << index;
  uint32_t first = valley->first;
  uint32_t last = valley->last - narrowest + 1;  // no box of this class that begins there fits
  if (query->section != TIDE__WAITING_NONE) {
    if (last > query->section + 1) last = query->section + 1;
    // Boxes are narrower than twice this.
    if (query->section + 2 > first + 2 * narrowest) first = query->section + 2 - 2 * narrowest;
  }
  if (first >= last) return;
  const waiting_range range = { class, &waiting->members[class->first], waiting_place(waiting, class, first),
                                waiting_place(waiting, class, last) };
  if (range.from >= range.to) return;
  unsigned level = 0;  // of the lowest node above all of them
  while (range.from >> (3 * level + 3) != (range.to - 1) >> (3 * level + 3)) level++;
  waiting_descend(waiting, &range, level, range.from >> (3 * level + 3), query);
}

uint32_t tide__waiting_choose(tide__waiting* waiting, const tide__valley* valley, uint32_t section) {
  waiting_query query = { valley, section, WAITING_LEAST, TIDE__WAITING_NONE };
  if (waiting->welcome.wall > 0 || waiting->welcome.flush > 0) waiting_search_walls(waiting, &query);
  const uint32_t from = waiting->starts[valley->first];
  const uint32_t to = waiting->starts[section == TIDE__WAITING_NONE ? valley->last : section + 1];
  if (to - from > WAITING_FEW) {
    const unsigned widest = 31u - (unsigned)__builtin_clz(valley->last - valley->first);
    for (unsigned index = widest + 1; index-- > 0;) waiting_search_class(waiting, index, &query);
    return query.box;
  }
  for (uint32_t box = from; box < to; box++) {
    const waiting_box* const about = &waiting->about[box];
    if (about->priority <= query.priority || about->last > valley->last) continue;
    if (section != TIDE__WAITING_NONE && about->last <= section) continue;
    query.priority = about->priority;
    query.box = box;
  }
  return query.box;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Steps by what repeats, for recordings that say nothing about steps. Two kinds of keys are compared:
// - a sequence of GRAM lifetimes, counted in allocations. It does not depend on sizes, so steps of different
//   lengths have the same. Long lifetimes are all alike, so a change has an effect only near its place
// - an exact level of live memory, without the blocks that are never freed
// Only the stream with the most allocations is examined. A key that occurs at regular distances over the
// recording is an anchor. Of the distances that enough anchors have, the longest wins, because layers repeat
// inside of steps. Steps begin at the anchor of that distance with the least live memory.
//
// Cost: O(n log n). Above 2^17 allocations only a sample of the keys is kept.
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash_map.h"
#include "base/heap.h"
#include "base/scratch.h"
#include "steps/steps.h"

#define GRAM 12u       // lifetimes of a sequence
#define GRAM_SHORT 3u  // of them at least so many are not LONG
#define LONG 64u       // longer lifetimes are alike
#define OCCURRENCES_MOST (1u << 18)
#define ANCHOR_LEAST 5u     // of an anchor
#define ANCHOR_MANY 9u      // distances of which some may be irregular
#define ANCHOR_TAIL 3u      // distances after the last occurrence, at most
#define ANCHORS_MOST 4096u  // of one distance, that are compared with each other
#define ANCHOR_SUPPORT 3u   // anchors of one distance, of sequences
#define DISTANCE_PART 16u   // distances are about the same if they differ by less than one part in so many
#define DISTANCE_OWN 32u    // of a distance, at least one sequence in so many is its own
#define STREAMS 64u         // streams that are told apart when the busiest is looked for

// The allocations of a stream.
typedef struct pattern {
  const tide__recorded* run;
  tide__scratch scratch;
  size_t count;
  uint32_t* entry;    // by the number of the allocation: its entry,
  uint64_t* live;     // live bytes before it,
  uint8_t* lifetime;  // up to LONG, 0: it is never freed
  uint64_t newest;    // number + 1 of the allocation since which there was no other; 0: none
} pattern;

typedef struct occurrence {
  uint64_t key;
  uint32_t at;  // number of the allocation
} occurrence;

typedef struct occurrences {
  occurrence* items;
  size_t count;
  uint64_t mask;   // keys with these bits were left out
  bool are_grams;  // otherwise levels
} occurrences;

typedef struct anchor {
  uint32_t distance;  // the median of distances between its occurrences
  uint32_t count;     // of occurrences
  uint32_t support;   // number of anchors with about this distance
  uint32_t regular;   // number of distances near the median
  uint64_t typical;   // their sum
  double live;        // mean of live bytes
  size_t first;       // index of its first occurrence
} anchor;

// ---------------------------------------------------------------------------------------------------
// Reading the entries

static uint64_t busiest_stream(const tide__recorded* run, size_t* out_count) {
  uint64_t streams[STREAMS];
  size_t counts[STREAMS] = { 0 };
  size_t known = 0;
  for (size_t i = 0; i < run->count; i++) {
    if (run->entries[i].action != TIDE_ACTION_ALLOC) continue;
    size_t k = 0;
    while (k < known && streams[k] != run->entries[i].stream) k++;
    if (k == STREAMS) continue;
    if (k == known) streams[known++] = run->entries[i].stream;
    counts[k]++;
  }
  size_t best = 0;
  for (size_t k = 1; k < known; k++) best = counts[k] > counts[best] ? k : best;
  *out_count = known > 0 ? counts[best] : 0;
  return known > 0 ? streams[best] : 0;
}

// Ends the lifetime of the block at an address. A block that is freed before the next allocation is
// forgotten: programs allocate such blocks irregularly.
static void pattern_release(pattern* p, tide__hash_map* blocks, uint64_t address) {
  const uint64_t number = tide__hash_map_take(blocks, address);
  if (number == 0) return;
  if (number == p->newest) {
    p->count--;
    p->newest = 0;
    return;
  }
  const size_t age = p->count - (size_t)(number - 1);
  p->lifetime[number - 1] = (uint8_t)(age < LONG ? age : LONG);
}

static tide_status pattern_alloc(pattern* p, tide__hash_map* blocks, size_t entry, uint64_t live) {
  const uint64_t address = p->run->entries[entry].address;
  TIDE_REQUIRE(tide__hash_map_has_room(blocks) || tide__hash_map_reserve(blocks, 2 * blocks->count + 64),
               TIDE_ERR_NO_MEMORY, "steps_find: no memory for blocks at entry %zu", entry);
  pattern_release(p, blocks, address);
  p->entry[p->count] = (uint32_t)entry;
  p->live[p->count] = live;
  p->lifetime[p->count] = 0;
  p->newest = ++p->count;
  (void)tide__hash_map_put(blocks, address, p->newest);
  return TIDE_OK;
}

static tide_status pattern_follow(pattern* p, uint64_t stream, tide__hash_map* blocks) {
  uint64_t live = 0;
  for (size_t i = 0; i < p->run->count; i++) {
    const tide_trace_entry* const e = &p->run->entries[i];
    const uint64_t bytes = tide__request_bytes(e->bytes);
    if (e->action == TIDE_ACTION_ALLOC) {
      if (e->stream == stream) TIDE_TRY(pattern_alloc(p, blocks, i, live));
      live += bytes;
    } else if (e->action == TIDE_ACTION_FREE_REQUESTED || e->action == TIDE_ACTION_FREE_COMPLETED) {
      if (e->action == TIDE_ACTION_FREE_COMPLETED) live -= bytes < live ? bytes : live;
      pattern_release(p, blocks, e->address);
    }
  }
  return TIDE_OK;
}

static tide_status pattern_read(pattern* p) {
  size_t most = 0;
  const uint64_t stream = busiest_stream(p->run, &most);
  p->entry = tide__scratch_alloc(&p->scratch, most, sizeof *p->entry);
  p->live = tide__scratch_alloc(&p->scratch, most, sizeof *p->live);
  p->lifetime = tide__scratch_alloc(&p->scratch, most, sizeof *p->lifetime);
  TIDE_REQUIRE(!p->scratch.is_short, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu allocations", most);
  tide__hash_map blocks;
  tide__hash_map_init(&blocks, p->run->heap);
  const tide_status status = pattern_follow(p, stream, &blocks);
  tide__hash_map_fini(&blocks);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Occurrences

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ (hash >> 29);
}

// The key of the sequence that begins at an allocation; 0 if it says too little.
static uint64_t gram_key(const pattern* p, size_t at) {
  uint64_t hash = 1;
  size_t brief = 0;
  for (size_t i = at; i < at + GRAM; i++) {
    const uint8_t lifetime = p->lifetime[i] != 0 ? p->lifetime[i] : LONG;
    brief += lifetime < LONG;
    hash = mix(hash, lifetime);
  }
  return brief >= GRAM_SHORT ? hash | 1 : 0;
}

static void occurrences_of_grams(const pattern* p, occurrences* out) {
  out->count = 0;
  out->mask = 0;
  out->are_grams = true;
  while (p->count / (out->mask + 1) > OCCURRENCES_MOST / 2) out->mask = 2 * out->mask + 1;
  for (size_t at = 0; at + GRAM <= p->count; at++) {
    const uint64_t key = gram_key(p, at);
    if (key == 0 || ((key >> 7) & out->mask) != 0 || out->count == OCCURRENCES_MOST) continue;
    out->items[out->count++] = (occurrence){ key, (uint32_t)at };
  }
}

// The lowest level of each stretch; a stretch is one allocation unless there are many.
static void occurrences_of_levels(const pattern* p, occurrences* out) {
  const size_t stretch = p->count / OCCURRENCES_MOST + 1;
  uint64_t forever = 0;  // bytes of blocks that are never freed
  out->count = 0;
  out->are_grams = false;
  for (size_t at = 0; at < p->count; at++) {
    const uint64_t level = p->live[at] >= forever ? p->live[at] - forever : 0;
    if (p->lifetime[at] == 0) forever += tide__request_bytes(p->run->entries[p->entry[at]].bytes);
    if (at % stretch == 0) out->items[out->count++] = (occurrence){ level, (uint32_t)at };
    else if (level < out->items[out->count - 1].key)
      out->items[out->count - 1] = (occurrence){ level, (uint32_t)at };
  }
}

static int occurrence_order(const void* a, const void* b) {
  const occurrence* const left = a;
  const occurrence* const right = b;
  if (left->key != right->key) return left->key < right->key ? -1 : 1;
  return (left->at > right->at) - (left->at < right->at);
}

// ---------------------------------------------------------------------------------------------------
// Anchors

static int number_order(const void* a, const void* b) {
  const uint32_t left = *(const uint32_t*)a;
  const uint32_t right = *(const uint32_t*)b;
  return (left > right) - (left < right);
}

// The distances near the median, within a factor of 2. With few distances all must be nearer.
static void anchor_count_typical(const uint32_t* distances, uint32_t count, anchor* a) {
  const uint64_t width = count < ANCHOR_MANY ? 6 : 8;  // quarters: 1.5 or 2
  for (uint32_t i = 0; i < count; i++) {
    if (width * distances[i] < UINT64_C(4) * a->distance || UINT64_C(4) * distances[i] > width * a->distance)
      continue;
    a->typical += distances[i];
    a->regular++;
  }
}

// Are the distances between occurrences regular? Sorts `distances`.
static bool anchor_measure(const pattern* p, const occurrence* at, uint32_t* distances, anchor* a) {
  const uint32_t gaps = a->count - 1;
  const uint64_t span = at[gaps].at - at[0].at;
  if (span < p->count / 2) return false;
  for (uint32_t i = 0; i < gaps; i++) distances[i] = at[i + 1].at - at[i].at;
  qsort(distances, gaps, sizeof *distances, number_order);
  a->distance = distances[gaps / 2];
  if (p->count - at[gaps].at > ANCHOR_TAIL * (uint64_t)a->distance) return false;
  anchor_count_typical(distances, gaps, a);
  for (uint32_t i = 0; i < a->count; i++) a->live += (double)p->live[at[i].at] / a->count;
  if (gaps < ANCHOR_MANY) return a->regular == gaps;
  return a->regular * UINT64_C(5) >= gaps * UINT64_C(4) && a->typical * 10 >= span * 7;
}

static size_t anchors_find(const pattern* p, const occurrences* all, uint32_t* distances, anchor* anchors) {
  size_t found = 0;
  for (size_t i = 0; i < all->count;) {
    size_t end = i + 1;
    while (end < all->count && all->items[end].key == all->items[i].key) end++;
    anchor a = { .count = (uint32_t)(end - i), .first = i };
    if (a.count >= ANCHOR_LEAST && anchor_measure(p, &all->items[i], distances, &a)) anchors[found++] = a;
    i = end;
  }
  return found;
}

static int anchor_order(const void* a, const void* b) {
  const anchor* const left = a;
  const anchor* const right = b;
  if (left->distance != right->distance) return left->distance < right->distance ? -1 : 1;
  return (left->first > right->first) - (left->first < right->first);
}

static bool is_near(uint32_t a, uint32_t b) {
  const uint32_t apart = a < b ? b - a : a - b;
  return (uint64_t)apart * DISTANCE_PART <= a;
}

// Counts for each anchor how many have about its distance, by two indices that only rise. Returns the most.
static uint32_t anchors_count_support(anchor* anchors, size_t count) {
  size_t first = 0;
  size_t end = 0;
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    while (!is_near(anchors[first].distance, anchors[i].distance)) first++;
    while (end < count && is_near(anchors[end].distance, anchors[i].distance)) end++;
    anchors[i].support = (uint32_t)(end - first);
    most = anchors[i].support > most ? anchors[i].support : most;
  }
  return most;
}

// The number of occurrences that most anchors of about this distance have.
static uint32_t anchors_usual_count(const anchor* anchors, size_t first, size_t end) {
  uint32_t best = 0;
  size_t best_support = 0;
  for (size_t i = first; i < end; i++) {
    size_t support = 0;
    if (anchors[i].count == best) continue;
    for (size_t k = first; k < end; k++) support += anchors[k].count == anchors[i].count;
    if (support < best_support || (support == best_support && anchors[i].count < best)) continue;
    best = anchors[i].count;
    best_support = support;
  }
  return best;
}

// The anchor with the least live memory, of those with about this distance and the usual count.
static const anchor* anchors_lowest(const anchor* anchors, size_t count, uint32_t distance) {
  size_t first = 0;
  while (!is_near(anchors[first].distance, distance)) first++;
  size_t end = first;
  while (end < count && is_near(anchors[end].distance, distance)) end++;
  if (end - first > ANCHORS_MOST) end = first + ANCHORS_MOST;
  const uint32_t usual = anchors_usual_count(anchors, first, end);
  const anchor* best = NULL;
  for (size_t i = first; i < end; i++) {
    if (anchors[i].count == usual && (best == NULL || anchors[i].live < best->live)) best = &anchors[i];
  }
  return best;
}

// The support that a distance of sequences needs. Neighbours support each other, so a few prove nothing. A
// short step has only a few. If nearly all of a long distance is made of shorter ones, it is not a step, but
// something between steps, such as an evaluation.
static uint32_t support_needed(uint32_t distance, uint64_t mask) {
  const uint32_t neighbours = distance / 2 < GRAM ? distance / 2 : GRAM;
  const uint32_t own = distance / DISTANCE_OWN;
  const uint32_t kept = (uint32_t)((own > neighbours ? own : neighbours) / (mask + 1));
  return kept > ANCHOR_SUPPORT ? kept : ANCHOR_SUPPORT;
}

// Takes the longest distance with support. Levels need none.
static const anchor* anchors_choose(anchor* anchors, size_t count, const occurrences* all) {
  if (count == 0) return NULL;
  qsort(anchors, count, sizeof *anchors, anchor_order);
  const uint32_t most = anchors_count_support(anchors, count);
  for (size_t i = count; i-- > 0;) {
    const uint32_t need = all->are_grams ? support_needed(anchors[i].distance, all->mask) : 1;
    if (anchors[i].support >= need && anchors[i].support * UINT64_C(4) >= most)
      return anchors_lowest(anchors, count, anchors[i].distance);
  }
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// Both kinds

typedef struct pattern_work {
  occurrences all;
  uint32_t* distances;
  anchor* anchors;
} pattern_work;

static bool pattern_search(const pattern* p, pattern_work* work, anchor* out) {
  if (work->all.count == 0) return false;
  qsort(work->all.items, work->all.count, sizeof *work->all.items, occurrence_order);
  const size_t count = anchors_find(p, &work->all, work->distances, work->anchors);
  const anchor* const best = anchors_choose(work->anchors, count, &work->all);
  if (best != NULL) *out = *best;
  return best != NULL;
}

static tide_status pattern_cut(const pattern* p, const occurrences* all, const anchor* a, tide__cuts* cuts) {
  uint32_t last = 0;
  for (size_t i = 0; i < a->count; i++) {
    const uint32_t at = all->items[a->first + i].at;
    if (i > 0 && 3 * (uint64_t)(at - last) < a->distance) continue;
    last = at;
    TIDE_TRY(tide__cuts_add(cuts, p->entry[at]));
  }
  return TIDE_OK;
}

// Levels are taken if they cover clearly more of the recording.
static tide_status pattern_find(pattern* p, tide__cuts* cuts, tide_steps_source* out) {
  TIDE_TRY(pattern_read(p));
  const size_t room = p->count < OCCURRENCES_MOST ? p->count : OCCURRENCES_MOST;
  pattern_work work = { .all = { .items = tide__scratch_alloc(&p->scratch, room, sizeof(occurrence)) } };
  work.distances = tide__scratch_alloc(&p->scratch, room, sizeof *work.distances);
  work.anchors = tide__scratch_alloc(&p->scratch, room / ANCHOR_LEAST + 1, sizeof *work.anchors);
  TIDE_REQUIRE(!p->scratch.is_short, TIDE_ERR_NO_MEMORY, "steps_find: no memory for %zu occurrences", room);
  anchor gram = { 0 };
  anchor level = { 0 };
  occurrences_of_grams(p, &work.all);
  const bool has_gram = pattern_search(p, &work, &gram);
  occurrences_of_levels(p, &work.all);
  const bool has_level = pattern_search(p, &work, &level);
  if (has_level && (!has_gram || level.typical > gram.typical + p->count / 10)) {
    *out = TIDE_STEPS_LEVEL;
    return pattern_cut(p, &work.all, &level, cuts);
  }
  if (!has_gram) return TIDE_OK;
  *out = TIDE_STEPS_SEQUENCE;
  occurrences_of_grams(p, &work.all);
  qsort(work.all.items, work.all.count, sizeof *work.all.items, occurrence_order);
  return pattern_cut(p, &work.all, &gram, cuts);
}

tide_status tide__steps_by_pattern(const tide__recorded* run, tide__cuts* cuts, tide_steps_source* out) {
  pattern p = { .run = run };
  tide__scratch_init(&p.scratch, run->heap);
  const tide_status status = pattern_find(&p, cuts, out);
  tide__scratch_fini(&p.scratch);
  return status;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A tree that is walked from its leaves up: a range is a few whole nodes on each level, and afterwards the
// parents of its two ends are computed again.
#include "plan/waste.h"

#include <stdbool.h>
#include <string.h>

typedef struct waste_range {
  uint32_t first;
  uint32_t last;
} waste_range;

static int64_t waste_max(int64_t a, int64_t b) { return a > b ? a : b; }

// The values of the two nodes below a node.
static const int64_t* waste_children(const tide__waste* waste, uint32_t node) {
  return &waste->highest[(size_t)2 * node];
}

static int64_t waste_highest_child(const tide__waste* waste, uint32_t node) {
  const int64_t* const children = waste_children(waste, node);
  return waste_max(children[0], children[1]);
}

void tide__waste_begin(tide__waste* waste, const int64_t* heights, uint32_t sections) {
  const uint32_t leaves = waste->leaves;
  memset(waste->added, 0, leaves * sizeof *waste->added);
  for (uint32_t i = 0; i < leaves; i++)
    waste->highest[leaves + i] = i < sections ? heights[i] : INT64_MIN / 2;
  for (uint32_t node = leaves; node-- > 1;) {
    waste->highest[node] = waste_highest_child(waste, node);
  }
}

static void waste_apply(tide__waste* waste, uint32_t node, int64_t bytes) {
  waste->highest[node] += bytes;
  if (node < waste->leaves) waste->added[node] += bytes;
}

static void waste_climb(tide__waste* waste, uint32_t node) {
  for (node /= 2; node > 0; node /= 2) {
    waste->highest[node] = waste_highest_child(waste, node) + waste->added[node];
  }
}

void tide__waste_add(tide__waste* waste, uint32_t first, uint32_t last, int64_t bytes) {
  uint32_t left = first + waste->leaves;
  uint32_t right = last + waste->leaves;
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) waste_apply(waste, left++, bytes);
    if (right % 2 == 1) waste_apply(waste, --right, bytes);
  }
  waste_climb(waste, first + waste->leaves);
  waste_climb(waste, last - 1 + waste->leaves);
}

// Of what lies below `node`, whose sections are [low, high).
static int64_t waste_look(const tide__waste* waste, uint32_t node, uint32_t low, uint32_t high,
                          waste_range range) {
  if (low >= range.last || high <= range.first) return INT64_MIN / 2;
  if (low >= range.first && high <= range.last) return waste->highest[node];
  const uint32_t middle = low + (high - low) / 2;
  return waste_max(waste_look(waste, 2 * node, low, middle, range),
                   waste_look(waste, 2 * node + 1, middle, high, range)) +
         waste->added[node];
}

int64_t tide__waste_highest_of(const tide__waste* waste, uint32_t first, uint32_t last) {
  return waste_look(waste, 1, 0, waste->leaves, (waste_range){ first, last });
}

typedef struct waste_query {
  waste_range range;
  int64_t height;    // to be exceeded
  uint32_t section;  // that does, so far
} waste_query;

// Looks below `node`, to which `above` was added further up, at the higher side first.
static void waste_search(const tide__waste* waste, uint32_t node, uint32_t low, uint32_t high, int64_t above,
                         waste_query* query) {
  if (low >= query->range.last || high <= query->range.first) return;
  if (waste->highest[node] + above <= query->height) return;
  if (node >= waste->leaves) {
    query->height = waste->highest[node] + above;
    query->section = low;
    return;
  }
  const uint32_t middle = low + (high - low) / 2;
  const int64_t more = above + waste->added[node];
  const bool left_first = waste_children(waste, node)[0] >= waste_children(waste, node)[1];
  if (left_first) waste_search(waste, 2 * node, low, middle, more, query);
  waste_search(waste, 2 * node + 1, middle, high, more, query);
  if (!left_first) waste_search(waste, 2 * node, low, middle, more, query);
}

uint32_t tide__waste_find(const tide__waste* waste, uint32_t first, uint32_t last, int64_t height) {
  waste_query query = { { first, last }, height, UINT32_MAX };
  waste_search(waste, 1, 0, waste->leaves, 0, &query);
  return query.section;
}

uint32_t tide__waste_section(const tide__waste* waste) {
  uint32_t node = 1;
  while (node < waste->leaves) {
    node = 2 * node + (waste_children(waste, node)[0] >= waste_children(waste, node)[1] ? 0 : 1);
  }
  return node - waste->leaves;
}

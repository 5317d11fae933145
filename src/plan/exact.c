// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A round is a pair of runs of different lanes, which can run at the same time. If both succeed, the first
// counts, so the result does not depend on the number of threads. The lengths of the runs follow Luby's
// sequence (1 1 2 1 1 2 4 ...), which is always within a small factor of the best lengths. Failures are
// counted rather than nodes, so that a run without failures reaches its last tile.
#include "plan/exact.h"

#include "base/error.h"
#include "base/random.h"

#define EXACT_TILES_A_FAILURE 2u  // of a run of length 1
#define EXACT_NODES_A_TILE 8u     // of a run of length 1, at most
#define EXACT_ROUNDS 6u
#define EXACT_PLAYS 2u  // of a round

typedef struct exact_play {
  uint32_t lane;
  tide__search_rule rule;
  tide__search_order order;
} exact_play;

#define EXACT_WIDE \
  { 1.01f, 0, 0.01f, 0.1f }
#define EXACT_WIDER \
  { 1.01f, 0, 0.01f, 0.3f }
#define EXACT_MANY \
  { 0, 1, 0.2f, 0.3f }
#define EXACT_LARGE \
  { 1, 0, 1, 0.3f }
#define EXACT_WILD \
  { 0, 1, 0.2f, 1 }

static const exact_play exact_rounds[EXACT_ROUNDS][EXACT_PLAYS] = {
  { { 0, TIDE__SEARCH_WEIGHED, EXACT_WIDE }, { 1, TIDE__SEARCH_WEIGHED, EXACT_MANY } },
  { { 0, TIDE__SEARCH_WEIGHED, EXACT_WIDE }, { 2, TIDE__SEARCH_TIGHTEST, EXACT_WIDER } },
  { { 0, TIDE__SEARCH_WEIGHED, EXACT_WIDE }, { 1, TIDE__SEARCH_WEIGHED, EXACT_MANY } },
  { { 0, TIDE__SEARCH_WEIGHED, EXACT_WIDE }, { 3, TIDE__SEARCH_WEIGHED, EXACT_LARGE } },
  { { 0, TIDE__SEARCH_WEIGHED, EXACT_WIDE }, { 2, TIDE__SEARCH_FEWEST, EXACT_WIDER } },
  { { 1, TIDE__SEARCH_WEIGHED, EXACT_MANY }, { 2, TIDE__SEARCH_LOWEST, EXACT_WILD } },
};

static uint64_t exact_seed(const tide__exact* exact, uint32_t lane) {
  return tide__random_mix(exact->seed + exact->round) + lane;
}

tide_status tide__exact_init(tide__exact* exact, const tide__puzzle* puzzle, uint64_t seed,
                             const tide_heap* heap) {
  *exact = (tide__exact){ .puzzle = puzzle, .seed = seed };
  for (uint32_t i = 0; i < TIDE__EXACT_LANES; i++) {
    TIDE_TRY(tide__search_new(puzzle, exact_seed(exact, i), heap, &exact->lanes[i]));
  }
  return TIDE_OK;
}

void tide__exact_fini(tide__exact* exact) {
  for (uint32_t i = 0; i < TIDE__EXACT_LANES; i++) tide__search_free(exact->lanes[i]);
}

int64_t tide__exact_offset(const tide__exact* exact, uint32_t tile) {
  return tide__search_offset(exact->lanes[exact->winner], tile);
}

// Luby's sequence, from 1.
static uint64_t exact_length(uint64_t index) {
  for (;;) {
    unsigned bits = 1;
    while ((UINT64_C(1) << bits) - 1 < index) bits++;
    if ((UINT64_C(1) << bits) - 1 == index) return UINT64_C(1) << (bits - 1);
    index -= (UINT64_C(1) << (bits - 1)) - 1;
  }
}

typedef struct exact_turn {
  tide__exact* exact;
  int64_t height;
  const exact_play* plays;
  tide__search_limit limits[EXACT_PLAYS];
  tide__effort spent[EXACT_PLAYS];
  tide__search_answer answers[EXACT_PLAYS];
  tide__budget* budget;
  tide__atomic_u32 winner;
} exact_turn;

static void exact_play_one(void* user, uint32_t index) {
  exact_turn* const turn = user;
  const exact_play* const play = &turn->plays[index];
  const tide__watch watch = { turn->budget, &turn->winner, index };
  turn->answers[index] = TIDE__SEARCH_STOPPED;
  if (tide__watch_is_over(&watch)) return;
  turn->answers[index] = tide__search_run(turn->exact->lanes[play->lane], turn->height, play->rule,
                                          &play->order, &turn->limits[index], &watch, &turn->spent[index]);
  if (turn->answers[index] != TIDE__SEARCH_STOPPED) tide__watch_win(&turn->winner, index);
}

// Runs after one that succeeded may have stopped anywhere, so nothing of them may be kept.
static void exact_forget(tide__exact* exact, const exact_play* plays, uint32_t first) {
  for (uint32_t i = first; i < EXACT_PLAYS; i++) {
    tide__search_reset(exact->lanes[plays[i].lane], exact_seed(exact, plays[i].lane));
  }
}

// Sets the limits of runs of some length, up to `left` nodes and the budget. The rest of the budget pays for
// expensive nodes.
static void exact_share(exact_turn* turn, uint64_t length, uint64_t left) {
  const uint64_t tiles = turn->exact->puzzle->count + 4;
  const uint64_t wanted = length * EXACT_NODES_A_TILE * tiles;
  const uint64_t budget = tide__budget_left(turn->budget);
  uint64_t nodes = left < budget ? left : budget;
  uint64_t spare = budget;
  for (uint32_t i = 0; i < EXACT_PLAYS; i++) {
    const uint64_t share = nodes - nodes / (EXACT_PLAYS - i) * (EXACT_PLAYS - 1 - i);
    tide__search_limit* const limit = &turn->limits[i];
    limit->effort.nodes = wanted < share ? wanted : share;
    limit->failures = length * tiles / EXACT_TILES_A_FAILURE;
    nodes -= limit->effort.nodes;
    spare -= limit->effort.nodes;
  }
  for (uint32_t i = 0; i < EXACT_PLAYS; i++) {
    tide__effort* const effort = &turn->limits[i].effort;
    effort->work = tide__budget_worth(effort->nodes + spare / EXACT_PLAYS);
  }
}

// Runs one round within `*left` nodes, and subtracts those it used.
static tide__search_answer exact_round(tide__exact* exact, int64_t height, uint64_t* left,
                                       tide__thread_pool* threads, tide__budget* budget) {
  exact_turn turn = { .exact = exact,
                      .height = height,
                      .plays = exact_rounds[exact->round % EXACT_ROUNDS],
                      .budget = budget,
                      .winner = UINT32_MAX };
  const uint64_t length = exact_length(exact->round / EXACT_ROUNDS + 1);
  exact_share(&turn, length, *left);
  exact->round++;
  tide__thread_pool_run(threads, EXACT_PLAYS, exact_play_one, &turn);
  for (uint32_t i = 0; i < EXACT_PLAYS; i++) {
    tide__budget_spend(budget, turn.spent[i]);
    *left -= turn.spent[i].nodes;
    if (turn.answers[i] == TIDE__SEARCH_STOPPED) continue;
    exact->winner = turn.plays[i].lane;
    exact_forget(exact, turn.plays, i + 1);
    return turn.answers[i];
  }
  return TIDE__SEARCH_STOPPED;
}

tide__search_answer tide__exact_run(tide__exact* exact, int64_t height, uint64_t nodes,
                                    tide__thread_pool* threads, tide__budget* budget) {
  uint64_t left = nodes;
  tide__search_answer answer = TIDE__SEARCH_STOPPED;
  for (uint64_t before = UINT64_MAX; answer == TIDE__SEARCH_STOPPED && left > 0 && left < before;) {
    if (tide__budget_is_over(budget) || tide__budget_left(budget) == 0) break;
    before = left;  // a round that spends no nodes cannot go on
    answer = exact_round(exact, height, &left, threads, budget);
  }
  return answer;
}

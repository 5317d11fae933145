// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The parts of a view: drawings of each rule, random memory beside a model that looks at every unit of it,
// and a heap that fails.
//
// Memory is drawn as text: each letter is a unit, '#' in use and '.' free; '|' parts two handles, ' ' two
// arenas, and '~' begins an arena of another stream. A view is written as where the block begins in the first
// handle, then the indexes of its handles, new ones as '+' and their units: "2: 0 1 +4".
#include "device/tide/stitch.h"
#include "machine/counting_heap.h"

#define UNIT ((uint64_t)1 << 20)
#define GRANULE 2u  // units of the granularity
#define GRAIN ((uint64_t)512)

enum { HANDLES = 40, GRANULES = 64, ARENAS = 4, UNITS = HANDLES * GRANULES * (int)GRANULE };

typedef struct cell {
  uint32_t begin;  // its first unit
  uint32_t end;
  uint32_t arena;
} cell;

// Handles of all arenas, one behind the other.
typedef struct world {
  bool is_free[UNITS];
  bool is_foreign[ARENAS];
  cell cells[HANDLES];
  uint32_t count;
  uint64_t handles[HANDLES];
  tide__stitch_run runs[2 * HANDLES];
  tide__stitch_problem problem;
} world;

static void world_add_cell(world* w, uint32_t arena, uint32_t units) {
  const uint32_t begin = w->count == 0 ? 0 : w->cells[w->count - 1].end;
  w->handles[w->count] = units * UNIT;
  w->cells[w->count++] = (cell){ begin, begin + units, arena };
}

static uint32_t units_free_from_begin(const world* w, uint32_t h) {
  uint32_t at = w->cells[h].begin;
  while (at < w->cells[h].end && w->is_free[at]) at++;
  return at - w->cells[h].begin;
}

static uint32_t units_free_to_end(const world* w, uint32_t h) {
  uint32_t at = w->cells[h].end;
  while (at > w->cells[h].begin && w->is_free[at - 1]) at--;
  return w->cells[h].end - at;
}

static bool is_whole(const world* w, uint32_t h) {
  return units_free_from_begin(w, h) == w->cells[h].end - w->cells[h].begin;
}

static bool is_followed(const world* w, uint32_t h) {
  return h + 1 < w->count && w->cells[h + 1].arena == w->cells[h].arena;
}

// Is the unit before handle `h` free?
static bool is_in_a_hole(const world* w, uint32_t h) {
  return h > 0 && is_followed(w, h - 1) && units_free_to_end(w, h - 1) != 0;
}

// Adds a run that has `pre` units of handle `first`, or that begins with it: the units free behind that.
static void world_add_run(world* w, uint32_t first, uint32_t pre) {
  tide__stitch_run run = { .first = first, .pre = pre * UNIT };
  run.is_foreign = w->is_foreign[w->cells[first].arena];
  uint32_t next = first;
  bool goes_on = true;
  if (pre != 0) goes_on = is_followed(w, next++);
  while (goes_on && is_whole(w, next)) {
    run.whole++;
    goes_on = is_followed(w, next++);
  }
  if (goes_on) run.suf = units_free_from_begin(w, next) * UNIT;
  w->runs[w->problem.run_count++] = run;
}

// Adds the run that begins with handle `h`, then the one that begins inside it.
static void world_add_runs(world* w, uint32_t h) {
  if (units_free_from_begin(w, h) != 0 && !is_in_a_hole(w, h)) world_add_run(w, h, 0);
  if (units_free_to_end(w, h) != 0 && !is_whole(w, h)) world_add_run(w, h, units_free_to_end(w, h));
}

static void world_finish(world* w, uint64_t bytes) {
  for (uint32_t h = 0; h < w->count; h++) world_add_runs(w, h);
  w->problem.bytes = bytes;
  w->problem.handles = w->handles;
  w->problem.handle_count = w->count;
  w->problem.runs = w->runs;
  w->problem.granularity = GRANULE * UNIT;
}

// ---------------------------------------------------------------------------------------------------
// Drawings

// No growth, new handles of two granules, ends of any length.
static void world_draw(world* w, const char* drawing, uint32_t units) {
  memset(w, 0, sizeof *w);
  uint32_t arena = 0;
  uint32_t begin = 0;
  uint32_t at = 0;
  for (const char* c = drawing; *c != '\0'; c++) {
    if (*c == '~') w->is_foreign[arena] = true;
    if (*c == '.' || *c == '#') w->is_free[at++] = *c == '.';
    if (c[1] == '|' || c[1] == ' ' || c[1] == '\0') {
      world_add_cell(w, arena, at - begin);
      begin = at;
      c += c[1] != '\0';
      arena += *c == ' ';
    }
  }
  w->problem.handle_bytes = 2 * GRANULE * UNIT;
  w->problem.end_least = UNIT;
  world_finish(w, units * UNIT);
}

static void view_print(const tide__stitch_plan* plan, char* text, size_t bytes) {
  size_t used = (size_t)snprintf(text, bytes, "%" PRIu64 ":", plan->start / UNIT);
  for (size_t i = 0; i < plan->count; i++) {
    const tide__stitch_part part = plan->parts[i];
    const bool is_new = part.handle == TIDE__STITCH_NEW;
    used += (size_t)snprintf(text + used, bytes - used, is_new ? " +%" PRIu64 : " %" PRIu64,
                             is_new ? part.bytes / UNIT : (uint64_t)part.handle);
    T_LT(used, bytes);
  }
}

static void expect_plan(const world* w, const char* view) {
  counting_heap heap;
  tide__stitch_plan plan;
  char text[512];
  counting_heap_init(&heap, SIZE_MAX, false);
  T_OK(tide__stitch_plan_make(&w->problem, &heap.heap, &plan));
  view_print(&plan, text, sizeof text);
  T_STR_EQ(text, view);
  tide__stitch_plan_free(&plan, &heap.heap);
  T_EQ(atomic_load(&heap.outstanding), 0);
}

// Drawings, the units of the block, how many units may be made, and the view.
static const struct {
  const char* drawing;
  uint32_t units;
  uint32_t growth;
  const char* view;
} views[] = {
  // Makes new handles when nothing is free.
  { "####|####", 4, 0, "0: +4" },
  { "####|####", 9, 0, "0: +4 +4 +2" },
  { "####|####", 1, 0, "0: +2" },
  { "#..#|####", 4, 0, "0: +4" },
  // Begins in the longest free end.
  { "###.|##..|###.|....", 6, 0, "2: 1 3" },
  { "###.|#...|###.|....", 7, 0, "1: 1 3" },
  { "###. ~##..|#### ....", 6, 0, "2: 1 3" },
  // Begins in the own one of equal free ends.
  { "~##..|#### ##..|####|....", 6, 0, "2: 2 4" },
  { "##..|#### ##..|####|....", 6, 0, "2: 0 4" },
  // Begins where more handles follow.
  { "##..|##|##..|..|##", 4, 0, "2: 2 3" },
  // Goes on through the hole it began in.
  { "##..|..|....|.### ......", 9, 0, "2: 0 1 2 3" },
  { "##..|..|....|.### ......", 7, 0, "2: 0 1 2" },
  { "##..|..|....|.### ......", 3, 0, "2: 0 1" },
  // Takes the end of that hole only if it is the end of the block.
  { "##..|..|.### ......", 6, 0, "2: 0 1 3" },
  { "##..|..|.### ....", 9, 0, "2: 0 1 3 2" },
  // Begins with a whole handle where a free end would hold the block.
  { "..|## ~##....", 3, 0, "0: 0 +2" },
  { "..|##|###. ~##....", 4, 0, "0: 0 +2" },
  // Takes the largest handles first.
  { "..|##|....|##|......|##", 10, 0, "0: 4 2" },
  { "..|##|....|##|......|##", 8, 0, "0: 4 0" },
  // Takes handles of its own stream first.
  { "~......|## ..|##|....", 6, 0, "0: 4 2" },
  { "~......|## ..|##|....", 12, 0, "0: 4 2 0" },
  // Takes equal handles from the longest hole first.
  { "..|##|..|..|..|##|..", 8, 0, "0: 2 3 4 0" },
  // Ends in the shortest free beginning that holds the rest.
  { "....|##|...#|..##|....##", 6, 0, "0: 0 3" },
  { "....|##|...#|.###|....##", 6, 0, "0: 0 2" },
  { "....|## ~..## ..##", 6, 0, "0: 0 3" },
  // Ends before a handle that more whole ones precede.
  { "....|##|..##|##|..|..## ##", 10, 0, "0: 0 4 +2 5" },
  { "......|##|..##|##|....|..##", 8, 0, "0: 0 5" },
  // Ends in no handle that it begins in.
  { "..#...|##", 5, 0, "3: 0 +2" },
  { "..#...|##|.#", 5, 0, "3: 0 +2" },
  { "..#...|##|..##", 5, 0, "3: 0 2" },
  // Puts the longest free beginning behind new handles.
  { ".###|...#|..##|##", 8, 0, "0: +4 +2 1" },
  { "~...# ...#|##", 5, 0, "0: +2 1" },
  // Leaves out an end that new handles cover.
  { ".###|##", 4, 0, "0: +4" },
  { ".###|##", 5, 0, "0: +4 0" },
  // Breaks the smallest handle when it may not grow.
  { "........|##|....|##|......", 3, 0, "0: 2" },
  { "~....|## ....|##", 3, 0, "0: 2" },
  { "~....|## ......|##", 3, 0, "0: 0" },
  { "##..|##|....|.###", 5, 0, "2: 0 2" },
  // Breaks no handle while it may grow.
  { "........|##", 3, 4, "0: +4" },
  { "........|##", 3, 3, "0: 0" },
  { "........|##|.###", 3, 2, "0: +2 2" },
  { "........|##|.###", 3, 1, "0: 0" },
  // Grows beyond what it may when no whole handle is left.
  { "....|##", 10, 2, "0: 0 +4 +2" },
};

T_TEST(test_stitch__makes_the_views_that_are_drawn) {
  for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
    static world w;
    world_draw(&w, views[i].drawing, views[i].units);
    w.problem.growth_left = views[i].growth * UNIT;
    expect_plan(&w, views[i].view);
  }
}

T_TEST(test_stitch__needs_no_handle_at_all) {
  static world w;
  memset(&w, 0, sizeof w);
  w.problem.handle_bytes = 8 * UNIT;
  world_finish(&w, 10 * UNIT + GRAIN);

  expect_plan(&w, "0: +8 +4");
}

T_TEST(test_stitch__leaves_out_ends_that_are_too_short) {
  static world w;
  world_draw(&w, "..##|##", 5);
  w.problem.end_least = 3 * UNIT;

  expect_plan(&w, "0: +4 +2");
}

T_TEST(test_stitch__counts_bytes_not_units) {
  static world w;
  world_draw(&w, "....|##|..##", 6);
  w.problem.bytes += GRAIN;
  expect_plan(&w, "0: 0 +2 2");
  w.problem.bytes -= 2 * GRAIN;
  expect_plan(&w, "0: 0 2");
}

// ---------------------------------------------------------------------------------------------------
// A model: it asks every handle at every step, and the one with the lowest key wins

typedef struct key {
  uint64_t numbers[4];
} key;

typedef struct model {
  const world* w;
  bool is_used[HANDLES];
  bool is_refused[HANDLES];  // did not fit when it was its turn
  tide__stitch_part parts[UNITS];
  size_t count;
  uint64_t start;
  uint64_t missing;
} model;

typedef bool (*model_ask)(const model* m, uint32_t h, key* out);

static uint32_t model_pick(const model* m, model_ask ask) {
  uint32_t best = TIDE__STITCH_NEW;
  key best_key = { { 0 } };
  for (uint32_t h = 0; h < m->w->count; h++) {
    key mine = { { 0 } };
    if (!ask(m, h, &mine)) continue;
    size_t i = 0;
    while (i < 3 && mine.numbers[i] == best_key.numbers[i]) i++;
    if (best != TIDE__STITCH_NEW && mine.numbers[i] >= best_key.numbers[i]) continue;
    best = h;
    best_key = mine;
  }
  return best;
}

static void model_use(model* m, uint32_t h, uint64_t usable) {
  m->is_used[h] = true;
  m->parts[m->count++] = (tide__stitch_part){ h, m->w->handles[h] };
  m->missing -= usable < m->missing ? usable : m->missing;
}

static uint64_t foreign_of(const model* m, uint32_t h) { return m->w->is_foreign[m->w->cells[h].arena]; }

static uint64_t wholes_after(const world* w, uint32_t h) {
  uint64_t n = 0;
  while (is_followed(w, h) && is_whole(w, h + 1)) {
    n++;
    h++;
  }
  return n;
}

static uint64_t wholes_before(const world* w, uint32_t h) {
  uint64_t n = 0;
  while (h > 0 && is_followed(w, h - 1) && is_whole(w, h - 1)) {
    n++;
    h--;
  }
  return n;
}

static bool ask_start(const model* m, uint32_t h, key* out) {
  const uint64_t units = units_free_to_end(m->w, h);
  *out = (key){ { UINT64_MAX - units, foreign_of(m, h), UINT64_MAX - wholes_after(m->w, h), h } };
  return units != 0 && !is_whole(m->w, h);
}

static bool ask_whole(const model* m, uint32_t h) { return is_whole(m->w, h) && !m->is_used[h]; }

static uint64_t few_wholes_around(const model* m, uint32_t h) {
  return UINT64_MAX - wholes_before(m->w, h) - wholes_after(m->w, h);
}

static bool ask_middle(const model* m, uint32_t h, key* out) {
  *out = (key){ { foreign_of(m, h), UINT64_MAX - m->w->handles[h], few_wholes_around(m, h), h } };
  return ask_whole(m, h) && !m->is_refused[h];
}

static bool ask_broken(const model* m, uint32_t h, key* out) {
  *out = (key){ { m->w->handles[h], foreign_of(m, h), few_wholes_around(m, h), h } };
  return ask_whole(m, h);
}

static bool ask_end(const model* m, uint32_t h, key* out) {
  const uint64_t bytes = units_free_from_begin(m->w, h) * UNIT;
  *out = (key){ { bytes, foreign_of(m, h), UINT64_MAX - wholes_before(m->w, h), h } };
  return bytes >= m->missing && !is_whole(m->w, h) && !m->is_used[h];
}

static bool ask_tail(const model* m, uint32_t h, key* out) {
  const uint64_t bytes = units_free_from_begin(m->w, h) * UNIT;
  *out = (key){ { UINT64_MAX - bytes, foreign_of(m, h), UINT64_MAX - wholes_before(m->w, h), h } };
  return bytes != 0 && bytes >= m->w->problem.end_least && !is_whole(m->w, h) && !m->is_used[h];
}

static void model_start(model* m) {
  const world* const w = m->w;
  uint32_t h = model_pick(m, ask_start);
  if (h == TIDE__STITCH_NEW || units_free_to_end(w, h) * UNIT >= m->missing) return;
  m->start = w->handles[h] - units_free_to_end(w, h) * UNIT;
  model_use(m, h, w->handles[h] - m->start);
  for (; m->missing != 0 && is_followed(w, h); h++) {
    const uint64_t bytes = units_free_from_begin(w, h + 1) * UNIT;
    if (!is_whole(w, h + 1) && bytes < m->missing) return;
    model_use(m, h + 1, bytes);
  }
}

static void model_middle(model* m) {
  for (uint32_t h; m->missing != 0 && (h = model_pick(m, ask_middle)) != TIDE__STITCH_NEW;) {
    m->is_refused[h] = m->w->handles[h] > m->missing;
    if (!m->is_refused[h]) model_use(m, h, m->w->handles[h]);
  }
}

// New handles are as many bytes as hold what is missing beside the tail, cut from left to right.
static void model_create(model* m, uint64_t bytes, uint32_t tail) {
  const uint64_t handle_bytes = m->w->problem.handle_bytes;
  m->missing -= bytes < m->missing ? bytes : m->missing;
  for (uint64_t at = 0; at < bytes; at += handle_bytes) {
    const uint64_t rest = bytes - at;
    m->parts[m->count++] = (tide__stitch_part){ TIDE__STITCH_NEW, rest < handle_bytes ? rest : handle_bytes };
  }
  if (m->missing != 0) model_use(m, tail, m->missing);
}

static void model_end(model* m) {
  const uint32_t end = model_pick(m, ask_end);
  if (end != TIDE__STITCH_NEW) {
    model_use(m, end, m->missing);
    return;
  }
  const uint32_t tail = model_pick(m, ask_tail);
  const uint64_t covered = tail != TIDE__STITCH_NEW ? units_free_from_begin(m->w, tail) * UNIT : 0;
  const uint64_t granule = m->w->problem.granularity;
  const uint64_t needed = (m->missing - covered + granule - 1) / granule * granule;
  const uint32_t broken = model_pick(m, ask_broken);
  if (broken != TIDE__STITCH_NEW && needed > m->w->problem.growth_left) model_use(m, broken, m->missing);
  else model_create(m, needed, tail);
}

static void model_make(model* m, const world* w) {
  memset(m, 0, sizeof *m);
  m->w = w;
  m->missing = w->problem.bytes;
  model_start(m);
  model_middle(m);
  if (m->missing != 0) model_end(m);
}

// ---------------------------------------------------------------------------------------------------
// Random memory

static void world_add_arenas(world* w, t_rng* rng) {
  const uint32_t arenas = 1 + (uint32_t)t_rng_below(rng, ARENAS);
  const uint32_t handles = 1 + (uint32_t)t_rng_below(rng, HANDLES);
  const uint32_t largest = t_rng_below(rng, 2) == 0 ? 3 : GRANULES;  // of few sizes many are equal
  for (uint32_t h = 0; h < handles; h++) {
    world_add_cell(w, h * arenas / handles, GRANULE * (1 + (uint32_t)t_rng_below(rng, largest)));
  }
  for (uint32_t a = 0; a < arenas; a++) w->is_foreign[a] = t_rng_below(rng, 2) == 0;
}

// Pieces end anywhere, or with a handle, so that whole handles and long holes are frequent.
static void world_free_pieces(world* w, t_rng* rng) {
  const uint32_t top = w->cells[w->count - 1].end;
  const uint32_t longest = 1 + (uint32_t)t_rng_below(rng, 2 * top / w->count + 2);
  const uint64_t share = 1 + t_rng_below(rng, 4);
  bool is_free = false;
  uint64_t left = 0;
  for (uint32_t h = 0; h < w->count; h++) {
    if (t_rng_below(rng, 2) == 0) left = 0;
    for (uint32_t at = w->cells[h].begin; at < w->cells[h].end; at++) {
      if (left == 0) {
        is_free = t_rng_below(rng, 5) < share;
        left = 1 + t_rng_below(rng, longest);
      }
      w->is_free[at] = is_free;
      left--;
    }
  }
}

static void world_invent(world* w, t_rng* rng) {
  memset(w, 0, sizeof *w);
  world_add_arenas(w, rng);
  world_free_pieces(w, rng);
  uint64_t free_units = 0;
  for (uint32_t at = 0; at < w->cells[w->count - 1].end; at++) free_units += w->is_free[at];
  const uint64_t limit = t_rng_below(rng, 4) == 0 ? 8 : free_units * 5 / 4 + 8;
  const uint64_t bytes = (1 + t_rng_below(rng, limit)) * UNIT - t_rng_below(rng, 3) * GRAIN;
  w->problem.handle_bytes = GRANULE * UNIT * (1 + t_rng_below(rng, 8));
  w->problem.growth_left = t_rng_below(rng, 3) * t_rng_below(rng, 24 * UNIT);
  w->problem.end_least = t_rng_below(rng, 5) * UNIT;
  world_finish(w, bytes);
}

// How many bytes of a handle the block may use, as the first, the last, or another part of the view.
static uint64_t usable_bytes(const world* w, const tide__stitch_plan* plan, size_t i) {
  const uint32_t h = plan->parts[i].handle;
  if (h == TIDE__STITCH_NEW || is_whole(w, h)) return plan->parts[i].bytes - (i == 0 ? plan->start : 0);
  if (i == 0 && plan->start != 0) {
    T_LE(plan->parts[0].bytes - plan->start, units_free_to_end(w, h) * UNIT);
    return plan->parts[0].bytes - plan->start;
  }
  T_EQ(i, plan->count - 1);
  return units_free_from_begin(w, h) * UNIT;
}

static void expect_parts(const world* w, const tide__stitch_plan* plan) {
  bool is_used[HANDLES] = { false };
  for (size_t i = 0; i < plan->count; i++) {
    const tide__stitch_part part = plan->parts[i];
    T_NE(part.bytes, 0);
    if (part.handle == TIDE__STITCH_NEW) {
      T_EQ(part.bytes % w->problem.granularity, 0);
      T_LE(part.bytes, w->problem.handle_bytes);
      continue;
    }
    T_LT(part.handle, w->count);
    T_EQ(part.bytes, w->handles[part.handle]);
    T_CHECK(!is_used[part.handle]);
    is_used[part.handle] = true;
  }
}

// What holds for every view, whatever was chosen.
static void expect_sound(const world* w, const tide__stitch_plan* plan) {
  uint64_t covered = 0;
  uint64_t created = 0;
  T_NE(plan->count, 0);
  T_LT(plan->start, plan->parts[0].bytes);
  expect_parts(w, plan);
  for (size_t i = 0; i < plan->count; i++) {
    T_LT(covered, w->problem.bytes);
    covered += usable_bytes(w, plan, i);
    if (plan->parts[i].handle == TIDE__STITCH_NEW) created += plan->parts[i].bytes;
  }
  T_LE(w->problem.bytes, covered);
  T_EQ(created, plan->created);
  if (created != 0) T_LT(covered - w->problem.bytes, w->problem.granularity);
}

static void expect_same(const model* m, const tide__stitch_plan* plan) {
  T_EQ(plan->count, m->count);
  T_EQ(plan->start, m->start);
  for (size_t i = 0; i < m->count; i++) {
    T_EQ(plan->parts[i].handle, m->parts[i].handle);
    T_EQ(plan->parts[i].bytes, m->parts[i].bytes);
  }
}

// How often the rules were needed: a comparison of views that are all alike shows little.
typedef struct census {
  size_t starts;
  size_t middles;
  size_t ends;
  size_t broken;
  size_t tails;
  size_t grown;
} census;

static void census_count(census* c, const world* w, const tide__stitch_plan* plan) {
  const uint32_t last = plan->parts[plan->count - 1].handle;
  const bool is_new = last == TIDE__STITCH_NEW;
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan->count; i++) bytes += plan->parts[i].bytes;
  c->starts += plan->start != 0;
  c->middles += plan->count > 3;
  c->ends += !is_new && plan->created == 0 && plan->count > 1 && !is_whole(w, last);
  c->broken += !is_new && plan->created == 0 && is_whole(w, last) && bytes - plan->start > w->problem.bytes;
  c->tails += !is_new && plan->created != 0;
  c->grown += is_new;
}

T_TEST(test_stitch__agrees_with_a_model) {
  static world w;
  static model m;
  t_rng rng = t_rng_new(0);
  census c = { 0 };
  const size_t rounds = t_scaled_alone(20000);
  for (size_t round = 0; round < rounds; round++) {
    counting_heap heap;
    tide__stitch_plan plan;
    counting_heap_init(&heap, SIZE_MAX, false);
    world_invent(&w, &rng);
    model_make(&m, &w);

    T_OK(tide__stitch_plan_make(&w.problem, &heap.heap, &plan));

    expect_sound(&w, &plan);
    expect_same(&m, &plan);
    census_count(&c, &w, &plan);
    tide__stitch_plan_free(&plan, &heap.heap);
    T_EQ(atomic_load(&heap.outstanding), 0);
  }
  const size_t least = rounds / 200;
  T_CHECK(c.starts >= least && c.middles >= least && c.ends >= least);
  T_CHECK(c.broken >= least && c.tails >= least && c.grown >= least);
}

// ---------------------------------------------------------------------------------------------------
// Without memory

T_TEST(test_stitch__survives_a_heap_that_fails) {
  static world w;
  world_draw(&w, "##..|##|..|..|##|..|..|..|##|..|.#", 95);
  w.problem.handle_bytes = GRANULE * UNIT;
  bool has_failed = true;
  size_t failures = 0;
  for (size_t at = 0; has_failed; at++) {
    counting_heap heap;
    tide__stitch_plan plan;
    counting_heap_init(&heap, at, false);

    const tide_status status = tide__stitch_plan_make(&w.problem, &heap.heap, &plan);
    has_failed = atomic_load(&heap.has_failed);

    T_EQ(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(plan.count == 0 && plan.parts == NULL && plan.capacity == 0, has_failed);
    if (has_failed) T_EQ(atomic_load(&heap.outstanding), 0);
    if (!has_failed) expect_sound(&w, &plan);
    tide__stitch_plan_free(&plan, &heap.heap);
    T_EQ(atomic_load(&heap.outstanding), 0);
    failures += has_failed;
  }
  T_LE(4, failures);
}

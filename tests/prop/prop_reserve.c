// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory that is reserved, beside everything that may come in its way: trims, limits, options that change,
// streams that are closed, pools that are parked or end, budgets, slow work, and faults of any call.
//
// After every operation all invariants hold, blocks that are handed out share no byte of addresses, and the
// statistics add up to what a visit shows. At the end no memory is lost.
#include "device/park.h"
#include "prop/oplist.h"
#include "tidemark/budget.h"

#define SLOTS 40u
#define STREAMS 4u

typedef struct item {
  tide_block block;
  size_t bytes;
  uint8_t stream;
} item;

typedef struct model {
  tide_machine* m;
  tide_device_cache* d;
  size_t free_before;
  tide_stream streams[STREAMS];  // the first is the default stream
  item items[SLOTS];
  tide_pool pool;     // of the tag "p"
  tide_pool passing;  // gets a user and loses it
  bool is_parked;
} model;

// ---------------------------------------------------------------------------------------------------
// Settings

static void configure_as(tide_device_options* options, uint32_t number) {
  static const char* const slacks[] = { "0", "0.005", "0.1", "0.25", "1" };
  static const char* const shares[] = { "0", "0.05", "1" };
  static const char* const handles[] = { "2,tide_most_handle_mb:2", "2,tide_most_handle_mb:128",
                                         "6,tide_most_handle_mb:6", "4,tide_most_handle_mb:10",
                                         "16,tide_most_handle_mb:1024" };
  char text[512];
  t_rng rng = t_rng_new(number);
  (void)snprintf(text, sizeof text,
                 "policy:tide,tide_idle_handles:%d,tide_slack:%s,tide_wait_slack:%s,tide_stitch_share:%s,"
                 "tide_least_handle_mb:%s,tide_floor_mb:%d",
                 (int)t_rng_below(&rng, 2) * 4, slacks[t_rng_below(&rng, 5)], slacks[t_rng_below(&rng, 3)],
                 shares[t_rng_below(&rng, 3)], handles[t_rng_below(&rng, 5)],
                 t_rng_below(&rng, 5) > 0 ? 1 : 40);
  T_OK(tide_device_options_parse(text, options));
}

// ---------------------------------------------------------------------------------------------------
// Operations

static void item_give(model* s, item* it) {
  if (it->block.handle != 0) T_ANY(tide_device_release(s->d, it->block));
  *it = (item){ 0 };
}

static void item_take(model* s, const op* o, size_t bytes) {
  item* const it = &s->items[o->slot % SLOTS];
  item_give(s, it);
  it->stream = o->other % STREAMS;
  if (tide_device_alloc(s->d, s->streams[it->stream], bytes, &it->block) == TIDE_OK) it->bytes = bytes;
}

static void do_take(model* s, const op* o) { item_take(s, o, (1 + o->number % 200) * 300 * KIB); }
static void do_take_small(model* s, const op* o) { item_take(s, o, 1 + o->number % (600 * KIB)); }
static void do_take_much(model* s, const op* o) { item_take(s, o, (1 + o->number % 400) * MIB); }
static void do_give(model* s, const op* o) { item_give(s, &s->items[o->slot % SLOTS]); }

static void do_pool_take(model* s, const op* o) {
  if (s->is_parked) return;
  region_open(s->d, s->pool);
  item_take(s, o, (1 + o->number % 100) * 300 * KIB);
  region_close(s->d, s->pool);
}

// Memory of a pool whose last user goes, with blocks in it or without.
static void do_pool_end(model* s, const op* o) {
  if (s->passing == TIDE_POOL_DEFAULT) s->passing = pool_new(s->d, NULL);
  region_open(s->d, s->passing);
  item_take(s, o, (1 + o->number % 100) * 300 * KIB);
  region_close(s->d, s->passing);
  if (o->value % 2 == 0) do_give(s, o);
  T_ANY(tide_device_pool_drop(s->d, s->passing));
  s->passing = TIDE_POOL_DEFAULT;
}

// What an error says was reserved is what is reserved more.
static void do_reserve(model* s, const op* o) {
  unsigned long long said = 0;
  const int64_t before = current(s->d, reserved_bytes);
  const uint64_t bytes = (1 + o->number % 300) * 700 * KIB;
  const tide_status status = tide_device_reserve(s->d, s->streams[o->other % STREAMS], bytes);
  const int64_t more = current(s->d, reserved_bytes) - before;
  if (status == TIDE_OK) {
    T_LE(bytes, (uint64_t)more);
    return;
  }
  T_EQ(sscanf(tide_last_error()->text, "device_reserve: %llu of", &said), 1);
  T_EQ((uint64_t)more, said);
}

static void do_trim(model* s, const op* o) { T_ANY(tide_device_trim(s->d, o->number % 2 * 50 * MIB)); }

static void do_limit(model* s, const op* o) {
  limit_to(s->d, o->value % 2 == 0 ? TIDE_NO_LIMIT : (100 + o->number % 1000) * MIB);
}

static void do_close(model* s, const op* o) {
  const uint8_t stream = (uint8_t)(1 + o->other % (STREAMS - 1));
  for (size_t i = 0; i < SLOTS; i++) {
    if (s->items[i].stream == stream) item_give(s, &s->items[i]);
  }
  T_OK(tide_device_close_stream(s->d, s->streams[stream]));
  T_OK(tide_machine_stream_free(s->m, 0, s->streams[stream]));
  s->streams[stream] = side_new(s->m);
}

static void do_configure(model* s, const op* o) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  configure_as(&options, o->number);
  T_OK(tide_device_configure(s->d, &options));
}

static void do_fault(model* s, const op* o) {
  static const tide_call every[] = { TIDE_CALL_PHYSICAL_NEW,    TIDE_CALL_MAP,
                                     TIDE_CALL_SET_ACCESS,      TIDE_CALL_UNMAP,
                                     TIDE_CALL_PHYSICAL_FREE,   TIDE_CALL_ADDRESS_RESERVE,
                                     TIDE_CALL_ADDRESS_RELEASE, TIDE_CALL_EVENT_RECORD,
                                     TIDE_CALL_MEMORY_INFO };
  const tide_status status = o->value % 2 == 0 ? TIDE_ERR_MACHINE : TIDE_ERR_NO_MEMORY;
  fault_after(s->m, every[o->other % (sizeof every / sizeof every[0])], status, o->number % 10);
}

static void do_mend(model* s, const op* o) {
  (void)o;
  tide_machine_fault_clear(s->m);
}

static void do_advance(model* s, const op* o) {
  T_OK(tide_dry_advance(s->m, (uint64_t)(o->number % 70) * 1000000000));
}

static void do_finish(model* s, const op* o) {
  (void)o;
  T_OK(tide_machine_device_synchronize(s->m, 0));
}

static void do_work(model* s, const op* o) { work_slowly(s->m, s->streams[o->other % STREAMS]); }

static void do_park(model* s, const op* o) {
  const tide_park_options how = park_how(TIDE_BACKUP_PAGEABLE);
  (void)o;
  if (s->is_parked) s->is_parked = tide_device_unpark(s->d, "p", NULL, NULL) != TIDE_OK;
  else s->is_parked = tide_device_park(s->d, "p", &how, NULL) == TIDE_OK;
}

static void do_budget(model* s, const op* o) {
  tide_budget budget = TIDE_BUDGET_INIT;
  budget.limit = 300 * MIB;
  T_OK(tide_device_budget_set(s->d, "p", o->value % 3 == 0 ? &budget : NULL));
}

// clang-format off
#define VERB_MAP(X)                                                                                   \
  X(TAKE, do_take, 220) X(TAKE_SMALL, do_take_small, 70) X(TAKE_MUCH, do_take_much, 25)               \
  X(GIVE, do_give, 180) X(POOL_TAKE, do_pool_take, 50) X(POOL_END, do_pool_end, 15)                   \
  X(RESERVE, do_reserve, 35) X(TRIM, do_trim, 12) X(LIMIT, do_limit, 12) X(CLOSE, do_close, 4)        \
  X(CONFIGURE, do_configure, 12) X(FAULT, do_fault, 12) X(MEND, do_mend, 14)                          \
  X(ADVANCE, do_advance, 12) X(FINISH, do_finish, 12) X(WORK, do_work, 12) X(PARK, do_park, 12)       \
  X(BUDGET, do_budget, 3)
// clang-format on

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static void (*const functions[])(model* s, const op* o) = { VERB_MAP(OP_FUNCTION) };

// ---------------------------------------------------------------------------------------------------
// Playing

static bool blocks_are_apart(const model* s) {
  for (size_t i = 0; i < SLOTS; i++) {
    for (size_t k = 0; k < i && s->items[i].bytes > 0; k++) {
      const uint64_t a = (uintptr_t)s->items[i].block.address;
      const uint64_t b = (uintptr_t)s->items[k].block.address;
      EXPECT(s->items[k].bytes == 0 || a + s->items[i].bytes <= b || b + s->items[k].bytes <= a,
             "slots %zu and %zu share bytes", k, i);
    }
  }
  return true;
}

static bool segment_add(void* user, const tide_segment_info* info) {
  *(int64_t*)user += (int64_t)info->bytes;
  return true;
}

// What is away is neither shown nor counted.
static bool model_agrees(const model* s) {
  int64_t shown = 0;
  const tide_device_visitor visitor = { segment_add, NULL, &shown };
  const int broken = tide_device_check(s->d);
  EXPECT(broken == 0, "invariant %d: %.400s", broken, tide_last_error()->text);
  if (!blocks_are_apart(s)) return false;
  const tide_device_stats stats = stats_of(s->d);
  if (s->is_parked) return true;
  EXPECT(tide_device_visit(s->d, &visitor) == TIDE_OK, "%.400s", tide_last_error()->text);
  EXPECT(shown == stats.reserved_bytes[TIDE_STAT_ALL].current, "%lld bytes are shown of %lld",
         (long long)shown, (long long)stats.reserved_bytes[TIDE_STAT_ALL].current);
  return true;
}

// The first operation says what device it is.
static void model_open(model* s, uint32_t number) {
  tide_dry_options machine = TIDE_DRY_OPTIONS_INIT;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  *s = (model){ .m = NULL };
  machine.capacity = (400 + number % 3000) * MIB;
  T_OK(tide_machine_new_dry(&machine, &s->m));
  s->free_before = free_bytes(s->m, 0);
  configure_as(&options, number);
  if (number % 3 == 0) options.address_reserve.fraction = 0.05 + 0.05 * (number % 20);
  T_OK(tide_device_new(s->m, 0, &options, &s->d));
  for (size_t i = 1; i < STREAMS; i++) s->streams[i] = side_new(s->m);
  s->pool = tagged(s->d, "p");
}

static bool model_close(const model* s) {
  tide_machine_fault_clear(s->m);
  tide_device_free(s->d);
  const size_t left = free_bytes(s->m, 0);
  EXPECT(left == s->free_before, "%zu bytes are lost", s->free_before - left);
  tide_machine_free(s->m);
  return true;
}

static bool play(const op* list, size_t count, size_t check_every) {
  static model s;
  model_open(&s, count > 0 ? list[0].number : 0);
  for (size_t i = 0; i < count; ++i) {
    outcome->at = i;
    functions[list[i].verb](&s, &list[i]);
    if (i % check_every == 0 && !model_agrees(&s)) return false;
  }
  return model_close(&s);
}

static const op_suite suite = {
  "memory that is reserved", verbs, sizeof verbs / sizeof *verbs, play, 512, 4, 16
};

T_TEST(prop_reserve__keeps_all_invariants) {
  suite_run(&suite, t_scaled(T_HAS_SANITIZER ? 8000 : 24000), true);
}

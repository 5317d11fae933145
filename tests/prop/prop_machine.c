// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Model test of the memory of a machine: random calls on the machine and on a simple model made of arrays.
// The model knows the byte that each page of physical memory was last filled with, so it can predict what is
// read through any of its addresses.
#define T_THREADS
#include <sys/mman.h>

#include "machine/machines.h"
#include "prop/oplist.h"

#define UNIT (64 * KIB)
#define PAGES 128u       // of UNIT bytes, that the device has
#define SLOTS 12u        // objects of each kind
#define RANGE_MAX 8u     // units of a reservation
#define PHYSICAL_MAX 3u  // units of physical memory
#define ORDINARY_MAX 3u  // units of ordinary memory, the last without access
#define FILLED 0x3c      // what memory is filled with that is only read

// ---------------------------------------------------------------------------------------------------
// The model

typedef struct physical {
  bool is_used;     // somebody refers to it
  bool has_handle;  // in slot order: the handle of this slot
  uint32_t maps;    // how often it is mapped
  uint32_t units;
  uint8_t values[PHYSICAL_MAX];  // what each unit is filled with
  tide_physical handle;
} physical;

typedef struct cell {
  int16_t physical;  // which is mapped here, or -1
  uint8_t part;      // which unit of it
  uint8_t access;    // a tide_access
} cell;

typedef struct range {
  bool is_used;
  uint32_t units;
  uint8_t* address;
  cell cells[RANGE_MAX];
} range;

typedef struct block {
  bool is_used;
  uint8_t value;
  size_t bytes;
  uint8_t* address;
} block;

#define PHYSICALS 256u
typedef struct model {
  tide_machine* m;
  tide_stream stream;
  uint8_t* window;          // pinned, to read a device through
  uint8_t* filled;          // ordinary memory with one value
  uint8_t* ordinary;        // memory that the machine does not know; the last unit of it has no access
  physical all[PHYSICALS];  // used ones, with or without a handle
  int16_t slots[SLOTS];     // the physical memory a slot names, or -1
  range ranges[SLOTS];
  block blocks[SLOTS];
  size_t used_units;
} model;

static physical* physical_of(model* s, uint8_t slot) {
  return s->slots[slot] < 0 ? NULL : &s->all[s->slots[slot]];
}

static void physical_forget(model* s, physical* p) {
  if (p->has_handle || p->maps != 0) return;
  s->used_units -= p->units;
  p->is_used = false;
}

// Does [first, first + units) begin and end at mappings without a gap?
static bool cells_are_whole(const range* r, uint32_t first, uint32_t units, const model* s) {
  if (units == 0 || first + units > r->units) return false;
  for (uint32_t i = first; i < first + units; ++i) {
    if (r->cells[i].physical < 0) return false;
  }
  const cell* const begin = &r->cells[first];
  const cell* const end = &r->cells[first + units - 1];
  return begin->part == 0 && end->part + 1u == s->all[end->physical].units;
}

static bool finish(const model* s) {
  return expect_status("synchronize", tide_machine_stream_synchronize(s->m, 0, s->stream), TIDE_OK);
}

// ---------------------------------------------------------------------------------------------------
// Operations: each makes a call, and compares the result with the model

static bool do_reserve(model* s, const op* o) {
  range* const r = &s->ranges[o->slot];
  if (r->is_used) return true;
  void* address = NULL;
  const uint32_t units = 1 + o->number % RANGE_MAX;
  if (!expect_status("reserve", tide_machine_address_reserve(s->m, 0, units * UNIT, 0, NULL, &address),
                     TIDE_OK)) {
    return false;
  }
  EXPECT((uintptr_t)address % UNIT == 0, "reserve: %p is not aligned", address);
  *r = (range){ .is_used = true, .units = units, .address = address };
  for (uint32_t i = 0; i < RANGE_MAX; ++i) r->cells[i] = (cell){ -1, 0, 0 };
  return true;
}

static bool do_release(model* s, const op* o) {
  range* const r = &s->ranges[o->slot];
  if (!r->is_used) return true;
  const bool is_short = o->value % 4 == 0 && r->units > 1;
  bool has_mapping = false;
  for (uint32_t i = 0; i < r->units; ++i) has_mapping = has_mapping || r->cells[i].physical >= 0;
  const tide_status want = is_short ? TIDE_ERR_ARGUMENT : has_mapping ? TIDE_ERR_STATE : TIDE_OK;
  const size_t bytes = (r->units - (is_short ? 1 : 0)) * UNIT;
  if (!expect_status("release", tide_machine_address_release(s->m, r->address, bytes), want)) return false;
  if (want == TIDE_OK) r->is_used = false;
  return true;
}

static bool do_create(model* s, const op* o) {
  if (s->slots[o->slot] >= 0) return true;
  size_t at = 0;
  while (at < PHYSICALS && s->all[at].is_used) ++at;
  if (at == PHYSICALS) return true;
  const uint32_t units = 1 + o->number % PHYSICAL_MAX;
  const tide_status want = s->used_units + units > PAGES ? TIDE_ERR_NO_MEMORY : TIDE_OK;
  tide_physical handle = NULL;
  if (!expect_status("create", tide_machine_physical_new(s->m, 0, units * UNIT, 0, &handle), want))
    return false;
  if (want != TIDE_OK) return true;
  s->all[at] = (physical){ .is_used = true, .has_handle = true, .units = units, .handle = handle };
  s->slots[o->slot] = (int16_t)at;
  s->used_units += units;
  return true;
}

static bool do_drop(model* s, const op* o) {
  physical* const p = physical_of(s, o->slot);
  if (p == NULL) return true;
  if (!expect_status("drop", tide_machine_physical_free(s->m, p->handle), TIDE_OK)) return false;
  p->has_handle = false;
  s->slots[o->slot] = -1;
  physical_forget(s, p);
  return true;
}

static bool do_map(model* s, const op* o) {
  range* const r = &s->ranges[o->slot];
  physical* const p = physical_of(s, o->other);
  if (!r->is_used || p == NULL) return true;
  const uint32_t first = o->number % (RANGE_MAX + 1);
  bool is_free = first + p->units <= r->units;
  for (uint32_t i = first; is_free && i < first + p->units; ++i) is_free = r->cells[i].physical < 0;
  if (!is_free && first >= r->units) return true;  // the address may belong to somebody else
  const tide_status want = is_free ? TIDE_OK : TIDE_ERR_ARGUMENT;
  if (!expect_status("map", tide_machine_map(s->m, r->address + first * UNIT, p->handle), want)) return false;
  if (!is_free) return true;
  p->maps++;
  for (uint32_t i = 0; i < p->units; ++i) {
    r->cells[first + i] = (cell){ s->slots[o->other], (uint8_t)i, TIDE_ACCESS_NONE };
  }
  return true;
}

static bool do_unmap(model* s, const op* o) {
  range* const r = &s->ranges[o->slot];
  const uint32_t first = o->other % RANGE_MAX;
  const uint32_t units = 1 + o->number % RANGE_MAX;
  if (!r->is_used || first + units > r->units) return true;
  const bool is_whole = cells_are_whole(r, first, units, s);
  const tide_status status = tide_machine_unmap(s->m, r->address + first * UNIT, units * UNIT);
  if (!expect_status("unmap", status, is_whole ? TIDE_OK : TIDE_ERR_ARGUMENT)) return false;
  for (uint32_t i = first; is_whole && i < first + units; ++i) {
    physical* const p = &s->all[r->cells[i].physical];
    const bool is_last_part = r->cells[i].part + 1u == p->units;
    r->cells[i] = (cell){ -1, 0, 0 };
    if (!is_last_part) continue;
    p->maps--;
    physical_forget(s, p);
  }
  return true;
}

static bool do_access(model* s, const op* o) {
  static const tide_access kinds[] = { TIDE_ACCESS_NONE, TIDE_ACCESS_READ, TIDE_ACCESS_READ_WRITE,
                                       TIDE_ACCESS_READ_WRITE };
  range* const r = &s->ranges[o->slot];
  const uint32_t first = o->other % RANGE_MAX;
  const uint32_t units = 1 + o->number % RANGE_MAX;
  const tide_access kind = kinds[o->value % 4];
  if (!r->is_used || first + units > r->units) return true;
  const bool is_whole = cells_are_whole(r, first, units, s);
  const tide_status status = tide_machine_set_access(s->m, r->address + first * UNIT, units * UNIT, 0, kind);
  if (!expect_status("access", status, is_whole ? TIDE_OK : TIDE_ERR_ARGUMENT)) return false;
  for (uint32_t i = first; is_whole && i < first + units; ++i) r->cells[i].access = (uint8_t)kind;
  return true;
}

// What the model says about work over cells that needs `access`.
static tide_status work_status(const range* r, uint32_t first, uint32_t units, uint8_t access) {
  tide_status want = TIDE_OK;
  for (uint32_t i = first; i < first + units && want == TIDE_OK; ++i) {
    if (r->cells[i].physical < 0) want = TIDE_ERR_ARGUMENT;
    else if ((r->cells[i].access & access) != access) want = TIDE_ERR_ACCESS;
  }
  return want;
}

static bool do_fill(model* s, const op* o) {
  range* const r = &s->ranges[o->slot];
  const uint32_t first = o->other % RANGE_MAX;
  const uint32_t units = 1 + o->number % 3;
  if (!r->is_used || first + units > r->units) return true;
  const tide_status want = work_status(r, first, units, TIDE_ACCESS_READ_WRITE);
  const tide_status got =
      tide_machine_fill(s->m, 0, s->stream, r->address + first * UNIT, o->value, units * UNIT);
  if (!expect_status("fill", got, want)) return false;
  if (!finish(s)) return false;
  for (uint32_t i = first; want == TIDE_OK && i < first + units; ++i) {
    s->all[r->cells[i].physical].values[r->cells[i].part] = o->value;
  }
  return true;
}

static bool window_is(const model* s, uint8_t value, size_t bytes) {
  if (!machine_has_memory(s->m)) return true;
  for (size_t i = 0; i < bytes; ++i) {
    EXPECT(s->window[i] == value, "read: byte %zu is 0x%02x, the model says 0x%02x", i, s->window[i], value);
  }
  return true;
}

static bool do_read(model* s, const op* o) {
  const range* const r = &s->ranges[o->slot];
  const uint32_t at = o->other % RANGE_MAX;
  if (!r->is_used || at >= r->units) return true;
  const tide_status want = work_status(r, at, 1, TIDE_ACCESS_READ);
  const tide_status got = tide_machine_copy(s->m, 0, s->stream, s->window, r->address + at * UNIT, UNIT);
  if (!expect_status("read", got, want)) return false;
  if (!finish(s)) return false;
  return want != TIDE_OK || window_is(s, s->all[r->cells[at].physical].values[r->cells[at].part], UNIT);
}

static bool do_raw(model* s, const op* o) {
  block* const b = &s->blocks[o->slot];
  if (b->is_used) return true;
  const uint32_t units = 1 + o->number % 16;
  const tide_status want = s->used_units + units > PAGES ? TIDE_ERR_NO_MEMORY : TIDE_OK;
  void* address = NULL;
  if (!expect_status("raw", tide_machine_raw_alloc(s->m, 0, units * UNIT, &address), want)) return false;
  if (want != TIDE_OK) return true;
  *b = (block){ true, o->value, units * UNIT, address };
  s->used_units += units;
  const tide_status filled = tide_machine_fill(s->m, 0, s->stream, address, o->value, b->bytes);
  return expect_status("fill", filled, TIDE_OK) && finish(s);
}

static bool do_raw_release(model* s, const op* o) {
  block* const b = &s->blocks[o->slot];
  if (!b->is_used) return true;
  const size_t last = b->bytes - UNIT;
  const tide_status got = tide_machine_copy(s->m, 0, s->stream, s->window, b->address + last, UNIT);
  if (!expect_status("copy", got, TIDE_OK)) return false;
  if (!finish(s)) return false;
  if (!window_is(s, b->value, UNIT)) return false;
  if (!expect_status("raw_release", tide_machine_raw_release(s->m, 0, b->address), TIDE_OK)) return false;
  s->used_units -= b->bytes / UNIT;
  b->is_used = false;
  return true;
}

static bool ask(const model* s, const uint8_t* pointer, tide_memory_kind kind, const uint8_t* base,
                size_t bytes) {
  tide_pointer_info info = TIDE_POINTER_INFO_INIT;
  if (!expect_status("ask", tide_machine_pointer_info(s->m, pointer, &info), TIDE_OK)) return false;
  EXPECT(info.kind == (uint32_t)kind && info.base == base && info.bytes == bytes,
         "ask: kind %u, base %p, %zu bytes; the model says %u, %p, %zu", info.kind, info.base,
         (size_t)info.bytes, (unsigned)kind, (const void*)base, bytes);
  return true;
}

static bool do_ask(model* s, const op* o) {
  const range* const r = &s->ranges[o->slot];
  const block* const b = &s->blocks[o->slot];
  if (b->is_used && !ask(s, b->address + o->value * UNIT / 256, TIDE_MEMORY_RAW, b->address, b->bytes))
    return false;
  const uint32_t at = o->other % RANGE_MAX;
  if (!r->is_used || at >= r->units) return true;
  const uint8_t* const pointer = r->address + at * UNIT + o->value;
  const cell* const c = &r->cells[at];
  if (c->physical < 0) return ask(s, pointer, TIDE_MEMORY_RESERVED, r->address, r->units * UNIT);
  return ask(s, pointer, TIDE_MEMORY_MAPPED, r->address + (at - c->part) * UNIT,
             s->all[c->physical].units * UNIT);
}

// Fills and copies to ordinary memory show there, copies from it in the window.
static bool stray_is_right(const model* s, const op* o, const uint8_t* memory, size_t bytes) {
  const uint8_t* const moved = o->value % 4 == 1 ? s->window : memory;
  if (!machine_has_memory(s->m)) return true;
  for (size_t i = 0; i < bytes; ++i) {
    const uint8_t want = o->value % 4 == 1 ? memory[i] : o->value % 4 == 3 ? FILLED : o->value;
    EXPECT(moved[i] == want, "stray work: byte %zu is 0x%02x, the model says 0x%02x", i, moved[i], want);
  }
  return true;
}

// Work on memory that the machine does not know. What leaves the pages that are there is found out when the
// work is done, and told once.
static bool do_stray(model* s, const op* o) {
  const size_t at = o->number % (ORDINARY_MAX * UNIT);
  const size_t most = 1 + (o->number >> 8) % (o->slot % 2 == 0 ? 64 : UNIT);
  const size_t bytes = at + most <= ORDINARY_MAX * UNIT ? most : ORDINARY_MAX * UNIT - at;
  const bool is_lost = at + bytes > (ORDINARY_MAX - 1) * UNIT;
  uint8_t* const memory = s->ordinary + at;
  tide_status got = TIDE_OK;
  if (o->value % 4 != 0) {
    got = tide_machine_fill(s->m, 0, s->stream, s->window, o->value, UNIT);
    if (!expect_status("fill", got, TIDE_OK)) return false;
  }
  if (o->value % 4 == 0) got = tide_machine_fill(s->m, 0, s->stream, memory, o->value, bytes);
  if (o->value % 4 == 1) got = tide_machine_copy(s->m, 0, s->stream, s->window, memory, bytes);
  if (o->value % 4 == 2) got = tide_machine_copy(s->m, 0, s->stream, memory, s->window, bytes);
  if (o->value % 4 == 3) got = tide_machine_copy(s->m, 0, s->stream, memory, s->filled, bytes);
  if (!expect_status("stray work", got, TIDE_OK)) return false;
  const tide_status want = is_lost && machine_has_memory(s->m) ? TIDE_ERR_MACHINE : TIDE_OK;
  return expect_status("synchronize", tide_machine_stream_synchronize(s->m, 0, s->stream), want) &&
         finish(s) && (want != TIDE_OK || stray_is_right(s, o, memory, bytes));
}

// Name, function, how often.
// clang-format off
#define VERB_MAP(X)                                                                                      \
  X(RESERVE, do_reserve, 1) X(RELEASE, do_release, 1) X(CREATE, do_create, 1) X(DROP, do_drop, 1)        \
  X(MAP, do_map, 1) X(UNMAP, do_unmap, 1) X(ACCESS, do_access, 1) X(FILL, do_fill, 1)                    \
  X(READ, do_read, 1) X(RAW, do_raw, 1) X(RAW_RELEASE, do_raw_release, 1) X(ASK, do_ask, 1)  \
  X(STRAY, do_stray, 1)
// clang-format on

static const op_verb verbs[] = { VERB_MAP(OP_VERB) };
static bool (*const functions[])(model* s, const op* o) = { VERB_MAP(OP_FUNCTION) };

// ---------------------------------------------------------------------------------------------------
// Runs

static tide_machine* prop_machine_new(void) {
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  tide_dry_options dry = TIDE_DRY_OPTIONS_INIT;
  tide_machine* m = NULL;
  host.capacity = dry.capacity = PAGES * UNIT;
  host.granularity = dry.granularity = UNIT;
  if (strcmp(t_variant(), "host") == 0) T_OK(tide_machine_new_host(&host, &m));
  else T_OK(tide_machine_new_dry(&dry, &m));
  return m;
}

static bool memory_adds_up(const model* s) {
  size_t free_now = 0;
  size_t total = 0;
  if (!expect_status("info", tide_machine_memory_info(s->m, 0, &free_now, &total), TIDE_OK)) return false;
  EXPECT(total == PAGES * UNIT && free_now == (PAGES - s->used_units) * UNIT,
         "info: %zu of %zu bytes are free, the model says %zu", free_now, total,
         (PAGES - s->used_units) * UNIT);
  return true;
}

static bool play(const op* list, size_t count, size_t check_every) {
  static model s;
  memset(&s, 0, sizeof s);
  for (size_t i = 0; i < SLOTS; ++i) s.slots[i] = -1;
  s.m = prop_machine_new();
  s.stream = stream_new(s.m, 0, 0);
  s.window = pinned_new(s.m, UNIT);
  T_EQ(posix_memalign((void**)&s.ordinary, UNIT, ORDINARY_MAX * UNIT), 0);
  T_EQ(posix_memalign((void**)&s.filled, UNIT, UNIT), 0);
  memset(s.ordinary, 0, ORDINARY_MAX * UNIT);
  memset(s.filled, FILLED, UNIT);
  T_EQ(mprotect(s.ordinary + (ORDINARY_MAX - 1) * UNIT, UNIT, PROT_NONE), 0);
  for (size_t i = 0; i < count; ++i) {
    op o = list[i];
    o.slot %= SLOTS;
    o.other %= SLOTS;
    outcome->at = i;
    if (!functions[o.verb](&s, &o)) return false;
    if (i % check_every == 0 && !memory_adds_up(&s)) return false;
  }
  tide_machine_free(s.m);
  T_EQ(mprotect(s.ordinary + (ORDINARY_MAX - 1) * UNIT, UNIT, PROT_READ | PROT_WRITE), 0);
  free(s.ordinary);
  free(s.filled);
  return true;
}

static const op_suite suite = { "the machine", verbs, sizeof verbs / sizeof *verbs, play, OP_LIST_MAX, 1, 1 };

T_TEST_OVER(prop_machine__memory_is_what_the_model_says, machine_emulated) {
  suite_run(&suite, t_scaled(2000), true);
}

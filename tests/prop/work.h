// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the random tests of the device allocator share: machines of a size, work that comes late, what blocks
// hold, and faults.
//
// Faults are for the allocator, not for the test: a model arms the fault of the day around its calls,
//
//   faults f = { .m = m };
//   faults_draw(&f, o);                                            from now on, for a few calls
//   const tide_status status = ASK(&f, tide_device_trim(d, 0));
//   return expect_unless_faulty(&f, "trim", status);
#ifndef TIDEMARK_TESTS_WORK_H
#define TIDEMARK_TESTS_WORK_H

#include "machine/machines.h"
#include "prop/oplist.h"
#include "tidemark/device.h"

// ---------------------------------------------------------------------------------------------------
// Machines and allocators

// Does the variant of the test name the policy tide?
static inline bool is_tide(void) { return strstr(t_variant(), "tide") != NULL; }

// No memory is to lie idle, so that programs as small as these stitch.
static inline tide_device_options device_defaults(void) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = is_tide() ? TIDE_POLICY_TIDE : TIDE_POLICY_TORCH;
  options.tide_idle_handles = 0;
  options.tide_stitch_share = 1;  // how fast the computer is decides nothing
  return options;
}

// The machine that the variant names, with one device of this capacity where that can be chosen.
static inline tide_machine* prop_machine_new(uint64_t capacity) {
  tide_machine* m = NULL;
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  tide_dry_options dry = TIDE_DRY_OPTIONS_INIT;
  host.capacity = dry.capacity = capacity;
  if (strcmp(machine_variant(), "cuda") == 0) return machine_open("cuda", NULL);
  if (strcmp(machine_variant(), "host") == 0) T_OK(tide_machine_new_host(&host, &m));
  else T_OK(tide_machine_new_dry(&dry, &m));
  return m;
}

// ---------------------------------------------------------------------------------------------------
// Late work

static inline void job_sleep(void* user) { t_sleep_us((uintptr_t)user); }

// Keeps a stream busy.
static inline tide_status work_delay(tide_machine* m, tide_stream stream, uint32_t us) {
  if (is_dry(m)) return tide_dry_work(m, 0, stream, (uint64_t)us * 1000);
  return tide_machine_call(m, 0, stream, job_sleep, (void*)(uintptr_t)us);
}

// `after` goes on when what is queued on `before` is done.
static inline tide_status work_follow(tide_machine* m, tide_stream after, tide_stream before,
                                      tide_event event) {
  const tide_status status = tide_machine_event_record(m, 0, event, before);
  return status == TIDE_OK ? tide_machine_stream_wait(m, 0, after, event) : status;
}

// ---------------------------------------------------------------------------------------------------
// What blocks hold, written and read by late work, so that bytes that two blocks share, or that are used too
// early, show, whatever address they have. Of cuda only the head of a block is written, and read by
// content_is_there() alone; dry holds nothing.

#define PAGE_BYTES (4 * KIB)
#define HEAD_BYTES (32 * KIB)

typedef struct content {
  uint8_t* address;
  size_t bytes;
  uint64_t tag;
} content;

static atomic_bool is_content_wrong;  // a reader on a stream found other bytes than it should

// The first and the last page have the tag in every word, others in one, each at another place, so that
// memory that is shifted shows as well; one block in 64 has it everywhere. Blocks end at multiples of a word.
static inline size_t content_next(const content* c, size_t at) {
  const size_t word = sizeof c->tag;
  if (c->tag % 64 == 0 || at + word < PAGE_BYTES || at + PAGE_BYTES >= c->bytes) return at + word;
  const size_t tail = (c->bytes - PAGE_BYTES) / word * word;
  return at + PAGE_BYTES + word < tail ? at + PAGE_BYTES + word : tail + word;
}

static inline void content_write(void* user) {
  content* const c = user;
  for (size_t at = 0; at < c->bytes; at = content_next(c, at))
    memcpy(c->address + at, &c->tag, sizeof c->tag);
  free(c);
}

// The place of the first word that is wrong; `bytes` if none is.
static inline size_t content_wrong_at(const content* c) {
  size_t at = 0;
  while (at < c->bytes && memcmp(c->address + at, &c->tag, sizeof c->tag) == 0) at = content_next(c, at);
  return at < c->bytes ? at : c->bytes;
}

static inline bool content_is_read(const content* c) { return content_wrong_at(c) == c->bytes; }

static inline void content_complain(const content* c) {
  const size_t at = content_wrong_at(c);
  uint64_t found = 0;
  if (at < c->bytes) memcpy(&found, c->address + at, sizeof found);
  (void)fprintf(stderr, "block %" PRIu64 ", %zu bytes at %p: byte %zu belongs to block %" PRIu64 "\n", c->tag,
                c->bytes, (void*)c->address, at, found);
}

static inline void content_read(void* user) {
  content* const c = user;
  if (!content_is_read(c) && !atomic_exchange(&is_content_wrong, true)) content_complain(c);
  free(c);
}

static inline tide_status content_queue(tide_machine* m, tide_stream stream, content c,
                                        tide_call_fn function) {
  content* const job = malloc(sizeof *job);
  T_CHECK(job != NULL);
  *job = c;
  const tide_status status = tide_machine_call(m, 0, stream, function, job);
  if (status != TIDE_OK) free(job);
  return status;
}

static inline size_t content_head(content c) { return c.bytes < HEAD_BYTES ? c.bytes : HEAD_BYTES; }

static inline tide_status work_write(tide_machine* m, tide_stream stream, content c) {
  if (is_host(m)) return content_queue(m, stream, c, content_write);
  return is_cuda(m) ? tide_machine_fill(m, 0, stream, c.address, (uint8_t)c.tag, content_head(c)) : TIDE_OK;
}

static inline tide_status work_read(tide_machine* m, tide_stream stream, content c) {
  return is_host(m) ? content_queue(m, stream, c, content_read) : TIDE_OK;
}

// All work is done: does the block hold what was written?
static inline bool content_is_there(tide_machine* m, content c) {
  if (is_host(m)) return content_is_read(&c);
  if (is_cuda(m)) expect_filled(m, 0, c.address, (uint8_t)c.tag, content_head(c));
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Faults

typedef struct faults {
  tide_machine* m;
  tide_fault fault;
  uint32_t calls;  // of the allocator that are still to meet it
  bool is_met;     // the last one may have
} faults;

// A fault of one kind of call that the allocator makes, or of any, for a few calls.
static inline void faults_draw(faults* f, const op* o) {
  static const tide_call kinds[] = { TIDE_CALL_ANY,
                                     TIDE_CALL_ANY,
                                     TIDE_CALL_RAW_ALLOC,
                                     TIDE_CALL_RAW_RELEASE,
                                     TIDE_CALL_PHYSICAL_NEW,
                                     TIDE_CALL_PHYSICAL_FREE,
                                     TIDE_CALL_MAP,
                                     TIDE_CALL_SET_ACCESS,
                                     TIDE_CALL_UNMAP,
                                     TIDE_CALL_ADDRESS_RESERVE,
                                     TIDE_CALL_ADDRESS_RELEASE,
                                     TIDE_CALL_PHYSICAL_EXPORT,
                                     TIDE_CALL_PHYSICAL_IMPORT,
                                     TIDE_CALL_EVENT_NEW,
                                     TIDE_CALL_EVENT_RECORD,
                                     TIDE_CALL_EVENT_QUERY,
                                     TIDE_CALL_EVENT_SYNCHRONIZE,
                                     TIDE_CALL_STREAM_WAIT,
                                     TIDE_CALL_STREAM_SYNCHRONIZE,
                                     TIDE_CALL_DEVICE_SYNCHRONIZE };
  const tide_fault defaults = TIDE_FAULT_INIT;
  f->fault = defaults;
  f->fault.call = (uint32_t)kinds[o->slot % (sizeof kinds / sizeof kinds[0])];
  f->fault.status = o->other % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE;
  f->fault.skip = o->number % 10;
  f->fault.count = o->value % 8 == 0 ? UINT64_MAX : 1u + o->value % 3u;
  f->calls = 1 + o->value / 16;
}

static inline void faults_arm(faults* f) {
  f->is_met = f->calls > 0;
  if (!f->is_met) return;
  f->calls--;
  T_OK(tide_machine_fault_add(f->m, &f->fault));
}

static inline tide_status faults_disarm(faults* f, tide_status status) {
  if (f->is_met) tide_machine_fault_clear(f->m);
  return status;
}

// The status of a call of the allocator, made under the fault of the day.
#define ASK(f, call) (faults_arm(f), faults_disarm((f), (call)))

static inline bool is_fault(tide_status status) {
  return status == TIDE_ERR_MACHINE || status == TIDE_ERR_NO_MEMORY;
}

// A call that cannot fail, except by a fault.
static inline bool expect_unless_faulty(const faults* f, const char* call, tide_status got) {
  return (f->is_met && is_fault(got)) || expect_status(call, got, TIDE_OK);
}

#endif

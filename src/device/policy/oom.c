// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Out of memory: what is known about it, as numbers and as a text that names PyTorch's words, because people
// and programs look for them. The report cannot fail: what the machine does not say is left out.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "device/policy/policy.h"

char* tide_size_text(uint64_t bytes, char text[TIDE_SIZE_TEXT]) {
  static const char* const units[] = { "KiB", "MiB", "GiB" };
  if (bytes <= 1024) {
    (void)snprintf(text, TIDE_SIZE_TEXT, "%llu bytes", (unsigned long long)bytes);
    return text;
  }
  int unit = 0;
  uint64_t scale = 1024;
  while (unit < 2 && bytes > scale * 1024) {
    scale *= 1024;
    unit++;
  }
  (void)snprintf(text, TIDE_SIZE_TEXT, "%.2f %s", (double)bytes / (double)scale, units[unit]);
  return text;
}

static _Thread_local tide_oom last_oom;
typedef struct oom_step_list {
  uint32_t count;
  tide_oom_rung rungs[TIDE_OOM_RUNGS];
} oom_step_list;
static _Thread_local oom_step_list oom_steps;

// What budgets had to do with it.
typedef struct oom_budget {
  const char* tag;  // whose limit is in the way; "": none
  uint64_t limit;
  uint64_t reserved;
  uint64_t guaranteed;
} oom_budget;
static _Thread_local oom_budget oom_budgets = { "", 0, 0, 0 };

const tide_oom* tide_device_last_oom(void) { return &last_oom; }

// ---------------------------------------------------------------------------------------------------
// Steps

void tide__oom_begin(void) {
  oom_steps.count = 0;
  oom_budgets = (oom_budget){ "", 0, 0, 0 };
}

void tide__oom_note_budgets(const tide__request* request) {
  tide_device_cache* const device = request->device;
  const tide__want want = { request->pool, request->segment_bytes };
  if (!tide__budgets_exist(device)) return;
  const tide__lack lack = tide__budget_lack(device, &want, 1, NULL);
  const tide__device_level level = tide__budgets_measure(device, NULL, 0);
  oom_budgets = (oom_budget){ "", 0, 0, level.basis - level.reserved };
  if (lack.tag == NULL) return;
  oom_budgets.tag = lack.tag->text;
  oom_budgets.limit = lack.tag->budget.limit;
  oom_budgets.reserved = lack.tag->reserved;
}

// What is in use: the less, the more there is for others.
static uint64_t oom_in_use(tide_device_cache* device) {
  tide__totals_settle(device);
  tide__mutex_lock(&device->totals_lock);
  const int64_t active = device->totals.active_bytes[TIDE_STAT_ALL].current;
  const int64_t reserved = device->totals.reserved_bytes[TIDE_STAT_ALL].current;
  tide__mutex_unlock(&device->totals_lock);
  return (uint64_t)(active + reserved);
}

// If there is no place left, a step that found nothing makes room for a later one.
static bool oom_steps_make_room(void) {
  uint32_t i = 0;
  if (oom_steps.count < TIDE_OOM_RUNGS) return true;
  while (i < oom_steps.count && oom_steps.rungs[i].yielded_bytes > 0) i++;
  if (i == oom_steps.count) return false;
  for (oom_steps.count--; i < oom_steps.count; i++) oom_steps.rungs[i] = oom_steps.rungs[i + 1];
  return true;
}

static void oom_steps_add(const char* name, uint64_t before, uint64_t after) {
  if (!oom_steps_make_room()) return;
  oom_steps.rungs[oom_steps.count++] = (tide_oom_rung){ name, before > after ? before - after : 0 };
}

static tide_status oom_try(const tide__rung* rung, tide__request* request, tide__block** out) {
  const uint64_t before = oom_in_use(request->device);
  const oom_step_list steps = oom_steps;
  const tide_status status = rung->climb(request, out);
  const uint64_t after = oom_in_use(request->device);
  oom_steps = steps;  // an observer of an end may have made requests of its own
  oom_steps_add(rung->name, before, after);
  return status;
}

tide_status tide__oom_climb(const tide__rung* rungs, size_t count, tide__request* request,
                            tide__block** out) {
  for (size_t i = 0; i < count && *out == NULL; i++) TIDE_TRY(oom_try(&rungs[i], request, out));
  return *out != NULL ? TIDE_OK : TIDE_ERR_NO_MEMORY;
}

// Another attempt to serve a request.
typedef struct oom_attempt {
  tide__request* request;
  tide__again_fn again;
  tide__block** out;
} oom_attempt;

static tide_status oom_attempt_make(void* user) {
  const oom_attempt* const attempt = user;
  return attempt->again(attempt->request, attempt->out);
}

// Other processes cannot help where a limit of this one is in the way.
static bool oom_is_for_others(const tide__request* request, uint64_t bytes) {
  const uint64_t limit = tide__load_relaxed(&request->device->limit);
  const uint64_t reserved = tide__load_relaxed(&request->device->reserved_bytes);
  return oom_budgets.tag[0] == '\0' &&
         (limit == TIDE_NO_LIMIT || bytes <= limit - tide__min(limit, reserved));
}

static tide_status oom_ask(tide__request* request, tide__again_fn again, tide__block** out) {
  tide_device_cache* const device = request->device;
  const uint64_t bytes = request->policy->segment_bytes(request->options, request->rounded);
  if (tide__load_relaxed(&device->quota) == NULL || !oom_is_for_others(request, bytes))
    return TIDE_ERR_NO_MEMORY;
  const oom_step_list steps = oom_steps;
  oom_attempt attempt = { request, again, out };
  const tide_status status = tide__allowance_ask(device, bytes, oom_attempt_make, &attempt);
  oom_steps = steps;
  oom_steps_add("other processes", status == TIDE_OK ? bytes : 0, 0);
  return status;
}

// The callbacks and the second attempt may make requests that fail, in this thread.
tide_status tide__oom_press(tide__request* request, tide__again_fn again, tide__block** out) {
  const tide_status asked = oom_ask(request, again, out);
  if (asked != TIDE_ERR_NO_MEMORY) return asked;
  const oom_step_list steps = oom_steps;
  const tide_pressure pressure = { sizeof pressure, request->rounded, tide__pool_tag(request->pool),
                                   oom_budgets.tag };
  const uint64_t before = oom_in_use(request->device);
  if (!tide__observers_press(request->device, &pressure)) return TIDE_ERR_NO_MEMORY;
  const uint64_t after = oom_in_use(request->device);
  const tide_status status = again(request, out);
  oom_steps = steps;
  oom_steps_add("callbacks", before, after);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// What keeps idle memory

static void pin_add(tide_oom* oom, const tide_oom_pin* pin) {
  if (pin->block_count == 0 || pin->idle_bytes == 0) return;
  uint32_t at = oom->pin_count;
  while (at > 0 && oom->pins[at - 1].idle_bytes < pin->idle_bytes) at--;
  if (at == TIDE_OOM_PINS) return;
  if (oom->pin_count < TIDE_OOM_PINS) oom->pin_count++;
  for (uint32_t i = oom->pin_count - 1; i > at; i--) oom->pins[i] = oom->pins[i - 1];
  oom->pins[at] = *pin;
}

// Adds a part of a block to what lies in a range.
static void pin_count(tide_oom_pin* pin, const tide__block* block, uint64_t bytes) {
  if (block->state == TIDE__BLOCK_FREE) pin->idle_bytes += bytes;
  if (block->state == TIDE__BLOCK_FREE || block->state == TIDE__BLOCK_UNMAPPED) return;
  if (pin->block_count++ == 0) pin->address = block->address;
  pin->block_bytes += bytes;
}

static void pins_of_home_locked(tide_oom* oom, const tide__segment* segment) {
  const tide__home* const home = segment->home;
  tide__lane* const lane = segment->lane;
  const tide__block* block = segment->head;
  for (size_t i = 0; i < home->count; i++) {
    const uint64_t begin = home->handles[i]->address;
    const uint64_t end = begin + home->handles[i]->bytes;
    tide_oom_pin pin = { 0 };
    while (block != NULL && tide__block_end(block) <= begin) block = block->next;
    for (const tide__block* b = block; b != NULL && b->address < end; b = b->next) {
      pin_count(&pin, b, tide__min(end, tide__block_end(b)) - tide__max(begin, b->address));
      lane->pin_steps++;
    }
    pin_add(oom, &pin);
  }
}

// A program that is refused again and again must not spend its time here: all walks together take no more
// steps than this, and so many for each block that became idle or was taken.
#define PIN_STEPS ((uint64_t)1 << 20)
#define PIN_STEPS_EACH 64u

static bool lane_may_be_walked_locked(const tide__lane* lane) {
  return lane->pin_steps <= PIN_STEPS + PIN_STEPS_EACH * (lane->puts + lane->takes);
}

static void pins_of_lane(tide_oom* oom, tide__lane* lane) {
  tide__mutex_lock(&lane->lock);
  const bool is_walked = lane_may_be_walked_locked(lane);
  TIDE_LIST_EACH(it, &lane->segments) {
    if (!is_walked) break;
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    tide_oom_pin pin = { 0 };
    if (segment->home != NULL) pins_of_home_locked(oom, segment);
    if (segment->home != NULL || segment->view != NULL) continue;
    for (const tide__block* b = segment->head; b != NULL; b = b->next) {
      pin_count(&pin, b, b->bytes);
      lane->pin_steps++;
    }
    pin_add(oom, &pin);
  }
  tide__mutex_unlock(&lane->lock);
}

static void pins_of_pool(tide_oom* oom, tide_device_cache* device, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) pins_of_lane(oom, lane);
}

// ---------------------------------------------------------------------------------------------------
// The text

enum { OOM_NAME = 64, OOM_TAG = 80 };  // bytes shown of the name of a machine, and of a tag

typedef struct oom_text {
  char* text;
  size_t used;
  size_t capacity;
} oom_text;

static void say(oom_text* t, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void say(oom_text* t, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(t->text + t->used, t->capacity - t->used, format, arguments);
  va_end(arguments);
  if (length > 0) t->used = (size_t)tide__min(t->used + (size_t)length, t->capacity - 1);
}

// Which machine, which device, how much memory there is. On cuda in the words of PyTorch.
static void oom_say_machine(oom_text* t, const tide_oom* oom, const char* machine) {
  char a[TIDE_SIZE_TEXT];
  char b[TIDE_SIZE_TEXT];
  const bool is_cuda = strcmp(machine, "cuda") == 0;
  if (is_cuda) say(t, "CUDA out of memory.");
  else say(t, "Out of memory on the machine \"%.*s\".", OOM_NAME, machine);
  say(t, " Tried to allocate %s. %s %d has a total capacity of %s", tide_size_text(oom->segment_bytes, a),
      is_cuda ? "GPU" : "Device", oom->device, tide_size_text(oom->device_total, b));
  say(t, " of which %s is free. ", tide_size_text(oom->device_free, a));
}

void tide__oom_write(tide_oom* oom, const char* machine) {
  char a[TIDE_SIZE_TEXT];
  char b[TIDE_SIZE_TEXT];
  oom_text t = { oom->text, 0, sizeof oom->text };
  oom_say_machine(&t, oom, machine);
  if (oom->limit != TIDE_NO_LIMIT) say(&t, "%s allowed; ", tide_size_text(oom->limit, a));
  say(&t, "Of the allocated memory %s is allocated by this allocator",
      tide_size_text(oom->allocated_bytes + oom->private_idle_bytes, a));
  if (oom->private_idle_bytes > 0) {
    say(&t, ", with %s allocated in private pools", tide_size_text(oom->private_idle_bytes, a));
  }
  const uint64_t used = oom->allocated_bytes + oom->private_idle_bytes;
  say(&t, ", and %s is reserved but unallocated. ",
      tide_size_text(oom->reserved_bytes > used ? oom->reserved_bytes - used : 0, a));
  if (oom->parked_bytes > 0) say(&t, "%s more are parked. ", tide_size_text(oom->parked_bytes, a));
  say(&t, "The request was for %s; %s wait for work on other streams; the largest idle block here has %s.",
      tide_size_text(oom->requested_bytes, a), tide_size_text(oom->pending_bytes, b),
      tide_size_text(oom->largest_idle_bytes, (char[TIDE_SIZE_TEXT]){ 0 }));
  if (oom->tag[0] != '\0') {
    say(&t, " The tag \"%.*s\" has %s of %s.", OOM_TAG, oom->tag, tide_size_text(oom->tag_reserved_bytes, a),
        tide_size_text(oom->tag_limit, b));
  }
  if (oom->guaranteed_bytes > 0) {
    say(&t, " %s are kept for guarantees.", tide_size_text(oom->guaranteed_bytes, a));
  }
  for (uint32_t i = 0; i < oom->rung_count; i++) {
    say(&t, "%s %s: %s", i == 0 ? " Tried:" : ";", oom->rungs[i].name,
        tide_size_text(oom->rungs[i].yielded_bytes, a));
  }
  if (oom->pin_count > 0) {
    say(&t, "%s %llu block(s) at %#llx with %s keep %s idle.", oom->rung_count > 0 ? "." : "",
        (unsigned long long)oom->pins[0].block_count, (unsigned long long)oom->pins[0].address,
        tide_size_text(oom->pins[0].block_bytes, a), tide_size_text(oom->pins[0].idle_bytes, b));
  }
}

// ---------------------------------------------------------------------------------------------------
// The numbers

static uint64_t lane_idle_bytes(tide__lane* lane) {
  uint64_t bytes = 0;
  tide__mutex_lock(&lane->lock);
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) bytes += block->state == TIDE__BLOCK_FREE ? block->bytes : 0;
  }
  tide__mutex_unlock(&lane->lock);
  return bytes;
}

static uint64_t private_idle_bytes(tide_device_cache* device) {
  uint64_t bytes = 0;
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL; pool = tide__pool_next(device, &at)) {
    if (tide__load_relaxed(&pool->is_parked)) continue;
    tide__lane* lane = tide__lane_next(device, pool, NULL);
    for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) bytes += lane_idle_bytes(lane);
  }
  return bytes;
}

static uint64_t largest_idle_bytes(const tide__request* request) {
  tide__mutex_lock(&request->lane->lock);
  const tide__block* const block = tide__bins_largest(&request->lane->free_index[request->kind].bins);
  const uint64_t bytes = block != NULL ? block->bytes : 0;
  tide__mutex_unlock(&request->lane->lock);
  return bytes;
}

static void oom_measure(const tide__request* request, tide_oom* oom) {
  tide_device_cache* const device = request->device;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide__ignore(tide_device_get_stats(device, &stats));
  tide__ignore(tide_machine_memory_info(device->machine, device->index, &free_bytes, &total_bytes));
  *oom = (tide_oom){ .size = sizeof *oom, .device = device->index, .stream = request->stream };
  oom->requested_bytes = request->bytes;
  oom->pool = request->pool->base.number;
  oom->is_rejected = request->is_rejected;
  oom->rounded_bytes = request->rounded;
  oom->segment_bytes = request->segment_bytes;
  oom->device_free = free_bytes;
  oom->device_total = device->total_bytes;
  oom->limit = tide__load_relaxed(&device->limit);
  oom->allocated_bytes = (uint64_t)stats.allocated_bytes[TIDE_STAT_ALL].current;
  oom->reserved_bytes = (uint64_t)stats.reserved_bytes[TIDE_STAT_ALL].current;
  oom->pending_bytes = (uint64_t)stats.active_bytes[TIDE_STAT_ALL].current - oom->allocated_bytes;
  oom->private_idle_bytes = private_idle_bytes(device);
  oom->parked_bytes = (uint64_t)stats.parked_bytes[TIDE_STAT_ALL].current;
  oom->largest_idle_bytes = largest_idle_bytes(request);
  oom->rung_count = oom_steps.count;
  for (uint32_t i = 0; i < oom_steps.count; i++) oom->rungs[i] = oom_steps.rungs[i];
  oom->tag_limit = oom_budgets.limit;
  oom->tag_reserved_bytes = oom_budgets.reserved;
  oom->guaranteed_bytes = oom_budgets.guaranteed;
  (void)snprintf(oom->tag, sizeof oom->tag, "%s", oom_budgets.tag);
  pins_of_pool(oom, device, request->pool);
}

tide_status tide__oom_report(const tide__request* request) {
  tide_device_cache* const device = request->device;
  tide__tag* const tag = tide__pool_tag_record(request->pool);
  tide_oom oom;
  if (tag != NULL) (void)tide__add_relaxed(&tag->refused_count, 1);
  oom_measure(request, &oom);
  tide__oom_write(&oom, tide_machine_name(device->machine));
  if (request->is_rejected) {
    TIDE__COUNT(device, num_oom_rejections);
  } else {
    TIDE__COUNT(device, num_ooms);
  }
  if (tide__is_recording(device) && !request->is_rejected) {
    tide__entry_add(device, TIDE_ACTION_OOM, &request->context, request->context.stack, request->lane,
                    oom.device_free, request->rounded);
    tide__history_tell(&device->history);
  }
  last_oom = oom;
  tide__observers_oom(device, &oom);
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%s", oom.text);
}

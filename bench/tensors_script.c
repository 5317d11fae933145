// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A step of inference as the memory sees it. Each of 256 layers allocates its output, which lives for one to
// three layers or, one time in eight, for 8 to 32 as a residual does; half of the layers allocate a workspace
// as well and release it before they end. Whatever is left is released at the end, the newest first.
#include "tensors_script.h"

#include <math.h>
#include <stdlib.h>

#include "bench.h"

enum { LAYERS = 256, ALIGNMENT = 64, SMALLEST = 64 };

double script_chance(uint64_t* state) { return (double)(bench_random(state) >> 11) * 0x1.0p-53; }

size_t script_bytes(size_t bytes, double jitter, uint64_t* state) {
  if (jitter <= 0) return bytes;
  const double factor = 1 - jitter + 2 * jitter * script_chance(state);
  const size_t jittered = (size_t)((double)bytes * factor);
  return jittered < SMALLEST ? SMALLEST : jittered;
}

// ---------------------------------------------------------------------------------------------------
// Making a script

// A script in the making.
typedef struct writer {
  script script;
  uint64_t state;
  double low_log;
  double high_log;
  size_t bytes[2 * LAYERS];    // of each tensor
  size_t release[2 * LAYERS];  // the layer that releases it
} writer;

static void writer_event(writer* w, size_t tensor, bool is_release) {
  w->script.events[w->script.event_count++] =
      (script_event){ (uint32_t)tensor, is_release, w->bytes[tensor] };
}

static size_t writer_tensor(writer* w) {
  const size_t tensor = w->script.tensors++;
  const double log_bytes = w->low_log + script_chance(&w->state) * (w->high_log - w->low_log);
  w->bytes[tensor] = (size_t)exp(log_bytes);
  w->release[tensor] = LAYERS;
  writer_event(w, tensor, false);
  return tensor;
}

static size_t writer_lifetime(writer* w) {
  if (bench_random(&w->state) % 8 == 0) return 8 + bench_random(&w->state) % 25;
  return 1 + bench_random(&w->state) % 3;
}

// A layer releases its own workspace, which comes after its output, and then what older layers left to it.
static void writer_layer(writer* w, size_t layer) {
  const size_t output = writer_tensor(w);
  w->release[output] = layer + writer_lifetime(w);
  if (bench_random(&w->state) % 2 == 1) {
    const size_t workspace = writer_tensor(w);
    writer_event(w, workspace, true);
    w->release[workspace] = layer;
  }
  for (size_t tensor = 0; tensor < output; tensor++)
    if (w->release[tensor] == layer) writer_event(w, tensor, true);
}

script script_new(uint64_t seed, double low_bytes, double high_bytes) {
  writer w = { .state = seed, .low_log = log(low_bytes), .high_log = log(high_bytes) };
  w.script.events = bench_alloc((size_t)4 * LAYERS, sizeof(script_event));
  for (size_t layer = 0; layer < LAYERS; layer++) writer_layer(&w, layer);
  for (size_t tensor = w.script.tensors; tensor-- > 0;)
    if (w.release[tensor] >= LAYERS) writer_event(&w, tensor, true);
  return w.script;
}

void script_free(script* s) {
  free(s->events);
  *s = (script){ NULL, 0, 0 };
}

// ---------------------------------------------------------------------------------------------------
// What is known ahead

uint64_t script_peak_bytes(const script* s, double jitter, uint64_t state, uint64_t runs) {
  uint64_t peak = 0;
  size_t* const bytes = bench_alloc(s->tensors, sizeof *bytes);
  for (uint64_t run = 0; run < runs; run++) {
    uint64_t live = 0;
    for (size_t i = 0; i < s->event_count; i++) {
      const script_event* const event = &s->events[i];
      if (!event->is_release) bytes[event->tensor] = script_bytes(event->bytes, jitter, &state);
      live += event->is_release ? 0 : bytes[event->tensor];
      live -= event->is_release ? bytes[event->tensor] : 0;
      if (live > peak) peak = live;
    }
  }
  free(bytes);
  return peak;
}

uint64_t script_peak_in_flight(const script* s, size_t in_flight) {
  uint64_t peak = 0;
  size_t* const bytes = bench_alloc(s->tensors, sizeof *bytes);
  for (size_t i = 0; i < s->event_count; i++) bytes[s->events[i].tensor] = s->events[i].bytes;
  for (size_t first = 0; first < s->tensors; first++) {
    uint64_t live = 0;
    for (size_t i = 0; i < in_flight; i++) live += bytes[(first + i) % s->tensors];
    if (live > peak) peak = live;
  }
  free(bytes);
  return peak;
}

// ---------------------------------------------------------------------------------------------------
// A plan: the largest tensor first, each at the lowest offset that is free during its life. The arena is a
// little larger than the smallest one, but its beginning is used again and again, which the caches reward.

typedef struct script_life {
  size_t tensor;
  size_t bytes;
  size_t first;  // events at which it begins and ends
  size_t last;
  size_t offset;
} script_life;

static int script_life_by_bytes(const void* a, const void* b) {
  const script_life* const x = a;
  const script_life* const y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int script_life_by_offset(const void* a, const void* b) {
  const script_life* const x = a;
  const script_life* const y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static script_life* script_lives(const script* s) {
  script_life* const lives = bench_alloc(s->tensors, sizeof *lives);
  for (size_t i = 0; i < s->event_count; i++) {
    const script_event* const event = &s->events[i];
    script_life* const life = &lives[event->tensor];
    const size_t bytes = (event->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (event->is_release) life->last = i;
    else *life = (script_life){ .tensor = event->tensor, .bytes = bytes, .first = i };
  }
  return lives;
}

// The lowest offset for `life` beside the `placed` lives, which it shares time with or not.
static size_t script_place(const script_life* life, const script_life* placed, size_t count,
                           script_life* meanwhile) {
  size_t beside = 0;
  size_t offset = 0;
  for (size_t i = 0; i < count; i++)
    if (placed[i].first < life->last && life->first < placed[i].last) meanwhile[beside++] = placed[i];
  qsort(meanwhile, beside, sizeof *meanwhile, script_life_by_offset);
  for (size_t i = 0; i < beside && meanwhile[i].offset < offset + life->bytes; i++) {
    const size_t end = meanwhile[i].offset + meanwhile[i].bytes;
    if (end > offset) offset = end;
  }
  return offset;
}

size_t* script_plan(const script* s, size_t* out_arena_bytes) {
  script_life* const lives = script_lives(s);
  script_life* const meanwhile = bench_alloc(s->tensors, sizeof *meanwhile);
  size_t* const offsets = bench_alloc(s->tensors, sizeof *offsets);
  *out_arena_bytes = 0;
  qsort(lives, s->tensors, sizeof *lives, script_life_by_bytes);
  for (size_t i = 0; i < s->tensors; i++) {
    lives[i].offset = script_place(&lives[i], lives, i, meanwhile);
    offsets[lives[i].tensor] = lives[i].offset;
    if (lives[i].offset + lives[i].bytes > *out_arena_bytes)
      *out_arena_bytes = lives[i].offset + lives[i].bytes;
  }
  free(meanwhile);
  free(lives);
  return offsets;
}

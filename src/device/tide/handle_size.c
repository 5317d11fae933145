// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How large new handles are. The driver takes about as long for a small handle as for a large one, to make it
// and each time it is mapped: so few large handles cost little time. But a block that uses a part of a handle
// leaves a rest, which serves few requests: so many small handles save memory.
#include "device/tide/lasting.h"
#include "device/tide/tide.h"

// A handle of a block that does not last is at least such a part of the peak. For a large request it is this
// part of request * request / peak, and at most such a part of what does not last. At least two fifths of the
// peak count as not lasting.
enum { LEAST_PARTS = 1024, MOST_PARTS = 240 };
#define REQUEST_PART 0.28
#define LOOSE_PART_LEAST 0.4
// For others it is all of the request if at least so much of the peak does not last, and the least part of it
// if at most so much; up to the square root of the peak times this.
#define LOOSE_PART_WHOLE 0.45
#define LOOSE_PART_NONE 0.3
#define OTHER_PART_LEAST 0.0625
#define ROOT_BYTES ((uint64_t)8 << 10)
// These are the last handles of a request. The first ones may be so many times as large. Below a peak of so
// many of the smallest handles they are not: PyTorch opens shared memory only if its handles have one size.
enum { LARGE_FIRST_TIMES = 2, OTHER_FIRST_TIMES = 4, SMALL_UNITS = 64 };

// Do all blocks of the request's size last? And how much of the peak may become idle: not what the lane has
// of such sizes.
typedef struct lasting {
  bool is_learnt;  // the lane has made enough requests to know
  bool is_request;
  double loose;  // a part of the peak
} lasting;

static lasting lasting_with(const tide__request* request, uint64_t peak) {
  tide__mutex_lock(&request->lane->lock);
  const bool is_learnt = tide__sizes_are_learnt_locked(request->lane);
  const bool is_request = tide__size_all_last_locked(request->lane, request->rounded);
  const uint64_t bytes = tide__sizes_lasting_bytes_locked(request->lane);
  tide__mutex_unlock(&request->lane->lock);
  const uint64_t loose = peak - tide__min(peak, bytes);
  return (lasting){ is_learnt, is_request, (double)loose / (double)peak };
}

static bool is_limited(const tide__request* request) {
  return tide__load_relaxed(&request->device->limit) != TIDE_NO_LIMIT;
}

// For a large request: a part of it that is the larger the more of the peak the request is. Such a request
// gets few handles, so that a view of it costs little.
static double part_of_large(const tide__request* request, uint64_t peak) {
  return REQUEST_PART * (double)request->rounded * (double)request->rounded / (double)peak;
}

// For others: the request itself, so that growth takes few calls of the driver. Less of it where much of the
// memory lasts, because that splits handles. But not less than a least part: when the first step of a model
// begins, its weights are nearly all of the memory, and soon they are not. Nothing where there is a limit:
// then memory counts more than time.
static double part_of_other(const tide__request* request, uint64_t peak, const lasting* known) {
  if (is_limited(request)) return 0;
  const double part = (known->loose - LOOSE_PART_NONE) / (LOOSE_PART_WHOLE - LOOSE_PART_NONE);
  const double least = known->is_learnt ? OTHER_PART_LEAST : 0;
  const double bytes = (part < least ? least : part < 1 ? part : 1) * (double)request->rounded;
  const double most = (double)tide__square_root(peak * ROOT_BYTES);
  return bytes < most ? bytes : most;
}

static double largest_of_large(uint64_t peak, double loose) {
  return (loose > LOOSE_PART_LEAST ? loose : LOOSE_PART_LEAST) * (double)peak / MOST_PARTS;
}

static uint64_t largest_allowed(const tide__request* request, uint64_t unit) {
  return tide__max(unit, request->options->tide_most_handle_bytes / unit * unit);
}

// Nothing is known yet about the requests to come, and all handles lie in one piece, so that few views are
// needed.
uint64_t tide__handle_bytes_of_reserve(const tide__request* request, uint64_t bytes) {
  const uint64_t unit = tide__home_unit(request->device);
  const uint64_t root = tide__square_root(tide__min(bytes, request->device->total_bytes) * ROOT_BYTES);
  return tide__min(largest_allowed(request, unit), tide__max(unit, tide__round_up(root, unit)));
}

// What lasts is in one piece, because nothing else uses its handle. No other handle is so small that a view
// of all idle memory has thousands.
tide__handle_sizes tide__handle_sizes_for(const tide__request* request, uint64_t peak) {
  const uint64_t unit = tide__request_unit(request);
  const uint64_t limit = largest_allowed(request, unit);
  const uint64_t least = tide__max(unit, peak / LEAST_PARTS / unit * unit);
  const lasting known = lasting_with(request, peak);
  if (known.is_request) return tide__handles_of(tide__min(limit, tide__round_up(request->rounded, unit)));
  const double large = part_of_large(request, peak);
  const double other = part_of_other(request, peak, &known);
  uint64_t part = tide__round_up((uint64_t)(large > other ? large : other), unit);
  if (large > other) part = tide__min(part, (uint64_t)largest_of_large(peak, known.loose) / unit * unit);
  const uint64_t bytes = tide__min(limit, tide__max(least, part));
  const bool has_one_size = is_limited(request) || peak < SMALL_UNITS * unit;
  const uint64_t times = has_one_size ? 1 : large > other ? LARGE_FIRST_TIMES : OTHER_FIRST_TIMES;
  return (tide__handle_sizes){ unit, bytes, tide__min(limit, times * bytes) };
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Marks: how memory goes from one stream to another. When a large block is released in a pool with several
// streams, an event is recorded on its stream: the mark of its last use. A handle knows, for each lane that
// used it, the stamp of the last release. A lane that takes memory of the handle lets its own stream wait for
// the marks of the others, on the device; the host never waits.
//
// A mark that is taken later than the release may stand behind work that waits for the taker, and waiting for
// it could stop both streams for ever. So memory without a mark of its own, because its pool had one stream
// when it was released, its stream was captured, or the machine failed, serves other streams when a later
// mark has passed, and is never waited for.
//
// The owner of a stream may destroy it when all blocks of it are released. So no call is made here on the
// stream of another lane, unless it is one that cannot be destroyed. An external stream may be destroyed
// earlier: its blocks get no mark when they are released. A later mark of all work of the device stands for
// it, which no stream may wait for.
#include <string.h>

#include "device/stream/stream.h"

enum { MARKS_AT_FIRST = 64, MARKS_MOST = 1024, OWN_MARKS_ASKED = 8 };

// One thread at a time has the turn: so the marks of a lane are recorded in the order of their numbers, and
// the machine is called without a lock.
static void turn_enter(tide__marks* marks) {
  tide__mutex_lock(&marks->lock);
  while (marks->is_taken) tide__signal_wait(&marks->left, &marks->lock);
  marks->is_taken = true;
  tide__mutex_unlock(&marks->lock);
}

static void turn_leave(tide__marks* marks) {
  tide__mutex_lock(&marks->lock);
  marks->is_taken = false;
  tide__signal_all(&marks->left);
  tide__mutex_unlock(&marks->lock);
}

static tide_event* event_at(const tide__marks* marks, uint64_t number) {
  return &marks->events[number & (marks->capacity - 1)];
}

// ---------------------------------------------------------------------------------------------------
// Passing

static bool mark_has_passed(tide_device_cache* device, const tide__marks* marks, uint64_t number) {
  bool is_done = false;
  return tide_machine_event_query(device->machine, *event_at(marks, number), &is_done) == TIDE_OK && is_done;
}

// The last mark that has passed, of those from `passed` to `made`, which pass in order. Mostly none of them
// has, or all, or few: so they are asked about in steps that double, but at most to the middle of what is
// left.
static uint64_t marks_search(tide_device_cache* device, const tide__marks* marks, uint64_t passed,
                             uint64_t made) {
  if (!mark_has_passed(device, marks, passed + 1)) return passed;
  if (passed + 1 == made || mark_has_passed(device, marks, made)) return made;
  uint64_t low = passed + 1;  // has passed
  uint64_t high = made;       // has not
  for (uint64_t step = 1; low + 1 < high; step *= 2) {
    const uint64_t next = low + tide__min(step, (high - low) / 2);
    if (mark_has_passed(device, marks, next)) low = next;
    else high = next;
  }
  return low;
}

// No mark is in a capture, so that asking is safe while another thread captures, which the machine is told by
// the mode RELAXED.
static void marks_poll_in_turn(tide_device_cache* device, tide__marks* marks) {
  const uint64_t made = tide__load_relaxed(&marks->made);
  const uint64_t before = tide__load_relaxed(&marks->passed);
  if (before == made) return;
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  const uint64_t passed = marks_search(device, marks, before, made);
  tide__relax_end(&relaxed);
  tide__store_release(&marks->passed, passed);  // pairs with tide__stamp_has_passed
}

static bool marks_are_left(tide__marks* marks) {
  return tide__load_relaxed(&marks->passed) < tide__load_relaxed(&marks->made);
}

static void marks_poll(tide_device_cache* device, tide__lane* lane) {
  tide__marks* const marks = &lane->marks;
  if (!marks_are_left(marks)) return;
  tide_error before;
  tide__error_keep(&before);
  turn_enter(marks);
  marks_poll_in_turn(device, marks);
  turn_leave(marks);
  tide__error_restore(&before);
}

// ---------------------------------------------------------------------------------------------------
// Making

static bool marks_are_full(const tide__marks* marks) {
  return tide__load_relaxed(&marks->made) - tide__load_relaxed(&marks->passed) >= marks->capacity;
}

static bool marks_grow_in_turn(tide_device_cache* device, tide__marks* marks) {
  if (marks->capacity >= MARKS_MOST) return false;
  const uint32_t capacity = marks->capacity == 0 ? MARKS_AT_FIRST : marks->capacity * 2;
  tide_event* const events = tide__heap_alloc(device->heap, capacity, sizeof *events);
  if (events == NULL) return false;
  const uint64_t made = tide__load_relaxed(&marks->made);
  for (uint32_t i = 0; i < marks->capacity; i++)
    events[(made - i) & (capacity - 1)] = *event_at(marks, made - i);
  tide__heap_release(device->heap, marks->events, marks->capacity, sizeof *marks->events);
  marks->events = events;
  marks->capacity = capacity;
  return true;
}

// An event recorded in a capture belongs to it, and a stream that no longer exists takes none.
static bool stream_is_open(tide_device_cache* device, tide_stream stream) {
  return tide__capture_is_outside(device->machine, device->index, stream);
}

// Records an event on a lane's stream, or of all work of the device. A capture of the stream may begin
// meanwhile: then the record does not count.
static bool mark_record(tide_device_cache* device, const tide__lane* lane, tide_event event, bool is_of_all) {
  if (!is_of_all) {
    return tide_machine_event_record(device->machine, device->index, event, lane->stream) == TIDE_OK &&
           stream_is_open(device, lane->stream);
  }
  const tide_status status = tide_machine_event_record_all(device->machine, device->index, event);
  if (status == TIDE_ERR_UNSUPPORTED) device->lacks_record_all = true;
  return status == TIDE_OK;
}

// The number is counted before the event is recorded, so that whoever reads a lower one has queued its work
// before the event.
static bool mark_make_in_turn(tide_device_cache* device, tide__lane* lane, bool is_of_all) {
  tide__marks* const marks = &lane->marks;
  if (!is_of_all && (tide__load_relaxed(&lane->is_closed) || !stream_is_open(device, lane->stream))) {
    return false;
  }
  if (marks_are_full(marks)) marks_poll_in_turn(device, marks);
  if (marks_are_full(marks) && !marks_grow_in_turn(device, marks)) return false;
  const uint64_t number = tide__load_relaxed(&marks->made) + 1;
  tide_event* const event = event_at(marks, number);
  if (*event == NULL && tide_machine_event_new(device->machine, device->index, event) != TIDE_OK)
    return false;
  tide__store_seq(&marks->made, number);  // pairs with tide__lane_next_stamp
  if (mark_record(device, lane, *event, is_of_all)) return true;
  tide__store_seq(&marks->made, number - 1);
  return false;
}

static uint64_t mark_make(tide_device_cache* device, tide__lane* lane, bool is_of_all) {
  tide_error before;
  tide__error_keep(&before);
  uint64_t stamp = 0;
  turn_enter(&lane->marks);
  if (mark_make_in_turn(device, lane, is_of_all)) stamp = tide__load_relaxed(&lane->marks.made) * 2 + 1;
  turn_leave(&lane->marks);
  tide__error_restore(&before);
  return stamp;
}

uint64_t tide__mark_make(tide_device_cache* device, tide__lane* lane) {
  return mark_make(device, lane, false);
}

void tide__marks_drain_closed(tide_device_cache* device) {
  tide__lane* lane = tide__lane_next(device, &device->default_pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, &device->default_pool, lane)) {
    if (!tide__load_relaxed(&lane->is_closed)) continue;
    turn_enter(&lane->marks);
    turn_leave(&lane->marks);
  }
}

static bool lane_is_eternal(const tide__lane* lane) {
  return lane->stream == NULL || lane->stream == TIDE_STREAM_LEGACY;
}

static bool lane_lacks_mark(tide__lane* lane) {
  tide__mutex_lock(&lane->lock);
  const uint64_t unmarked = lane->unmarked;
  tide__mutex_unlock(&lane->lock);
  return unmarked / 2 > tide__load_relaxed(&lane->marks.made);
}

// The stream of each thread is another one under the same name: a mark of one says nothing of the others.
bool tide__marks_mark_late(tide_device_cache* device, tide__lane* lane) {
  const bool is_of_thread = lane->stream == TIDE_STREAM_PER_THREAD;
  return !is_of_thread && lane_lacks_mark(lane) && tide__mark_make(device, lane) != 0;
}

bool tide__marks_can_be_of_all(tide_device_cache* device, tide_stream own) {
  return !device->lacks_record_all && !tide__has_captures(device) && stream_is_open(device, own);
}

void tide__marks_mark_external(tide_device_cache* device, tide__lane* lane) {
  if (lane_lacks_mark(lane)) (void)mark_make(device, lane, true);
  marks_poll(device, lane);
}

bool tide__lane_is_unmarked(tide__lane* lane) {
  tide__mutex_lock(&lane->lock);
  const uint64_t unmarked = lane->unmarked;
  tide__mutex_unlock(&lane->lock);
  return !tide__stamp_has_passed(lane, unmarked);
}

void tide__marks_begin_pass(tide__lane* lane) {
  turn_enter(&lane->marks);
  tide__store_seq(&lane->marks.made, tide__load_relaxed(&lane->marks.made) + 1);
}

void tide__marks_end_pass(tide__lane* lane, bool is_done) {
  tide__marks* const marks = &lane->marks;
  const uint64_t made = tide__load_relaxed(&marks->made);
  if (is_done) tide__store_release(&marks->passed, made);  // pairs with tide__stamp_has_passed
  else tide__store_seq(&marks->made, made - 1);
  turn_leave(marks);
}

// Makes a late mark on a lane's stream where that may be called; or one of all work of the device, where its
// memory may be of use to the caller's lane. `can_be_of_all` is asked for once, when it is needed.
static void lane_mark_for(tide_device_cache* device, tide__lane* lane, tide__lane* own, int* can_be_of_all) {
  const bool is_external = lane->is_unlisted;
  if (lane == own || lane_is_eternal(lane)) {
    if (is_external || tide__load_relaxed(&lane->makes_marks)) (void)tide__marks_mark_late(device, lane);
    return;
  }
  if (!is_external || own->pool != &device->default_pool || !lane_lacks_mark(lane)) return;
  if (*can_be_of_all < 0) *can_be_of_all = tide__marks_can_be_of_all(device, own->stream);
  if (*can_be_of_all) (void)mark_make(device, lane, true);
}

// Polls the marks of all lanes of a pool, except those of `own` if `leaves_own`.
static bool lanes_poll(tide_device_cache* device, tide__lane* own, bool leaves_own) {
  int can_be_of_all = -1;
  const uint64_t crowds = tide__load_acquire(&device->crowds);  // pairs with handle_crowd_locked
  bool is_crowd_over = true;
  bool is_any_left = false;
  tide__lane* lane = tide__lane_next(device, own->pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, own->pool, lane)) {
    lane_mark_for(device, lane, own, &can_be_of_all);
    if (lane != own || !leaves_own) marks_poll(device, lane);
    is_any_left = is_any_left || (lane != own && marks_are_left(&lane->marks));
    is_crowd_over = is_crowd_over && tide__stamp_has_passed(lane, tide__load_relaxed(&lane->crowd_stamp));
  }
  const bool has_seen_all = own->pool == &device->default_pool;  // there are no crowds in others
  if (is_crowd_over && has_seen_all) tide__store_relaxed(&device->crowds_over, crowds);
  return is_any_left;
}

bool tide__marks_poll(tide_device_cache* device, tide__lane* own) { return lanes_poll(device, own, false); }

// Asking the machine costs more than making a mark. A lane that makes none at releases is always asked about:
// it makes one a request at most.
static bool lane_may_be_left_out(const tide__lane* lane) {
  const uint64_t left = tide__load_relaxed(&lane->marks.made) - tide__load_relaxed(&lane->marks.passed);
  return left < OWN_MARKS_ASKED && tide__load_relaxed(&lane->makes_marks) != 0 &&
         tide__stamp_has_passed(lane, tide__load_relaxed(&lane->crowd_stamp));
}

bool tide__marks_poll_others(tide_device_cache* device, tide__lane* own) {
  return lanes_poll(device, own, lane_may_be_left_out(own));
}

// ---------------------------------------------------------------------------------------------------
// Users of a handle

// When more lanes use a handle than it has places for, all memory of these lanes counts for it.
static void handle_crowd_locked(tide_device_cache* device, tide__handle* handle, tide__lane* lane,
                                uint64_t stamp) {
  uint64_t highest = tide__load_relaxed(&lane->crowd_stamp);
  while (highest < stamp && !atomic_compare_exchange_weak(&lane->crowd_stamp, &highest, stamp)) continue;
  handle->crowd = tide__add_release(&device->crowds, 1) + 1;  // pairs with tide__marks_poll
}

static bool user_is_over(const tide__user* user) {
  return user->lane == NULL || tide__stamp_has_passed(user->lane, user->stamp);
}

static bool user_overlaps(const tide__user* user, uint64_t from, uint64_t to) {
  return user->lane != NULL && user->from < to && from < user->to;
}

// A lane that had a range to itself has waited for all earlier uses, so its own stamp stands for theirs.
static void user_yield(tide__user* user, const tide__user* use) {
  if (!user_overlaps(user, use->from, use->to)) return;
  const bool covers_front = use->from <= user->from;
  const bool covers_back = user->to <= use->to;
  if (covers_front && covers_back) user->lane = NULL;
  else if (covers_front) user->from = use->to;
  else if (covers_back) user->to = use->from;
}

// The place for a new use: one that is not needed any more, or that of another use by the same lane, which is
// joined with it. NULL: other lanes have all places.
static tide__user* handle_find_place(tide__handle* handle, const tide__user* use) {
  tide__user* open = NULL;
  tide__user* same = NULL;
  for (int i = 0; i < TIDE__HANDLE_USERS; i++) {
    tide__user* const user = &handle->users[i];
    user_yield(user, use);
    if (user_is_over(user)) open = user;
    else if (user->lane == use->lane) same = user;
  }
  return open != NULL ? open : same;
}

static void user_join(tide__user* user, const tide__user* use) {
  user->from = tide__min(user->from, use->from);
  user->to = tide__max(user->to, use->to);
  // The later mark is not that of the earlier use, so no stream may wait for it.
  user->stamp = tide__max(user->stamp, use->stamp) & ~(uint64_t)1;
}

// Joins two uses by one lane, and returns the place of one of them. NULL if all are by different lanes.
static tide__user* handle_make_place(tide__handle* handle) {
  tide__user* const users = handle->users;
  for (int i = 1; i < TIDE__HANDLE_USERS; i++) {
    for (int j = 0; j < i; j++) {
      if (users[i].lane != users[j].lane) continue;
      user_join(&users[j], &users[i]);
      return &users[i];
    }
  }
  return NULL;
}

void tide__handle_note_use_locked(tide_device_cache* device, tide__handle* handle, const tide__user* use) {
  tide__user* place = handle_find_place(handle, use);
  if (place == NULL) place = handle_make_place(handle);
  if (place == NULL) handle_crowd_locked(device, handle, use->lane, use->stamp);
  else if (user_is_over(place) || place->lane != use->lane) *place = *use;
  else user_join(place, use);
}

// Has a lane's stream a wait for a mark of another?
static bool lane_has_waited(const tide__lane* lane, const tide__lane* other, uint64_t stamp) {
  return other->number < lane->waited_count && lane->waited[other->number] >= stamp / 2;
}

static tide__readiness user_readiness(const tide__lane* lane, tide__lane* other, uint64_t stamp) {
  if (other == lane || tide__stamp_has_passed(other, stamp)) return TIDE__READY;
  if (lane_has_waited(lane, other, stamp)) return TIDE__READY;
  return stamp % 2 == 1 ? TIDE__READY_AFTER_WAIT : TIDE__READY_LATER;
}

tide__readiness tide__handle_readiness(tide_device_cache* device, const tide__handle* handle, uint64_t from,
                                       uint64_t to, const tide__lane* lane) {
  tide__lane* const own = handle->home->lane;
  tide__readiness worst = user_readiness(lane, own, own->unmarked);
  if (handle->crowd > tide__load_relaxed(&device->crowds_over)) worst = TIDE__READY_LATER;
  for (int i = 0; i < TIDE__HANDLE_USERS; i++) {
    const tide__user* const user = &handle->users[i];
    if (!user_overlaps(user, from, to)) continue;
    const tide__readiness readiness = user_readiness(lane, user->lane, user->stamp);
    if (readiness > worst) worst = readiness;
  }
  return worst;
}

bool tide__handle_is_over(tide_device_cache* device, const tide__handle* handle) {
  const tide__lane* const own = handle->home->lane;
  if (!tide__stamp_has_passed(own, own->unnoted)) return false;
  if (handle->crowd > tide__load_relaxed(&device->crowds_over)) return false;
  for (int i = 0; i < TIDE__HANDLE_USERS; i++) {
    if (!user_is_over(&handle->users[i])) return false;
  }
  return true;
}

void tide__handle_want_locked(const tide__handle* handle, uint64_t from, uint64_t to,
                              const tide__lane* lane) {
  for (int i = 0; i < TIDE__HANDLE_USERS; i++) {
    const tide__user* const user = &handle->users[i];
    if (!user_overlaps(user, from, to)) continue;
    if (user_readiness(lane, user->lane, user->stamp) == TIDE__READY) continue;
    user->lane->wanted = tide__max(user->lane->wanted, user->stamp / 2);
  }
}

// ---------------------------------------------------------------------------------------------------
// Waiting

static bool waited_get_room(tide_device_cache* device, tide__lane* lane, uint32_t number) {
  if (number < lane->waited_count) return true;
  const uint32_t count = number < lane->waited_count * 2 ? lane->waited_count * 2 : number + 1;
  uint64_t* const grown = tide__heap_alloc(device->heap, count, sizeof *grown);
  if (grown == NULL) return false;
  uint64_t* const before = lane->waited;
  const uint32_t before_count = lane->waited_count;
  tide__mutex_lock(&lane->lock);
  if (before_count > 0) memcpy(grown, before, before_count * sizeof *grown);
  lane->waited = grown;
  lane->waited_count = count;
  tide__mutex_unlock(&lane->lock);
  tide__heap_release(device->heap, before, before_count, sizeof *before);
  return true;
}

// The event is not used for another mark meanwhile: that takes the turn.
static tide_status lane_wait_for(tide_device_cache* device, tide__lane* lane, tide__lane* other,
                                 bool* out_waits) {
  tide__marks* const marks = &other->marks;
  const uint64_t number = other->wanted;
  TIDE_REQUIRE(waited_get_room(device, lane, other->number), TIDE_ERR_NO_MEMORY,
               "no memory for the record of a wait");
  tide_status status = TIDE_OK;
  turn_enter(marks);
  const bool must_wait = number > tide__load_relaxed(&marks->passed);
  if (must_wait) {
    status = tide_machine_stream_wait(device->machine, device->index, lane->stream, *event_at(marks, number));
  }
  turn_leave(marks);
  TIDE_TRY(status);
  if (must_wait) TIDE__COUNT(device, num_stream_waits);
  *out_waits = *out_waits || must_wait;
  tide__mutex_lock(&lane->lock);
  lane->waited[other->number] = tide__max(lane->waited[other->number], number);
  if (lane->is_unlisted) lane->unmarked = tide__lane_next_stamp(lane);
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}

void tide__marks_forget_wanted(tide_device_cache* device, const tide__lane* lane) {
  tide__lane* other = tide__lane_next(device, lane->pool, NULL);
  for (; other != NULL; other = tide__lane_next(device, lane->pool, other)) other->wanted = 0;
}

tide_status tide__marks_wait(tide_device_cache* device, tide__lane* lane, uint64_t bytes) {
  tide_status status = TIDE_OK;
  bool waits = false;
  tide__lane* other = tide__lane_next(device, lane->pool, NULL);
  for (; other != NULL; other = tide__lane_next(device, lane->pool, other)) {
    if (other->wanted != 0 && status == TIDE_OK) status = lane_wait_for(device, lane, other, &waits);
    other->wanted = 0;
  }
  if (waits) TIDE__COUNT_MANY(device, stream_wait_bytes, bytes);
  return status;
}

bool tide__marks_can_wait(tide_device_cache* device, const tide__lane* lane) {
  return stream_is_open(device, lane->stream);
}

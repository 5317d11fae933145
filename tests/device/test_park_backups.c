// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parking: backups that are kept, made ahead, read and lost; what observers, histories and snapshots show;
// streams that wait for contents; other devices.
#define T_THREADS
#include "device/park.h"

#define PARK_TEST(function) DEVICE_TEST_OVER(function, device_tide)
static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };
static const char* const tide_host[] = { "host tide", NULL };

// ---------------------------------------------------------------------------------------------------
// Kept and made ahead

PARK_TEST(test_park__a_kept_backup_is_used_again) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 5 * MIB, 1);
  for (size_t how = 0; how < BACKUPS; ++how) {
    for (int round = 0; round < 3; ++round) {
      known_write(m, &k, how * 10 + (uint64_t)round);
      (void)park(d, "weights", backups[how]);
      T_EQ(stats_under(d, "weights").backup_bytes, (how + 1) * 5 * MIB);  // those of other kinds stay as well
      (void)unpark_keeping(d, "weights");
      known_expect(m, &k);
      T_EQ(stats_under(d, "weights").backup_bytes, (how + 1) * 5 * MIB);
    }
  }
  T_OK(tide_device_trim_backups(d, "other"));
  T_EQ(stats_under(d, "weights").backup_bytes, 15 * MIB);
  T_OK(tide_device_trim_backups(d, "weights"));
  T_EQ(stats_under(d, "weights").backup_bytes, 0);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  T_OK(tide_device_trim_backups(d, NULL));  // what holds contents stays
  T_EQ(stats_under(d, "weights").backup_bytes, 5 * MIB);
  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, k.block);
}

PARK_TEST(test_park__a_kept_backup_that_is_too_small_is_replaced) {
  const tide_pool pool = tagged(d, "weights");
  known a = known_new(m, d, pool, NULL, 2 * MIB, 1);
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  (void)unpark_keeping(d, "weights");
  known b = known_new(m, d, pool, NULL, 7 * MIB, 2);
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  T_EQ(stats_under(d, "weights").backup_bytes, 9 * MIB);
  (void)unpark_keeping(d, "weights");
  known_expect(m, &a);
  known_expect(m, &b);
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);  // and not kept any longer
  (void)unpark(d, "weights");
  T_OK(tide_machine_device_synchronize(m, 0));
  trim(d);
  T_EQ(stats_under(d, "weights").backup_bytes, 0);
  give(d, a.block);
  give(d, b.block);
}

PARK_TEST(test_park__a_backup_is_made_ahead) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 5 * MIB, 1);
  for (size_t how = 0; how < BACKUPS; ++how) {
    const tide_park_options options = park_how(backups[how]);
    T_OK(tide_device_prepare_backup(d, "weights", &options));
    T_OK(tide_device_prepare_backup(d, "weights", &options));  // there is one already
    T_EQ(stats_under(d, "weights").backup_bytes, 5 * MIB);
    T_OK(tide_device_park(d, "weights", &options, NULL));
    T_EQ(stats_under(d, "weights").backup_bytes, 5 * MIB);
    (void)unpark(d, "weights");
    known_expect(m, &k);
    T_OK(tide_device_prepare_backup(d, "weights", &options));
    T_OK(tide_device_trim_backups(d, "weights"));  // also while it is being made
    T_EQ(stats_under(d, "weights").backup_bytes, 0);
  }
  T_OK(tide_device_prepare_backup(d, NULL, NULL));  // left to the allocator
  T_STATUS(tide_device_prepare_backup(d, "none", NULL), TIDE_ERR_HANDLE);
  give(d, k.block);
}

// ---------------------------------------------------------------------------------------------------
// Each pool has its kind

static tide_pool tagged_with(tide_device_cache* d, const char* tag, tide_backup backup) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = tag;
  options.backup = (uint32_t)backup;
  return pool_new(d, &options);
}

PARK_TEST(test_park__each_pool_has_its_kind_of_backup) {
  known k[BACKUPS];
  const tide_pool cache = tagged_with(d, "model/cache", TIDE_BACKUP_NONE);
  known lost = known_new(m, d, cache, NULL, 8 * MIB, 9);
  for (size_t i = 0; i < BACKUPS; ++i) {
    k[i] = known_new(m, d, tagged_with(d, "model/weights", backups[i]), NULL, (i + 1) * MIB, i);
  }
  for (int round = 0; round < 2; ++round) {
    T_OK(tide_device_prepare_backup(d, "model", NULL));
    T_EQ(stats_under(d, "model").backup_bytes, 6 * MIB);
    const tide_park_result result = park(d, "model", TIDE_BACKUP_OF_POOL);
    T_EQ(result.pool_count, 4);
    T_EQ(result.block_bytes, 14 * MIB);
    T_EQ(result.copied_bytes, 6 * MIB);
    T_EQ(stats_under(d, "model").backup_bytes, 6 * MIB);
    T_EQ(stats_under(d, "model").reserved_bytes, 0);
    T_STATUS(tide_device_read_parked(d, lost.block.address, 16, NULL, NULL), TIDE_ERR_STATE);
    const tide_park_result back = unpark_keeping(d, "model");
    T_EQ(back.pool_count, 4);
    T_EQ(back.block_bytes, 14 * MIB);
    T_EQ(back.copied_bytes, 6 * MIB);
    all_expect(m, k, BACKUPS);
  }
  T_OK(tide_device_pool_set_backup(d, cache, TIDE_BACKUP_PAGEABLE));
  known_write(m, &lost, 10);
  T_EQ(park(d, "model", TIDE_BACKUP_OF_POOL).copied_bytes, 14 * MIB);
  (void)unpark(d, "model");
  known_expect(m, &lost);
  T_EQ(park(d, "model", TIDE_BACKUP_PINNED).copied_bytes, 14 * MIB);  // one kind for all
  (void)unpark(d, "model");
  all_expect(m, k, BACKUPS);
  T_STATUS(tide_device_pool_set_backup(d, cache, TIDE_BACKUP_OF_POOL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_pool_set_backup(d, 4711, TIDE_BACKUP_PINNED), TIDE_ERR_HANDLE);
  all_give(d, k, BACKUPS);
  give(d, lost.block);
}

// A pool with a file is parked first. Then one with another backup cannot be, and the first comes back.
PARK_TEST(test_park__a_kind_that_fails_brings_the_others_back) {
  tide_pool_options plain = TIDE_POOL_OPTIONS_INIT;
  plain.tag = "model/plain";
  plain.is_plain = true;
  known k = known_new(m, d, tagged_with(d, "model/weights", TIDE_BACKUP_FILE), NULL, 2 * MIB, 1);
  (void)pool_new(d, &plain);
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  T_STATUS(tide_device_park(d, "model", NULL, &result), TIDE_ERR_UNSUPPORTED);
  T_EQ(result.pool_count, 0);
  T_EQ(stats_under(d, "model").parked_pool_count, 0);
  T_CHECK(strstr(tide_last_error()->text, "does not serve it") != NULL);
  device_expect_valid(d);
  known_expect(m, &k);
  give(d, k.block);
}

DEVICE_TEST_OVER(test_park__a_folder_that_does_not_exist_is_an_error, tide_host) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 2 * MIB, 1);
  tide_park_options options = park_how(TIDE_BACKUP_FILE);
  options.folder = "/nowhere/at/all";
  T_CHECK(tide_device_park(d, "weights", &options, NULL) != TIDE_OK);
  T_EQ(stats_under(d, "weights").parked_pool_count, 0);
  device_expect_valid(d);
  options.folder = "/tmp";
  T_OK(tide_device_park(d, "weights", &options, NULL));
  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, k.block);
}

// ---------------------------------------------------------------------------------------------------
// Reading and losing

DEVICE_TEST_OVER(test_park__parked_blocks_can_be_read, tide_host) {
  const tide_pool pool = tagged(d, "weights");
  known a = known_new(m, d, pool, NULL, 1 * MIB, 1);
  known b = known_new(m, d, pool, NULL, 3 * MIB, 2);
  uint8_t bytes[256];
  const void* data = NULL;
  T_STATUS(tide_device_read_parked(d, b.block.address, 256, bytes, &data), TIDE_ERR_HANDLE);
  for (size_t how = 0; how < BACKUPS; ++how) {
    (void)park(d, "weights", backups[how]);
    const size_t offset = 3 * MIB / 4 - 128;  // the end of the first quarter and the beginning of the second
    T_OK(tide_device_read_parked(d, bytes_of(b.block) + offset, 256, bytes, &data));
    T_EQ(bytes[127], b.values[0]);
    T_EQ(bytes[128], b.values[1]);
    T_EQ(data != NULL, backups[how] != TIDE_BACKUP_FILE);
    if (data != NULL) T_CHECK(memcmp(data, bytes, 256) == 0);
    T_OK(tide_device_read_parked(d, a.block.address, 256, bytes, NULL));
    T_EQ(bytes[0], a.values[0]);
    T_STATUS(tide_device_read_parked(d, a.block.address, 1 * MIB + 1, NULL, NULL), TIDE_ERR_HANDLE);
    T_STATUS(tide_device_read_parked(d, bytes_of(b.block) + 3 * MIB - 4, 8, bytes, NULL), TIDE_ERR_HANDLE);
    T_EQ(stats_under(d, "weights").parked_pool_count, 1);  // it is still parked
    (void)unpark(d, "weights");
    known_expect(m, &b);
  }
  give(d, a.block);
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  T_STATUS(tide_device_read_parked(d, a.block.address, 16, bytes, NULL), TIDE_ERR_HANDLE);
  give(d, b.block);
}

// A backup that is kept can be read until it is used again, and says what was there when it was made.
DEVICE_TEST_OVER(test_park__kept_backups_can_be_read, tide_host) {
  const tide_pool pool = tagged(d, "weights");
  known a = known_new(m, d, pool, NULL, 1 * MIB, 1);
  const uint8_t value = a.values[0];
  uint8_t bytes[16];
  const void* before = NULL;
  const void* data = NULL;
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  T_OK(tide_device_read_parked(d, a.block.address, 16, bytes, &before));
  (void)unpark_keeping(d, "weights");
  known_write(m, &a, 77);
  T_CHECK(value != a.values[0]);
  T_OK(tide_device_read_parked(d, a.block.address, 16, bytes, &data));
  T_EQ(bytes[0], value);
  T_CHECK(data == before);
  known b = known_new(m, d, pool, NULL, 1 * MIB, 2);
  T_STATUS(tide_device_read_parked(d, b.block.address, 16, bytes, &data), TIDE_ERR_HANDLE);
  give(d, b.block);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);  // the same memory again
  T_OK(tide_device_read_parked(d, a.block.address, 16, bytes, &data));
  T_EQ(bytes[0], a.values[0]);
  T_CHECK(data == before);
  (void)unpark_keeping(d, "weights");
  T_OK(tide_device_trim_backups(d, "weights"));
  T_STATUS(tide_device_read_parked(d, a.block.address, 16, bytes, &data), TIDE_ERR_HANDLE);
  known_expect(m, &a);
  give(d, a.block);
}

// What was parked last counts, whichever tag it was parked by.
DEVICE_TEST_OVER(test_park__an_older_backup_is_not_read, tide_host) {
  const tide_pool pool = tagged(d, "weights/actor");
  known a = known_new(m, d, pool, NULL, 1 * MIB, 1);
  uint8_t bytes[16];
  (void)park(d, "weights/actor", TIDE_BACKUP_PINNED);
  (void)unpark_keeping(d, "weights/actor");
  known_write(m, &a, 77);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  T_OK(tide_device_read_parked(d, a.block.address, 16, bytes, NULL));
  T_EQ(bytes[0], a.values[0]);
  (void)unpark(d, "weights");
  T_STATUS(tide_device_read_parked(d, a.block.address, 16, bytes, NULL), TIDE_ERR_HANDLE);
  T_OK(tide_machine_device_synchronize(m, 0));
  trim(d);
  T_EQ(stats_under(d, "weights").backup_bytes, 1 * MIB);  // its memory is kept
  known_expect(m, &a);
  give(d, a.block);
}

// Cuts the files without a name that this process has open.
static size_t files_cut(uint64_t bytes) {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  T_CHECK(folder != NULL);
  for (struct dirent* it = readdir(folder); it != NULL; it = readdir(folder)) {
    char path[64];
    char target[256];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%.16s", it->d_name);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) continue;
    target[length] = '\0';
    if (strstr(target, "(deleted)") == NULL || strncmp(target, "/tmp/", 5) != 0) continue;
    T_EQ(ftruncate(atoi(it->d_name), (off_t)bytes), 0);
    count++;
  }
  T_EQ(closedir(folder), 0);
  return count;
}

typedef struct losses {
  size_t count;
  uint64_t addresses[8];
  uint64_t bytes[8];
} losses;

static void loss_add(void* user, uint64_t address, uint64_t bytes) {
  losses* const l = user;
  T_LT(l->count, 8);
  l->addresses[l->count] = address;
  l->bytes[l->count++] = bytes;
}

// The file is cut behind the first of two blocks. That returns, and the other is named.
DEVICE_TEST_OVER(test_park__lost_blocks_are_named, tide_host) {
  const tide_pool pool = tagged(d, "weights");
  known a = known_new(m, d, pool, NULL, 2 * MIB, 1);
  const tide_block gap = take_tagged(d, pool, NULL, 2 * MIB);
  known b = known_new(m, d, pool, NULL, 2 * MIB, 2);
  losses lost = { .count = 0 };
  tide_park_options options = park_how(TIDE_BACKUP_FILE);
  tide_unpark_options back = TIDE_UNPARK_OPTIONS_INIT;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  give(d, gap);
  options.folder = "/tmp";
  back.lost = loss_add;
  back.user = &lost;
  T_OK(tide_device_park(d, "weights", &options, NULL));
  T_EQ(files_cut(2 * MIB), 1);

  T_OK(tide_device_unpark(d, "weights", &back, &result));
  T_EQ(result.lost_bytes, 2 * MIB);
  T_EQ(lost.count, 1);
  T_EQ(lost.addresses[0], (uint64_t)(uintptr_t)b.block.address);
  T_EQ(lost.bytes[0], 2 * MIB);
  known_expect(m, &a);
  known_write(m, &b, 9);
  known_expect(m, &b);
  give(d, a.block);
  give(d, b.block);
}

// ---------------------------------------------------------------------------------------------------
// What others see

PARK_TEST(test_park__the_history_has_the_memory_that_went_and_came) {
  const tide_pool pool = tagged(d, "weights");
  const tide_block block = take_tagged(d, pool, NULL, 4 * MIB);
  const uint64_t reserved = pool_reserved(d, pool);
  history_on(d);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  (void)unpark(d, "weights");

  const story s = read_story(d);
  uint64_t gone = 0;
  uint64_t come = 0;
  for (size_t i = 0; i < s.count; ++i) {
    T_EQ(s.entries[i].pool, pool);
    if (s.entries[i].action == TIDE_ACTION_SEGMENT_UNMAP) gone += s.entries[i].bytes;
    if (s.entries[i].action == TIDE_ACTION_SEGMENT_MAP) come += s.entries[i].bytes;
  }
  T_EQ(gone, reserved);
  T_EQ(come, reserved);
  T_EQ(story_times(&s, TIDE_ACTION_FREE_REQUESTED), 0);
  give(d, block);
}

typedef struct watcher {
  tide_machine* machine;
  tide_device_cache* device;
  tide_pool pool;
  known* block;
  size_t ends;
  size_t begins;
  bool calls;  // it allocates in the pool that is being parked
} watcher;

// When the end is reported, the memory is still there, and no request gets it.
static void watch(void* user, const tide_trace_entry* entry) {
  watcher* const w = user;
  if (entry->action == TIDE_ACTION_SEGMENT_MAP) w->begins++;
  if (entry->action != TIDE_ACTION_SEGMENT_UNMAP) return;
  w->ends++;
  known_expect(w->machine, w->block);
  if (!w->calls) return;
  region_open(w->device, w->pool);
  T_STATUS(try_take(w->device, NULL, 4096), TIDE_ERR_STATE);
  region_close(w->device, w->pool);
  give(w->device, take(w->device, NULL, 4096));
}

PARK_TEST(test_park__observers_hear_of_the_end_before_the_memory_goes) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 4 * MIB, 1);
  give(d, take(d, NULL, 4096));
  watcher w = { .machine = m, .device = d, .pool = pool, .block = &k };
  (void)observe_trace(d, watch, &w);
  for (int i = 0; i < 2; ++i) {
    w.ends = w.begins = 0;
    (void)park(d, "weights", TIDE_BACKUP_PINNED);
    T_EQ(w.ends, 1);
    T_EQ(w.begins, 0);
    (void)unpark(d, "weights");
    T_EQ(w.begins, 1);
    w.calls = true;
  }
  known_expect(m, &k);
  give(d, k.block);
}

PARK_TEST(test_park__a_snapshot_shows_what_is_parked) {
  const tide_pool pool = tagged(d, "weights/actor");
  const tide_block block = take_tagged(d, pool, NULL, 4 * MIB);
  const tide_block common = take(d, NULL, 2 * MIB);
  tide_trace* trace = NULL;
  size_t count = 0;
  size_t parked = 0;
  (void)park(d, "weights", TIDE_BACKUP_NONE);
  const seen s = look(d);
  T_CHECK(seen_around(&s, block.address)->is_parked);
  T_CHECK(!seen_around(&s, common.address)->is_parked);
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(d, NULL, trace));
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; ++i) {
    const bool is_parked = tide_trace_segment_is_parked(trace, &segments[i]);
    T_STR_EQ(tide_trace_segment_tag(trace, &segments[i]), is_parked ? "weights/actor" : "");
    parked += is_parked;
  }
  T_EQ(parked, 1);
  T_EQ(count, 2);
  tide_trace_free(trace);
  (void)unpark(d, "weights");
  const seen now = look(d);
  T_CHECK(!seen_around(&now, block.address)->is_parked);
  give(d, block);
  give(d, common);
}

// ---------------------------------------------------------------------------------------------------
// Streams and devices

// Work on streams that hold blocks, on announced ones, on the default stream and on those of the call is
// queued at once; each copy finds the contents.
DEVICE_TEST_OVER(test_park__streams_wait_for_the_contents, tide_host) {
  enum { STREAMS = 5 };
  const tide_pool pool = tagged(d, "weights");
  tide_stream streams[STREAMS] = { NULL };
  for (size_t i = 1; i < STREAMS; ++i) streams[i] = side_new(m);
  known k = known_new(m, d, pool, streams[1], 32 * MIB, 1);
  const tide_block other = take(d, streams[2], 4096);  // of another pool
  announce(d, k.block, streams[3]);
  uint8_t* const copies = malloc(STREAMS * k.bytes);
  T_CHECK(copies != NULL);
  tide_unpark_options options = TIDE_UNPARK_OPTIONS_INIT;
  options.streams = &streams[4];
  options.stream_count = 1;
  options.keeps_backup = true;
  for (int round = 0; round < 4; ++round) {
    known_write(m, &k, (uint64_t)round);
    (void)park(d, "weights", TIDE_BACKUP_PINNED);
    T_OK(tide_device_unpark(d, "weights", &options, NULL));
    for (size_t i = 0; i < STREAMS; ++i) {
      T_OK(tide_machine_copy(m, 0, streams[i], copies + i * k.bytes, k.block.address, k.bytes));
    }
    const tide_stream fresh = side_new(m);
    const tide_block young = take_tagged(d, pool, fresh, 4096);  // waits at its request
    T_OK(tide_machine_copy(m, 0, fresh, young.address, bytes_of(k.block) + k.bytes - 4096, 4096));
    T_OK(tide_machine_device_synchronize(m, 0));
    for (size_t i = 0; i < STREAMS; ++i) T_CHECK(memcmp(copies + i * k.bytes, k.block.address, k.bytes) == 0);
    T_EQ(bytes_of(young)[0], k.values[3]);
    known_expect(m, &k);
    give(d, young);
    T_OK(tide_device_close_stream(d, fresh));
    T_OK(tide_machine_stream_free(m, 0, fresh));
  }
  free(copies);
  give(d, k.block);
  give(d, other);
}

// Streams that are gone are not called.
DEVICE_TEST_OVER(test_park__streams_without_blocks_may_be_gone, tide_emulated) {
  const tide_pool pool = tagged(d, "weights");
  const tide_stream gone = side_new(m);
  const tide_stream closed = side_new(m);
  const tide_stream external = side_new(m);
  tide_block theirs = { NULL, 0 };
  known k = known_new(m, d, pool, NULL, 4 * MIB, 1);
  give(d, take_tagged(d, pool, gone, 4096));
  const tide_block left = take_tagged(d, pool, closed, 4096);
  region_open(d, pool);
  T_OK(tide_device_alloc_external(d, external, 4096, &theirs));
  region_close(d, pool);
  T_OK(tide_device_close_stream(d, closed));
  T_OK(tide_machine_device_synchronize(m, 0));
  T_OK(tide_machine_stream_free(m, 0, gone));
  T_OK(tide_machine_stream_free(m, 0, closed));
  T_OK(tide_machine_stream_free(m, 0, external));
  const uint64_t failures = tide_machine_call_stats(m, TIDE_CALL_STREAM_WAIT).failures;
  for (size_t how = 0; how < BACKUPS; ++how) {
    (void)park(d, "weights", backups[how]);
    (void)unpark(d, "weights");
    known_expect(m, &k);
  }
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_STREAM_WAIT).failures, failures);
  give(d, theirs);
  give(d, left);
  give(d, k.block);
}

DEVICE_TEST_OVER(test_park__waiting_on_the_host_waits_for_the_contents, tide_host) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, side_new(m), 16 * MIB, 1);
  tide_unpark_options options = TIDE_UNPARK_OPTIONS_INIT;
  options.waits = true;
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  T_OK(tide_device_unpark(d, "weights", &options, NULL));
  for (size_t i = 0; i < QUARTERS; ++i) {  // with no stream between
    T_EQ(bytes_of(k.block)[i * 4 * MIB], k.values[i]);
    T_EQ(bytes_of(k.block)[(i + 1) * 4 * MIB - 1], k.values[i]);
  }
  give(d, k.block);
}

DEVICE_TEST_OVER(test_park__peers_have_access_again, tide_host) {
  const tide_pool pool = tagged(d, "weights");
  const tide_stream theirs = stream_new(m, 1, 0);
  known k = known_new(m, d, pool, NULL, 4 * MIB, 1);
  uint8_t* const copy = malloc(k.bytes);
  T_CHECK(copy != NULL);
  T_OK(tide_device_enable_peer(d, 1));
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  (void)unpark(d, "weights");
  known_expect(m, &k);
  T_OK(tide_machine_copy(m, 1, theirs, copy, k.block.address, k.bytes));
  T_OK(tide_machine_stream_synchronize(m, 1, theirs));
  T_EQ(copy[k.bytes - 1], k.values[3]);
  free(copy);
  give(d, k.block);
}

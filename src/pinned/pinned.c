// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The life of a cache: options, making and freeing it; and the cache as a source of arenas. Calls the other
// calls and all rooms.
#include <string.h>

#include "base/sized.h"
#include "base/sys.h"
#include "pinned/calls.h"
#include "pinned/idle/idle.h"
#include "pinned/pool/pool.h"
#include "pinned/stream/stream.h"

enum { PINNED_KIND = 10, MAX_REGISTER_THREADS = 128 };  // PINNED_KIND: of handles

// ---------------------------------------------------------------------------------------------------
// Options

tide_status tide_pinned_options_from_device(const tide_device_options* from, tide_pinned_options* options) {
  static const char call[] = "pinned_options_from_device";
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  tide_pinned_options whole = TIDE_PINNED_OPTIONS_INIT;
  TIDE_TRY(tide__sized_read(call, from, &device, sizeof device));
  TIDE_TRY(tide__sized_read(call, options, &whole, sizeof whole));
  whole.uses_register = device.pinned_uses_register;
  whole.uses_machine = !device.pinned_pages && !device.pinned_uses_register;
  whole.has_helper = device.pinned_uses_threads;
  // 1 is PyTorch's default, not a wish for slow memory.
  const bool has_threads = device.pinned_uses_register || device.pinned_register_threads > 1;
  if (has_threads) whole.register_threads = device.pinned_register_threads;
  whole.reserve_bytes = device.pinned_reserve_bytes;
  whole.max_round_bytes = device.pinned_round_bytes;
  whole.max_block_bytes = device.pinned_block_bytes;
  return tide__sized_write(call, &whole, options, sizeof whole);
}

static tide_status options_check(const tide_machine* machine, const tide_pinned_options* o) {
  const bool is_count = o->register_threads == 0 || tide__is_power_of_two(o->register_threads);
  TIDE_REQUIRE(is_count && o->register_threads <= MAX_REGISTER_THREADS, TIDE_ERR_ARGUMENT,
               "pinned_new: register_threads is %u, not 0 or a power of two up to %d", o->register_threads,
               MAX_REGISTER_THREADS);
  TIDE_REQUIRE(!o->uses_register || !o->uses_machine, TIDE_ERR_ARGUMENT,
               "pinned_new: uses_register and uses_machine exclude each other");
  TIDE_REQUIRE(o->numa <= TIDE_NUMA_DEVICE, TIDE_ERR_ARGUMENT, "pinned_new: numa is %u", o->numa);
  TIDE_REQUIRE(o->numa != TIDE_NUMA_DEVICE ||
                   (o->numa_device >= 0 && o->numa_device < tide_machine_device_count(machine)),
               TIDE_ERR_DEVICE, "pinned_new: there is no device %d", o->numa_device);
  TIDE_REQUIRE(o->reserve_bytes < TIDE__PIN_MAX_REQUEST, TIDE_ERR_ARGUMENT,
               "pinned_new: a reserve of %llu bytes is too large", (unsigned long long)o->reserve_bytes);
  TIDE_REQUIRE(tide__heap_is_valid(o->heap), TIDE_ERR_ARGUMENT, "pinned_new: the heap lacks a function");
  return TIDE_OK;
}

void tide_pinned_get_options(const tide_pinned_cache* pinned, tide_pinned_options* out) {
  if (pinned == NULL || out == NULL) return;
  tide__ignore(tide__sized_write("pinned_get_options", &pinned->options, out, sizeof *out));
}

tide_machine* tide_pinned_machine(const tide_pinned_cache* pinned) {
  return pinned != NULL ? pinned->machine : NULL;
}

// ---------------------------------------------------------------------------------------------------
// The beginning

static void pinned_set_limits(tide_pinned_cache* pinned) {
  const tide_pinned_options* const o = &pinned->options;
  const uint64_t threshold = tide__min(o->max_round_bytes, o->max_block_bytes);
  pinned->class_limit = tide__min(threshold, TIDE__PIN_CLASS_BYTES);
  pinned->first_single = o->powers_of_two ? 0
                                          : tide__class_of(TIDE__PIN_SINGLE_BYTES >> TIDE__PIN_UNIT_SHIFT);
  pinned->has_cap = o->max_cached_bytes < (uint64_t)INT64_MAX;
  tide__store_relaxed(&pinned->room_left, (int64_t)tide__min(o->max_cached_bytes, INT64_MAX));
  tide__store_relaxed(&pinned->unusual, o->powers_of_two ? TIDE__PIN_HAS_POWERS : 0u);
}

static int pinned_device_node(tide_pinned_cache* pinned) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  if (pinned->options.numa != TIDE_NUMA_DEVICE) return -1;
  tide_error before;
  tide__error_keep(&before);
  if (tide_machine_device_info(pinned->machine, pinned->options.numa_device, &info) == TIDE_OK) {
    return info.numa_node;
  }
  tide__error_restore(&before);
  return -1;
}

static void pinned_init(tide_pinned_cache* pinned) {
  tide__mutex_init(&pinned->chunks_lock, TIDE__RANK_CHUNKS);
  tide__mutex_init(&pinned->pools_lock, TIDE__RANK_POOLS);
  tide__mutex_init(&pinned->totals_lock, TIDE__RANK_TOTALS);
  tide__list_init(&pinned->refused);
  tide__slots_init(&pinned->blocks, pinned->heap, PINNED_KIND, sizeof(tide__pin), NULL, NULL);
  tide__map_init(&pinned->map, pinned->heap);
  pinned->totals = (tide_pinned_stats)TIDE_PINNED_STATS_INIT;
  pinned->page_bytes = tide__sys_page_bytes();
  pinned->is_dry = strcmp(tide_machine_name(pinned->machine), "dry") == 0;
  pinned->device_count = tide_machine_device_count(pinned->machine);
  pinned->device_node = pinned_device_node(pinned);
  tide__pin_source_init(pinned);
  tide__pin_waits_init(pinned);
  pinned_set_limits(pinned);
}

static void pinned_fini(tide_pinned_cache* pinned) {
  if (pinned->tcaches.common != NULL) tide__thread_caches_fini(&pinned->tcaches);
  tide__pin_pools_fini(pinned);
  tide__waits_fini(&pinned->waits);
  tide__history_fini(&pinned->history);
  tide__map_fini(&pinned->map);
  tide__slots_fini(&pinned->blocks);
  tide__heap_release(pinned->heap, pinned, 1, sizeof *pinned);
}

static tide_status pinned_start(tide_pinned_cache* pinned) {
  TIDE_TRY(tide__history_init(&pinned->history, pinned->machine, pinned->heap, &pinned->unusual,
                              TIDE__PIN_RECORDS, 0));
  TIDE_REQUIRE(tide__pin_pools_start(pinned) &&
                   tide__thread_caches_init(&pinned->tcaches, pinned->heap, sizeof(tide__pin_tcache),
                                            tide__pin_tcache_init, pinned),
               TIDE_ERR_NO_MEMORY, "pinned_new: no memory for its records");
  return pinned->options.has_helper ? tide__pin_helper_start(pinned) : TIDE_OK;
}

tide_status tide_pinned_new(tide_machine* machine, const tide_pinned_options* options,
                            tide_pinned_cache** out) {
  tide_pinned_options whole = TIDE_PINNED_OPTIONS_INIT;
  if (out != NULL) *out = NULL;
  TIDE_REQUIRE(machine != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_new: no machine or out");
  if (options != NULL) TIDE_TRY(tide__sized_read("pinned_new", options, &whole, sizeof whole));
  options = &whole;
  TIDE_TRY(options_check(machine, options));
  const tide_heap* const heap = tide__heap_or_system(options->heap);
  tide_pinned_cache* const pinned = tide__heap_alloc(heap, 1, sizeof *pinned);
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_NO_MEMORY, "pinned_new: no memory for its records");
  pinned->machine = machine;
  pinned->heap = heap;
  pinned->options = *options;
  pinned_init(pinned);
  const tide_status status = pinned_start(pinned);
  if (status != TIDE_OK) {
    pinned_fini(pinned);
    return status;
  }
  pinned->fork_note.before = tide__pin_prepare_fork;
  pinned->fork_note.user = pinned;
  tide__fork_watch(&pinned->fork_note, &pinned->unusual, TIDE__PIN_IS_INHERITED);
  tide__monitored_add(&pinned->monitored, pinned, tide__pinned_row_fill);
  *out = pinned;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The end

// Moves wait records from one list to another; returns their devices as bits.
static uint64_t records_move(tide__wait** from, tide__wait** to) {
  uint64_t devices = 0;
  while (*from != NULL) {
    devices |= (uint64_t)1 << (*from)->device;
    tide__wait_push(to, tide__wait_pop(from));
  }
  return devices;
}

// Takes the records off all blocks and counts the blocks that are handed out; returns the devices with uses.
static uint64_t blocks_clear(tide_pinned_cache* pinned, tide__wait** records, tide_pinned_leaks* leaks) {
  uint64_t devices = 0;
  for (uint32_t i = 0; i < tide__slots_count(&pinned->blocks); i++) {
    tide__pin* const block = tide__slots_at(&pinned->blocks, i);
    const bool is_live = tide__pin_is_live(block);
    leaks->blocks += is_live ? 1 : 0;
    leaks->bytes += is_live ? tide__pin_bytes(block) : 0;
    tide__wait* announced = tide__load_relaxed(&block->uses);
    devices |= records_move(&announced, records) | records_move(&block->waiter.waits, records);
    (void)records_move(&block->waiter.spare, records);
  }
  return devices;
}

static void tcaches_clear(tide_pinned_cache* pinned, tide__wait** records) {
  tide__pin_tcache* tcache = tide__pin_tcache_first(pinned);
  for (; tcache != NULL; tcache = tide__pin_tcache_next(tcache)) {
    (void)records_move(&tcache->records, records);
  }
}

// Tries twice, because a machine that has waited may still report an earlier failure.
static bool devices_wait(tide_pinned_cache* pinned, uint64_t devices) {
  bool is_quiet = true;
  const tide__relaxed relaxed = tide__relax_or_not(pinned->machine);
  for (int i = 0; i < TIDE_DEVICE_MAX && is_quiet; i++) {
    if ((devices >> i & 1u) == 0) continue;
    is_quiet = tide_machine_device_synchronize(pinned->machine, i) == TIDE_OK;
    if (!is_quiet) is_quiet = tide_machine_device_synchronize(pinned->machine, i) == TIDE_OK;
  }
  tide__relax_end(&relaxed);
  return is_quiet;
}

// Gives the memory of a segment back, in two attempts.
static void segment_end(tide_pinned_cache* pinned, tide__pin_segment* segment, tide_pinned_leaks* leaks) {
  const tide__pin_memory memory = segment->memory;
  tide__pin_segment_drop(pinned, segment);
  if (memory.source == TIDE__PIN_FROM_RESERVE) return;  // it goes with the whole reserve
  if (tide__pin_memory_give(pinned, &memory) == TIDE_OK) return;
  if (tide__pin_memory_give(pinned, &memory) == TIDE_OK) return;
  leaks->refused_pieces++;
  leaks->refused_bytes += memory.bytes;
}

static void segments_end(tide_pinned_cache* pinned, tide__link* segments, tide_pinned_leaks* leaks) {
  while (!tide__list_is_empty(segments)) {
    segment_end(pinned, TIDE_OWNER(segments->next, tide__pin_segment, all), leaks);
  }
}

static void memory_end(tide_pinned_cache* pinned, tide_pinned_leaks* leaks) {
  segments_end(pinned, &pinned->refused, leaks);
  segments_end(pinned, &pinned->default_pool->segments, leaks);
  tide__pool_base* pool = tide__pools_first_locked(&pinned->pools);
  for (; pool != NULL; pool = tide__pools_after_locked(pool)) {
    segments_end(pinned, &tide__pin_pool_at(pool)->segments, leaks);
  }
  tide__pin_ranges_free(pinned);
  if (tide__pin_reserve_end(pinned) == TIDE_OK) return;
  if (tide__pin_reserve_end(pinned) == TIDE_OK) return;
  leaks->refused_pieces++;
  leaks->refused_bytes += pinned->reserve.bytes;
}

void tide_pinned_free(tide_pinned_cache* pinned, tide_pinned_leaks* out) {
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  if (out != NULL) tide__ignore(tide__sized_write("pinned_free", &leaks, out, sizeof leaks));
  if (pinned == NULL || tide__pin_is_inherited(pinned)) return;
  tide_error before;
  tide__error_keep(&before);
  tide__monitored_remove(&pinned->monitored);
  tide__fork_unwatch(&pinned->fork_note);
  tide__pin_helper_stop(pinned);
  tide__ignore(tide__pin_drain(pinned));
  tide__wait* records = NULL;
  uint64_t devices = tide__waits_devices(&pinned->waits);
  devices |= blocks_clear(pinned, &records, &leaks);
  tcaches_clear(pinned, &records);
  const bool is_quiet = devices_wait(pinned, devices);
  tide__waits_give(&pinned->waits, records);
  tide__waits_clear(&pinned->waits);
  if (!is_quiet) pinned->machine = NULL;  // the machine keeps all memory, because work may still use it
  memory_end(pinned, &leaks);
  pinned_fini(pinned);
  tide__error_restore(&before);
  if (out != NULL) tide__ignore(tide__sized_write("pinned_free", &leaks, out, sizeof leaks));
}

// ---------------------------------------------------------------------------------------------------
// A source of arenas

static tide_status memory_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  tide_pinned_cache* const pinned = memory->user;
  tide_block block = { NULL, 0 };
  *out = NULL;
  TIDE_TRY(tide_pinned_alloc(pinned, bytes, &block));
  if (!tide__is_aligned(tide__address(block.address), alignment)) {
    tide__ignore(tide_pinned_release(pinned, block));
    return TIDE_FAIL(TIDE_ERR_UNSUPPORTED, "the pinned cache cannot align memory to %zu bytes", alignment);
  }
  *out = block.address;
  return TIDE_OK;
}

static tide_status memory_release(const tide_memory* memory, void* address) {
  return tide_pinned_release_address(memory->user, address);
}

tide_memory tide_pinned_memory(tide_pinned_cache* pinned) {
  const bool is_host = pinned != NULL && !pinned->is_dry;
  return (tide_memory){ memory_alloc, memory_release, pinned, 0, is_host };
}

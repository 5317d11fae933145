// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The life of an allocator: how it is made, configured, and freed with everything it holds; and the table of
// default allocators.
#include "device/share/share.h"
#include "device/tide/parking.h"
#include "device/tide/tide.h"
#include "device/torch/torch.h"
#include "device/lane/settings.h"
#include "device/options.h"
#include "device/park/park.h"
#include "device/segment/virtual.h"

// ---------------------------------------------------------------------------------------------------
// Numbers

static tide__mutex registry_lock;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static uint64_t registry_ids;   // bit n: an allocator has the number n; shared under registry_lock
static uint64_t registry_uids;  // how many allocators were made; likewise
static tide_device_cache* registry_defaults[TIDE_DEVICE_MAX];

static void registry_init(void) {
  tide__mutex_init(&registry_lock, TIDE__RANK_REGISTRY);
  tide__fork_hold(&registry_lock);
}

static void registry_add(tide_device_cache* device) {
  (void)pthread_once(&registry_once, registry_init);
  tide__mutex_lock(&registry_lock);
  device->uid = ++registry_uids;
  const bool has_id = ~registry_ids != 0;
  device->id = has_id ? (uint32_t)__builtin_ctzll(~registry_ids) : (uint32_t)(device->uid % 64);
  device->has_own_id = has_id;
  if (has_id) registry_ids |= (uint64_t)1 << device->id;
  tide__mutex_unlock(&registry_lock);
}

static void registry_remove(const tide_device_cache* device) {
  tide__mutex_lock(&registry_lock);
  if (device->has_own_id) registry_ids &= ~((uint64_t)1 << device->id);
  for (int i = 0; i < TIDE_DEVICE_MAX; i++) {
    if (registry_defaults[i] == device) registry_defaults[i] = NULL;
  }
  tide__mutex_unlock(&registry_lock);
}

tide_status tide_device_set_default(int index, tide_device_cache* device) {
  TIDE_REQUIRE(index >= 0 && index < TIDE_DEVICE_MAX, TIDE_ERR_DEVICE, "device_set_default: index %d", index);
  (void)pthread_once(&registry_once, registry_init);
  tide__mutex_lock(&registry_lock);
  registry_defaults[index] = device;
  tide__mutex_unlock(&registry_lock);
  return TIDE_OK;
}

tide_device_cache* tide_device_default(int index) {
  if (index < 0 || index >= TIDE_DEVICE_MAX) return NULL;
  (void)pthread_once(&registry_once, registry_init);
  tide__mutex_lock(&registry_lock);
  tide_device_cache* const device = registry_defaults[index];
  tide__mutex_unlock(&registry_lock);
  return device;
}

// ---------------------------------------------------------------------------------------------------
// Options

static uint64_t fraction_limit(const tide_device_cache* device, double fraction) {
  return fraction < 1.0 ? (uint64_t)(fraction * (double)device->total_bytes) : TIDE_NO_LIMIT;
}

// Asks the probe if the options need virtual memory. Where it does not work, they fall back, with a reason.
static tide_status options_settle(tide_device_cache* device, const char* call, tide_device_options* options,
                                  char reason[TIDE__REASON_TEXT]) {
  tide_probe probe = TIDE_PROBE_INIT;
  reason[0] = '\0';
  if (options->policy != TIDE_POLICY_TIDE && !options->expandable_segments) return TIDE_OK;
  TIDE_TRY(tide_machine_probe(device->machine, device->index, TIDE_FEATURE_VIRTUAL_MEMORY, &probe));
  if (probe.works) return tide__physical_learn(device);
  TIDE_REQUIRE(options->virtual_fallback, TIDE_ERR_UNSUPPORTED,
               "%s: virtual memory does not work on device %d: %s", call, device->index, probe.reason);
  tide__options_fall_back(options, device->index, probe.reason, reason);
  return TIDE_OK;
}

tide_status tide_device_configure(tide_device_cache* device, const tide_device_options* options) {
  TIDE_REQUIRE(device != NULL && options != NULL, TIDE_ERR_ARGUMENT,
               "device_configure: no device or options");
  tide_device_options wanted;
  char reason[TIDE__REASON_TEXT];
  TIDE_TRY(tide__device_options_take(options, "device_configure", &wanted));
  TIDE__REQUIRE_OWN(device, "device_configure");
  const tide__settings* const now =
      tide__load_acquire(&device->settings);  // pairs with tide__settings_publish
  wanted.heap = now->options.heap;
  wanted.policy = now->options.policy;
  wanted.ties_by_age = now->options.ties_by_age;
  wanted.memory_fraction = now->options.memory_fraction;
  if (now->is_fallen) wanted.fixes = true;
  TIDE_TRY(options_settle(device, "device_configure", &wanted, reason));
  return tide__settings_publish(device, &wanted, now->is_fallen, now->is_fallen ? now->reason : reason);
}

const char* tide_device_fallback_reason(const tide_device_cache* device) {
  return device != NULL ? tide__load_acquire(&device->settings)->reason : "";  // pairs with settings.c
}

uint32_t tide_device_physical_flags(tide_device_cache* device) {
  if (device == NULL) return 0;
  const tide_device_options* const options = tide__device_options(device);
  const bool is_virtual = options->policy == TIDE_POLICY_TIDE || options->expandable_segments;
  return is_virtual ? tide__physical_flags(device) : 0;
}

void tide_device_get_options(tide_device_cache* device, tide_device_options* out) {
  if (device == NULL || out == NULL) return;
  tide__ignore(tide__sized_write("device_get_options", tide__device_options(device), out, sizeof *out));
}

tide_status tide_device_set_fraction(tide_device_cache* device, double fraction) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_set_fraction: no device");
  TIDE_REQUIRE(fraction >= 0.0 && fraction <= 1.0, TIDE_ERR_ARGUMENT,
               "device_set_fraction: %g is not between 0 and 1", fraction);
  tide__store_relaxed(&device->limit, fraction_limit(device, fraction));
  return TIDE_OK;
}

double tide_device_fraction(tide_device_cache* device) {
  const uint64_t limit = device != NULL ? tide__load_relaxed(&device->limit) : TIDE_NO_LIMIT;
  return limit == TIDE_NO_LIMIT ? 1.0 : (double)limit / (double)device->total_bytes;
}

tide_status tide_device_set_limit(tide_device_cache* device, uint64_t bytes) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_set_limit: no device");
  tide__store_relaxed(&device->limit, bytes);
  return TIDE_OK;
}

uint64_t tide_device_limit(tide_device_cache* device) {
  return device != NULL ? tide__load_relaxed(&device->limit) : TIDE_NO_LIMIT;
}

void tide_device_set_caching(tide_device_cache* device, bool is_on) {
  if (device != NULL) tide__detour(device, TIDE__IS_UNCACHED, !is_on);
}

bool tide_device_is_caching(const tide_device_cache* device) {
  return device != NULL && (tide__load_relaxed(&device->detours) & TIDE__IS_UNCACHED) == 0;
}

tide_machine* tide_device_machine(const tide_device_cache* device) {
  return device != NULL ? device->machine : NULL;
}
int tide_device_index(const tide_device_cache* device) { return device != NULL ? device->index : -1; }

const char* tide_device_name(const tide_device_cache* device) {
  if (device == NULL) return "";
  return tide__load_relaxed(&device->policy_now)->name;
}

tide_status tide_device_close_stream(tide_device_cache* device, tide_stream stream) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_close_stream: no device");
  const bool is_default = stream == NULL || stream == TIDE_STREAM_LEGACY || stream == TIDE_STREAM_PER_THREAD;
  TIDE_REQUIRE(!is_default, TIDE_ERR_ARGUMENT, "device_close_stream: the default streams cannot be closed");
  (void)tide__gate_enter(device);
  tide__lanes_close(device, stream);
  tide__marks_drain_closed(device);
  tide__tcache_forget_closed(device);
  tide__gate_leave(device);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The beginning

static tide_status device_learn(tide_device_cache* device) {
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  TIDE_TRY(tide_machine_device_info(device->machine, device->index, &info));
  device->total_bytes = info.total_bytes;
  device->granularity = info.granularity;
  device->waits_on_release = info.waits_on_release;
  return TIDE_OK;
}

// Chooses the policy in force, and what belongs to it.
static tide_status policy_start(tide_device_cache* device, tide_device_options* wanted) {
  char reason[TIDE__REASON_TEXT];
  const uint32_t asked = wanted->policy;
  TIDE_TRY(options_settle(device, "device_new", wanted, reason));
  TIDE_TRY(tide__settings_publish(device, wanted, wanted->policy != asked, reason));
  device->plain_policy = &tide__policy_torch;
  device->policy = wanted->policy == TIDE_POLICY_TIDE ? &tide__policy_tide : &tide__policy_torch;
  tide__store_relaxed(&device->policy_now, device->policy);
  if (wanted->policy != TIDE_POLICY_TIDE) return TIDE_OK;
  return tide__tcache_init(device);
}

static void device_init(tide_device_cache* device) {
  tide__hash_map_init(&device->kept, device->heap);
  tide__slots_init(&device->blocks, device->heap, 9, sizeof(tide__block), NULL, NULL);
  tide__map_init(&device->map, device->heap);
  tide__timeline_init(device);
  tide__mutex_init(&device->gate_lock, TIDE__RANK_GATE);
  tide__signal_init(&device->gate_open);
  tide__mutex_init(&device->pools_lock, TIDE__RANK_POOLS);
  tide__mutex_init(&device->totals_lock, TIDE__RANK_TOTALS);
  tide__pools_start(device);
  tide__list_init(&device->homes);
  tide__list_init(&device->views);
  tide__store_relaxed(&device->detours, TIDE__HAS_NO_TCACHES);
  device->totals.size = sizeof device->totals;
}

// Frees the records of an allocator whose memory is given back.
static void device_fini(tide_device_cache* device) {
  const tide_heap* const heap = device->heap;
  tide__pool_fini(device, &device->default_pool);
  tide__hash_map_fini(&device->externals);
  while (device->idle_lanes != NULL) {
    tide__lane* const lane = device->idle_lanes;
    device->idle_lanes = lane->next_idle;
    tide__lane_fini(device, lane);
  }
  tide__pools_fini(&device->pools);
  tide__hash_map_fini(&device->kept);
  tide__heap_release(heap, device->orphans, device->orphan_capacity, sizeof *device->orphans);
  tide__stock_free(device);
  if (device->has_tcaches) tide__thread_caches_fini(&device->tcaches);
  tide__settings_free(device);
  tide__labels_forget(device);
  tide__uses_free(device);
  tide__tags_free(device);
  tide__history_fini(&device->history);
  tide__map_fini(&device->map);
  tide__slots_fini(&device->blocks);
  tide__signal_fini(&device->gate_open);
  tide__mutex_fini(&device->gate_lock);
  tide__mutex_fini(&device->pools_lock);
  tide__mutex_fini(&device->totals_lock);
  tide__heap_release(heap, device, 1, sizeof *device);
}

tide_status tide_device_new(tide_machine* machine, int index, const tide_device_options* options,
                            tide_device_cache** out) {
  TIDE_REQUIRE(machine != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_new: no machine or out");
  *out = NULL;
  tide_device_options wanted = TIDE_DEVICE_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__device_options_take(options, "device_new", &wanted));
  const tide_heap* const heap = tide__heap_or_system(wanted.heap);
  tide_device_cache* const device = tide__heap_alloc(heap, 1, sizeof *device);
  TIDE_REQUIRE(device != NULL, TIDE_ERR_NO_MEMORY, "device_new: no memory for an allocator");
  device->machine = machine;
  device->index = index;
  device->heap = heap;
  device_init(device);
  tide_status status = tide__history_init(&device->history, machine, heap, &device->detours,
                                          TIDE__RECORDS_HISTORY, TIDE__RECORDS_TRACE);
  device->history.device = (uint8_t)index;
  if (status == TIDE_OK) status = device_learn(device);
  if (status == TIDE_OK) status = policy_start(device, &wanted);
  if (status != TIDE_OK) {
    tide__waits_fini(&device->waits);
    device_fini(device);
    return status;
  }
  device->totals.max_split_bytes = wanted.max_split_bytes;
  tide__store_relaxed(&device->limit, fraction_limit(device, wanted.memory_fraction));
  registry_add(device);
  tide__fork_watch(&device->fork_note, &device->detours, TIDE__IS_INHERITED);
  tide__monitored_add(&device->monitored, device, tide__device_row_fill);
  *out = device;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The end

// Frees the records of uses that blocks still have.
static void segment_free_uses(tide_device_cache* device, const tide__segment* segment) {
  for (tide__block* block = segment->head; block != NULL; block = block->next) {
    tide__markers_free(device, block);
    while (block->uses != NULL) {
      tide__use* const use = block->uses;
      block->uses = use->next;
      tide__heap_release(device->heap, use, 1, sizeof *use);
    }
  }
}

static void segment_destroy(tide_device_cache* device, tide__segment* segment) {
  segment_free_uses(device, segment);
  segment->kind->destroy(device, segment);
  tide__list_unlink(&segment->link);
  tide__segment_free(device, segment);
}

// Views and ranges go before the memory that is mapped in them.
static void pool_destroy_views(tide_device_cache* device, tide__pool* pool) {
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    for (tide__link* link = lane->segments.next; link != &lane->segments;) {
      tide__segment* const segment = TIDE_OWNER(link, tide__segment, link);
      link = link->next;
      if (segment->view == NULL && segment->range == NULL) continue;
      segment_destroy(device, segment);
    }
  }
}

static void pool_destroy(tide_device_cache* device, tide__pool* pool) {
  tide__parked_free(device, pool);
  pool_destroy_views(device, pool);
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    while (!tide__list_is_empty(&lane->segments)) {
      tide__segment* const segment = TIDE_OWNER(lane->segments.next, tide__segment, link);
      segment_destroy(device, segment);
    }
  }
}

// Uncached memory that is still handed out.
static void uncached_destroy(tide_device_cache* device) {
  for (uint32_t i = 0; i < tide__slots_count(&device->blocks); i++) {
    const tide__block* const block = tide__slots_at(&device->blocks, i);
    if (block->state != TIDE__BLOCK_ALLOCATED || block->segment != NULL) continue;
    tide__ignore(tide_machine_raw_release(device->machine, device->index, tide__pointer(block->address)));
  }
}

static void pool_tell_end(tide_device_cache* device, const tide__pool* pool,
                          const tide__call_context* context) {
  for (const tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    TIDE_LIST_EACH(it, &lane->segments) {
      tide__segment_end_tell(device, TIDE_OWNER(it, tide__segment, link), context);
    }
  }
}

// Tells observers of all memory that is about to go; none does if waiting for work failed.
static void memory_tell_end(tide_device_cache* device) {
  if (device->machine == NULL || !tide__history_is_observed(&device->history)) return;
  const tide__call_context context = tide__context_now(device, TIDE_HISTORY_NEVER);
  tide__pool_cursor at = { 0 };
  (void)tide__gate_enter(device);
  for (tide__pool* pool = &device->default_pool; pool != NULL; pool = tide__pool_next(device, &at)) {
    pool_tell_end(device, pool, &context);
  }
  tide__gate_leave(device);
}

// Frees the events of tags.
static void uses_end(tide_device_cache* device) {
  for (tide__tag* tag = tide__tags_first(device); tag != NULL; tag = tag->next) {
    if (tag->done != NULL && device->machine != NULL)
      tide__ignore(tide_machine_event_free(device->machine, tag->done));
    tag->done = NULL;
  }
}

// Gives all memory back that the machine takes; the records of the rest are freed.
static void memory_destroy(tide_device_cache* device) {
  tide__stuck_retry(device);  // first: it may lie in addresses that go below
  uncached_destroy(device);
  tide__kept_close_all(device);
  tide__imports_close(device);
  pool_destroy(device, &device->default_pool);
  for (;;) {
    tide__pool* const pool = tide__pool_of(tide__pools_first_locked(&device->pools));
    if (pool == NULL) break;
    pool_destroy(device, pool);
    tide__pool_fini(device, pool);
    tide__pools_free(&device->pools, &pool->base);
  }
  uses_end(device);
  tide__backups_fini(device);
  tide__cargo_fini(device);
  tide__addresses_fini(device);
  tide__stuck_retry(device);
  while (device->stuck != NULL) {  // the machine will not have them at all
    tide__mapping* const stuck = device->stuck;
    device->stuck = stuck->next;
    tide__mapping_free(device, stuck);
  }
  tide__strays_retry(device);
  while (device->strays != NULL) {
    tide__stray* const stray = device->strays;
    device->strays = stray->next;
    tide__stray_free(device, stray);
  }
  tide__orphans_retry(device);
}

// The devices whose work may use the memory, as bits.
static uint64_t devices_in_use(tide_device_cache* device) {
  uint64_t devices = (uint64_t)1 << device->index | tide__waits_devices(&device->waits);
  for (uint32_t i = 0; i < tide__slots_count(&device->blocks); i++) {
    const tide__block* const block = tide__slots_at(&device->blocks, i);
    if (block->state == TIDE__BLOCK_SPARE) continue;
    for (const tide__use* use = block->uses; use != NULL; use = use->next) {
      devices |= (uint64_t)1 << use->device;
    }
  }
  return devices;
}

// Waits for their work. A machine that has waited may still report work that failed before, once.
static tide_status devices_wait(tide_device_cache* device) {
  const uint64_t devices = devices_in_use(device);
  tide_status status = TIDE_OK;
  for (int i = 0; i < TIDE_DEVICE_MAX && status == TIDE_OK; i++) {
    if ((devices >> i & 1u) == 0) continue;
    status = tide_machine_device_synchronize(device->machine, i);
    if (status != TIDE_OK) status = tide_machine_device_synchronize(device->machine, i);
  }
  return status;
}

// Waits for all work, because nothing is taken away from what may still run, and ends the events. An
// allocator that cannot wait for it leaves the machine, and with that all of its memory: no later call of it
// reaches the machine.
static tide_status device_settle(tide_device_cache* device) {
  const tide_status status = devices_wait(device);
  tide__waits_fini(&device->waits);
  if (status == TIDE_OK) return TIDE_OK;
  const tide_error reason = *tide_last_error();
  device->machine = NULL;
  return TIDE_FAIL(status, "device_free: %llu bytes stay with the machine: %.150s",
                   (unsigned long long)tide__load_relaxed(&device->reserved_bytes), reason.text);
}

void tide_device_free(tide_device_cache* device) {
  if (device == NULL || tide__is_inherited(device)) return;
  tide_error error = *tide_last_error();
  tide__monitored_remove(&device->monitored);
  tide__fork_unwatch(&device->fork_note);
  registry_remove(device);
  tide__offers_close(device);
  (void)tide__gate_enter(device);
  device->is_leaving = true;
  tide__gate_leave(device);
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  if (device_settle(device) != TIDE_OK) error = *tide_last_error();
  memory_tell_end(device);
  memory_destroy(device);
  tide__relax_end(&relaxed);
  tide_device_leave(device);
  device_fini(device);
  tide__error_restore(&error);
}

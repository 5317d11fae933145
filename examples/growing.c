// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A key-value cache that grows. Each sequence has a slot in one range of addresses that is large enough for
// the longest text. Memory comes page by page as tokens arrive, from the same allocator as the activations of
// the model, and returns to it when a sequence ends. No address ever changes, so pointers into the cache stay
// valid.
#include "example.h"

#define SEQUENCES 4u
#define SLOT (64 * MIB)          // addresses of one sequence
#define TOKEN ((size_t)1 << 18)  // bytes of a token
#define TOKENS 100u

typedef struct kv_cache {
  tide_machine* machine;
  tide_device_cache* device;
  tide_range* range;
  size_t tokens[SEQUENCES];
} kv_cache;

static uint8_t* token_address(const kv_cache* kv, size_t sequence, size_t token) {
  return (uint8_t*)tide_range_address(kv->range) + sequence * SLOT + token * TOKEN;
}

// Appends a token. The commit does nothing where a page has memory.
static void kv_append(kv_cache* kv, size_t sequence) {
  const size_t token = kv->tokens[sequence]++;
  must(tide_device_range_commit(kv->device, kv->range, NULL, sequence * SLOT + token * TOKEN, TOKEN));
  must(tide_machine_fill(kv->machine, 0, NULL, token_address(kv, sequence, token),
                         (uint8_t)(sequence * TOKENS + token), TOKEN));
}

static void kv_end(kv_cache* kv, size_t sequence) {
  must(tide_device_range_decommit(kv->device, kv->range, sequence * SLOT, SLOT));
  kv->tokens[sequence] = 0;
}

static void kv_check(const kv_cache* kv, size_t sequence) {
  must(tide_machine_stream_synchronize(kv->machine, 0, NULL));
  for (size_t i = 0; i < kv->tokens[sequence]; i++) {
    const uint8_t* const token = token_address(kv, sequence, i);
    if (token[0] == (uint8_t)(sequence * TOKENS + i) && token[TOKEN - 1] == token[0]) continue;
    (void)fprintf(stderr, "growing: token %zu of sequence %zu is wrong\n", i, sequence);
    exit(1);
  }
}

static void show(const kv_cache* kv, const char* when) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  must(tide_device_get_stats(kv->device, &stats));
  (void)printf("%-28s cache %3llu MiB, reserved %3lld MiB\n", when,
               (unsigned long long)(tide_range_committed(kv->range) / MIB),
               (long long)stats.reserved_bytes[TIDE_STAT_ALL].current / (long long)MIB);
}

int main(void) {
  kv_cache kv = { .machine = NULL };
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  tide_block activations;
  host.capacity = 512 * MIB;
  options.policy = TIDE_POLICY_TIDE;
  must(tide_machine_new_host(&host, &kv.machine));
  must(tide_device_new(kv.machine, 0, &options, &kv.device));
  must(tide_device_set_limit(kv.device, 128 * MIB));
  must(tide_device_range_new(kv.device, SEQUENCES * SLOT, &kv.range));
  show(&kv, "addresses for 256 MiB");

  for (size_t token = 0; token < TOKENS; token++) {
    for (size_t s = 0; s < SEQUENCES; s++) kv_append(&kv, s);
  }
  for (size_t s = 0; s < SEQUENCES; s++) kv_check(&kv, s);
  show(&kv, "4 sequences of 100 tokens");

  kv_end(&kv, 1);
  kv_end(&kv, 2);
  show(&kv, "two of them have ended");
  must(tide_device_alloc(kv.device, NULL, 48 * MIB, &activations));
  show(&kv, "activations take their memory");
  must(tide_device_release(kv.device, activations));
  for (size_t token = 0; token < TOKENS; token++) kv_append(&kv, 1);
  for (size_t s = 0; s < SEQUENCES; s++) kv_check(&kv, s);
  show(&kv, "and give it to a sequence");

  tide_device_free(kv.device);
  tide_machine_free(kv.machine);
  return 0;
}

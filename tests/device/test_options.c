// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Options as text: which texts are accepted and what they mean, which are refused and what the error names.
// Reading what was printed gives the same options.
#include <locale.h>

#include "device/options.h"
#include "t.h"

#define MIB ((uint64_t)1 << 20)
#define LARGEST_MIB (UINT64_MAX / MIB * MIB)
#define TEXT_BYTES 1024

static const tide_device_options defaults = TIDE_DEVICE_OPTIONS_INIT;

// No padding, so equal options are equal bytes; a new field must come with a look at this.
_Static_assert(sizeof(tide_device_options) == 6 * 8 + 4 * TIDE_ROUNDUP_SLOTS + 4 * 8 + 3 * 8 + 11 * 8,
               "tide_device_options has padding");

static bool has_same_bytes(const void* a, const void* b, size_t bytes) { return memcmp(a, b, bytes) == 0; }

static bool options_are_equal(const tide_device_options* a, const tide_device_options* b) {
  return has_same_bytes(a, b, sizeof *a);
}

static tide_device_options parsed(const char* text) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  const tide_status status = tide_device_options_parse(text, &options);
  if (status != TIDE_OK) T_FAIL("\"%s\" is refused: %s", text, tide_last_error()->text);
  return options;
}

static const char* printed(const tide_device_options* options, char text[TEXT_BYTES]) {
  T_LT(tide_device_options_print(options, text, TEXT_BYTES), TEXT_BYTES);
  return text;
}

// ---------------------------------------------------------------------------------------------------
// What is accepted

static tide_device_options taken;  // what tide__device_options_take() makes of options

T_TEST(test_options__defaults_are_valid_and_print_nothing) {
  char text[TEXT_BYTES];
  T_OK(tide__device_options_take(&defaults, "test", &taken));
  T_STR_EQ(printed(&defaults, text), "");
  T_EQ(defaults.size, sizeof(tide_device_options));
  T_EQ(defaults.large_segment_bytes, 20 * MIB);
  T_CHECK(defaults.memory_fraction == 1.0);
  T_EQ(defaults.pinned_register_threads, 1);
  T_PTR_EQ(defaults.heap, NULL);
}

T_TEST(test_options__each_key_sets_its_field) {
  T_EQ(parsed("max_split_size_mb:64").max_split_bytes, 64 * MIB);
  T_EQ(parsed("large_segment_size_mb:40").large_segment_bytes, 40 * MIB);
  T_EQ(parsed("max_non_split_rounding_mb:48").non_split_excess_bytes, 48 * MIB);
  T_CHECK(parsed("garbage_collection_threshold:0.7").collect_threshold == 0.7);
  T_CHECK(parsed("per_process_memory_fraction:0.25").memory_fraction == 0.25);
  T_EQ(parsed("roundup_power2_divisions:8").roundup_divisions[7], 8);
  T_CHECK(parsed("expandable_segments:True").expandable_segments);
  T_CHECK(parsed("graph_capture_record_stream_reuse:True").is_capture_reuse);
  T_CHECK(parsed("release_lock_on_cudamalloc:True").releases_lock);
  T_CHECK(parsed("release_lock_on_hipmalloc:True").releases_lock);
  T_CHECK(parsed("fixes:True").fixes);
  T_CHECK(parsed("audits:True").has_audits);
  T_CHECK(parsed("pinned_use_cuda_host_register:True").pinned_uses_register);
  T_CHECK(parsed("pinned_use_hip_host_register:True").pinned_uses_register);
  T_CHECK(parsed("pinned_use_background_threads:True").pinned_uses_threads);
  T_EQ(parsed("pinned_num_register_threads:8").pinned_register_threads, 8);
  T_EQ(parsed("pinned_reserve_segment_size_mb:64").pinned_reserve_bytes, 64 * MIB);
  T_EQ(parsed("pinned_max_round_threshold_mb:64").pinned_round_bytes, 64 * MIB);
  T_EQ(parsed("pinned_max_cached_size_mb:0").pinned_block_bytes, 0);
  T_CHECK(parsed("throw_on_cudamalloc_oom:True").rejects_early);
  T_CHECK(parsed("ties_by_age:on").ties_by_age);
  T_CHECK(!parsed("virtual_fallback:False").virtual_fallback);
  T_CHECK(parsed("plain_pools:True").plain_pools);
  T_CHECK(!parsed("rdma_handles:off").rdma_handles);
  T_CHECK(!parsed("fabric_handles:off").fabric_handles);
  T_CHECK(!parsed("pinned_pages:off").pinned_pages);
  T_CHECK(parsed("captures_by_stream:on").captures_by_stream);
  T_EQ(parsed("policy:torch").policy, TIDE_POLICY_TORCH);
  T_EQ(parsed("policy:tide").policy, TIDE_POLICY_TIDE);
}

// The keys in the libraries of PyTorch 2.15, each with a value that it takes.
T_TEST(test_options__all_keys_of_torch_are_known) {
  static const char* const texts[] = {
    "backend:native",
    "expandable_segments:True",
    "expandable_segments_reserve:0.5",
    "expandable_segments_reserve_by_class:[decode:0.25,prefill:24G,]",
    "garbage_collection_threshold:0.5",
    "graph_capture_record_stream_reuse:True",
    "large_segment_size_mb:32",
    "max_non_split_rounding_mb:32",
    "max_split_size_mb:32",
    "per_process_memory_fraction:0.5",
    "pinned_free_catch_all:True",
    "pinned_max_cached_size_mb:32",
    "pinned_max_round_threshold_mb:32",
    "pinned_num_register_threads:2",
    "pinned_reserve_segment_size_mb:32",
    "pinned_use_background_threads:True",
    "pinned_use_cuda_host_register:True",
    "pinned_use_hip_host_register:True",
    "release_lock_on_cudamalloc:True",
    "release_lock_on_hipmalloc:True",
    "roundup_power2_divisions:[256:1,>:4]",
    "throw_on_cudamalloc_oom:True",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    char more[TEXT_BYTES];
    (void)snprintf(more, sizeof more, "%s,fixes:on", texts[i]);
    T_CHECK(parsed(more).fixes);
  }
}

T_TEST(test_options__a_reserve_is_a_share_or_a_number_of_bytes) {
  T_CHECK(parsed("expandable_segments_reserve:0.5").address_reserve.fraction == 0.5);
  T_EQ(parsed("expandable_segments_reserve:0.5").address_reserve.bytes, 0);
  T_CHECK(parsed("expandable_segments_reserve:24G").address_reserve.fraction == 0);
  T_EQ(parsed("expandable_segments_reserve:24G").address_reserve.bytes, (uint64_t)24 << 30);
}

// Texts that are accepted, and the canonical text of what they make of the defaults.
static const struct {
  const char* text;
  const char* canonical;
} accepted[] = {
  { "", "" },
  { " \t\r\n\v\f ", "" },
  { "backend:native", "" },
  { "policy:torch", "" },
  { "policy:tide", "policy:tide" },
  { "expandable_segments:False", "" },
  { "large_segment_size_mb:20", "" },
  { "per_process_memory_fraction:1", "" },
  { "pinned_num_register_threads:1", "" },
  // Separators and blanks.
  { "max_split_size_mb:64", "max_split_size_mb:64" },
  { "max_split_size_mb=64", "max_split_size_mb:64" },
  { "max_split_size_mb:64,", "max_split_size_mb:64" },
  { " max_split_size_mb\t: 6 4\n", "max_split_size_mb:64" },
  { "max _split_ size_mb = 64 , ", "max_split_size_mb:64" },
  { "max_split_size_mb=64,expandable_segments:True", "max_split_size_mb:64,expandable_segments:True" },
  { "max_split_size_mb:64,max_split_size_mb:128", "max_split_size_mb:128" },
  { "fixes:on,fixes:off", "" },
  // Whole MiB.
  { "max_split_size_mb:20", "max_split_size_mb:20" },
  { "max_split_size_mb:0064", "max_split_size_mb:64" },
  { "max_split_size_mb:17592186044414", "max_split_size_mb:17592186044414" },
  { "max_split_size_mb:17592186044415", "max_split_size_mb:17592186044415" },
  { "max_split_size_mb:17592186044416", "max_split_size_mb:17592186044415" },
  { "max_split_size_mb:99999999999999999", "max_split_size_mb:17592186044415" },
  { "max_split_size_mb:18446744073709551615", "max_split_size_mb:17592186044415" },
  { "max_split_size_mb:18446744073709551616", "max_split_size_mb:17592186044415" },
  { "max_split_size_mb:184467440737095516160", "max_split_size_mb:17592186044415" },
  { "max_split_size_mb:99999999999999999999999999", "max_split_size_mb:17592186044415" },
  { "max_non_split_rounding_mb:20", "max_non_split_rounding_mb:20" },
  { "max_non_split_rounding_mb:99999999999999999", "max_non_split_rounding_mb:17592186044415" },
  { "pinned_reserve_segment_size_mb:1", "pinned_reserve_segment_size_mb:1" },
  { "pinned_max_round_threshold_mb:0", "pinned_max_round_threshold_mb:0" },
  { "pinned_max_cached_size_mb:99999999999999999", "pinned_max_cached_size_mb:17592186044415" },
  // Keys without effect.
  { "pinned_free_catch_all:True", "" },
  { "expandable_segments_reserve_by_class:[],fixes:on", "fixes:True" },
  { "expandable_segments_reserve_by_class=[ a:x ],fixes:on", "fixes:True" },
  // The size of large segments counts wherever it stands.
  { "large_segment_size_mb:11", "large_segment_size_mb:11" },
  { "large_segment_size_mb:65536", "large_segment_size_mb:65536" },
  { "large_segment_size_mb:40,max_split_size_mb:40", "large_segment_size_mb:40,max_split_size_mb:40" },
  { "max_split_size_mb:12,large_segment_size_mb:11", "large_segment_size_mb:11,max_split_size_mb:12" },
  { "max_non_split_rounding_mb:15,large_segment_size_mb:15",
    "large_segment_size_mb:15,max_non_split_rounding_mb:15" },
  { "large_segment_size_mb:40,max_split_size_mb:30,large_segment_size_mb:30",
    "large_segment_size_mb:30,max_split_size_mb:30" },
  // Reals.
  { "garbage_collection_threshold:0.8", "garbage_collection_threshold:0.8" },
  { "garbage_collection_threshold:.5", "garbage_collection_threshold:0.5" },
  { "garbage_collection_threshold:5e-1", "garbage_collection_threshold:0.5" },
  { "garbage_collection_threshold:0.05E+1", "garbage_collection_threshold:0.5" },
  { "garbage_collection_threshold:0.99999999999999989", "garbage_collection_threshold:0.9999999999999999" },
  { "garbage_collection_threshold:1e-300", "garbage_collection_threshold:1e-300" },
  { "per_process_memory_fraction:0", "per_process_memory_fraction:0" },
  { "per_process_memory_fraction:0.0", "per_process_memory_fraction:0" },
  { "per_process_memory_fraction:1.", "" },
  // True, False and our own words for it.
  { "fixes:on", "fixes:True" },
  { "fixes:True,audits:on", "fixes:True,audits:True" },
  { "audits:False,fixes:off", "" },
  { "release_lock_on_hipmalloc:True", "release_lock_on_cudamalloc:True" },
  { "pinned_num_register_threads:128", "pinned_num_register_threads:128" },
  // What PyTorch has since 2.11. Of a share and a number of bytes the later counts.
  { "expandable_segments_reserve:0.5", "expandable_segments_reserve:0.5" },
  { "expandable_segments_reserve:1.125", "expandable_segments_reserve:1.125" },
  { "expandable_segments_reserve:24", "expandable_segments_reserve:24" },
  { "expandable_segments_reserve:24G", "expandable_segments_reserve:24G" },
  { "expandable_segments_reserve:024 G", "expandable_segments_reserve:24G" },
  { "expandable_segments_reserve:999999G", "expandable_segments_reserve:999999G" },
  { "expandable_segments_reserve:24G,expandable_segments_reserve:0.5", "expandable_segments_reserve:0.5" },
  { "expandable_segments_reserve:0.5,expandable_segments_reserve:24G", "expandable_segments_reserve:24G" },
  { "throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom:True" },
  { "throw_on_cudamalloc_oom:False", "" },
  { "ties_by_age:on", "ties_by_age:True" },
  { "ties_by_age:True,captures_by_stream:on", "ties_by_age:True,captures_by_stream:True" },
  { "ties_by_age:off,captures_by_stream:False", "" },
  { "virtual_fallback:on,plain_pools:off,rdma_handles:True,fabric_handles:on", "" },
  { "fabric_handles:off,rdma_handles:off,plain_pools:on,virtual_fallback:off",
    "virtual_fallback:False,plain_pools:True,rdma_handles:False,fabric_handles:False" },
  { "pinned_pages:on", "" },
  { "pinned_pages:off", "pinned_pages:False" },
  { "tide_slack:0.005,tide_stitch_share:0.05,tide_least_handle_mb:2,tide_most_handle_mb:128", "" },
  { "policy:tide,tide_slack:0", "policy:tide,tide_slack:0" },
  { "tide_most_handle_mb:512,tide_least_handle_mb:256", "tide_most_handle_mb:512,tide_least_handle_mb:256" },
  { "tide_wait_slack:0.005", "" },
  { "tide_wait_slack:0,tide_slack:0.01", "tide_slack:0.01,tide_wait_slack:0" },
  { "tide_most_slack:0.15", "" },
  { "tide_most_slack:0,tide_stitch_share:0.1", "tide_stitch_share:0.1,tide_most_slack:0" },
  { "tide_idle_handles:4", "" },
  { "tide_idle_handles:0", "tide_idle_handles:0" },
  { "tide_floor_mb:1024,tide_stitch_share:0.01", "tide_stitch_share:0.01,tide_floor_mb:1024" },
  // Divisions.
  { "roundup_power2_divisions:1", "roundup_power2_divisions:1" },
  { "roundup_power2_divisions:8", "roundup_power2_divisions:8" },
  { "roundup_power2_divisions:2147483648", "roundup_power2_divisions:2147483648" },
  { "roundup_power2_divisions:[]", "" },
  { "roundup_power2_divisions=[ 256 : 1 , ]", "roundup_power2_divisions:[256:1]" },
  { "roundup_power2_divisions:[1:4,2:2,>:8],expandable_segments:True",
    "roundup_power2_divisions:[1:4,2:2,>:8],expandable_segments:True" },
};

T_TEST(test_options__accepted_texts_mean_what_they_say) {
  for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
    char text[TEXT_BYTES];
    const tide_device_options options = parsed(accepted[i].text);

    if (strcmp(printed(&options, text), accepted[i].canonical) != 0) {
      T_FAIL("\"%s\" prints as \"%s\", not \"%s\"", accepted[i].text, text, accepted[i].canonical);
    }
    T_OK(tide__device_options_take(&options, "test", &taken));
  }
}

T_TEST(test_options__too_many_mib_are_the_largest_multiple) {
  T_EQ(parsed("max_split_size_mb:99999999999999999").max_split_bytes, LARGEST_MIB);
  T_EQ(parsed("pinned_reserve_segment_size_mb:99999999999999999").pinned_reserve_bytes, LARGEST_MIB);
}

T_TEST(test_options__reals_are_those_of_the_c_library) {
  for (int i = 1; i < 1000; i++) {
    char text[64];
    char number[16];
    (void)snprintf(number, sizeof number, "0.%03d", i);
    (void)snprintf(text, sizeof text, "garbage_collection_threshold:%s", number);

    T_CHECK(parsed(text).collect_threshold == strtod(number, NULL));
  }
}

T_TEST(test_options__do_not_depend_on_the_locale) {
  static const char* const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "fr_FR" };
  size_t i = 0;
  while (i < sizeof names / sizeof names[0] && setlocale(LC_ALL, names[i]) == NULL) i++;
  if (i == sizeof names / sizeof names[0]) t_skip("no locale with a decimal comma is installed");
  T_STR_EQ(localeconv()->decimal_point, ",");

  char text[TEXT_BYTES];
  const tide_device_options options = parsed("garbage_collection_threshold:0.7");

  T_CHECK(options.collect_threshold == 7.0 / 10);
  T_STR_EQ(printed(&options, text), "garbage_collection_threshold:0.7");
  T_STR_EQ(localeconv()->decimal_point, ",");
}

// ---------------------------------------------------------------------------------------------------
// Divisions by size

static const struct {
  const char* value;
  uint32_t slots[TIDE_ROUNDUP_SLOTS];
  const char* canonical;
} roundups[] = {
  { "8", { 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8 }, "8" },
  { "[1:4,2:2,>:8]", { 4, 2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8 }, "[1:4,2:2,>:8]" },
  { "[1:4,2:2,4:8,16:1,64:4,>:2]",
    { 4, 2, 8, 0, 1, 0, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
    "[1:4,2:2,4:8,16:1,64:4,>:2]" },
  // The first fills what is below it; what is between stays.
  { "[256:1,512:2,1024:4,>:8]",
    { 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8 },
    "[256:1,512:2,1024:4,>:8]" },
  { "[256:1,512:2,1024:4]", { 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4 }, "[256:1,512:2,1024:4]" },
  { "[4:4,64:2]", { 4, 4, 4, 0, 0, 0, 2 }, "[4:4,64:2]" },
  { "[256:4,64:2]", { 4, 4, 4, 4, 4, 4, 2, 4, 4 }, "[32:4,64:2,128:4,256:4]" },
  { "[4:0,8:2]", { 0, 0, 0, 2 }, "[4:0,8:2]" },
  { "[1:0,8:2,>:1]", { 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, "[4:0,8:2,>:1]" },
  { "[4:2,>:0]", { 2, 2, 2 }, "[4:2]" },
  { "[4:2,8:0,>:4]", { 2, 2, 2, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, "[4:2,8:0,>:4]" },
  // ">" is above the last one named, and above the first slot when none is.
  { "[>:4]", { 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, "[1:0,>:4]" },
  { "[>:4,4:2]", { 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, "[4:2,>:4]" },
  { "[4:2,>:4,16:8,>:1]", { 2, 2, 2, 4, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, "[4:2,8:4,16:8,>:1]" },
  // The last slot.
  { "[32768:4]", { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, "4" },
  { "[131072:4]", { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, "4" },
  { "[9223372036854775808:4]", { 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4 }, "4" },
  { "[1:0,32768:2]", { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2 }, "[16384:0,>:2]" },
  { "[1:0,32768:2,>:8]", { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2 }, "[16384:0,>:2]" },
  { "[1:2,1:4]", { 4 }, "[1:4]" },
  // A later list lies over an earlier one.
  { "8,roundup_power2_divisions:[2:1]", { 1, 1, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8 }, "[2:1,>:8]" },
  { "8,roundup_power2_divisions:[]", { 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8 }, "8" },
  { "[2:1],roundup_power2_divisions:8", { 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8 }, "8" },
};

T_TEST(test_options__lists_of_divisions_fill_the_slots) {
  for (size_t i = 0; i < sizeof roundups / sizeof roundups[0]; i++) {
    char text[TEXT_BYTES];
    (void)snprintf(text, sizeof text, "roundup_power2_divisions:%s", roundups[i].value);

    const tide_device_options options = parsed(text);

    for (size_t k = 0; k < TIDE_ROUNDUP_SLOTS; k++) {
      if (options.roundup_divisions[k] == roundups[i].slots[k]) continue;
      T_FAIL("%s: slot %zu is %" PRIu32, text, k, options.roundup_divisions[k]);
    }
    T_STR_EQ(printed(&options, text) + strlen("roundup_power2_divisions:"), roundups[i].canonical);
  }
}

// ---------------------------------------------------------------------------------------------------
// What is refused

// Texts that are refused, and two parts of the error: the key, and what was found or is wanted.
static const struct {
  const char* text;
  const char* key;
  const char* part;
} refused[] = {
  // Separators.
  { ",", "\",\"", "no option" },
  { ",max_split_size_mb:64", "\",\"", "no option" },
  { ":", "\":\"", "no option" },
  { "=", "\"=\"", "no option" },
  { "]", "\"]\"", "no option" },
  { "max_split_size_mb:64,,garbage_collection_threshold:0.5", "\",\"", "no option" },
  { "max_split_size_mb:64,,", "\",\"", "no option" },
  { "max_split_size_mb,64", "max_split_size_mb", "found \",\", expected \":\"" },
  { "max_split_size_mb[64", "max_split_size_mb", "found \"[\", expected \":\"" },
  { "max_split_size_mb", "max_split_size_mb", "found \"\", expected \":\"" },
  { "max_split_size_mb:", "max_split_size_mb", "found \"\", expected whole MiB" },
  { "max_split_size_mb=", "max_split_size_mb", "found \"\", expected whole MiB" },
  { "max_split_size_mb:,", "max_split_size_mb", "found \",\", expected whole MiB" },
  { "max_split_size_mb::64", "max_split_size_mb", "found \":\", expected whole MiB" },
  { "max_split_size_mb==64", "max_split_size_mb", "found \"=64\", expected whole MiB" },
  { "max_split_size_mb:=64", "max_split_size_mb", "found \"=64\", expected whole MiB" },
  { "max_split_size_mb:64:garbage_collection_threshold:0.5", "max_split_size_mb",
    "found \":\", expected \",\"" },
  { "max_split_size_mb:64]", "max_split_size_mb", "found \"]\", expected \",\"" },
  { "max_split_size_mb:64 garbage_collection_threshold:0.5", "max_split_size_mb",
    "\"64garbage_collection_threshold\"" },
  { "max_split_size_mb:[64]", "max_split_size_mb", "found \"[\"" },
  // Keys.
  { "unknown:1", "\"unknown\"", "no option" },
  { "max_split_size_mb:64,unknown:1", "\"unknown\"", "no option" },
  { "MAX_SPLIT_SIZE_MB:64", "\"MAX_SPLIT_SIZE_MB\"", "no option" },
  { "max_split_size_m:64", "\"max_split_size_m\"", "no option" },
  { "tide_slack:1.5", "tide_slack", "from 0 to 1" },
  { "tide_wait_slack:1.5", "tide_wait_slack", "from 0 to 1" },
  { "tide_stitch_share:-1", "tide_stitch_share", "from 0 to 1" },
  { "tide_most_slack:1.5", "tide_most_slack", "from 0 to 1" },
  { "tide_least_handle_mb:3", "tide_least_handle_mb", "even" },
  { "tide_least_handle_mb:130", "tide_least_handle_mb", "tide_most_handle_mb" },
  { "tide_most_handle_mb:2097152", "tide_most_handle_mb", "1048576" },
  { "tide_floor_mb:0", "tide_floor_mb", "at least 1" },
  { "tide_idle_handles:65537", "tide_idle_handles", "65536" },
  { "expandable_segments_reserve:0", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:0G", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:1.5G", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:-1", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:G", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:24g", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:24GG", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:24M", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:1000000G", "expandable_segments_reserve", "share" },
  { "expandable_segments_reserve:[24G]", "expandable_segments_reserve", "share" },
  { "throw_on_cudamalloc_oom:on", "throw_on_cudamalloc_oom", "True" },
  { "ties_by_age:yes", "ties_by_age", "True" },
  { "plain_pools:1", "plain_pools", "True" },
  { "pinned_pages:no", "pinned_pages", "True" },
  { "tide_ahead:False", "tide_ahead", "was removed; see tide_device_reserve()" },
  { "virtual_fallback:", "virtual_fallback", "True" },
  { "captures_by_stream:1", "captures_by_stream", "True" },
  { "f\x01\xc3\xa4:1", "\"f\?\?\?\"", "no option" },
  // Whole MiB.
  { "max_split_size_mb:2", "max_split_size_mb",
    "found \"2\", expected whole MiB, at least large_segment_size_mb" },
  { "max_split_size_mb:19", "max_split_size_mb", "\"19\"" },
  { "max_split_size_mb:0", "max_split_size_mb", "\"0\"" },
  { "max_split_size_mb:20x", "max_split_size_mb", "\"20x\"" },
  { "max_split_size_mb:64.7", "max_split_size_mb", "\"64.7\"" },
  { "max_split_size_mb:64e1", "max_split_size_mb", "\"64e1\"" },
  { "max_split_size_mb:0x40", "max_split_size_mb", "\"0x40\"" },
  { "max_split_size_mb:-1", "max_split_size_mb", "\"-1\"" },
  { "max_split_size_mb:+64", "max_split_size_mb", "\"+64\"" },
  { "max_split_size_mb:x", "max_split_size_mb", "\"x\"" },
  { "max_split_size_mb:2,max_split_size_mb:64", "max_split_size_mb", "\"2\"" },
  { "large_segment_size_mb:10", "large_segment_size_mb", "above 10" },
  { "large_segment_size_mb:0", "large_segment_size_mb", "above 10" },
  { "large_segment_size_mb:65537", "large_segment_size_mb", "up to 65536" },
  { "large_segment_size_mb:20971520", "large_segment_size_mb", "up to 65536" },
  { "large_segment_size_mb:40,max_split_size_mb:30", "max_split_size_mb", "\"30\"" },
  { "max_split_size_mb:30,large_segment_size_mb:40", "max_split_size_mb", "\"30\"" },
  { "max_non_split_rounding_mb:10", "max_non_split_rounding_mb", "at least large_segment_size_mb" },
  { "max_non_split_rounding_mb:0", "max_non_split_rounding_mb", "\"0\"" },
  { "max_non_split_rounding_mb:30,large_segment_size_mb:40", "max_non_split_rounding_mb", "\"30\"" },
  { "pinned_reserve_segment_size_mb:0", "pinned_reserve_segment_size_mb", "at least 1" },
  { "pinned_max_cached_size_mb:", "pinned_max_cached_size_mb", "whole MiB" },
  { "pinned_max_round_threshold_mb:1x", "pinned_max_round_threshold_mb", "\"1x\"" },
  { "pinned_free_catch_all:yes", "pinned_free_catch_all", "\"yes\"" },
  { "expandable_segments_reserve_by_class:0.5", "expandable_segments_reserve_by_class", "a list" },
  { "expandable_segments_reserve_by_class:[a:0.5", "expandable_segments_reserve_by_class", "a list" },
  { "expandable_segments_reserve_by_class:[a]", "expandable_segments_reserve_by_class", "\"]\"" },
  // Reals.
  { "garbage_collection_threshold:0", "garbage_collection_threshold", "above 0 and below 1" },
  { "garbage_collection_threshold:0.0", "garbage_collection_threshold", "above 0" },
  { "garbage_collection_threshold:1", "garbage_collection_threshold", "below 1" },
  { "garbage_collection_threshold:1.2", "garbage_collection_threshold", "\"1.2\"" },
  { "garbage_collection_threshold:-0.5", "garbage_collection_threshold", "\"-0.5\"" },
  { "garbage_collection_threshold:+0.5", "garbage_collection_threshold", "\"+0.5\"" },
  { "garbage_collection_threshold:x", "garbage_collection_threshold", "\"x\"" },
  { "garbage_collection_threshold:0.5x", "garbage_collection_threshold", "\"0.5x\"" },
  { "garbage_collection_threshold:0.5.5", "garbage_collection_threshold", "\"0.5.5\"" },
  { "garbage_collection_threshold:0.5e", "garbage_collection_threshold", "\"0.5e\"" },
  { "garbage_collection_threshold:.", "garbage_collection_threshold", "\".\"" },
  { "garbage_collection_threshold:e1", "garbage_collection_threshold", "\"e1\"" },
  { "garbage_collection_threshold:nan", "garbage_collection_threshold", "\"nan\"" },
  { "garbage_collection_threshold:0x1p-1", "garbage_collection_threshold", "\"0x1p-1\"" },
  { "garbage_collection_threshold:0,5", "garbage_collection_threshold", "\"0\"" },
  { "per_process_memory_fraction:1.5", "per_process_memory_fraction", "from 0 to 1" },
  { "per_process_memory_fraction:-0.1", "per_process_memory_fraction", "from 0 to 1" },
  { "per_process_memory_fraction:1e999", "per_process_memory_fraction", "from 0 to 1" },
  { "per_process_memory_fraction:inf", "per_process_memory_fraction", "\"inf\"" },
  // True, False and names.
  { "expandable_segments:true", "expandable_segments", "True or False" },
  { "expandable_segments:1", "expandable_segments", "True or False" },
  { "expandable_segments:on", "expandable_segments", "True or False" },
  { "expandable_segments:", "expandable_segments", "True or False" },
  { "release_lock_on_cudamalloc:no", "release_lock_on_cudamalloc", "\"no\"" },
  { "graph_capture_record_stream_reuse:yes", "graph_capture_record_stream_reuse", "\"yes\"" },
  { "pinned_use_cuda_host_register:TRUE", "pinned_use_cuda_host_register", "\"TRUE\"" },
  { "pinned_use_background_threads:0", "pinned_use_background_threads", "\"0\"" },
  { "fixes:yes", "fixes", "on or off" },
  { "audits:On", "audits", "on or off" },
  { "policy:Tide", "policy", "torch or tide" },
  { "policy:", "policy", "torch" },
  { "backend:cudaMallocAsync", "backend", "expected native" },
  { "backend:other", "backend", "expected native" },
  { "backend:", "backend", "expected native" },
  { "pinned_num_register_threads:0", "pinned_num_register_threads", "power of two" },
  { "pinned_num_register_threads:3", "pinned_num_register_threads", "power of two" },
  { "pinned_num_register_threads:256", "pinned_num_register_threads", "up to 128" },
  { "pinned_num_register_threads:4294967304", "pinned_num_register_threads", "up to 128" },
  // Divisions.
  { "roundup_power2_divisions:0", "roundup_power2_divisions", "power of two" },
  { "roundup_power2_divisions:3", "roundup_power2_divisions", "power of two" },
  { "roundup_power2_divisions:-8", "roundup_power2_divisions", "\"-8\"" },
  { "roundup_power2_divisions:4294967296", "roundup_power2_divisions", "\"4294967296\"" },
  { "roundup_power2_divisions:>", "roundup_power2_divisions", "\">\"" },
  { "roundup_power2_divisions:[3:4]", "roundup_power2_divisions", "\"3\"" },
  { "roundup_power2_divisions:[0:4]", "roundup_power2_divisions", "\"0\"" },
  { "roundup_power2_divisions:[256:3]", "roundup_power2_divisions", "\"3\"" },
  { "roundup_power2_divisions:[256:4x]", "roundup_power2_divisions", "\"4x\"" },
  { "roundup_power2_divisions:[256x:4]", "roundup_power2_divisions", "\"256x\"" },
  { "roundup_power2_divisions:[256:1", "roundup_power2_divisions", "found \"\"" },
  { "roundup_power2_divisions:[256:1,", "roundup_power2_divisions", "found \"\"" },
  { "roundup_power2_divisions:[", "roundup_power2_divisions", "found \"\"" },
  { "roundup_power2_divisions:[256", "roundup_power2_divisions", "found \"\"" },
  { "roundup_power2_divisions:[256]", "roundup_power2_divisions", "found \"]\"" },
  { "roundup_power2_divisions:[256:]", "roundup_power2_divisions", "found \"]\"" },
  { "roundup_power2_divisions:[256,4]", "roundup_power2_divisions", "found \",\"" },
  { "roundup_power2_divisions:[256=4]", "roundup_power2_divisions", "\"256=4\"" },
  { "roundup_power2_divisions:[256:4:512:2]", "roundup_power2_divisions", "found \":\"" },
  { "roundup_power2_divisions:[,]", "roundup_power2_divisions", "found \",\"" },
  { "roundup_power2_divisions:[256:4,,512:2]", "roundup_power2_divisions", "found \",\"" },
  { "roundup_power2_divisions:[[256:4]]", "roundup_power2_divisions", "found \"[\"" },
  { "roundup_power2_divisions:[256:4]]", "roundup_power2_divisions", "found \"]\", expected \",\"" },
  { "roundup_power2_divisions:[256:4]8", "roundup_power2_divisions", "found \"8\", expected \",\"" },
  { "roundup_power2_divisions:[>>:4]", "roundup_power2_divisions", "\">>\"" },
};

T_TEST(test_options__refused_texts_name_the_key_and_change_nothing) {
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
    tide_device_options options = parsed("max_split_size_mb:100,expandable_segments:True");
    const tide_device_options before = options;

    if (tide_device_options_parse(refused[i].text, &options) == TIDE_OK) {
      T_FAIL("\"%s\" is accepted", refused[i].text);
    }

    T_EQ(tide_last_error()->status, TIDE_ERR_ARGUMENT);
    T_STR_HAS(tide_last_error()->text, "options_parse: ");
    T_STR_HAS(tide_last_error()->text, refused[i].key);
    T_STR_HAS(tide_last_error()->text, refused[i].part);
    T_CHECK(options_are_equal(&options, &before));
  }
}

T_TEST(test_options__words_beyond_all_sense_are_refused) {
  char text[600] = "max_split_size_mb:";
  const size_t start = strlen(text);
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  memset(text + start, '0', 100);
  text[start + 100] = '\0';
  T_STATUS(tide_device_options_parse(text, &options), TIDE_ERR_ARGUMENT);
  text[start + 99] = '9';
  text[start + 98] = '9';
  T_OK(tide_device_options_parse(text, &options));
  T_EQ(options.max_split_bytes, 99 * MIB);

  memset(text + start, '9', sizeof text - 1 - start);
  T_STATUS(tide_device_options_parse(text, &options), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "max_split_size_mb");
  memset(text, 'k', start);
  T_STATUS(tide_device_options_parse(text, &options), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "there is no option \"kkkk");
}

T_TEST(test_options__null_and_a_wrong_size_are_refused) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  char text[8] = "x";
  T_STATUS(tide_device_options_parse(NULL, &options), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_options_parse("", NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_options_from_env(NULL), TIDE_ERR_ARGUMENT);
  T_EQ(tide_device_options_print(NULL, text, sizeof text), 0);
  T_STR_EQ(text, "");

  options.size = 4;
  options.fixes = true;
  T_STATUS(tide_device_options_parse("", &options), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "the size of the struct is 4");
  T_STATUS(tide_device_options_from_env(&options), TIDE_ERR_ARGUMENT);
  T_EQ(tide_device_options_print(&options, NULL, 0), 0);
  options.size = sizeof options;
  T_EQ(tide_device_options_print(&options, NULL, 64), strlen("fixes:True"));
}

// ---------------------------------------------------------------------------------------------------
// What a text leaves and what it resets; the environment

T_TEST(test_options__a_text_resets_four_and_leaves_the_rest) {
  tide_device_options options =
      parsed("max_split_size_mb:64,max_non_split_rounding_mb:64,garbage_collection_threshold:0.5,"
             "roundup_power2_divisions:4,large_segment_size_mb:40,per_process_memory_fraction:0.5,"
             "expandable_segments:True,pinned_num_register_threads:4,fixes:on");
  const tide_heap heap = { NULL, NULL, NULL };
  options.heap = &heap;

  T_OK(tide_device_options_parse("audits:on", &options));

  char text[TEXT_BYTES];
  T_STR_EQ(printed(&options, text),
           "large_segment_size_mb:40,per_process_memory_fraction:0.5,"
           "expandable_segments:True,pinned_num_register_threads:4,fixes:True,audits:True");
  T_PTR_EQ(options.heap, &heap);
  T_STATUS(tide_device_options_parse("max_split_size_mb:39", &options), TIDE_ERR_ARGUMENT);
  T_OK(tide_device_options_parse("max_split_size_mb:39,large_segment_size_mb:20", &options));
}

T_TEST(test_options__the_first_variable_that_is_set_counts) {
  T_EQ(unsetenv("PYTORCH_CUDA_ALLOC_CONF") | unsetenv("PYTORCH_ALLOC_CONF") | unsetenv("TIDEMARK_CONF"), 0);
  tide_device_options options = parsed("max_split_size_mb:64");

  T_OK(tide_device_options_from_env(&options));
  T_EQ(options.max_split_bytes, 64 * MIB);
  T_EQ(setenv("TIDEMARK_CONF", "max_split_size_mb:65", 1), 0);
  T_OK(tide_device_options_from_env(&options));
  T_EQ(options.max_split_bytes, 65 * MIB);
  T_EQ(setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:66", 1), 0);
  T_OK(tide_device_options_from_env(&options));
  T_EQ(options.max_split_bytes, 66 * MIB);
  T_EQ(setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:1", 1), 0);
  T_STATUS(tide_device_options_from_env(&options), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb");
  T_EQ(options.max_split_bytes, 66 * MIB);
  T_EQ(setenv("PYTORCH_CUDA_ALLOC_CONF", "", 1), 0);
  T_OK(tide_device_options_from_env(&options));
  T_EQ(options.max_split_bytes, TIDE_NO_LIMIT);
}

// ---------------------------------------------------------------------------------------------------
// Structs filled in by hand

#define REFUSES_FIELD(name, ...)                                                            \
  do {                                                                                      \
    tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;                                 \
    options.name = (__VA_ARGS__);                                                           \
    T_STATUS(tide__device_options_take(&options, "device_new", &taken), TIDE_ERR_ARGUMENT); \
    T_STR_HAS(tide_last_error()->text, "device_new: ");                                     \
    char field[64] = #name;                                                                 \
    field[strcspn(field, "[")] = '\0';                                                      \
    T_STR_HAS(tide_last_error()->text, field);                                              \
  } while (0)

T_TEST(test_options__structs_out_of_range_are_refused_by_field) {
  static const tide_heap no_heap = { NULL, NULL, NULL };
  REFUSES_FIELD(size, 0);
  REFUSES_FIELD(size, sizeof(tide_device_options) + 8);
  REFUSES_FIELD(policy, 2);
  REFUSES_FIELD(policy, UINT32_MAX);
  REFUSES_FIELD(large_segment_bytes, 0);
  REFUSES_FIELD(large_segment_bytes, 10 * MIB);
  REFUSES_FIELD(large_segment_bytes, 20 * MIB + 512);
  REFUSES_FIELD(large_segment_bytes, (uint64_t)65537 * MIB);
  REFUSES_FIELD(max_split_bytes, 0);
  REFUSES_FIELD(max_split_bytes, 19 * MIB);
  REFUSES_FIELD(max_split_bytes, 20 * MIB + 1);
  REFUSES_FIELD(max_split_bytes, TIDE_NO_LIMIT - 1);
  REFUSES_FIELD(non_split_excess_bytes, 19 * MIB);
  REFUSES_FIELD(non_split_excess_bytes, TIDE_NO_LIMIT);
  REFUSES_FIELD(collect_threshold, 1.0);
  REFUSES_FIELD(collect_threshold, -0.1);
  REFUSES_FIELD(collect_threshold, strtod("nan", NULL));
  REFUSES_FIELD(memory_fraction, 1.1);
  REFUSES_FIELD(memory_fraction, -0.1);
  REFUSES_FIELD(memory_fraction, strtod("nan", NULL));
  REFUSES_FIELD(roundup_divisions[0], 3);
  REFUSES_FIELD(roundup_divisions[15], UINT32_MAX);
  REFUSES_FIELD(pinned_register_threads, 0);
  REFUSES_FIELD(pinned_register_threads, 3);
  REFUSES_FIELD(pinned_register_threads, 256);
  REFUSES_FIELD(pinned_reserve_bytes, 1);
  REFUSES_FIELD(pinned_round_bytes, 1);
  REFUSES_FIELD(pinned_block_bytes, TIDE_NO_LIMIT - 1);
  REFUSES_FIELD(heap, &no_heap);
  REFUSES_FIELD(tide_slack, -0.1);
  REFUSES_FIELD(tide_slack, strtod("nan", NULL));
  REFUSES_FIELD(tide_stitch_share, 1.1);
  REFUSES_FIELD(tide_most_slack, -0.1);
  REFUSES_FIELD(tide_most_slack, strtod("nan", NULL));
  REFUSES_FIELD(tide_wait_slack, -0.1);
  REFUSES_FIELD(tide_wait_slack, strtod("nan", NULL));
  REFUSES_FIELD(tide_least_handle_bytes, 0);
  REFUSES_FIELD(tide_least_handle_bytes, 3 * MIB);
  REFUSES_FIELD(tide_floor_bytes, 1);
  REFUSES_FIELD(tide_idle_handles, 65537);
  REFUSES_FIELD(address_reserve, (tide_reserve){ -0.1, 0 });
  REFUSES_FIELD(address_reserve, (tide_reserve){ 1.1e6, 0 });
  REFUSES_FIELD(address_reserve, (tide_reserve){ strtod("nan", NULL), 0 });
  REFUSES_FIELD(address_reserve, (tide_reserve){ 0, MIB });
  REFUSES_FIELD(address_reserve, (tide_reserve){ 0, (uint64_t)1000000 << 30 });
  REFUSES_FIELD(address_reserve, (tide_reserve){ 0.5, (uint64_t)1 << 30 });
  T_STATUS(tide__device_options_take(NULL, "device_new", &taken), TIDE_ERR_ARGUMENT);
}

T_TEST(test_options__the_edges_of_the_ranges_are_valid) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.large_segment_bytes = options.max_split_bytes = options.non_split_excess_bytes = 11 * MIB;
  options.collect_threshold = options.memory_fraction = 0;
  options.roundup_divisions[0] = 1;
  options.roundup_divisions[15] = (uint32_t)1 << 31;
  options.pinned_register_threads = 128;
  T_OK(tide__device_options_take(&options, "test", &taken));
  options.large_segment_bytes = (uint64_t)64 << 30;
  options.max_split_bytes = options.non_split_excess_bytes = options.pinned_reserve_bytes = LARGEST_MIB;
  options.pinned_round_bytes = options.pinned_block_bytes = LARGEST_MIB;
  T_OK(tide__device_options_take(&options, "test", &taken));
}

// ---------------------------------------------------------------------------------------------------
// Random options and random texts

static uint64_t random_mib(t_rng* rng, uint64_t least) {
  const uint64_t spread = t_rng_below(rng, 2) == 0 ? 64 : UINT64_MAX / MIB - least / MIB + 1;
  return t_rng_below(rng, 8) == 0 ? LARGEST_MIB : least + t_rng_below(rng, spread) * MIB;
}

// From 0 to below 1, with few digits or with all.
static double random_share(t_rng* rng) {
  if (t_rng_below(rng, 2) == 0) return (double)t_rng_below(rng, 1000) / 1000;
  return (double)(t_rng_next(rng) >> 11) / (double)((uint64_t)1 << 53);
}

static bool random_bool(t_rng* rng) { return t_rng_below(rng, 2) == 0; }

static void random_divisions(t_rng* rng, uint32_t* slots) {
  const uint64_t kinds = 1 + t_rng_below(rng, 5);
  for (size_t i = 0; i < TIDE_ROUNDUP_SLOTS; i++) {
    const uint64_t pick = t_rng_below(rng, 4) == 0 || i == 0 ? t_rng_below(rng, kinds) : UINT64_MAX;
    if (pick == UINT64_MAX) slots[i] = slots[i - 1];
    else slots[i] = pick == 0 ? 0 : (uint32_t)1 << t_rng_below(rng, 32);
  }
}

// None, a share up to 2 or whole GiB.
static tide_reserve random_reserve(t_rng* rng) {
  const uint64_t kind = t_rng_below(rng, 3);
  const double share = kind == 1 ? 2 * random_share(rng) : 0;
  return (tide_reserve){ share, kind == 2 ? (1 + t_rng_below(rng, 999999)) << 30 : 0 };
}

static tide_device_options random_options(t_rng* rng) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  if (random_bool(rng)) options.large_segment_bytes = (11 + t_rng_below(rng, 65526)) * MIB;
  if (random_bool(rng)) options.max_split_bytes = random_mib(rng, options.large_segment_bytes);
  if (random_bool(rng)) options.non_split_excess_bytes = random_mib(rng, options.large_segment_bytes);
  if (random_bool(rng)) options.collect_threshold = random_share(rng);
  if (random_bool(rng)) options.memory_fraction = random_share(rng);
  if (random_bool(rng)) random_divisions(rng, options.roundup_divisions);
  options.expandable_segments = random_bool(rng);
  options.is_capture_reuse = random_bool(rng);
  options.releases_lock = random_bool(rng);
  options.fixes = random_bool(rng);
  options.pinned_uses_register = random_bool(rng);
  options.pinned_uses_threads = random_bool(rng);
  options.has_audits = random_bool(rng);
  if (random_bool(rng)) options.pinned_register_threads = (uint32_t)1 << t_rng_below(rng, 8);
  if (random_bool(rng)) options.pinned_reserve_bytes = random_mib(rng, 0);
  if (random_bool(rng)) options.pinned_round_bytes = random_mib(rng, 0);
  if (random_bool(rng)) options.pinned_block_bytes = random_mib(rng, 0);
  options.ties_by_age = random_bool(rng);
  options.virtual_fallback = random_bool(rng);
  options.plain_pools = random_bool(rng);
  options.rdma_handles = random_bool(rng);
  options.fabric_handles = random_bool(rng);
  options.pinned_pages = random_bool(rng);
  options.rejects_early = random_bool(rng);
  options.captures_by_stream = random_bool(rng);
  options.address_reserve = random_reserve(rng);
  return options;
}

T_TEST(test_options__what_is_printed_reads_back_equal) {
  t_rng rng = t_rng_new(1);
  for (size_t i = 0; i < t_scaled_alone(20000); i++) {
    const tide_device_options options = random_options(&rng);
    T_OK(tide__device_options_take(&options, "test", &taken));
    char text[TEXT_BYTES];

    const tide_device_options again = parsed(printed(&options, text));

    if (!options_are_equal(&options, &again)) T_FAIL("\"%s\" reads back as something else", text);
  }
}

static void check_truncated(const tide_device_options* options, const char* whole) {
  const size_t length = strlen(whole);
  for (size_t capacity = 0; capacity <= length + 2; capacity++) {
    char text[TEXT_BYTES];
    memset(text, '#', sizeof text);
    T_EQ(tide_device_options_print(options, text, capacity), length);
    const size_t kept = capacity == 0 ? 0 : capacity - 1 < length ? capacity - 1 : length;
    T_EQ(memcmp(text, whole, kept), 0);
    if (capacity > 0) T_EQ(text[kept], '\0');
    const size_t touched = capacity == 0 ? 0 : kept + 1;
    T_FILLED(text + touched, '#', sizeof text - touched);
  }
}

T_TEST(test_options__printing_stops_where_the_room_ends) {
  t_rng rng = t_rng_new(2);
  for (size_t i = 0; i < t_scaled(50); i++) {
    const tide_device_options options = random_options(&rng);
    char whole[TEXT_BYTES];
    check_truncated(&options, printed(&options, whole));
  }
  T_EQ(tide_device_options_print(&defaults, NULL, 0), 0);
}

// Pieces of which most texts are nearly right.
// clang-format off
static const char* const pieces[] = {
  ",", ":", ":", "=", "[", "]", ">", " ", "max_split_size_mb", "max_split_size_mb:64,",
  "large_segment_size_mb:30,", "garbage_collection_threshold", "0.5", "1", "64", "-1", "20x",
  "roundup_power2_divisions:[", "256:4,", ">:8]", "True", "False,", "expandable_segments", "fixes:on",
  "backend:native", "99999999999999999999", "pinned_num_register_threads", "expandable_segments_reserve:",
  "24G,", "\xff", "\t", "e", "."
};
// clang-format on

static void random_text(t_rng* rng, char* out, size_t capacity) {
  size_t length = 0;
  out[0] = '\0';
  for (uint64_t i = t_rng_below(rng, 12); i > 0; i--) {
    const char* piece = pieces[t_rng_below(rng, sizeof pieces / sizeof pieces[0])];
    const char byte[2] = { (char)(1 + t_rng_below(rng, 255)), '\0' };
    const int wrote =
        snprintf(out + length, capacity - length, "%s", t_rng_below(rng, 6) == 0 ? byte : piece);
    length += (size_t)wrote;
  }
}

T_TEST(test_options__any_text_is_read_whole_or_not_at_all) {
  t_rng rng = t_rng_new(3);
  size_t accepted_count = 0;
  for (size_t i = 0; i < t_scaled_alone(100000); i++) {
    char text[TEXT_BYTES];
    random_text(&rng, text, sizeof text);
    tide_device_options options = random_options(&rng);
    const tide_device_options before = options;

    const tide_status status = tide_device_options_parse(text, &options);

    if (status == TIDE_OK) {
      accepted_count++;
      T_OK(tide__device_options_take(&options, "test", &taken));
    } else {
      T_EQ(status, TIDE_ERR_ARGUMENT);
      T_CHECK(options_are_equal(&options, &before));
    }
  }
  T_LT(0, accepted_count);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A star first stands for nothing. Where the text then differs, it takes one character more. Only the last
// star has to be tried again, because the ones before it have found the earliest place they can.
//
// Each pattern is compared with each frame once; stacks then ask for their frames.
#include "patterns.h"

#include <stdlib.h>
#include <string.h>

#include "tool.h"

bool tool_pattern_fits(const char* pattern, const char* text) {
  const char* star = NULL;
  const char* taken = NULL;  // the end of what the star stands for
  while (*text != '\0') {
    if (*pattern == '*') {
      star = pattern++;
      taken = text;
    } else if (*pattern == '?' || *pattern == *text) {
      pattern++;
      text++;
    } else if (star != NULL) {
      pattern = star + 1;
      text = ++taken;
    } else {
      return false;
    }
  }
  return pattern[strspn(pattern, "*")] == '\0';
}

bool tool_pattern_fits_site(const char* pattern, const tool_sites* sites, tool_site site) {
  char whole[TOOL_SITE_TEXT];
  char place[TOOL_SITE_TEXT];
  const tool_site without = { .file = site.file, .line = site.line };
  if (!tool_site_is_known(site)) return false;
  (void)tool_site_text(sites, site, whole);
  if (site.file == 0) return tool_pattern_fits(pattern, whole);
  (void)tool_site_text(sites, without, place);
  place[strlen(place) - (place[0] != '\0' && place[strlen(place) - 1] == ' ')] = '\0';
  for (size_t at = 0;;) {
    if (tool_pattern_fits(pattern, whole + at) || tool_pattern_fits(pattern, place + at)) return true;
    const char* const slash = strchr(place + at, '/');
    if (slash == NULL) return false;
    at = (size_t)(slash - place) + 1;
  }
}

static void frames_compare(const char* pattern, const tool_sites* sites, bool* fits) {
  for (uint64_t i = 1; i < sites->frame_count; i++)
    fits[i] = tool_pattern_fits_site(pattern, sites, tool_site_of_frame(sites, i));
}

static bool stack_has(const tool_sites* sites, uint32_t stack, const bool* fits) {
  size_t count = 0;
  const uint64_t* const frames = tide_intern_stack(sites->names, stack, &count);
  for (size_t i = 0; i < count; i++) {
    if (frames[i] < sites->frame_count && fits[frames[i]]) return true;
  }
  return false;
}

uint16_t* tool_patterns_of_stacks(const char* const* patterns, size_t count, const tool_sites* sites) {
  uint16_t* const found = tool_alloc(sites->count, sizeof *found);
  bool* const fits = tool_alloc((size_t)sites->frame_count, sizeof *fits);
  for (size_t i = 0; i < count; i++) {
    frames_compare(patterns[i], sites, fits);
    for (uint32_t stack = 1; stack < sites->count; stack++) {
      if (found[stack] == 0 && stack_has(sites, stack, fits)) found[stack] = (uint16_t)(i + 1);
    }
  }
  free(fits);
  return found;
}

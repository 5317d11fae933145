// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Patterns for the lines of stacks. In a pattern, * stands for any text and ? for any character.
#ifndef TIDEMARK_TOOL_PATTERNS_H
#define TIDEMARK_TOOL_PATTERNS_H

#include "sites.h"

// Does a pattern describe a text as a whole? O(length of the text * length of the pattern).
bool tool_pattern_fits(const char* pattern, const char* text);

// Does a pattern describe a line, "models/resnet.py:154 forward" as reports show it? The name of the function
// may be missing in the pattern, and folders at the beginning.
bool tool_pattern_fits_site(const char* pattern, const tool_sites* sites, tool_site site);

// The number of the first pattern that describes a line of each stack + 1, or 0, by the number of the stack.
// Freed by free(). O(patterns * (frames + stacks)).
uint16_t* tool_patterns_of_stacks(const char* const* patterns, size_t count, const tool_sites* sites);

#endif

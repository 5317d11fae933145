// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A small web server on this computer alone, by libmicrohttpd. It answers requests that know a random token,
// name this computer as their host, and come from its own page or from no page. All others learn nothing.
#ifndef TIDEMARK_TOOL_SERVE_H
#define TIDEMARK_TOOL_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tool_serve tool_serve;
typedef struct tool_serve_request tool_serve_request;

// An argument of a request, as a number of at most `most`. Returns false if it is missing or no such number.
bool tool_serve_number(const tool_serve_request* request, const char* name, uint64_t most, uint64_t* out);

// A question is answered, wrong, or unknown.
typedef enum tool_serve_verdict { TOOL_SERVE_DONE, TOOL_SERVE_WRONG, TOOL_SERVE_UNKNOWN } tool_serve_verdict;

// What is served: a page under the address itself, and answers to questions, which are files beside it.
// Several threads ask at once.
typedef struct tool_serve_site {
  const void* page;  // borrowed
  size_t page_bytes;
  // On TOOL_SERVE_DONE it gives memory that is freed by free().
  tool_serve_verdict (*answer)(const void* user, const char* question, const tool_serve_request* request,
                               unsigned char** out, size_t* out_bytes);
  const void* user;
} tool_serve_site;

// How long a client may take from its connection to the end of its request, unless it is said otherwise.
#define TOOL_SERVE_PATIENCE_S 10

// Takes a port of 127.0.0.1, any free one for 0, without accepting connections yet. On failure it prints why
// and returns TOOL_USAGE.
int tool_serve_open(uint16_t port, double patience_s, tool_serve** out);
// "http://127.0.0.1:PORT/TOKEN/"
const char* tool_serve_address(const tool_serve* serve);
// Accepts connections. They are answered by other threads from here on.
int tool_serve_start(tool_serve* serve, const tool_serve_site* site);
// Waits until SIGINT or SIGTERM, which end no program from tool_serve_start() on, and ends connections of
// clients that take too long.
void tool_serve_wait(tool_serve* serve);
void tool_serve_close(tool_serve* serve);  // NULL is allowed

#endif

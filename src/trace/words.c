// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The words of a thread are its metadata and the stack of its contexts. Each table in which the thread adds
// entries has a note of them. The thread caches that note for a few tables, so that the words are not
// interned for every entry. The only lock is that of the table.
#include "trace/words.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "trace/intern.h"

enum { TEXT_BYTES = 4096, CONTEXT_DEPTH = 64, NOTED_TABLES = 4 };

// The note for a version of the words in a table.
typedef struct noted_words {
  uint64_t uid;  // of the table
  uint64_t version;
  uint32_t note;
} noted_words;

typedef struct thread_words {
  char metadata[TEXT_BYTES];
  char* contexts[CONTEXT_DEPTH];  // owned
  size_t depth;
  uint64_t version;  // rises with every change
  noted_words noted[NOTED_TABLES];
} thread_words;

static pthread_once_t words_once = PTHREAD_ONCE_INIT;
static pthread_key_t words_key;
static _Thread_local thread_words* words;

static void words_free(void* value) {
  thread_words* const w = value;
  while (w->depth > 0) {
    char* const text = w->contexts[--w->depth];
    tide__heap_release(&tide__system_heap, text, 1, strlen(text) + 1);
  }
  tide__heap_release(&tide__system_heap, w, 1, sizeof *w);
  words = NULL;
}

static void words_key_make(void) { (void)pthread_key_create(&words_key, words_free); }

static tide_status words_get(const char* call, const char* text, thread_words** out) {
  TIDE_REQUIRE(text == NULL || strlen(text) < TEXT_BYTES, TIDE_ERR_LIMIT,
               "%s: the text has %zu bytes; 4095 are allowed", call, strlen(text));
  if (words == NULL) {
    (void)pthread_once(&words_once, words_key_make);
    thread_words* const made = tide__heap_alloc(&tide__system_heap, 1, sizeof *made);
    TIDE_REQUIRE(made != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory", call);
    words = made;
    (void)pthread_setspecific(words_key, made);
  }
  *out = words;
  words->version++;
  return TIDE_OK;
}

tide_status tide_thread_set_metadata(const char* text) {
  thread_words* w = NULL;
  if (text == NULL && words == NULL) return TIDE_OK;
  TIDE_TRY(words_get("thread_set_metadata", text, &w));
  w->metadata[0] = '\0';
  if (text != NULL) memcpy(w->metadata, text, strlen(text) + 1);
  return TIDE_OK;
}

const char* tide_thread_metadata(void) { return words != NULL ? words->metadata : ""; }

tide_status tide_thread_push_context(const char* text) {
  thread_words* w = NULL;
  TIDE_REQUIRE(text != NULL, TIDE_ERR_ARGUMENT, "thread_push_context: text is NULL");
  TIDE_TRY(words_get("thread_push_context", text, &w));
  TIDE_REQUIRE(w->depth < CONTEXT_DEPTH, TIDE_ERR_LIMIT, "thread_push_context: %d contexts are open",
               CONTEXT_DEPTH);
  char* const copy = tide__heap_alloc(&tide__system_heap, 1, strlen(text) + 1);
  TIDE_REQUIRE(copy != NULL, TIDE_ERR_NO_MEMORY, "thread_push_context: no memory");
  memcpy(copy, text, strlen(text) + 1);
  w->contexts[w->depth++] = copy;
  return TIDE_OK;
}

tide_status tide_thread_pop_context(void) {
  TIDE_REQUIRE(words != NULL && words->depth > 0, TIDE_ERR_STATE, "thread_pop_context: no context is open");
  char* const text = words->contexts[--words->depth];
  words->version++;
  tide__heap_release(&tide__system_heap, text, 1, strlen(text) + 1);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Notes

// A note with this metadata and the thread's context.
static tide_status words_add_note(tide_intern* names, const char* metadata, uint32_t* out) {
  const bool has_context = words != NULL && words->depth > 0;
  const char* const context = has_context ? words->contexts[words->depth - 1] : "";
  tide_note note = { 0 };
  TIDE_TRY(tide_intern_add_text(names, metadata, strlen(metadata), &note.metadata));
  TIDE_TRY(tide_intern_add_text(names, context, strlen(context), &note.compile_context));
  return tide_intern_add_note(names, note, out);
}

uint32_t tide__words_note(tide_intern* names) {
  thread_words* const w = words;
  if (w == NULL) return 0;
  const uint64_t uid = tide__intern_uid(names);
  noted_words* const noted = &w->noted[uid % NOTED_TABLES];
  if (noted->uid == uid && noted->version == w->version) return noted->note;
  const tide_error before = *tide_last_error();
  uint32_t note = 0;
  if (words_add_note(names, w->metadata, &note) != TIDE_OK) {
    tide__error_restore(&before);
    return 0;
  }
  *noted = (noted_words){ uid, w->version, note };
  return note;
}

tide_status tide__words_remark(tide_intern* names, const char* text, uint32_t* out) {
  return words_add_note(names, text, out);
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs the fuzz targets without a fuzzer: over every file of their corpus as it is, over each of them cut off
// anywhere, and over some thousands with random damage. A target ends the process when something is wrong;
// what it was given is then said, and is the same again with the same seed.
//
// The build defines FUZZ_TARGETS, a list of X(name, starts threads). In each target, LLVMFuzzerTestOneInput
// is called by the name of the target.
#define T_THREADS
#include "t.h"

#define X(name, has_threads) int name(const uint8_t* data, size_t bytes);
FUZZ_TARGETS
#undef X

typedef struct replay_target {
  int (*run)(const uint8_t* data, size_t bytes);
  bool has_threads;
} replay_target;

#define X(name, has_threads) { name, has_threads },
static const replay_target targets[] = { FUZZ_TARGETS };
#undef X
#define X(name, has_threads) #name,
static const char* const target_names[] = { FUZZ_TARGETS NULL };
#undef X

#define REPLAY_FILES 256
#define REPLAY_LARGEST 65536  // bytes of a file with its damage

typedef struct replay_file {
  char name[256];
  uint8_t* data;  // owned
  size_t bytes;
} replay_file;

typedef struct replay_corpus {
  replay_file files[REPLAY_FILES];
  size_t count;
} replay_corpus;

// ---------------------------------------------------------------------------------------------------
// What is being run, for the message when it fails

static const replay_target* replay_of;
static const char* replay_name;
static char replay_text[512];
static size_t replay_length;

static void replay_tell(void) {
  if (write(STDERR_FILENO, replay_text, replay_length) < 0) return;
}

static void replay_aborted(int number) {
  replay_tell();
  (void)signal(number, SIG_DFL);
  (void)raise(number);
}

#if T_HAS_ADDRESS_SANITIZER
void __asan_on_error(void);
void __asan_on_error(void) { replay_tell(); }
#endif

// A copy of its own, so that a sanitizer sees the end of it.
static void replay_run(const uint8_t* data, size_t bytes, const char* what, size_t number) {
  uint8_t* const copy = malloc(bytes > 0 ? bytes : 1);
  T_CHECK(copy != NULL);
  if (bytes > 0) memcpy(copy, data, bytes);
  const int length =
      snprintf(replay_text, sizeof replay_text, "%s: %s: %s %zu\n", t_variant(), replay_name, what, number);
  T_CHECK(length > 0 && (size_t)length < sizeof replay_text);
  replay_length = (size_t)length;
  (void)replay_of->run(copy, bytes);
  free(copy);
}

// ---------------------------------------------------------------------------------------------------
// The corpus

static int name_compare(const void* a, const void* b) {
  return strcmp(((const replay_file*)a)->name, ((const replay_file*)b)->name);
}

static void file_load(replay_file* file, const char* folder) {
  char path[1400];
  (void)snprintf(path, sizeof path, "%s/%s", folder, file->name);
  FILE* const stream = fopen(path, "rb");
  if (stream == NULL) T_FAIL("%s: %s", path, strerror(errno));
  file->data = malloc(REPLAY_LARGEST);
  T_CHECK(file->data != NULL);
  file->bytes = fread(file->data, 1, REPLAY_LARGEST, stream);
  (void)fclose(stream);
}

static void target_choose(void) {
  size_t i = 0;
  while (strcmp(target_names[i], t_variant()) != 0) i++;
  replay_of = &targets[i];
  if (!replay_of->has_threads) t_forbid_threads();
}

// Chooses the target of the variant. All files of its corpus, in the order of their names.
static replay_corpus* corpus_load(void) {
  static replay_corpus corpus;
  char folder[1024];
  const char* const source = getenv("TIDEMARK_SOURCE");
  (void)snprintf(folder, sizeof folder, "%s/fuzz/corpus/%s", source != NULL ? source : ".", t_variant());
  target_choose();
  DIR* const dir = opendir(folder);
  if (dir == NULL) T_FAIL("there is no folder %s", folder);
  for (const struct dirent* entry = NULL; (entry = readdir(dir)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    T_LT(corpus.count, REPLAY_FILES);
    (void)snprintf(corpus.files[corpus.count++].name, sizeof corpus.files[0].name, "%s", entry->d_name);
  }
  (void)closedir(dir);
  T_LT(0, corpus.count);
  qsort(corpus.files, corpus.count, sizeof corpus.files[0], name_compare);
  for (size_t i = 0; i < corpus.count; i++) file_load(&corpus.files[i], folder);
  (void)signal(SIGABRT, replay_aborted);
  return &corpus;
}

static void corpus_free(replay_corpus* corpus) {
  for (size_t i = 0; i < corpus->count; i++) free(corpus->files[i].data);
}

// ---------------------------------------------------------------------------------------------------
// Damage

typedef struct damaged {
  uint8_t data[REPLAY_LARGEST];
  size_t bytes;
} damaged;

// Puts `bytes` bytes in at a place, in the stead of `gone` that were there.
static void damaged_splice(damaged* d, size_t at, size_t gone, const uint8_t* data, size_t bytes) {
  if (d->bytes - gone + bytes > REPLAY_LARGEST) return;
  memmove(d->data + at + bytes, d->data + at + gone, d->bytes - at - gone);
  if (bytes > 0) memmove(d->data + at, data, bytes);
  d->bytes += bytes - gone;
}

static void damaged_by_number(damaged* d, size_t at, t_rng* rng) {
  static const uint64_t numbers[] = { 0,      1,         0x7f,       0x80,      0xff,      0x7fff,
                                      0xffff, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX };
  const uint64_t number = numbers[t_rng_below(rng, sizeof numbers / sizeof *numbers)];
  const size_t width = (size_t)1 << t_rng_below(rng, 4);
  if (d->bytes - at < width) return;
  for (size_t i = 0; i < width; i++) d->data[at + i] = (uint8_t)(number >> 8 * i);
}

static void damaged_once(damaged* d, const replay_corpus* corpus, t_rng* rng) {
  const size_t at = t_rng_below(rng, d->bytes + 1);
  const size_t rest = d->bytes - at;
  const size_t length = t_rng_below(rng, (rest < 40 ? rest : 40) + 1);
  const replay_file* const other = &corpus->files[t_rng_below(rng, corpus->count)];
  const uint8_t byte = (uint8_t)t_rng_next(rng);
  const size_t from = other->bytes > 0 ? t_rng_below(rng, other->bytes) : 0;
  const size_t most = other->bytes - from < 40 ? other->bytes - from : 40;
  switch (t_rng_below(rng, 6)) {
    case 0: damaged_splice(d, at, rest > 0, &byte, 1); break;
    case 1: damaged_splice(d, at, 0, &byte, 1); break;
    case 2: damaged_splice(d, at, length, NULL, 0); break;
    case 3: damaged_splice(d, at, length, other->data + from, most); break;
    case 4: damaged_splice(d, at, 0, other->data + from, most); break;
    default: damaged_by_number(d, at, rng); break;
  }
}

// ---------------------------------------------------------------------------------------------------
// The tests

T_TEST_OVER(test_corpus__as_it_is, target_names) {
  replay_corpus* const corpus = corpus_load();
  for (size_t i = 0; i < corpus->count; i++) {
    replay_name = corpus->files[i].name;
    replay_run(corpus->files[i].data, corpus->files[i].bytes, "whole", 0);
  }
  corpus_free(corpus);
}

T_TEST_OVER(test_corpus__cut_off_anywhere, target_names) {
  replay_corpus* const corpus = corpus_load();
  const size_t step = T_HAS_THREAD_SANITIZER ? 4 : 1;  // as with t_scaled_alone(); others with another seed
  for (size_t i = 0; i < corpus->count; i++) {
    const replay_file* const file = &corpus->files[i];
    replay_name = file->name;
    for (size_t bytes = t_seed() % step; bytes < file->bytes; bytes += step) {
      replay_run(file->data, bytes, "cut to bytes", bytes);
    }
  }
  corpus_free(corpus);
}

T_TEST_OVER(test_corpus__with_random_damage, target_names) {
  static damaged d;
  replay_corpus* const corpus = corpus_load();
  const size_t count = t_scaled_alone(T_HAS_SANITIZER ? 4000 : 30000);
  for (size_t n = 0; n < count; n++) {
    t_rng rng = t_rng_new(n);
    const replay_file* const file = &corpus->files[n % corpus->count];
    replay_name = file->name;
    d.bytes = file->bytes;
    memcpy(d.data, file->data, file->bytes);
    for (uint64_t k = 1 + t_rng_below(&rng, 8); k > 0; k--) damaged_once(&d, corpus, &rng);
    replay_run(d.data, d.bytes, "damage number", n);
  }
  corpus_free(corpus);
}

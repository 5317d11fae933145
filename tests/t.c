// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The harness: main() of every test program, and the bodies of t.h.
#include "t.h"

static struct {
  t_test* first;
  t_test** last;
  t_role* roles;
  const char* program;
  const char* name;  // of the test that runs in this process
  const char* variant;
  bool is_thorough;
  bool only_host;
  bool forbids_threads;
  uint64_t seed;
  double given_scale;
  double scale;    // with the factor of the tier
  double limit_s;  // of processor time
  uint64_t shrink_deadline_ns;
  int skip_pipe[2];
  int passed;
  int failed;
  int skipped;
} t_state;

// Files of one program must not use a name twice.
__attribute__((noreturn)) static void t_refuse_name(const char* what, const char* name) {
  (void)fprintf(stderr, "two %ss are called %s\n", what, name);
  exit(2);
}

void t_register(t_test* test) {
  for (const t_test* other = t_state.first; other != NULL; other = other->next) {
    if (strcmp(other->name, test->name) == 0) t_refuse_name("test", test->name);
  }
  if (t_state.last == NULL) t_state.last = &t_state.first;
  *t_state.last = test;
  t_state.last = &test->next;
}

void t_register_role(t_role* role) {
  for (const t_role* other = t_state.roles; other != NULL; other = other->next) {
    if (strcmp(other->name, role->name) != 0) continue;
    if (strcmp(other->file, role->file) == 0) return;
    t_refuse_name("role", role->name);
  }
  role->next = t_state.roles;
  t_state.roles = role;
}

const char* t_variant(void) { return t_state.variant == NULL ? "" : t_state.variant; }

const char* t_name(void) { return t_state.name; }

// ---------------------------------------------------------------------------------------------------
// Asserts

void t_fail(const char* file, int line, const char* format, ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  (void)dprintf(STDERR_FILENO, "%s:%d: %s\n", file, line, text);
  _exit(1);
}

void t_skip(const char* format, ...) {
  char text[300];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const ssize_t written = write(t_state.skip_pipe[1], text, strlen(text));
  _exit(written < 0 ? 1 : 77);
}

// On aarch64 the leak checker takes seconds at the end of every process, because it walks a table of the
// whole address space. It is off there unless ASAN_OPTIONS=detect_leaks=1 is set.
#if T_HAS_ADDRESS_SANITIZER && defined(__aarch64__)
const char* __asan_default_options(void);
const char* __asan_default_options(void) { return "detect_leaks=0"; }
#endif

// ---------------------------------------------------------------------------------------------------
// Tier, seed, scale, time, and resources of the process

bool t_is_thorough(void) { return t_state.is_thorough; }

void t_only_thorough(void) {
  if (!t_state.is_thorough) t_skip("only in the thorough tier");
}

void t_one_variant(const char* const* variants) {
  size_t count = 0;
  while (variants[count] != NULL) ++count;
  if (strcmp(variants[t_state.seed % count], t_variant()) != 0) t_only_thorough();
}

size_t t_sample_step(void) { return t_state.is_thorough ? 1 : 7; }

size_t t_sample_first(void) { return t_state.seed % t_sample_step(); }

uint64_t t_seed(void) { return t_state.seed; }

double t_scale(void) { return t_state.scale; }

size_t t_scaled_least(size_t count, size_t least) {
  const size_t scaled = (size_t)((double)count * t_state.scale);
  const size_t floor = least < count ? least : count;
  return scaled < floor ? floor : scaled;
}

size_t t_scaled(size_t count) { return t_scaled_least(count, 1); }

size_t t_scaled_alone(size_t count) { return t_scaled(T_HAS_THREAD_SANITIZER ? (count + 3) / 4 : count); }

uint64_t t_processor_ns(void) {
  struct timespec used;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static size_t t_count_entries(const char* folder) {
  DIR* const dir = opendir(folder);
  if (dir == NULL) return 0;
  size_t count = 0;
  while (readdir(dir) != NULL) ++count;
  (void)closedir(dir);
  return count - 2;  // "." and ".."
}

size_t t_count_descriptors(void) {
  return t_count_entries("/proc/self/fd") - 1;  // the folder itself
}

size_t t_count_threads(void) { return t_count_entries("/proc/self/task"); }

size_t t_count_mappings(void) {
  const int fd = open("/proc/self/maps", O_RDONLY);
  char text[4096];
  size_t count = 0;
  for (ssize_t n = 0; (n = read(fd, text, sizeof text)) > 0;) {
    for (ssize_t i = 0; i < n; ++i) count += text[i] == '\n';
  }
  (void)close(fd);
  return count;
}

unsigned t_hang_factor(void) { return t_state.is_thorough ? 30 : 5; }

void t_forbid_threads(void) { t_state.forbids_threads = true; }

// Every program is linked with --wrap=pthread_create.
int __real_pthread_create(pthread_t* out, const pthread_attr_t* attributes, void* (*function)(void*),
                          void* user);
int __wrap_pthread_create(pthread_t* out, const pthread_attr_t* attributes, void* (*function)(void*),
                          void* user);
int __wrap_pthread_create(pthread_t* out, const pthread_attr_t* attributes, void* (*function)(void*),
                          void* user) {
  if (t_state.forbids_threads) T_FAIL("this starts a thread: write #define T_THREADS at the top of the file");
  return __real_pthread_create(out, attributes, function, user);
}

// ---------------------------------------------------------------------------------------------------
// Shrinking of failing inputs

// The command that runs the test again.
static void t_print_repeat(FILE* stream, const char* name) {
  (void)fprintf(stream, "TIDE_TEST_SEED=%" PRIu64, t_state.seed);
  if (t_state.is_thorough) (void)fprintf(stream, " TIDE_TEST_TIER=thorough");
  if (t_state.given_scale != 1) (void)fprintf(stream, " TIDE_TEST_SCALE=%g", t_state.given_scale);
  (void)fprintf(stream, " %s '%s'", t_state.program, name);
}

void t_shrink_begin(const char* format, ...) {
  struct rlimit limit;
  va_list list;
  va_start(list, format);
  (void)vfprintf(stderr, format, list);
  va_end(list);
  (void)fprintf(stderr, "\nto repeat: ");
  t_print_repeat(stderr, t_state.name);
  (void)fprintf(stderr, "\nmaking it smaller, for up to %u s\n", T_SHRINK_SECONDS);
  t_state.shrink_deadline_ns = t_now_ns() + T_SHRINK_SECONDS * (uint64_t)1000000000;
  if (getrlimit(RLIMIT_CPU, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_CPU, &limit);
}

bool t_shrink_has_time(void) { return t_now_ns() < t_state.shrink_deadline_ns; }

// ---------------------------------------------------------------------------------------------------
// The runner

const char* t_signal_name(int number) {
  switch (number) {
    case SIGABRT: return "SIGABRT";
    case SIGALRM: return "SIGALRM";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGKILL: return "SIGKILL";
    case SIGPIPE: return "SIGPIPE";
    case SIGSEGV: return "SIGSEGV";
    case SIGTERM: return "SIGTERM";
    case SIGTRAP: return "SIGTRAP";
    case SIGXCPU: return "SIGXCPU";
    default: return strsignal(number);
  }
}

double t_env_number(const char* name, double otherwise) {
  const char* const text = getenv(name);
  if (text == NULL || *text == '\0') return otherwise;
  char* end = NULL;
  const double number = strtod(text, &end);
  if (*end == '\0' && number > 0 && number < 1e12) return number;
  (void)fprintf(stderr, "%s=%s is not a positive number\n", name, text);
  exit(2);
}

static bool t_env_is_thorough(void) {
  const char* const text = getenv("TIDE_TEST_TIER");
  if (text == NULL || *text == '\0' || strcmp(text, "quick") == 0) return false;
  if (strcmp(text, "thorough") == 0) return true;
  (void)fprintf(stderr, "TIDE_TEST_TIER=%s is neither quick nor thorough\n", text);
  exit(2);
}

static uint64_t t_env_seed(void) {
  const char* const text = getenv("TIDE_TEST_SEED");
  if (text == NULL || *text == '\0') return 1;
  char* end = NULL;
  const uint64_t seed = strtoull(text, &end, 0);
  if (*end == '\0') return seed;
  (void)fprintf(stderr, "TIDE_TEST_SEED=%s is not a number\n", text);
  exit(2);
}

void t_limit_processor_time(double seconds) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_CPU, &limit) != 0) return;
  const rlim_t wanted = (rlim_t)(seconds + 0.999);
  if (limit.rlim_max == RLIM_INFINITY || wanted < limit.rlim_max) limit.rlim_cur = wanted;
  (void)setrlimit(RLIMIT_CPU, &limit);
}

__attribute__((noreturn)) static void t_child(const t_test* test, const char* variant, const char* name,
                                              const sigset_t* mask) {
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)sigprocmask(SIG_SETMASK, mask, NULL);
  t_limit_processor_time(t_state.limit_s);
  t_state.forbids_threads = !test->may_start_threads;
  t_state.variant = variant;
  t_state.name = name;
  test->run();
  exit(0);
}

// Waits for a child. Returns false if it hung and was killed. SIGCHLD is blocked.
static bool t_wait(pid_t child, int* out_status) {
  const uint64_t deadline = t_now_ns() + (uint64_t)(t_hang_factor() * t_state.limit_s * 1e9);
  sigset_t set;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, SIGCHLD);
  while (waitpid(child, out_status, WNOHANG) == 0) {
    const uint64_t now = t_now_ns();
    if (now >= deadline) {
      (void)kill(child, SIGKILL);
      (void)waitpid(child, out_status, 0);
      return false;
    }
    const struct timespec rest = { (time_t)((deadline - now) / 1000000000u),
                                   (long)((deadline - now) % 1000000000u) };
    (void)sigtimedwait(&set, NULL, &rest);
  }
  return true;
}

// ./dev searches for "not done after" and runs such a program once more, alone.
static void t_report_failure(const char* name, bool has_ended, int status) {
  (void)printf("FAIL %s: ", name);
  if (!has_ended) (void)printf("not done after %.0f s", t_hang_factor() * t_state.limit_s);
  else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
    (void)printf("not done after %.0f s of processor time", t_state.limit_s);
  else if (WIFSIGNALED(status)) (void)printf("killed by %s", t_signal_name(WTERMSIG(status)));
  else (void)printf("exit status %d", WEXITSTATUS(status));
  (void)printf("; to repeat: ");
  t_print_repeat(stdout, name);
  (void)printf("\n");
}

static void t_report(const char* name, bool has_ended, int status, uint64_t used_ns) {
  char reason[300] = "";
  const ssize_t got = read(t_state.skip_pipe[0], reason, sizeof reason - 1);
  if (has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    ++t_state.passed;
    (void)printf("ok   %s (%" PRIu64 " ms)\n", name, used_ns / 1000000u);
  } else if (has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 77 && got > 0) {
    ++t_state.skipped;
    (void)printf("skip %s: %s\n", name, reason);
  } else {
    ++t_state.failed;
    t_report_failure(name, has_ended, status);
  }
  (void)fflush(stdout);
}

// The processor time of all children that have ended.
static uint64_t t_children_ns(void) {
  struct rusage used;
  if (getrusage(RUSAGE_CHILDREN, &used) != 0) return 0;
  return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000u +
         (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000u;
}

static void t_run(const t_test* test, const char* variant, const char* name) {
  sigset_t set;
  sigset_t before;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, SIGCHLD);
  (void)sigprocmask(SIG_BLOCK, &set, &before);
  const uint64_t used_ns = t_children_ns();
  (void)fflush(stdout);
  const pid_t child = fork();
  if (child == 0) t_child(test, variant, name, &before);
  int status = 0;
  const bool has_ended = t_wait(child, &status);
  (void)kill(-child, SIGKILL);  // processes that it left behind
  (void)sigprocmask(SIG_SETMASK, &before, NULL);
  t_report(name, has_ended, status, t_children_ns() - used_ns);
}

// ---------------------------------------------------------------------------------------------------
// The command line

typedef struct t_choice {
  bool only_list;
  const char* file;  // NULL: all
  char** parts;      // of names; ends with NULL
  size_t found;
} t_choice;

static bool t_is_in_file(const t_test* test, const char* file) {
  const char* const slash = strrchr(test->file, '/');
  const char* const name = slash == NULL ? test->file : slash + 1;
  return strncmp(name, file, strlen(file)) == 0 && strcmp(name + strlen(file), ".c") == 0;
}

static bool t_is_wanted(const t_choice* choice, const t_test* test, const char* name) {
  if (choice->file != NULL && !t_is_in_file(test, choice->file)) return false;
  if (choice->parts[0] == NULL) return true;
  for (char** part = choice->parts; *part != NULL; ++part) {
    if (strstr(name, *part) != NULL) return true;
  }
  return false;
}

static bool t_is_on(const char* variant, const char* machine) {
  return strncmp(variant, machine, strlen(machine)) == 0;
}

// Is a variant left to the thorough tier?
static bool t_is_left_out(const t_test* test, const char* variant) {
  bool has_host = false;
  if (!t_state.only_host || variant == NULL || !t_is_on(variant, "dry")) return false;
  for (size_t i = 0; test->variants[i] != NULL; ++i)
    has_host = has_host || t_is_on(test->variants[i], "host");
  return has_host;
}

static void t_visit(t_choice* choice, const t_test* test, const char* variant) {
  char name[256];
  const char* const plain = strncmp(test->name, "test_", 5) == 0 ? test->name + 5 : test->name;
  if (variant == NULL) (void)snprintf(name, sizeof name, "%s", plain);
  else (void)snprintf(name, sizeof name, "%s[%s]", plain, variant);
  if (!t_is_wanted(choice, test, name)) return;
  ++choice->found;
  if (choice->only_list) {
    (void)printf("%s\n", name);
  } else if (t_is_left_out(test, variant)) {
    ++t_state.skipped;
    (void)printf("skip %s: only in the thorough tier\n", name);
  } else {
    t_run(test, variant, name);
  }
}

static void t_visit_all(t_choice* choice) {
  for (const t_test* test = t_state.first; test != NULL; test = test->next) {
    if (test->variants == NULL) t_visit(choice, test, NULL);
    for (size_t i = 0; test->variants != NULL && test->variants[i] != NULL; ++i) {
      t_visit(choice, test, test->variants[i]);
    }
  }
}

static int t_run_role(const char* name, const char* argument) {
  for (const t_role* role = t_state.roles; role != NULL; role = role->next) {
    if (strcmp(role->name, name) != 0) continue;
    role->run(argument);
    return 0;
  }
  (void)fprintf(stderr, "no role %s\n", name);
  return 2;
}

static int t_open(void) {
  t_state.is_thorough = t_env_is_thorough();
  t_state.only_host = getenv("TIDE_TEST_HOST") != NULL && !t_state.is_thorough;
  t_state.seed = t_env_seed();
  t_state.given_scale = t_env_number("TIDE_TEST_SCALE", 1);
  t_state.scale = t_state.given_scale * (t_state.is_thorough ? 1.0 : 0.1);
  t_state.limit_s = (T_HAS_SANITIZER ? 180 : 60) * t_env_number("TIDE_TEST_TIMEOUT", 1);
  if (pipe(t_state.skip_pipe) != 0) return -1;
  (void)fcntl(t_state.skip_pipe[0], F_SETFL, O_NONBLOCK);
  (void)fcntl(t_state.skip_pipe[0], F_SETFD, FD_CLOEXEC);
  return fcntl(t_state.skip_pipe[1], F_SETFD, FD_CLOEXEC);
}

// Programs that are started in the background, or by nohup, inherit that these are ignored.
static void t_default_signals(void) {
  (void)signal(SIGINT, SIG_DFL);
  (void)signal(SIGQUIT, SIG_DFL);
  (void)signal(SIGHUP, SIG_DFL);
}

static bool t_choose(t_choice* choice, char** arguments) {
  for (; *arguments != NULL && **arguments == '-'; ++arguments) {
    if (strcmp(*arguments, "--list") == 0) choice->only_list = true;
    else if (strcmp(*arguments, "--file") == 0 && arguments[1] != NULL) choice->file = *++arguments;
    else return false;
  }
  choice->parts = arguments;
  return true;
}

int main(int argc, char** argv) {
  t_choice choice = { 0 };
  t_default_signals();
  if (argc == 4 && strcmp(argv[1], "--role") == 0) return t_run_role(argv[2], argv[3]);
  if (!t_choose(&choice, argv + 1)) {
    (void)fprintf(stderr, "usage: %s [--list] [--file NAME] [part of a name ...]\n", argv[0]);
    return 2;
  }
  t_state.program = argv[0];
  if (t_open() != 0) return 2;
  if (!choice.only_list) {
    (void)printf("seed %" PRIu64 ", scale %g, %s tier\n", t_state.seed, t_state.given_scale,
                 t_state.is_thorough ? "thorough" : "quick");
  }
  t_visit_all(&choice);
  if (choice.found == 0) {
    (void)fprintf(stderr, "%s: there is no such test\n", argv[0]);
    return 2;
  }
  if (choice.only_list) return 0;
  (void)printf("%d passed, %d failed, %d skipped\n", t_state.passed, t_state.failed, t_state.skipped);
  return t_state.failed == 0 ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The web server. Threads of libmicrohttpd answer; the main thread waits for a signal and ends connections
// that took too long, because the library only notices clients that send nothing at all. Every connection has
// one request.
#include "serve.h"

#include "tool.h"

#ifdef TIDEMARK_HAVE_MICROHTTPD

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/list.h"

#ifdef TIDEMARK_HAVE_ZLIB
#include <zlib.h>
#endif

#define TOKEN_BYTES 20  // from the system: 160 bits
#define TOKEN_TEXT (2 * TOKEN_BYTES + 1)
#define THREADS 4u
#define CONNECTIONS 64u           // at once; more wait in the queue of the system
#define HEADER_BYTES (16u << 10)  // of a request
#define IDLE_S 20u                // without a byte
#define CROWD (CONNECTIONS / 2)   // from so many connections on, others may be waiting for one
#define HURRY 5                   // then, patience is divided by it
#define LOOKS 10                  // for slow clients, as long as patience lasts
#define ANSWER_S 600              // from the request to the end of the answer: a page through a slow tunnel
#define LEAST_DEFLATED 1024u      // shorter answers are sent as they are

struct tool_serve {
  int listener;
  uint16_t port;
  double patience_s;  // from the connection to the end of the request
  char token[TOKEN_TEXT];
  char address[96];
  char hosts[2][32];            // that a request may name
  char origins[2][48];          // of our own page, under either name
  const tool_serve_site* site;  // borrowed
  struct MHD_Daemon* daemon;
  struct MHD_Response* page;
  sigset_t signals;      // that end it
  sigset_t old_signals;  // the mask of the caller
  bool has_mask;
  pthread_mutex_t lock;  // guards `guests` and their count
  tide__link guests;
  size_t guest_count;
};

// A connection. It is in the list from its begin to just before its socket is closed.
typedef struct serve_guest {
  tide__link link;
  int socket;
  bool has_asked;
  double since_s;  // it is connected, or has asked; by the monotonic clock
} serve_guest;

struct tool_serve_request {
  struct MHD_Connection* connection;
};

// ---------------------------------------------------------------------------------------------------
// Taking a port

static int token_make(char out[TOKEN_TEXT]) {
  unsigned char bytes[TOKEN_BYTES];
  size_t count = 0;
  while (count < sizeof bytes) {
    const ssize_t got = getrandom(bytes + count, sizeof bytes - count, 0);
    if (got < 0 && errno != EINTR) return tool_fail("the system has no random numbers: %s", strerror(errno));
    if (got > 0) count += (size_t)got;
  }
  for (size_t i = 0; i < sizeof bytes; i++) (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
  return TOOL_DONE;
}

static int port_take(tool_serve* serve, uint16_t port) {
  const int yes = 1;
  struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
  socklen_t length = sizeof at;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  serve->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (serve->listener < 0) return tool_fail("no socket: %s", strerror(errno));
  // Connections of a server that has ended do not keep its port.
  (void)setsockopt(serve->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(serve->listener, (const struct sockaddr*)&at, sizeof at) != 0)
    return tool_fail("port %u of 127.0.0.1: %s", (unsigned)port, strerror(errno));
  if (getsockname(serve->listener, (struct sockaddr*)&at, &length) != 0)
    return tool_fail("no port: %s", strerror(errno));
  serve->port = ntohs(at.sin_port);
  return TOOL_DONE;
}

static void names_make(tool_serve* serve) {
  static const char* const names[] = { "127.0.0.1", "localhost" };
  for (size_t i = 0; i < 2; i++) {
    (void)snprintf(serve->hosts[i], sizeof serve->hosts[i], "%s:%u", names[i], serve->port);
    (void)snprintf(serve->origins[i], sizeof serve->origins[i], "http://%s", serve->hosts[i]);
  }
  (void)snprintf(serve->address, sizeof serve->address, "%s/%s/", serve->origins[0], serve->token);
}

int tool_serve_open(uint16_t port, double patience_s, tool_serve** out) {
  tool_serve* const serve = tool_alloc(1, sizeof *serve);
  serve->patience_s = patience_s;
  tide__list_init(&serve->guests);
  (void)pthread_mutex_init(&serve->lock, NULL);
  int status = port_take(serve, port);
  if (status == TOOL_DONE) status = token_make(serve->token);
  if (status == TOOL_DONE) {
    names_make(serve);
    *out = serve;
  } else {
    tool_serve_close(serve);
  }
  return status;
}

const char* tool_serve_address(const tool_serve* serve) { return serve->address; }

// ---------------------------------------------------------------------------------------------------
// Who may ask

// The time depends on the length alone.
static bool token_is(const char* given, const char* token) {
  unsigned char difference = 0;
  for (size_t i = 0; i < TOKEN_TEXT - 1; i++)
    difference = (unsigned char)(difference | ((unsigned char)given[i] ^ (unsigned char)token[i]));
  return difference == 0;
}

// The name behind the token, "" for the page itself; NULL if the path has another token or none.
static const char* question_of(const tool_serve* serve, const char* path) {
  if (strlen(path) < TOKEN_TEXT + 1 || path[0] != '/' || path[TOKEN_TEXT] != '/') return NULL;
  return token_is(path + 1, serve->token) ? path + TOKEN_TEXT + 1 : NULL;
}

// The values of a header.
typedef struct header_values {
  const char* name;
  const char* value;  // the last one
  size_t count;
} header_values;

static enum MHD_Result header_count(void* user, enum MHD_ValueKind kind, const char* key, const char* value) {
  header_values* const values = user;
  (void)kind;
  if (strcasecmp(key, values->name) != 0) return MHD_YES;
  values->value = value != NULL ? value : "";
  values->count++;
  return MHD_YES;
}

static header_values header_of(struct MHD_Connection* connection, const char* name) {
  header_values values = { .name = name };
  (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, header_count, &values);
  return values;
}

static bool text_is_one(const char* text, const char* first, const char* second) {
  return strcmp(text, first) == 0 || strcmp(text, second) == 0;
}

// A page of somebody else can make a browser send requests here. It then names its own origin, or, if a name
// server gave it our address, its own host.
static bool request_is_ours(const tool_serve* serve, struct MHD_Connection* connection) {
  const header_values host = header_of(connection, MHD_HTTP_HEADER_HOST);
  const header_values origin = header_of(connection, MHD_HTTP_HEADER_ORIGIN);
  const header_values site = header_of(connection, "Sec-Fetch-Site");
  if (host.count != 1 || !text_is_one(host.value, serve->hosts[0], serve->hosts[1])) return false;
  if (origin.count > 1 || site.count > 1) return false;
  if (origin.count == 1 && !text_is_one(origin.value, serve->origins[0], serve->origins[1])) return false;
  return site.count == 0 || text_is_one(site.value, "same-origin", "none");
}

// The bytes that the shown parts of a request take.
static enum MHD_Result field_measure(void* user, enum MHD_ValueKind kind, const char* key,
                                     const char* value) {
  size_t* const bytes = user;
  const size_t length = strlen(key);
  // The name, its colon and blanks lie before the value; the end of the line behind it.
  const size_t before = value != NULL ? (size_t)((uintptr_t)value - (uintptr_t)key) : length + 1;
  (void)kind;
  *bytes += before + (value != NULL ? strlen(value) : 0) + 2;
  return MHD_YES;
}

// libmicrohttpd before 1.0 ends a text at a zero byte and drops the rest of it. So a request is whole only if
// what it shows takes all the bytes that came. Later versions refuse zero bytes themselves.
static bool request_is_whole(struct MHD_Connection* connection, size_t uri_bytes, const char* method,
                             const char* version) {
  const union MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  if (MHD_get_version()[0] != '0' || info == NULL) return true;
  const size_t header_bytes = info->header_size;
  size_t bytes = strlen(method) + 1 + uri_bytes + 1 + strlen(version) + 2 + 2;
  (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, field_measure, &bytes);
  return bytes == header_bytes;
}

// ---------------------------------------------------------------------------------------------------
// Answers

static void header_add(struct MHD_Response* response, const char* name, const char* value) {
  if (MHD_add_response_header(response, name, value) != MHD_YES) tool_out_of_memory();
}

// The response takes the data if it is `given`.
static struct MHD_Response* response_make(const void* data, size_t bytes, bool is_given, const char* type) {
  union {
    const void* in;
    void* out;
  } plain = { .in = data };
  struct MHD_Response* const response = MHD_create_response_from_buffer(
      bytes, plain.out, is_given ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
  if (response == NULL) tool_out_of_memory();
  header_add(response, "Content-Type", type);
  header_add(response, "X-Content-Type-Options", "nosniff");
  header_add(response, "Referrer-Policy", "no-referrer");
  header_add(response, "Cache-Control", "no-store");
  header_add(response, "Cross-Origin-Resource-Policy", "same-origin");
  header_add(response, "Cross-Origin-Opener-Policy", "same-origin");
  header_add(response, "Content-Security-Policy", "frame-ancestors 'none'");
  header_add(response, "Connection", "close");
  return response;
}

static enum MHD_Result response_send(struct MHD_Connection* connection, unsigned status,
                                     struct MHD_Response* response) {
  const enum MHD_Result result = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return result;
}

static enum MHD_Result refuse(struct MHD_Connection* connection, unsigned status) {
  struct MHD_Response* const response = response_make("", 0, false, "text/plain");
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED) header_add(response, "Allow", "GET, HEAD");
  return response_send(connection, status, response);
}

#ifdef TIDEMARK_HAVE_ZLIB
// Compresses an answer for clients that take it so. Returns whether it did.
static bool answer_deflate(struct MHD_Connection* connection, unsigned char** data, size_t* bytes) {
  const header_values wish = header_of(connection, MHD_HTTP_HEADER_ACCEPT_ENCODING);
  if (*bytes < LEAST_DEFLATED || wish.count != 1 || strstr(wish.value, "deflate") == NULL) return false;
  uLongf count = compressBound(*bytes);
  unsigned char* const packed = tool_alloc(count, 1);
  if (compress2(packed, &count, *data, *bytes, Z_BEST_SPEED) != Z_OK) tool_out_of_memory();
  free(*data);
  *data = packed;
  *bytes = count;
  return true;
}
#else
static bool answer_deflate(struct MHD_Connection* connection, unsigned char** data, size_t* bytes) {
  (void)connection;
  (void)data;
  (void)bytes;
  return false;
}
#endif

static enum MHD_Result answer(const tool_serve* serve, struct MHD_Connection* connection,
                              const char* question) {
  const tool_serve_request request = { .connection = connection };
  unsigned char* data = NULL;
  size_t bytes = 0;
  if (*question == '\0') return MHD_queue_response(connection, MHD_HTTP_OK, serve->page);
  const tool_serve_verdict verdict =
      serve->site->answer(serve->site->user, question, &request, &data, &bytes);
  if (verdict != TOOL_SERVE_DONE)
    return refuse(connection, verdict == TOOL_SERVE_WRONG ? MHD_HTTP_BAD_REQUEST : MHD_HTTP_NOT_FOUND);
  const bool is_deflated = answer_deflate(connection, &data, &bytes);
  struct MHD_Response* const response = response_make(data, bytes, true, "application/octet-stream");
  if (is_deflated) header_add(response, "Content-Encoding", "deflate");
  return response_send(connection, MHD_HTTP_OK, response);
}

bool tool_serve_number(const tool_serve_request* request, const char* name, uint64_t most, uint64_t* out) {
  const char* const text = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
  return text != NULL && tool_number_parse(text, most, out);
}

// ---------------------------------------------------------------------------------------------------
// Connections

static double now_s(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void guest_begin(tool_serve* serve, struct MHD_Connection* connection, void** out) {
  const union MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  serve_guest* const guest = tool_alloc(1, sizeof *guest);
  guest->socket = info != NULL ? info->connect_fd : -1;
  guest->since_s = now_s();
  *out = guest;
  (void)pthread_mutex_lock(&serve->lock);
  tide__list_append(&serve->guests, &guest->link);
  serve->guest_count++;
  (void)pthread_mutex_unlock(&serve->lock);
}

static void on_connection(void* user, struct MHD_Connection* connection, void** context,
                          enum MHD_ConnectionNotificationCode code) {
  tool_serve* const serve = user;
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    guest_begin(serve, connection, context);
    return;
  }
  serve_guest* const guest = *context;
  *context = NULL;
  if (guest == NULL) return;
  (void)pthread_mutex_lock(&serve->lock);
  tide__list_unlink(&guest->link);
  serve->guest_count--;
  (void)pthread_mutex_unlock(&serve->lock);
  free(guest);
}

// The request is complete: the answer has its own time.
static void guest_asks(tool_serve* serve, struct MHD_Connection* connection) {
  const union MHD_ConnectionInfo* const info =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  serve_guest* const guest = info != NULL ? info->socket_context : NULL;
  if (guest == NULL) return;
  (void)pthread_mutex_lock(&serve->lock);
  guest->has_asked = true;
  guest->since_s = now_s();
  (void)pthread_mutex_unlock(&serve->lock);
}

// Ends those that took too long. Their sockets are still open, because they are in the list.
static void guests_end(tool_serve* serve) {
  (void)pthread_mutex_lock(&serve->lock);
  const double now = now_s();
  const double patience_s = serve->guest_count < CROWD ? serve->patience_s : serve->patience_s / HURRY;
  TIDE_LIST_EACH(link, &serve->guests) {
    const serve_guest* const guest = TIDE_OWNER(link, serve_guest, link);
    const double allowed_s = guest->has_asked ? ANSWER_S : patience_s;
    if (now - guest->since_s >= allowed_s && guest->socket >= 0) (void)shutdown(guest->socket, SHUT_RDWR);
  }
  (void)pthread_mutex_unlock(&serve->lock);
}

// Nothing that is asked for has letters to unescape.
static size_t text_keep(void* user, struct MHD_Connection* connection, char* text) {
  (void)user;
  (void)connection;
  return strlen(text);
}

// Called with the whole target of a request, before it is cut up. The result is the request's context: the
// length of the target.
static void* on_target(void* user, const char* target, struct MHD_Connection* connection) {
  (void)user;
  (void)connection;
  return (void*)(uintptr_t)strlen(target);
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the library gives them
static enum MHD_Result on_request(void* user, struct MHD_Connection* connection, const char* path,
                                  const char* method, const char* version, const char* upload,
                                  size_t* upload_bytes, void** context) {
  tool_serve* const serve = user;
  (void)upload;
  (void)upload_bytes;
  guest_asks(serve, connection);
  if (!request_is_whole(connection, (size_t)(uintptr_t)*context, method, version))
    return refuse(connection, MHD_HTTP_BAD_REQUEST);
  if (!text_is_one(method, MHD_HTTP_METHOD_GET, MHD_HTTP_METHOD_HEAD))
    return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED);
  if (!request_is_ours(serve, connection)) return refuse(connection, MHD_HTTP_FORBIDDEN);
  const char* const question = question_of(serve, path);
  return question != NULL ? answer(serve, connection, question) : refuse(connection, MHD_HTTP_NOT_FOUND);
}

// ---------------------------------------------------------------------------------------------------
// From begin to end

// Other threads inherit the mask, so only tool_serve_wait() sees these signals.
static void signals_hold(tool_serve* serve) {
  struct sigaction ignore = { .sa_handler = SIG_IGN };
  (void)sigemptyset(&serve->signals);
  (void)sigaddset(&serve->signals, SIGINT);
  (void)sigaddset(&serve->signals, SIGTERM);
  (void)pthread_sigmask(SIG_BLOCK, &serve->signals, &serve->old_signals);
  serve->has_mask = true;
  (void)sigaction(SIGPIPE, &ignore, NULL);  // a client that left is no reason to end
}

int tool_serve_start(tool_serve* serve, const tool_serve_site* site) {
  serve->site = site;
  serve->page = response_make(site->page, site->page_bytes, false, "text/html; charset=utf-8");
  signals_hold(serve);
  if (listen(serve->listener, SOMAXCONN) != 0) return tool_fail("%s: %s", serve->hosts[0], strerror(errno));
  serve->daemon = MHD_start_daemon(
      MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request, serve,
      MHD_OPTION_LISTEN_SOCKET, serve->listener, MHD_OPTION_THREAD_POOL_SIZE, THREADS,
      MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
      MHD_OPTION_UNESCAPE_CALLBACK, text_keep, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
      MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
      MHD_OPTION_NOTIFY_CONNECTION, on_connection, serve, MHD_OPTION_END);
  if (serve->daemon == NULL) return tool_fail("%s: the server does not start", serve->hosts[0]);
  serve->listener = -1;  // the server closes it
  return TOOL_DONE;
}

void tool_serve_wait(tool_serve* serve) {
  const double rest_s = serve->patience_s / LOOKS;
  const struct timespec rest = { (time_t)rest_s, (long)(fmod(rest_s, 1) * 1e9) };
  while (sigtimedwait(&serve->signals, NULL, &rest) < 0) guests_end(serve);
}

void tool_serve_close(tool_serve* serve) {
  if (serve == NULL) return;
  if (serve->daemon != NULL) MHD_stop_daemon(serve->daemon);
  if (serve->page != NULL) MHD_destroy_response(serve->page);
  if (serve->listener >= 0) (void)close(serve->listener);
  if (serve->has_mask) (void)pthread_sigmask(SIG_SETMASK, &serve->old_signals, NULL);
  (void)pthread_mutex_destroy(&serve->lock);
  free(serve);
}

#else

int tool_serve_open(uint16_t port, double patience_s, tool_serve** out) {
  (void)port;
  (void)patience_s;
  (void)out;
  return tool_fail("--serve needs libmicrohttpd, without which this program was built");
}

const char* tool_serve_address(const tool_serve* serve) {
  (void)serve;
  return "";
}

int tool_serve_start(tool_serve* serve, const tool_serve_site* site) {
  (void)serve;
  (void)site;
  return TOOL_USAGE;
}

void tool_serve_wait(tool_serve* serve) { (void)serve; }

void tool_serve_close(tool_serve* serve) { (void)serve; }

bool tool_serve_number(const tool_serve_request* request, const char* name, uint64_t most, uint64_t* out) {
  (void)request;
  (void)name;
  (void)most;
  (void)out;
  return false;
}

#endif

// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Compares the help of every verb with the table of its options.
#include "t.h"
#include "tool.h"

static const char* const verb_names[] = { "info",   "report", "view",   "replay",  "whatif",   "diff",
                                          "survey", "plan",   "verify", "convert", "machines", NULL };

static const tool_verb* verb_of(const char* name) {
  static const tool_verb* const verbs[] = { &tool_info,   &tool_report,  &tool_view,    &tool_replay,
                                            &tool_whatif, &tool_diff,    &tool_survey,  &tool_plan,
                                            &tool_verify, &tool_convert, &tool_machines };
  for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
    if (strcmp(verbs[i]->name, name) == 0) return verbs[i];
  }
  T_FAIL("there is no verb %s", name);
  return NULL;
}

// The help, with every run of blanks and newlines as one blank.
static const char* help_of(const tool_verb* verb) {
  static char text[16384];
  FILE* const file = tmpfile();
  const int kept = dup(STDOUT_FILENO);
  char name[32];
  char flag[] = "--help";
  char* argv[] = { name, flag, NULL };
  (void)snprintf(name, sizeof name, "%s", verb->name);
  T_CHECK(file != NULL && kept >= 0 && fflush(stdout) == 0);
  T_EQ(dup2(fileno(file), STDOUT_FILENO), STDOUT_FILENO);
  const int status = tool_verb_run(verb, 2, argv);
  (void)fflush(stdout);
  T_EQ(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
  (void)close(kept);
  rewind(file);
  size_t length = 0;
  for (int letter; (letter = fgetc(file)) != EOF && length + 1 < sizeof text;) {
    const bool is_blank = letter == ' ' || letter == '\n';
    if (!is_blank || (length > 0 && text[length - 1] != ' '))
      text[length++] = (char)(is_blank ? ' ' : letter);
  }
  text[length] = '\0';
  (void)fclose(file);
  T_EQ(status, TOOL_DONE);
  return text;
}

T_TEST_OVER(test_help__has_every_option_of_the_verb_twice, verb_names) {
  const tool_verb* const verb = verb_of(t_variant());
  const char* const help = help_of(verb);
  const char* const list = strstr(help, " options: ");
  size_t count = 0;

  T_CHECK(list != NULL);
  for (const tool_option* o = verb->options; o != NULL && o->name != NULL; o++, count++) {
    char words[2][128];
    const char* const value = o->value != NULL ? o->value : "";
    (void)snprintf(words[0], sizeof words[0], "[--%s%s%s]", o->name, *value != '\0' ? " " : "", value);
    (void)snprintf(words[1], sizeof words[1], "%c%c%s--%s%s%s ", o->letter != 0 ? '-' : ' ',
                   o->letter != 0 ? o->letter : ' ', o->letter != 0 ? ", " : "", o->name,
                   *value != '\0' ? " " : "", value);
    const char* const usage = strstr(help, words[0]);
    if (o->text == NULL) {  // an option for tests
      T_CHECK(usage == NULL);
      continue;
    }
    T_CHECK(usage != NULL && usage < list);
    T_STR_HAS(list, o->letter != 0 ? words[1] : words[1] + 1);
    T_STR_HAS(list, o->text);
  }
  T_LE(count, TOOL_OPTIONS);  // the parser takes no more
}

T_TEST_OVER(test_help__no_letter_means_two_options, verb_names) {
  const tool_verb* const verb = verb_of(t_variant());

  for (const tool_option* o = verb->options; o != NULL && o->name != NULL; o++) {
    if (o->letter == 0) continue;
    for (const tool_option* other = o + 1; other->name != NULL; other++) T_NE(o->letter, other->letter);
    for (const tool_option* other = tool_shared_options; other->name != NULL; other++)
      T_NE(o->letter, other->letter);
  }
}
